//go:build unix

package listen

import (
	"math"
	"syscall"
)

// openFiles returns how many files the process may have open, connections among them. The runtime
// has raised the soft limit to the hard one.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return int(min(limit.Cur, math.MaxInt32))
}
