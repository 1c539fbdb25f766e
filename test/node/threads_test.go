//go:build !race

package node

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// mostSlowed bounds what slowed returns: a process that hardly runs waits for most of its time.
const mostSlowed = 20

// threads says for how long the threads of this process have run, and for how long they could
// have run but waited for a CPU. Not more of them than there are CPUs can run Go code at once, so
// they wait for other processes, and hardly for each other.
type threads struct{ ran, waited time.Duration }

// threadTime returns the time until now. It is zero where the system does not say it
// (man 5 proc_pid_schedstat).
func threadTime() (sum threads) {
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return sum
	}
	for _, thread := range all {
		stat, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/schedstat")
		fields := strings.Fields(string(stat))
		if err != nil || len(fields) < 2 {
			continue // it has ended
		}
		ran, _ := strconv.ParseInt(fields[0], 10, 64)
		waited, _ := strconv.ParseInt(fields[1], 10, 64)
		sum.ran += time.Duration(ran)
		sum.waited += time.Duration(waited)
	}
	return sum
}

// slowed returns how many times as long everything has taken since an earlier time, because other
// processes ran: 1 on a machine of its own.
func (t threads) slowed(since threads) float64 {
	ran, waited := t.ran-since.ran, t.waited-since.waited
	if ran <= 0 || waited <= 0 {
		return 1
	}
	return min(1+float64(waited)/float64(ran), mostSlowed)
}
