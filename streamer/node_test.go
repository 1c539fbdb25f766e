package streamer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
	"github.com/mongostream/streamer/streamer"
)

const partitions = 4

// A world is a log, the marks, and the node that runs now.
type world struct {
	t        *testing.T
	source   *lanetest.Log
	marks    *marks
	origin   checkpoint.Origin
	revision uint64
	open     lane.Source // in the place of source, where it is set
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, source: &lanetest.Log{ReplyEvents: 7}, marks: &marks{Memory: checkpoint.NewMemory(partitions)}}
	w.source.Tick(1)
	w.origin = checkpoint.Origin{Cluster: "c", Incarnation: 1, Partitions: partitions, Start: change.Timestamp{T: 1001, I: 1}}
	return w
}

// marks are marks in memory that can be made to fail.
type marks struct {
	*checkpoint.Memory

	mu     sync.Mutex
	fail   error // of AddGap
	refuse error // of Save
}

func (m *marks) AddGap(ctx context.Context, g checkpoint.Gap) error {
	m.mu.Lock()
	fail := m.fail
	m.mu.Unlock()
	if fail != nil {
		return fail
	}
	return m.Memory.AddGap(ctx, g)
}

// Refuse makes every save fail, until it is told nil.
func (m *marks) Refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = err
}

func (m *marks) Save(ctx context.Context, marks []checkpoint.Mark) []error {
	m.mu.Lock()
	refuse := m.refuse
	m.mu.Unlock()
	if refuse == nil {
		return m.Memory.Save(ctx, marks)
	}
	return slices.Repeat([]error{refuse}, len(marks))
}

// surveyor tells what the log in memory holds.
type surveyor struct{ log *lanetest.Log }

func (s surveyor) Survey(context.Context) (gap.Reach, error) {
	first, last := s.log.Reach()
	return gap.Reach{First: first, Last: last, Majority: last}, nil
}

// A silent surveyor answers when it is told to.
type silent struct {
	surveyor

	told chan struct{}
}

func (s silent) Survey(ctx context.Context) (gap.Reach, error) {
	select {
	case <-s.told:
		return s.surveyor.Survey(ctx)
	case <-ctx.Done():
		return gap.Reach{}, context.Cause(ctx)
	}
}

// A process is a node as a test runs it.
type process struct {
	node    *streamer.Node
	session *delivery.Session
	end     context.CancelCauseFunc // ends the terms
	stop    context.CancelFunc      // the soft stop
	done    chan error
	frozen  atomic.Bool // the claim has run out, which nobody has noticed yet
}

func (p *process) trusted() bool { return !p.frozen.Load() }

// begin starts a node with terms of a new epoch and a session that is attached before anything is read.
func (w *world) begin(cfg streamer.Config, session delivery.Config) *process {
	w.t.Helper()
	w.revision++
	cfg.Origin, cfg.Dedup = w.origin, &dedup.Config{}
	if cfg.Surveyor == nil {
		cfg.Surveyor = surveyor{w.source}
	}
	cfg.Fingerprint = cmp.Or(cfg.Fingerprint, "f")
	p := &process{session: delivery.NewSession(session), done: make(chan error, 1)}
	var source lane.Source = w.source
	if w.open != nil {
		source = w.open
	}
	log := lane.NewLog(lane.Config{Partitions: partitions, RingBytes: 10_000, PrefetchBytes: 5_000}, source)
	p.node = streamer.NewNode(cfg, log, w.marks)
	if err := p.node.Attach(p.session); err != nil {
		w.t.Fatal(err)
	}
	var termContext, ctx context.Context
	termContext, p.end = context.WithCancelCause(context.Background())
	var terms []change.Term
	for q := range change.Partition(partitions) {
		terms = append(terms, change.Term{Partition: q, Epoch: change.Epoch{Incarnation: 1, Revision: w.revision}, Context: termContext, Trusted: p.trusted})
	}
	if err := p.node.Serve(w.t.Context(), terms); err != nil {
		w.t.Fatal(err)
	}
	ctx, p.stop = context.WithCancel(context.Background())
	go func() { p.done <- p.node.Run(ctx) }()
	return p
}

// crash is what kill -9 leaves: the process does nothing more that others can see.
func (p *process) crash() {
	p.end(change.ErrTermLost)
	p.session.Close()
	p.stop()
	<-p.done
}

func inserts(n int, from int64) []changetest.Event {
	events := make([]changetest.Event, n)
	for i := range events {
		events[i].ID = from + int64(i)
	}
	return events
}

// A process that stood still past its claim's life hands nothing to a transport and moves no mark: not what it reads then, and not
// what it had queued before.
func TestTermWhoseClaimHasRunOutHandsOverNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{}, delivery.Config{})
		w.source.Append(inserts(50, 0)...)
		synctest.Wait()
		p.frozen.Store(true)
		w.source.Append(inserts(50, 50)...)
		synctest.Wait()
		if n := p.session.Outstanding(); n != 50 {
			t.Errorf("%d events are queued, 50 were when the claim ran out", n)
		}
		batches, err := p.session.Receive(t.Context())
		if err != nil || len(batches) == 0 {
			t.Fatal(len(batches), err)
		}
		for _, b := range batches {
			if !b.Over() {
				t.Errorf("a batch of partition %d may still go out", b.Partition)
			}
			p.session.Ack(b)
		}
		time.Sleep(time.Minute) // in which marks would be saved
		p.stop()
		<-p.done
		if marks, err := w.marks.List(t.Context()); err != nil || len(moved(marks)) > 0 {
			t.Errorf("marks have moved: %v, %v", moved(marks), err)
		}
	})
}

func moved(marks []checkpoint.Mark) (moved []checkpoint.Mark) {
	for _, m := range marks {
		if !m.Position.IsZero() {
			moved = append(moved, m)
		}
	}
	return moved
}

func TestStopWaitsForAcknowledgementsAndSavesTheLastMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{}, delivery.Config{})
		events := w.source.Append(inserts(50, 0)...)
		synctest.Wait()
		p.stop()
		synctest.Wait()
		if err := p.node.Attach(delivery.NewSession(delivery.Config{})); !errors.Is(err, streamer.ErrStopping) {
			t.Errorf("a stopping node takes sessions: %v", err)
		}
		batches, err := p.session.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			p.session.Ack(b)
		}
		before := time.Now()
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(before); waited > 2*time.Second {
			t.Errorf("stopped %v after the last acknowledgement", waited)
		}
		last := map[change.Partition]change.Position{}
		for _, ev := range events {
			e, _ := change.Parse(ev.Bytes())
			q, _ := change.NewPartitioner(partitions).Of(&e)
			last[q] = ev.Position()
		}
		for q, want := range last {
			m, err := w.marks.Load(t.Context(), q)
			if err != nil || want.After(m.Position) || m.Reason != checkpoint.ReasonFinal {
				t.Errorf("partition %d: mark %v (%s), last event %v, %v", q, m.Position, m.Reason, want, err)
			}
		}
	})
}

func TestUnacknowledgedEventsHoldTheLastMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{}, delivery.Config{})
		w.source.Append(inserts(50, 0)...)
		synctest.Wait()
		before := time.Now()
		p.stop()
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(before); waited < 10*time.Second || waited > 12*time.Second {
			t.Errorf("waited %v for acknowledgements", waited)
		}
		marks, err := w.marks.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range marks {
			if m.Position.After(change.At(change.Timestamp{T: 1001, I: 2})) {
				t.Errorf("partition %d: the mark %v passes what nobody acknowledged", m.Partition, m.Position)
			}
		}
		again := w.begin(streamer.Config{}, delivery.Config{})
		synctest.Wait()
		batches, err := again.session.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, b := range batches {
			n += len(b.Events)
		}
		if n != 50 {
			t.Errorf("%d events after the restart", n)
		}
		again.crash()
	})
}

func TestLostTermSavesNothingAndDeliversNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{Policy: checkpoint.Policy{Interval: time.Second}}, delivery.Config{})
		synctest.Wait()
		p.end(change.ErrTermLost)
		synctest.Wait()
		w.source.Append(inserts(50, 0)...)
		time.Sleep(time.Minute)
		if n := p.session.Outstanding(); n != 0 {
			t.Errorf("%d events delivered after the term", n)
		}
		if marks, _ := w.marks.List(t.Context()); len(marks) != 0 {
			t.Errorf("%d marks saved after the term", len(marks))
		}
		p.stop()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
	})
}

func TestFencedMarkEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.begin(streamer.Config{}, delivery.Config{})
		synctest.Wait()
		young := w.begin(streamer.Config{}, delivery.Config{})
		w.source.Append(inserts(10, 0)...)
		go func() {
			for {
				batches, err := old.session.Receive(t.Context())
				if err != nil {
					return
				}
				for _, b := range batches {
					old.session.Ack(b)
				}
			}
		}()
		time.Sleep(10 * time.Second) // a round of marks, refused
		if n := len(old.node.Status()); n == partitions {
			t.Error("the fenced terms go on")
		}
		marks, _ := w.marks.List(t.Context())
		for _, m := range marks {
			if m.Epoch.Revision != 2 {
				t.Errorf("partition %d was saved by epoch %v", m.Partition, m.Epoch)
			}
		}
		old.crash()
		young.crash()
	})
}

func TestFullSessionHoldsOnlyUntilItAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{}, delivery.Config{CreditEvents: 10})
		w.source.Append(inserts(500, 0)...)
		seen := 0
		for seen < 500 {
			batches, err := p.session.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := p.session.Outstanding(); n > 10+partitions*7 {
				t.Fatalf("%d events outstanding", n)
			}
			for _, b := range batches {
				seen += len(b.Events)
				p.session.Ack(b)
			}
		}
		p.crash()
	})
}

// TestNothingIsLostWhateverCrashes drives nodes through random appends, acknowledgements, crashes and stops. Whatever happens, the
// subscriber sees every event of a document in order, repetitions are contiguous replays, and no mark passes what it has not
// acknowledged or moves back.
func TestNothingIsLostWhateverCrashes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				do: rapid.SampledFrom([]string{"append", "append", "receive", "receive", "ack", "ack", "time", "crash", "stop"}).Draw(rt, "do"),
				n:  rapid.IntRange(1, 40).Draw(rt, "n"),
			}
		}), 1, 60).Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = drive(t, steps) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

type step struct {
	do string
	n  int
}

// A reader is the subscriber of the model: what it has seen and acknowledged, by partition.
type reader struct {
	seen, acked map[change.Partition]change.Position
	pending     []*delivery.Batch
	count       map[string]int
}

// take notes a batch. Its events follow each other; the first may repeat what was seen, but leaves nothing out.
func (r *reader) take(b *delivery.Batch, all map[change.Partition][]change.Position) error {
	if b.From.After(change.Later(r.seen[b.Partition], change.At(change.Timestamp{T: 1001, I: 1}))) {
		for _, p := range all[b.Partition] {
			if p.After(r.seen[b.Partition]) && !p.After(b.From) {
				return fmt.Errorf("partition %d: a batch from %v leaves out %v", b.Partition, b.From, p)
			}
		}
	}
	at := b.From
	for i := range b.Events {
		p := b.Events[i].Position()
		if !p.After(at) || p.After(b.To) {
			return fmt.Errorf("partition %d: event %v outside or out of order in (%v, %v]", b.Partition, p, b.From, b.To)
		}
		for _, q := range all[b.Partition] {
			if q.After(at) && p.After(q) {
				return fmt.Errorf("partition %d: %v is left out inside a batch", b.Partition, q)
			}
		}
		at = p
		r.count[string(p.Token)]++
	}
	r.seen[b.Partition] = change.Later(r.seen[b.Partition], b.To)
	return nil
}

func drive(t *testing.T, steps []step) error {
	w := newWorld(t)
	all := make(map[change.Partition][]change.Position)
	total := 0
	r := &reader{seen: map[change.Partition]change.Position{}, acked: map[change.Partition]change.Position{}, count: map[string]int{}}
	marks := make(map[change.Partition]change.Position)
	p := w.begin(streamer.Config{}, delivery.Config{CreditEvents: 30})
	defer func() { p.crash() }()
	receive := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		batches, _ := p.session.Receive(ctx)
		for _, b := range batches {
			if err := r.take(b, all); err != nil {
				return err
			}
		}
		r.pending = append(r.pending, batches...)
		return nil
	}
	acknowledge := func(n int) {
		for ; n > 0 && len(r.pending) > 0; n-- {
			b := r.pending[0]
			r.pending = r.pending[1:]
			p.session.Ack(b)
			r.acked[b.Partition] = change.Later(r.acked[b.Partition], b.To)
		}
	}
	check := func() error {
		stored, err := w.marks.List(t.Context())
		if err != nil {
			return err
		}
		for _, m := range stored {
			if marks[m.Partition].After(m.Position) {
				return fmt.Errorf("partition %d: the mark moved back from %v to %v", m.Partition, marks[m.Partition], m.Position)
			}
			marks[m.Partition] = m.Position
			for _, q := range all[m.Partition] {
				if !q.After(m.Position) && q.After(r.acked[m.Partition]) {
					return fmt.Errorf("partition %d: the mark %v passes %v, which was not acknowledged", m.Partition, m.Position, q)
				}
			}
		}
		return nil
	}
	for _, s := range steps {
		synctest.Wait()
		switch s.do {
		case "append":
			for _, ev := range w.source.Append(inserts(s.n, int64(total%50))...) {
				e, _ := change.Parse(ev.Bytes())
				q, _ := change.NewPartitioner(partitions).Of(&e)
				all[q] = append(all[q], ev.Position())
			}
			total += s.n
		case "receive":
			if err := receive(); err != nil {
				return err
			}
		case "ack":
			acknowledge(s.n)
		case "time":
			time.Sleep(time.Duration(s.n) * time.Second / 4)
		case "crash", "stop":
			if s.do == "stop" {
				p.stop()
				if err := <-p.done; err != nil {
					return err
				}
				p.done <- nil
			}
			p.crash()
			r.pending = nil
			p = w.begin(streamer.Config{}, delivery.Config{CreditEvents: 30})
		}
		if err := check(); err != nil {
			return fmt.Errorf("after %s: %w", s.do, err)
		}
	}
	for range 10 * (total + 10) {
		synctest.Wait()
		if err := receive(); err != nil {
			return err
		}
		acknowledge(1000)
	}
	for q, positions := range all {
		for i, pos := range positions {
			if r.count[string(pos.Token)] == 0 {
				return fmt.Errorf("partition %d: event %d of %d never came", q, i, len(positions))
			}
		}
	}
	time.Sleep(10 * time.Second)
	return check()
}
