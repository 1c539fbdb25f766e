package devmongotest

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// portsGiven counts what FreeAddress has given away.
var portsGiven atomic.Int64 //nolint:gochecknoglobals // of the machine, as ports are

// FreeAddress returns an address on which a test can listen again and again. It lies outside the
// range that the system takes ports for outgoing connections from, and no other test of the process
// is given it, and hardly one of another process, so that nobody gets it in between.
func FreeAddress() string {
	const lowest, ports = 12000, 18000
	first := int64(os.Getpid()) * 6877 // far from what the tests of other packages begin with
	for {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+(first+portsGiven.Add(1))%ports)
		if l, err := net.Listen("tcp", address); err == nil { //nolint:noctx // answers at once
			_ = l.Close()
			return address
		}
	}
}
