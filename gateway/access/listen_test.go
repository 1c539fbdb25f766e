package access_test

import (
	"testing"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

func TestPlaintextStaysOnThisMachine(t *testing.T) {
	tests := []struct {
		address       string
		tls, insecure bool
		want          fault.Code
	}{
		{"127.0.0.1:9090", false, false, ""},
		{"127.8.8.8:9090", false, false, ""},
		{"localhost:9090", false, false, ""},
		{"[::1]:9090", false, false, ""},
		{"[::ffff:127.0.0.1]:9090", false, false, ""},
		{":9090", false, false, fault.AccessPlaintext},
		{"0.0.0.0:9090", false, false, fault.AccessPlaintext},
		{"[::]:9090", false, false, fault.AccessPlaintext},
		{"10.0.0.1:9090", false, false, fault.AccessPlaintext},
		{"[::ffff:10.0.0.1]:9090", false, false, fault.AccessPlaintext},
		{"node-1:9090", false, false, fault.AccessPlaintext},
		{"localhost.example.com:9090", false, false, fault.AccessPlaintext},
		{"127.0.0.1.example.com:9090", false, false, fault.AccessPlaintext},
		{"0.0.0.0:9090", true, false, ""},
		{"0.0.0.0:9090", false, true, ""},
		{"9090", false, true, fault.ConfigBadValue},
		{"", true, false, fault.ConfigBadValue},
	}
	for _, tt := range tests {
		if err := access.CheckListen(tt.address, tt.tls, tt.insecure); fault.Of(err) != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%q, tls %v, insecure %v: %v", tt.address, tt.tls, tt.insecure, err)
		}
	}
}

func TestNetworksCountAsOneAddress(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8:1:2:3:4:5:6]:5": "2001:db8:1:2::", "[fe80::1%eth0]:5": "fe80::",
		"[::1]:5": "::1", "pipe": "invalid IP",
	} {
		if got := access.NetworkOf(address).String(); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}
