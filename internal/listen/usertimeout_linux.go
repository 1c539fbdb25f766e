package listen

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout returns a control function for a listening socket. Its connections end when the peer
// has not acknowledged sent data for that long (tcp(7), TCP_USER_TIMEOUT). Without it a connection
// to a vanished peer ends only after some 15 minutes.
func userTimeout(timeout time.Duration) func(network, address string, conn syscall.RawConn) error {
	return func(_, _ string, conn syscall.RawConn) (err error) {
		controlled := conn.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds()))
		})
		if controlled != nil {
			return controlled
		}
		return err
	}
}
