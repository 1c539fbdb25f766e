//go:build !linux

package etcdtest

import "syscall"

// withParent does nothing on this system: a process cannot be made to end with its parent.
func withParent() *syscall.SysProcAttr { return nil }

// awaitStop does nothing on this system: it cannot wait until a process has stopped.
func awaitStop(int) error { return nil }
