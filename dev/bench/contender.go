package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mongostream/streamer/fault"
)

// contenders are the ways to read, by their names.
func contenders() map[string]func() contender {
	return map[string]func() contender{
		"raw":       func() contender { return &raw{} },
		"bare":      func() contender { return &stream{} },
		"naive":     func() contender { return &stream{decode: true} },
		"grpc":      func() contender { return &subscriber{} },
		"crowd":     func() contender { return &crowd{} },
		"sse":       func() contender { return &browsers{} },
		"returners": func() contender { return &returners{} },
		"find":      func() contender { return &finder{} },
		"scanned":   func() contender { return &scanned{} },
		"busy":      func() contender { return &busy{} },
		"tenants":   func() contender { return &tenants{} },
		"moved":     func() contender { return &handoffContender{nodes: 2, move: (*testCluster).drain} },
		"windowless": func() contender {
			return &handoffContender{nodes: 2, settings: []string{"STREAMER_HANDOFF_OVERLAP=0s"}, move: (*testCluster).drain}
		},
		"restarted": func() contender { return &handoffContender{nodes: 1, move: (*testCluster).restart} },
		"sink":      func() contender { return &sinkContender{} },
		"producer":  func() contender { return &producer{} },
	}
}

// serveContender runs contenders as a worker, one job after the other. "open" takes a [scenario],
// starts its contender, and answers when all later writes will be read. "read" answers with the
// [result] when everything has arrived.
func serveContender(ctx context.Context, in io.Reader, out io.Writer, known map[string]func() contender) error {
	var current *running
	err := serveRequests(ctx, in, out, map[string]handler{
		"open": handle(func(ctx context.Context, j scenario) (none none, err error) {
			contend := known[j.Contender]
			if contend == nil || current != nil {
				return none, fmt.Errorf("contender %q is unknown, or another one is open", j.Contender)
			}
			current, err = begin(ctx, contend(), j)
			return none, err
		}),
		"read": handle(func(context.Context, none) (result, error) {
			if current == nil {
				return result{}, errors.New("nothing is open")
			}
			result := <-current.result
			err := current.close()
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
	contender contender
	cancel    context.CancelFunc
	result    chan result
}

func begin(ctx context.Context, c contender, j scenario) (*running, error) {
	round := newRound(j)
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	r := &running{contender: c, cancel: cancel, result: make(chan result, 1)}
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

// readAll reads the events of one job; after a timeout, the check reports the missing ones.
func readAll(ctx context.Context, c contender, round *round) result {
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

// A scenario describes the reads of a contender.
type scenario struct {
	Contender string
	URI, Etcd string
	DB        string
	// Coll is the collection that a client subscribes to; if empty, it subscribes to the whole
	// database, and the check is of the collection changes.
	Coll string
	// Start is the time in the oplog to begin at, in seconds since 1970; 0 means now.
	Start             int64
	Events, Documents int
	// Delays requests the delays from each change to its arrival.
	Delays bool
	// Rate is how many changes a second a contender writes, if it writes them itself.
	Rate int
	// Profile is a file for a CPU profile; empty means none. Beside it goes one of the allocations.
	Profile string
	// Timeout bounds the whole scenario.
	Timeout time.Duration

	// Name is the name of the nodes' cluster, Partitions its number of partitions.
	Name       string
	Partitions int
	// Node has the addresses of a node for its clients.
	Node nodeAddresses
	// Subscriber is a client's name, under which the node keeps its checkpoint; empty for none.
	Subscriber string
	// JSON makes a client request JSON instead of BSON.
	JSON bool
	// Snapshot says that a client wants the existing documents, and no changes.
	Snapshot bool
	// RescanRate is how many documents a second the node may read; 0 is the default.
	RescanRate int
	// Clients is the number of clients.
	Clients int
	// Rest has the node's memory measured once its clients are connected.
	Rest bool
	// Identities is a file of the identities that may connect; if empty, everyone may.
	Identities string
	// Attacks are the attacks on the node meanwhile, one by each hostile identity.
	Attacks []string
	// Broker is the target of a sink.
	Broker brokerAddress
	// Retained is the log that the node retains.
	Retained retainedLog
}

// A retainedLog is what a node retains.
type retainedLog struct {
	Folder string // empty: it retains nothing
	Rare   int    // changes of the collection rare, beside those of the scenario
}

// A result is the result of a contender.
type result struct {
	Events int
	// Fault says why the figures are void, "" if they are valid.
	Fault string
	// Elapsed is the time from the first read of a backlog, or from the write of the first change,
	// to the last change's arrival.
	Elapsed time.Duration
	// usage is the usage of the process in that time, and while it waited for the first change.
	usage

	P50 float64 // of the delays, in milliseconds
	P99 float64
	// Bytes is the length of the received events, 0 if unknown.
	Bytes int
	// Values are results that only some contenders have.
	Values map[string]float64
}

// A round is one run of a contender.
type round struct {
	scenario
	check  *deliveryCheck
	once   sync.Once
	meter  meter
	total  int // of the changes, if the contender writes them itself
	bytes  int
	values map[string]float64
	over   time.Time // when the clocks were stopped, zero if they run until the end
	used   usage
}

func newRound(j scenario) *round {
	return &round{scenario: j, check: newDeliveryCheck(j.Events, j.Documents, j.Delays)}
}

// begin starts the clocks. Further calls change nothing.
func (r *round) begin() { r.once.Do(func() { r.meter = startMeter(r.Profile) }) }

// share is the filter for the documents of the i-th client.
func (r *round) share(i int) string {
	return fmt.Sprintf("key._id >= %d && key._id <= %d", i*r.Documents/r.Clients+1, (i+1)*r.Documents/r.Clients)
}

// record adds a value that only this contender has.
func (r *round) record(name string, v float64) {
	if r.values == nil {
		r.values = make(map[string]float64)
	}
	r.values[name] = v
}

// stop stops the clocks of a contender whose check comes later.
func (r *round) stop() { r.over, r.used = time.Now(), r.meter.stop() }

// end stops the clocks. Later work of the contender is not counted.
func (r *round) end() result {
	if r.over.IsZero() {
		r.stop()
	}
	now := r.over
	result := result{usage: r.used, Elapsed: now.Sub(r.meter.begun), Events: r.check.seen, Fault: r.check.failure(), Bytes: r.bytes, Values: r.values}
	if r.Start == 0 && r.check.began != 0 {
		result.Elapsed = min(result.Elapsed, now.Sub(time.Unix(0, r.check.began)))
	}
	if r.total > 0 {
		result.Events = r.total
	}
	result.P50, result.P99 = quantiles(r.check.delays)
	return result
}

// A contender is a way to read. One goroutine uses it: Open, Read, Close.
type contender interface {
	// Open prepares the contender: it will read all changes that are written after Open has
	// returned. It begins the round when it begins to read.
	Open(ctx context.Context, r *round) error
	// Read reads until the check of the round is done or the context ends.
	Read(ctx context.Context) error
	// Close ends everything that was opened.
	Close() error
}

// usage is the resource usage of a process.
type usage struct {
	CPU     time.Duration
	Mallocs uint64
	PeakRSS int64 // so far, in bytes
}

// A meter measures the resource usage of this process.
type meter struct {
	begun   time.Time
	before  usage
	profile *os.File
}

// startMeter starts the measurement and, unless the file is empty, a CPU profile and one of the
// allocations.
func startMeter(profile string) (m meter) {
	if profile != "" {
		if file, err := os.Create(profile); err == nil && pprof.StartCPUProfile(file) == nil {
			m.profile = file
		}
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.before = usage{CPU: cpu(), Mallocs: stats.Mallocs}
	m.begun = time.Now()
	return m
}

// stop ends the measurement.
func (m *meter) stop() usage {
	used := cpu()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if m.profile != nil {
		pprof.StopCPUProfile()
		_ = m.profile.Close()
		if file, err := os.Create(m.profile.Name() + ".allocs"); err == nil {
			runtime.GC() // the profile shows what was allocated before the last collection
			_ = pprof.Lookup("allocs").WriteTo(file, 0)
			_ = file.Close()
		}
	}
	return usage{CPU: used - m.before.CPU, Mallocs: stats.Mallocs - m.before.Mallocs, PeakRSS: peakRSS()}
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS returns the peak memory of this process, 0 if unknown. getrusage would include the memory
// of its parent before the exec.
func peakRSS() int64 { return memory("VmHWM:") }

// restingRSS returns the memory of this process without garbage, 0 if unknown.
func restingRSS() int64 {
	debug.FreeOSMemory()
	debug.FreeOSMemory() // stacks shrink by halves, pools are emptied in two steps
	return memory("VmRSS:")
}

// memory reads a line of /proc/self/status (man 5 proc), in bytes.
func memory(name string) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, name); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// sequence returns the order of n contenders in a round: A B, B A, A B, …, so that none is always
// first.
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
