package contender

import (
	"context"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Job is what to read, and how.
type Job struct {
	Contender string
	URI, Etcd string
	// DB is the database; its collections are those of server.Collection.
	DB          string
	Collections int
	// Start is where in the log to begin, in seconds since 1970; 0 means now.
	Start int64
	// Events and Documents are of all collections together.
	Events, Documents int
	// Delays says that the time from a change to its arrival is wanted.
	Delays bool
	// Steps is how often a contender that works in memory does its work.
	Steps int
	// Rate is how many changes a second a contender writes that writes itself.
	Rate int
	// Subscriptions are how many filters it has, where it has filters.
	Subscriptions int
	// Profile is a file for a CPU profile; empty means none. Beside it goes one of the allocations.
	Profile string
	// Timeout bounds the whole.
	Timeout time.Duration

	// What a node is.
	Partitions  int
	Unmarked    bool // it saves no marks before the last ones
	Unsubscribe bool // its one session wants nothing
	PerSession  bool // it has a session for each collection instead of one for all
	Gateway     bool // its subscriber is a gateway, which comes through gRPC
	Name        string
}

// A Result is what a contender did.
type Result struct {
	Events int
	// Fault says why the figures are void, "" where they are not.
	Fault string
	// Elapsed is from the first reading of a backlog, or from the making of the first change, to the last change's arrival.
	Elapsed time.Duration
	CPU     time.Duration // of the process in that time, and while it waited for the first change
	Mallocs uint64
	PeakRSS int64   // of the process so far, in bytes
	P50     float64 // of the delays, in milliseconds
	P99     float64
	// Bytes is the length of what came, 0 where that is not known.
	Bytes int
	// CatchUp says that a node began so far back in the log that it read through a catch-up.
	CatchUp bool
	// Values are what only some contenders know.
	Values map[string]float64
}

// A Round is one run of a contender.
type Round struct {
	Job
	// Checks has one for each reader.
	Checks []*Check

	once     sync.Once
	begun    time.Time
	cpu      time.Duration
	mallocs  uint64
	profiled *os.File
	steps    int // done in memory, which then count instead of the events
	bytes    int
	catchUp  bool
	values   map[string]float64
}

// newRound makes the round of a job with so many readers, which share the events evenly.
func newRound(j Job, readers int) *Round {
	r := &Round{Job: j}
	for range readers {
		r.Checks = append(r.Checks, NewCheck(j.Events/readers, j.Documents/j.Collections, j.Delays))
	}
	return r
}

// Begin starts the clocks. Further calls change nothing.
func (r *Round) Begin() {
	r.once.Do(func() {
		if r.Profile != "" {
			if file, err := os.Create(r.Profile); err == nil && pprof.StartCPUProfile(file) == nil {
				r.profiled = file
			}
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		r.mallocs, r.cpu, r.begun = m.Mallocs, cpu(), time.Now()
	})
}

// Did says how many steps a contender that works in memory has done; they count as its events.
func (r *Round) Did(steps int) { r.steps = steps }

// Delayed adds delays.
func (r *Round) Delayed(delays []time.Duration) {
	r.Checks[0].delays = append(r.Checks[0].delays, delays...)
}

// Tell adds a value of the contender's own.
func (r *Round) Tell(name string, v float64) {
	if r.values == nil {
		r.values = make(map[string]float64)
	}
	r.values[name] = v
}

// end stops the clocks. Whatever else the contender does is not counted.
func (r *Round) end() Result {
	now, used := time.Now(), cpu()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	result := Result{
		CPU: used - r.cpu, Mallocs: m.Mallocs - r.mallocs, Elapsed: now.Sub(r.begun), PeakRSS: peakRSS(), Bytes: r.bytes, CatchUp: r.catchUp, Values: r.values,
	}
	if r.profiled != nil {
		pprof.StopCPUProfile()
		_ = r.profiled.Close()
		if file, err := os.Create(r.Profile + ".allocs"); err == nil {
			_ = pprof.Lookup("allocs").WriteTo(file, 0)
			_ = file.Close()
		}
	}
	var delays []time.Duration
	for _, c := range r.Checks {
		result.Events += c.seen
		if result.Fault == "" {
			result.Fault = c.Fault()
		}
		delays = append(delays, c.delays...)
		if r.Start == 0 && c.began != 0 {
			result.Elapsed = min(result.Elapsed, now.Sub(time.Unix(0, c.began)))
		}
	}
	if r.steps > 0 {
		result.Events = r.steps
	}
	result.P50, result.P99 = quantiles(delays)
	return result
}

// A Contender is a way to read. One goroutine uses it: Open, Read, Close.
type Contender interface {
	// Readers returns how many readers the job has.
	Readers(j Job) int
	// Open makes ready: whatever is written after it has returned is read. It begins the round when it begins to read.
	Open(ctx context.Context, r *Round) error
	// Read reads until every check of the round is done or the context ends.
	Read(ctx context.Context) error
	// Close ends everything that was opened.
	Close() error
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS returns the most memory that this process has held, 0 where that is unknown. getrusage would count what its parent held
// before this program was executed. (man 5 proc, VmHWM.)
func peakRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// Sequence returns the order of n contenders in a round: A B, B A, A B, …, so that none is always first.
func Sequence(round, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
		if round%2 == 1 {
			order[i] = n - 1 - i
		}
	}
	return order
}
