package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mongostream/streamer/fault"
)

// contenders are the ways to read, by their names.
func contenders() map[string]func() Contender {
	return map[string]func() Contender{
		"raw":       func() Contender { return &raw{} },
		"bare":      func() Contender { return &stream{} },
		"naive":     func() Contender { return &stream{decode: true} },
		"grpc":      func() Contender { return &subscriber{} },
		"sse":       func() Contender { return &browsers{} },
		"moved":     func() Contender { return &contest{nodes: 2, move: (*testCluster).drain} },
		"restarted": func() Contender { return &contest{nodes: 1, move: (*testCluster).restart} },
	}
}

// serveContender runs contenders as a part, one job after the other: "open" takes a [Job], lets its contender read, and answers when what is
// written from then on will be read; "read" answers with the [Result] once everything has come.
func serveContender(ctx context.Context, in io.Reader, out io.Writer, known map[string]func() Contender) error {
	var current *running
	err := serveRequests(ctx, in, out, map[string]Handler{
		"open": Handle(func(ctx context.Context, j Job) (none None, err error) {
			contend := known[j.Contender]
			if contend == nil || current != nil {
				return none, fmt.Errorf("contender %q is unknown, or another one is open", j.Contender)
			}
			current, err = begin(ctx, contend(), j)
			return none, err
		}),
		"read": Handle(func(context.Context, None) (Result, error) {
			if current == nil {
				return Result{}, errors.New("nothing is open")
			}
			result, err := <-current.result, current.close()
			current = nil
			return result, err
		}),
	})
	if current != nil {
		err = errors.Join(err, current.close())
	}
	return err
}

// running is a contender that reads.
type running struct {
	contender Contender
	cancel    context.CancelFunc
	result    chan Result
}

func begin(ctx context.Context, c Contender, j Job) (*running, error) {
	round := newRound(j)
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	r := &running{contender: c, cancel: cancel, result: make(chan Result, 1)}
	if err := c.Open(ctx, round); err != nil {
		return nil, errors.Join(err, r.close())
	}
	go func() { r.result <- readAll(ctx, c, round) }()
	return r, nil
}

func (r *running) close() error {
	r.cancel()
	return r.contender.Close()
}

// readAll reads one job's events; where the time runs out, the checks tell what is missing.
func readAll(ctx context.Context, c Contender, round *Round) Result {
	err := c.Read(ctx)
	result := round.end()
	if err != nil && ctx.Err() == nil {
		result.Fault = message(err)
	}
	return result
}

func message(err error) string {
	if code := fault.Of(err); code != "" {
		return fmt.Sprintf("%s: %v", code, err)
	}
	return err.Error()
}

// A Job is what to read, and how.
type Job struct {
	Contender string
	URI, Etcd string
	DB        string
	// Start is where in the log to begin, in seconds since 1970; 0 means now.
	Start             int64
	Events, Documents int
	// Delays says that the time from a change to its arrival is wanted.
	Delays bool
	// Rate is how many changes a second a contender writes that writes itself.
	Rate int
	// Profile is a file for a CPU profile; empty means none. Beside it goes one of the allocations.
	Profile string
	// Timeout bounds the whole.
	Timeout time.Duration

	// Name is that of the nodes' cluster, Partitions are how many it has.
	Name       string
	Partitions int
	// Node is where the clients of a node reach it.
	Node Addresses
	// Subscriber is a client's name, under which the node keeps its checkpoint; empty: it keeps none.
	Subscriber string
	// JSON is the format that a client asks for; otherwise it is BSON.
	JSON bool
	// Clients are how many clients share the documents.
	Clients int
}

// A Result is what a contender did.
type Result struct {
	Events int
	// Fault says why the figures are void, "" where they are not.
	Fault string
	// Elapsed is from the first reading of a backlog, or from the making of the first change, to the last change's arrival.
	Elapsed time.Duration
	// Usage is the process's in that time, and while it waited for the first change.
	Usage

	P50 float64 // of the delays, in milliseconds
	P99 float64
	// Bytes is the length of what came, 0 where that is not known.
	Bytes int
	// Values are what only some contenders know.
	Values map[string]float64
}

// A Round is one run of a contender.
type Round struct {
	Job
	check  *Check
	once   sync.Once
	meter  meter
	total  int // of the changes, where the contender writes itself
	bytes  int
	values map[string]float64
}

func newRound(j Job) *Round { return &Round{Job: j, check: NewCheck(j.Events, j.Documents, j.Delays)} }

// Begin starts the clocks. Further calls change nothing.
func (r *Round) Begin() { r.once.Do(func() { r.meter = startMeter(r.Profile) }) }

// Tell adds a value of the contender's own.
func (r *Round) Tell(name string, v float64) {
	if r.values == nil {
		r.values = make(map[string]float64)
	}
	r.values[name] = v
}

// end stops the clocks. Whatever else the contender does is not counted.
func (r *Round) end() Result {
	now := time.Now()
	result := Result{Usage: r.meter.stop(), Elapsed: now.Sub(r.meter.begun), Events: r.check.seen, Fault: r.check.Fault(), Bytes: r.bytes, Values: r.values}
	if r.Start == 0 && r.check.began != 0 {
		result.Elapsed = min(result.Elapsed, now.Sub(time.Unix(0, r.check.began)))
	}
	if r.total > 0 {
		result.Events = r.total
	}
	result.P50, result.P99 = quantiles(r.check.delays)
	return result
}

// A Contender is a way to read. One goroutine uses it: Open, Read, Close.
type Contender interface {
	// Open makes ready: whatever is written after it has returned is read. It begins the round when it begins to read.
	Open(ctx context.Context, r *Round) error
	// Read reads until the check of the round is done or the context ends.
	Read(ctx context.Context) error
	// Close ends everything that was opened.
	Close() error
}

// Usage is what a process has used.
type Usage struct {
	CPU     time.Duration
	Mallocs uint64
	PeakRSS int64 // so far, in bytes
}

// A meter measures what this process uses.
type meter struct {
	begun   time.Time
	before  Usage
	profile *os.File
}

// startMeter begins to measure, and to write a CPU profile unless the file is empty. Beside it goes one of the allocations.
func startMeter(profile string) (m meter) {
	if profile != "" {
		if file, err := os.Create(profile); err == nil && pprof.StartCPUProfile(file) == nil {
			m.profile = file
		}
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.before, m.begun = Usage{CPU: cpu(), Mallocs: stats.Mallocs}, time.Now()
	return m
}

// stop ends it.
func (m *meter) stop() Usage {
	used := cpu()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if m.profile != nil {
		pprof.StopCPUProfile()
		_ = m.profile.Close()
		if file, err := os.Create(m.profile.Name() + ".allocs"); err == nil {
			_ = pprof.Lookup("allocs").WriteTo(file, 0)
			_ = file.Close()
		}
	}
	return Usage{CPU: used - m.before.CPU, Mallocs: stats.Mallocs - m.before.Mallocs, PeakRSS: peakRSS()}
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

// sequence returns the order of n contenders in a round: A B, B A, A B, …, so that none is always first.
func sequence(round, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
		if round%2 == 1 {
			order[i] = n - 1 - i
		}
	}
	return order
}
