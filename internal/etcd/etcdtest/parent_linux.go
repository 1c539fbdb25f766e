package etcdtest

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// withParent makes a process end with the thread that starts it, even if that is killed.
func withParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// awaitStop returns when a child has stopped after SIGSTOP: its threads run until each has seen the
// signal.
func awaitStop(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
