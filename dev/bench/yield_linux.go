package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// yieldCPU makes all threads of this process run only while their core is idle. Later threads
// inherit this. A low priority is not enough: such a thread keeps its core for some milliseconds
// when another one wakes.
func yieldCPU() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list the threads of this process: %w", err)
	}
	idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return fmt.Errorf("read the id of a thread: %w", err)
		}
		if err := unix.SchedSetAttr(id, &idle, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("have a thread yield: %w", err)
		}
	}
	return nil
}
