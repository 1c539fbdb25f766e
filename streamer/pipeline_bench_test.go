package streamer_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
	"github.com/mongostream/streamer/streamer"
)

// A recording is what a stream of a log gave, to be given again at no cost: what is counted is the pipeline's work alone.
type recording struct {
	log     *lanetest.Log
	base    change.Position
	replies []lane.Reply
	events  int
	held    chan struct{} // closed when it may be read
}

// record reads a log of so many events in replies of the given length.
func record(b testing.TB, events, reply int) recording {
	b.Helper()
	log := &lanetest.Log{ReplyEvents: reply}
	log.Tick(1)
	log.Append(inserts(events, 0)...)
	stream, err := log.Open(b.Context(), changetest.HighWater(change.Timestamp{T: 1001, I: 1}))
	if err != nil {
		b.Fatal(err)
	}
	defer stream.Close()
	r := recording{log: log, base: stream.Base(), events: events}
	for n := 0; n < events; n += len(r.replies[len(r.replies)-1].Events) {
		reply, err := stream.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		r.replies = append(r.replies, reply)
	}
	return r
}

// Open implements lane.Source.
func (r *recording) Open(context.Context, change.Position) (lane.Stream, error) {
	return &replay{recording: r}, nil
}

type replay struct {
	recording *recording
	next      int
}

func (p *replay) Base() change.Position { return p.recording.base }
func (p *replay) Close()                {}

func (p *replay) Next(ctx context.Context) (lane.Reply, error) {
	select {
	case <-p.recording.held:
	case <-ctx.Done():
		return lane.Reply{}, context.Cause(ctx)
	}
	if p.next == len(p.recording.replies) {
		<-ctx.Done()
		return lane.Reply{}, context.Cause(ctx)
	}
	reply := p.recording.replies[p.next]
	reply.At = time.Now()
	p.next++
	return reply, nil
}

// A pipeline is how events are moved for a measurement.
type pipeline struct {
	partitions int
	window     *dedup.Config
	subscribed bool
}

// move takes a recording through a node and returns the allocations for each event, from the first reply to the last event's
// acknowledgement, or until nobody has wanted the last one.
func (p pipeline) move(b testing.TB, r recording) (allocations float64, took time.Duration) {
	b.Helper()
	r.held = make(chan struct{})
	passed, all := new(atomic.Int64), make(chan struct{})
	pass := func(n int) {
		if passed.Add(int64(n)) == int64(r.events) {
			close(all)
		}
	}
	var cfg delivery.Config
	if !p.subscribed {
		cfg.Wants = func(*change.Event) bool { pass(1); return false }
	}
	session, marks := delivery.NewSession(cfg), checkpoint.NewMemory(p.partitions)
	origin := checkpoint.Origin{Cluster: "c", Incarnation: 1, Partitions: p.partitions, Start: change.Timestamp{T: 1001, I: 1}}
	log := lane.NewLog(lane.Config{Partitions: p.partitions}, &r)
	node := streamer.NewNode(streamer.Config{
		Origin: origin, Dedup: p.window, Fingerprint: "f", Surveyor: surveyor{r.log}, Policy: checkpoint.Policy{Interval: time.Hour, EventCount: 1 << 30},
	}, log, marks)
	if err := node.Attach(session); err != nil {
		b.Fatal(err)
	}
	terms := make([]change.Term, p.partitions)
	for q := range terms {
		terms[q] = change.Term{
			Partition: change.Partition(q), Epoch: change.Epoch{Incarnation: 1, Revision: 1}, Context: b.Context(), Trusted: func() bool { return true },
		}
	}
	if err := node.Serve(b.Context(), terms); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	if p.subscribed {
		go acknowledge(session, pass)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	close(r.held)
	<-all
	took = time.Since(begun)
	runtime.ReadMemStats(&after)
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return float64(after.Mallocs-before.Mallocs) / float64(r.events), took
}

// acknowledge takes what the session gets until it is closed.
func acknowledge(s *delivery.Session, pass func(n int)) {
	for {
		batches, err := s.Receive(context.Background())
		if err != nil {
			return
		}
		for _, b := range batches {
			s.Ack(b)
			pass(len(b.Events))
		}
	}
}

// BenchmarkPipeline moves events from replies that are there to a session that acknowledges, or past one that wants none.
func BenchmarkPipeline(b *testing.B) {
	const events = 100_000
	for _, reply := range []int{30, 3000} { // at the log's end under load, and of a backlog
		r := record(b, events, reply)
		for _, p := range []pipeline{
			{partitions: 64, window: &dedup.Config{}, subscribed: true},
			{partitions: 64, window: &dedup.Config{}},
			{partitions: 64},
			{partitions: 1, window: &dedup.Config{}, subscribed: true},
		} {
			b.Run(fmt.Sprintf("reply=%d/partitions=%d/window=%v/subscribed=%v", reply, p.partitions, p.window != nil, p.subscribed), func(b *testing.B) {
				b.ReportAllocs()
				var allocations float64
				var took time.Duration
				for b.Loop() {
					a, t := p.move(b, r)
					allocations += a
					took += t
				}
				b.ReportMetric(allocations/float64(b.N), "allocs/event")
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/events, "ns/event")
			})
		}
	}
}

// What an event may cost on its way, in allocations. They are shared by the events of a reply and of a batch, so the replies decide.
func TestEventsCostFewAllocations(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reply  int
		limit  float64
		events pipeline
	}{
		{"delivered, of a backlog", 3000, 0.2, pipeline{partitions: 64, window: &dedup.Config{}, subscribed: true}},
		{"delivered, at the log's end, an event a batch", 30, 2.5, pipeline{partitions: 64, window: &dedup.Config{}, subscribed: true}},
		{"delivered, of a backlog of one partition", 3000, 0.1, pipeline{partitions: 1, window: &dedup.Config{}, subscribed: true}},
		{"wanted by nobody, without a window", 3000, 0.05, pipeline{partitions: 64}},
		{"wanted by nobody", 3000, 0.1, pipeline{partitions: 64, window: &dedup.Config{}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, _ := tt.events.move(t, record(t, 60_000, tt.reply)); got > tt.limit {
				t.Errorf("%.3f allocations an event, at most %v", got, tt.limit)
			}
		})
	}
}
