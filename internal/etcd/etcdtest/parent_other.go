//go:build !linux

package etcdtest

import "syscall"

// withParent would have a process end with the one that starts it, where the system can.
func withParent() *syscall.SysProcAttr { return nil }
