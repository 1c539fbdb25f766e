package listen

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout returns a control function for a listening socket whose connections end when the
// peer's machine has confirmed nothing of what was sent to it for that long (tcp(7),
// TCP_USER_TIMEOUT). Without it a connection whose peer has vanished ends after some 15 minutes.
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
