package etcdtest

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// withParent has a process end with the thread that starts it, also where that is killed.
func withParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// awaitStop returns when a child that was sent SIGSTOP has stopped: its threads go on until each
// has seen the signal.
func awaitStop(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
