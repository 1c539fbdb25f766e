package http

import (
	"net/netip"
	"testing"
)

// A name may resolve to an internal address: the one that is dialled is judged.
func TestInternalAddressesAreRefused(t *testing.T) {
	allow := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}
	for address, want := range map[string]bool{
		"93.184.216.34:443": true, "[2606:2800:220:1::1]:443": true, "10.1.2.3:80": true, "[fd00:1::5]:80": true, "[::ffff:10.1.2.3]:80": true,
		"10.2.0.1:80": false, "127.0.0.1:80": false, "[::1]:80": false, "169.254.169.254:80": false, "192.168.0.1:80": false, "172.16.5.5:80": false,
		"100.64.0.1:80": false, "0.0.0.0:80": false, "224.0.0.1:80": false, "[fe80::1%eth0]:80": false, "[fd12::1]:80": false, "[::ffff:127.0.0.1]:80": false,
		"[::ffff:169.254.169.254]:80": false, "[64:ff9b::7f00:1]:80": false, "[2002:7f00:1::]:80": false, "255.255.255.255:80": false,
	} {
		if err := permit(address, allow); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}
