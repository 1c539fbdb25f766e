package access

import (
	"net"
	"net/netip"

	"github.com/mongostream/streamer/fault"
)

// CheckListen says whether a server may listen on the address: without TLS only on a loopback address, unless insecure says that plaintext
// is wanted. A host name other than localhost counts as reachable from elsewhere, as does no host. It resolves nothing: call it
// once more with the address that was bound.
func CheckListen(address string, tls, insecure bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fault.Newf(fault.ConfigBadValue, "address to listen on: %w", err)
	}
	if tls || insecure || host == "localhost" || isLoopback(address) {
		return nil
	}
	return fault.Newf(fault.AccessPlaintext, "%s can be reached from other machines and would speak plaintext", address)
}

// isLoopback reports whether an address, host:port, is of this machine. Names are not looked up.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
