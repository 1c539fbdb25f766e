//go:build !linux

package etcdtest

import "syscall"

// withParent would have a process end with the one that starts it, where the system can.
func withParent() *syscall.SysProcAttr { return nil }

// awaitStop would return when a process that was sent SIGSTOP has stopped, where the system can
// tell.
func awaitStop(int) error { return nil }
