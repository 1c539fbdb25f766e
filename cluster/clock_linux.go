package cluster

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads a clock that never goes back and goes on while the machine is suspended
// (CLOCK_BOOTTIME, clock_gettime(2)): a claim runs out on a sleeping machine too. Only differences
// of its readings mean anything.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(fmt.Sprintf("cluster: no CLOCK_BOOTTIME: %v", err)) // every Linux since 2.6.39 has it
	}
	return time.Duration(now.Nano())
}
