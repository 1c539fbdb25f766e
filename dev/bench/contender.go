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
func contenders() map[string]func() contender {
	return map[string]func() contender{
		"raw":     func() contender { return &raw{} },
		"bare":    func() contender { return &stream{} },
		"naive":   func() contender { return &stream{decode: true} },
		"grpc":    func() contender { return &subscriber{} },
		"sse":     func() contender { return &browsers{} },
		"find":    func() contender { return &finder{} },
		"scanned": func() contender { return &scanned{} },
		"busy":    func() contender { return &busy{} },
		"tenants": func() contender { return &tenants{} },
		"moved":   func() contender { return &handoffContender{nodes: 2, move: (*testCluster).drain} },
		"windowless": func() contender {
			return &handoffContender{nodes: 2, settings: []string{"STREAMER_HANDOFF_OVERLAP=0s"}, move: (*testCluster).drain}
		},
		"restarted": func() contender { return &handoffContender{nodes: 1, move: (*testCluster).restart} },
		"sink":      func() contender { return &sinkContender{} },
		"producer":  func() contender { return &producer{} },
	}
}

// serveContender runs contenders as a worker, one job after the other: "open" takes a [scenario],
// lets its contender read, and answers when what is written from then on will be read; "read"
// answers with the [Result] once everything has come.
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

// readAll reads one job's events; where the time runs out, the checks tell what is missing.
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

// A scenario is what to read, and how.
type scenario struct {
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
	Node nodeAddresses
	// Subscriber is a client's name, under which the node keeps its checkpoint; empty: it keeps
	// none.
	Subscriber string
	// JSON is the format that a client asks for; otherwise it is BSON.
	JSON bool
	// Snapshot says that a client wants the documents that there are, and no changes.
	Snapshot bool
	// RescanRate is how many documents a second the node may read; 0 is the default.
	RescanRate int
	// Clients are how many clients share the documents.
	Clients int
	// Identities is a file of the identities that may connect; empty: everybody may.
	Identities string
	// Attacks are what hostile identities do to the node meanwhile, one of them each.
	Attacks []string
	// Broker is the target of a sink.
	Broker brokerAddress
}

// A result is what a contender did.
type result struct {
	Events int
	// Fault says why the figures are void, "" where they are not.
	Fault string
	// Elapsed is from the first reading of a backlog, or from the making of the first change, to
	// the last change's arrival.
	Elapsed time.Duration
	// usage is the process's in that time, and while it waited for the first change.
	usage

	P50 float64 // of the delays, in milliseconds
	P99 float64
	// Bytes is the length of what came, 0 where that is not known.
	Bytes int
	// Values are what only some contenders know.
	Values map[string]float64
}

// A round is one run of a contender.
type round struct {
	scenario
	check  *deliveryCheck
	once   sync.Once
	meter  meter
	total  int // of the changes, where the contender writes itself
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

// record adds a value of the contender's own.
func (r *round) record(name string, v float64) {
	if r.values == nil {
		r.values = make(map[string]float64)
	}
	r.values[name] = v
}

// stop stops the clocks of a contender whose check comes later.
func (r *round) stop() { r.over, r.used = time.Now(), r.meter.stop() }

// end stops the clocks. Whatever else the contender does is not counted.
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
	// Open makes ready: whatever is written after it has returned is read. It begins the round when
	// it begins to read.
	Open(ctx context.Context, r *round) error
	// Read reads until the check of the round is done or the context ends.
	Read(ctx context.Context) error
	// Close ends everything that was opened.
	Close() error
}

// usage is what a process has used.
type usage struct {
	CPU     time.Duration
	Mallocs uint64
	PeakRSS int64 // so far, in bytes
}

// A meter measures what this process uses.
type meter struct {
	begun   time.Time
	before  usage
	profile *os.File
}

// startMeter begins to measure, and to write a CPU profile unless the file is empty. Beside it goes
// one of the allocations.
func startMeter(profile string) (m meter) {
	if profile != "" {
		if file, err := os.Create(profile); err == nil && pprof.StartCPUProfile(file) == nil {
			m.profile = file
		}
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.before, m.begun = usage{CPU: cpu(), Mallocs: stats.Mallocs}, time.Now()
	return m
}

// stop ends it.
func (m *meter) stop() usage {
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

// peakRSS returns the most memory that this process has held, 0 where that is unknown. getrusage
// would count what its parent held before this program was executed. (man 5 proc, VmHWM.)
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
