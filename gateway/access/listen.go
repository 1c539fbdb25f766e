package access

import (
	"net"
	"net/netip"

	"github.com/mongostream/streamer/fault"
)

// CheckListen checks the address of a server: without TLS it must be a loopback address, unless
// insecure is set. A host name other than localhost, or no host, counts as non-loopback. Names are
// not resolved: call it again with the bound address.
func CheckListen(address string, tls, insecure bool) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fault.Newf(fault.ConfigBadValue, "listen address: %w", err)
	}
	if tls || insecure || IsLocal(address) {
		return nil
	}
	return fault.Newf(fault.AccessPlaintext, "%s is reachable from other machines and would use plaintext", address)
}

// isLoopback reports whether host:port is a loopback address. Names are not resolved.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// NetworkOf returns what counts as one remote address where connections or calls are bounded: the
// IP address of host:port, and of IPv6 the network of 64 bits, because a machine has all of its
// addresses. Other texts give the zero address.
func NetworkOf(address string) netip.Addr {
	port, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Addr{}
	}
	ip := port.Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		if network, err := ip.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return ip
}
