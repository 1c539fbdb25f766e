package main

import (
	"net"
	"testing"
)

// An address that is in use is replaced by a free port; one that is no address is refused where it
// is listened at.
func TestAddressThatIsNoneIsRefused(t *testing.T) {
	for _, address := range []string{"nonsense", "127.0.0.1:99999", "127.0.0.1", ":nowhere"} {
		if got := free(address); got != address {
			t.Errorf("%q became %q", address, got)
		}
		if got, err := reserve(address, map[string]bool{}); err == nil {
			t.Errorf("%q became %q", address, got)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // answers at once
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if got := free(l.Addr().String()); got != "127.0.0.1:0" {
		t.Errorf("an address in use became %q", got)
	}
}
