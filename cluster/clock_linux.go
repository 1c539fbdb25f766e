package cluster

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads a monotonic clock that includes the time during which the machine is suspended
// (CLOCK_BOOTTIME, clock_gettime(2)), so that a claim expires on a suspended machine too. Only
// differences of its readings are meaningful.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(fmt.Sprintf("cluster: no CLOCK_BOOTTIME: %v", err)) // every Linux since 2.6.39 has it
	}
	return time.Duration(now.Nano())
}
