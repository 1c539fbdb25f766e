package etcdtest

import "syscall"

// withParent has a process end with the thread that starts it, also where that is killed.
func withParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
