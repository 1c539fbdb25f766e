package retention_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/retention"
	"github.com/mongostream/streamer/retention/retentiontest"
)

// A node is a log over MongoDB and the chain, and a writer.
type node struct {
	t      *testing.T
	mongo  *oplogtest.Log
	log    *oplog.Log
	writer *retention.Writer
	source *retention.Source
	ended  chan error // of the writer
	lost   []oplog.Loss
	stop   func()
}

const chainFolder = "v1/test/1"

func newMongo() *oplogtest.Log {
	mongo := &oplogtest.Log{ReplyEvents: 10}
	mongo.Tick(1)
	return mongo
}

// start runs a node. Its writer ends segments after an interval of a minute, or at 2,000 bytes.
func start(t *testing.T, mongo *oplogtest.Log, store retention.Store, cfg retention.WriterConfig) *node {
	t.Helper()
	return startWith(t, mongo, store, cfg, func(*retention.SourceConfig) {})
}

// startWith runs a node with another source.
func startWith(t *testing.T, mongo *oplogtest.Log, store retention.Store, cfg retention.WriterConfig, adjust func(*retention.SourceConfig)) *node {
	t.Helper()
	return startOn(t, mongo, retention.ChainAt(store, chainFolder), cfg, adjust)
}

// startOn runs a node on another chain.
func startOn(t *testing.T, mongo *oplogtest.Log, chain *retention.Chain, cfg retention.WriterConfig, adjust func(*retention.SourceConfig)) *node {
	t.Helper()
	n := &node{t: t, mongo: mongo, ended: make(chan error, 1)}
	reach := func(context.Context) (gap.Reach, error) {
		first, last := mongo.Reach()
		return gap.Reach{First: first, Last: last}, nil
	}
	source := retention.SourceConfig{Reach: reach, Coverage: cfg.Coverage}
	adjust(&source)
	n.source = retention.NewSource(source, mongo, func() *retention.Chain { return chain })
	n.log = oplog.New(oplog.Config{
		Partitions: 8, Reach: reach, RingBytes: 20_000, PrefetchBytes: 10_000, Dedup: &dedup.Config{},
		Lost: func(l oplog.Loss) { n.lost = append(n.lost, l) },
	}, n.source)
	if cfg.Node == "" {
		cfg.Node = "a"
	}
	if cfg.Interval == 0 {
		cfg.Interval = time.Minute
	}
	if cfg.Size == 0 {
		cfg.Size = 2000
	}
	n.writer = retention.NewWriter(cfg, chain, n.log)
	ctx, cancel := context.WithCancel(t.Context())
	logged := make(chan error, 1)
	go func() { logged <- n.log.Run(ctx, change.Position{}) }()
	go func() { n.ended <- n.writer.Run(ctx) }()
	synctest.Wait()
	n.stop = func() {
		cancel()
		if err := <-logged; err != nil {
			t.Errorf("log: %v", err)
		}
		<-n.ended
	}
	return n
}

// pass lets time pass, in which MongoDB moves on.
func (n *node) pass(d time.Duration) {
	for step := max(time.Second, (d / 30).Truncate(time.Second)); d > 0; d -= step {
		n.mongo.Tick(uint32(step / time.Second))
		time.Sleep(step)
	}
	synctest.Wait()
}

// read reads from a position until it has come to another one.
func (n *node) read(from, to change.Position) (got []change.Position, losses []oplog.Loss) {
	n.t.Helper()
	c := n.log.Cursor(oplog.Start{Position: from})
	defer c.Close()
	ctx, cancel := context.WithTimeout(n.t.Context(), 30*time.Minute)
	defer cancel()
	for {
		b, err := c.Next(ctx)
		if err != nil {
			n.t.Fatalf("read: %v, after %d changes", err, len(got))
		}
		if l := b.Loss(); l != nil {
			losses = append(losses, *l)
		}
		for i := range b.Len() {
			got = append(got, b.Event(i).Position().Clone())
		}
		if b.End().Covers(to) {
			return got, losses
		}
	}
}

// write appends n changes of several collections, some of them in transactions.
func write(mongo *oplogtest.Log, n int, from int64) (events []changetest.Event) {
	for i := 0; i < n; {
		e := changetest.Event{ID: from + int64(i), Coll: fmt.Sprintf("c%d", i%20), Pad: 50}
		written := mongo.Append(e)
		events = append(events, written...)
		for range i % 3 { // more of this time
			i++
			e.ID, e.Index, e.Time = from+int64(i), e.Index+1, written[0].Time
			events = append(events, mongo.Append(e)...)
		}
		i++
	}
	return events
}

func positions(events []changetest.Event) (all []change.Position) {
	for _, e := range events {
		all = append(all, e.Position())
	}
	return all
}

func same(got, want []change.Position) error {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i].Compare(want[i]) != 0 {
			return fmt.Errorf("change %d differs: %d instead of %d", i, len(got), len(want))
		}
	}
	return nil
}

// The log that has left MongoDB is read from segments, and continues in MongoDB without a change
// lost or twice.
func TestLogOutlivesTheOplog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		first := write(mongo, 200, 0)
		n.pass(2 * time.Minute)
		mongo.Truncate(0)
		second := write(mongo, 100, 1000)
		n.pass(2 * time.Minute)
		mongo.Truncate(20)
		third := write(mongo, 30, 2000)
		all := slices.Concat(first, second, third)
		for _, from := range []int{0, 1, 57, 150, 199, 200, 260, 301, len(all) - 2} {
			got, losses := n.read(all[from].Position(), all[len(all)-1].Position())
			if err := same(got, positions(all[from+1:])); err != nil || len(losses) > 0 {
				t.Errorf("from change %d: %v, losses %v", from, err, losses)
			}
		}
		if len(n.lost) > 0 {
			t.Errorf("losses: %v", n.lost)
		}
		if segments := len(store.Keys()); segments < 5 {
			t.Errorf("%d segments", segments)
		}
	})
}

// Segments are written as often as the Interval says, while they are not full.
func TestSegmentsAreWrittenAsOftenAsConfigured(t *testing.T) {
	written := func(interval time.Duration) (n int) {
		synctest.Test(t, func(t *testing.T) {
			mongo, store := newMongo(), &retentiontest.Memory{}
			w := start(t, mongo, store, retention.WriterConfig{Interval: interval, Size: 1 << 20})
			for minute := range int64(30) {
				write(mongo, 1, minute)
				w.pass(time.Minute)
			}
			n = len(store.Keys())
			w.stop()
		})
		return n
	}
	if often, seldom := written(time.Minute), written(10*time.Minute); often < 20 || seldom > 5 {
		t.Errorf("in half an hour, %d segments at an interval of a minute, %d at one of ten", often, seldom)
	}
}

// Without the writer the same reader has a loss.
func TestOplogAloneLosesWhatHasLeftIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo := newMongo()
		down := &retentiontest.Memory{Before: func(context.Context, string, string) error { return errors.New("down") }}
		n := start(t, mongo, down, retention.WriterConfig{})
		defer n.stop()
		all := write(mongo, 200, 0)
		n.pass(time.Minute)
		mongo.Truncate(20)
		got, losses := n.read(all[3].Position(), all[len(all)-1].Position())
		if len(losses) != 1 || losses[0].Reason != gap.HistoryLost || len(got) > 20 {
			t.Errorf("%d changes, losses %v", len(got), losses)
		}
		if _, err := n.writer.Trouble(); err == nil {
			t.Error("the writer has no trouble")
		}
	})
}

// A chain that is younger than the oplog is not asked for what the oplog has: only what has left
// the oplog is lost.
func TestYoungChainLosesNothingOfTheOplog(t *testing.T) {
	t.Run("known", func(t *testing.T) { youngChain(t, func(*retention.SourceConfig) {}) })
	t.Run("beginning unknown", func(t *testing.T) {
		youngChain(t, func(c *retention.SourceConfig) {
			reach := c.Reach
			c.Reach = func(ctx context.Context) (gap.Reach, error) {
				r, err := reach(ctx)
				r.First = change.Timestamp{}
				return r, err
			}
		})
	})
}

func youngChain(t *testing.T, adjust func(*retention.SourceConfig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		all := write(mongo, 200, 0) // before retention is turned on
		mongo.Tick(60)
		n := startWith(t, mongo, store, retention.WriterConfig{}, adjust)
		defer n.stop()
		all = append(all, write(mongo, 100, 1000)...)
		n.pass(2 * time.Minute)
		mongo.Truncate(len(all) - 50)
		got, losses := n.read(all[3].Position(), all[len(all)-1].Position())
		if err := same(got, positions(all[len(all)-len(got):])); err != nil || len(got) < len(all)-52 { // an end of the oplog within a time
			t.Errorf("%d of %d changes: %v", len(got), len(all), err)
		}
		if len(losses) != 1 || losses[0].To.After(all[52].Position()) {
			t.Errorf("losses %v, the oplog begins at %s", losses, all[50].Time)
		}
	})
}

// verify walks the chain: each segment names the one before and begins where that ends.
func verify(t *testing.T, store retention.Store) (headers []retention.Header) {
	t.Helper()
	chain := retention.ChainAt(store, chainFolder)
	all, err := chain.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		h, _, err := chain.Header(t.Context(), s.Number)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if before := headers[i-1]; h.Previous != before.ID || h.PreviousNumber != before.Number || h.From != before.To {
				t.Errorf("segment %d from %s does not follow %d to %s", h.Number, h.From, before.Number, before.To)
			}
		}
		headers = append(headers, h)
	}
	return headers
}

func seg(n int) string { return fmt.Sprintf("%s/seg/%020d", chainFolder, n) }

// A restarted writer meets the last stored change again and continues after it.
func TestRestartedWriterContinuesTheChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		var all []changetest.Event
		for round := range 4 {
			n := start(t, mongo, store, retention.WriterConfig{})
			all = append(all, write(mongo, 60, int64(1000*round))...)
			n.pass(2 * time.Minute)
			all = append(all, write(mongo, 3, int64(1000*round+500))...) // not stored before the end
			synctest.Wait()
			n.stop()
		}
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		n.pass(2 * time.Minute)
		mongo.Truncate(1)
		got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
		if err := same(got, positions(all[1:])); err != nil || len(losses) > 0 {
			t.Errorf("%v, losses %v", err, losses)
		}
		events := 0
		for _, h := range verify(t, store) {
			events += h.Events
		}
		if events != len(all) {
			t.Errorf("%d changes are stored, %d were written", events, len(all))
		}
	})
}

// MongoDB that was restored from a backup has another history after the same time: the chain is not
// extended.
func TestRestoredHistoryStopsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		write(mongo, 60, 0)
		n.pass(2 * time.Minute)
		n.stop()
		segments := len(store.Keys())

		restored := newMongo()
		write(restored, 20, 5000) // of the same times
		restored.Tick(3600)
		n = start(t, restored, store, retention.WriterConfig{})
		defer n.stop()
		n.pass(2 * time.Minute)
		if _, err := n.writer.Trouble(); !errors.Is(err, retention.ErrHistory) {
			t.Errorf("trouble: %v", err)
		}
		if len(store.Keys()) != segments {
			t.Error("the chain was extended")
		}
	})
}

// MongoDB that was restored to a time before the end of the chain has another history too.
func TestRestoreToAnEarlierTimeStopsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		write(mongo, 60, 0)
		n.pass(10 * time.Minute)
		write(mongo, 60, 1000)
		n.pass(2 * time.Minute)
		n.stop()

		restored := newMongo()
		write(restored, 20, 0)
		n = start(t, restored, store, retention.WriterConfig{})
		defer n.stop()
		first, last := restored.Reach()
		n.log.SetReach(gap.Reach{First: first, Last: last}, change.Timestamp{})
		synctest.Wait()
		if _, err := n.writer.Trouble(); !errors.Is(err, retention.ErrHistory) {
			t.Errorf("trouble: %v", err)
		}
	})
}

// A writer whose disk is full deletes what has expired, and continues.
func TestFullDiskIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		mongo, store := newMongo(), &retentiontest.Memory{}
		store.Before = func(_ context.Context, op, _ string) error {
			if op == "put" && full.Load() {
				return errors.New("no space left on device")
			}
			if op == "delete" {
				full.Store(false)
			}
			return nil
		}
		n := start(t, mongo, store, retention.WriterConfig{MaxBytes: 5000})
		defer n.stop()
		write(mongo, 300, 0)
		n.pass(2 * time.Minute)
		full.Store(true)
		write(mongo, 100, 1000)
		n.pass(2 * time.Minute)
		if _, err := n.writer.Trouble(); err == nil {
			t.Error("the writer has no trouble")
		}
		n.pass(70 * time.Minute)
		if _, err := n.writer.Trouble(); err != nil {
			t.Errorf("trouble: %v", err)
		}
	})
}

// A segment that cannot be deleted costs its space only: later ones are deleted.
func TestSegmentThatStaysKeepsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		first := ""
		store.Before = func(_ context.Context, op, key string) error {
			if op == "delete" && (first == "" || key == first) {
				first = key
				return errors.New("operation not permitted")
			}
			return nil
		}
		n := start(t, mongo, store, retention.WriterConfig{MaxBytes: 5000})
		defer n.stop()
		write(mongo, 300, 0)
		n.pass(2 * time.Minute)
		floor, err := retention.ChainAt(store, chainFolder).Floor(t.Context())
		if err != nil || floor < 3 {
			t.Fatalf("the floor is %d: %v", floor, err)
		}
		n.pass(70 * time.Minute)
		write(mongo, 10, 1000)
		n.pass(2 * time.Minute)
		all, _, err := store.List(t.Context(), chainFolder+"/seg", "")
		if err != nil || len(all) < 2 || !strings.HasSuffix(first, "/"+all[0].Name) {
			t.Fatalf("%q is not the first of %d segments: %v", first, len(all), err)
		}
		if second := all[1].Name; second < fmt.Sprintf("%020d", floor) {
			t.Errorf("%s is still there, although the floor was %d", second, floor)
		}
	})
}

// Where nothing can be deleted, segments expire anyway.
func TestSegmentsThatStayStopNoExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		store.Before = func(_ context.Context, op, _ string) error {
			if op == "delete" {
				return errors.New("operation not permitted")
			}
			return nil
		}
		n := start(t, mongo, store, retention.WriterConfig{MaxBytes: 5000})
		defer n.stop()
		floor := func() uint64 {
			at, err := retention.ChainAt(store, chainFolder).Floor(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		write(mongo, 300, 0)
		n.pass(2 * time.Minute)
		before := floor()
		n.pass(70 * time.Minute)
		write(mongo, 300, 1000)
		n.pass(2 * time.Minute)
		if after := floor(); before == 0 || after <= before {
			t.Errorf("the floor was %d and is %d", before, after)
		}
	})
}

// silencer has a store answer nothing while it is set.
func silencer(store *retentiontest.Memory) *atomic.Bool {
	var silent atomic.Bool
	store.Before = func(context.Context, string, string) error {
		if silent.Load() {
			return errors.New("silent")
		}
		return nil
	}
	return &silent
}

// A request that failed is no trouble for ever where nobody asks again.
func TestFailedReadIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		down := silencer(store)
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		all := write(mongo, 200, 0)
		n.pass(2 * time.Minute)
		mongo.Truncate(1)
		down.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.source.Open(ctx, all[0].Position()); err == nil {
			t.Fatal("opened")
		}
		down.Store(false)
		if since, err := n.source.Trouble(); err == nil || since.IsZero() {
			t.Error("nobody is told that the store does not answer")
		}
		n.pass(3 * time.Minute)
		if since, err := n.source.Trouble(); err != nil || !since.IsZero() {
			t.Errorf("trouble since %s: %v", since, err)
		}
	})
}

// A store may do what it is asked to and not answer, refuse, or say that the object exists: in the
// chain is each change once.
func TestLostAnswersOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, dice := newMongo(), rand.New(rand.NewPCG(1, 2))
		store := &retentiontest.Memory{}
		fail := func(kind string) func(context.Context, string, string) error {
			return func(_ context.Context, op, _ string) error {
				if op == "put" && dice.IntN(2) == 0 || dice.IntN(10) == 0 {
					return fmt.Errorf("%s of %s", kind, op)
				}
				return nil
			}
		}
		store.Before, store.After = fail("refusal"), fail("lost answer")
		n := start(t, mongo, store, retention.WriterConfig{})
		var all []changetest.Event
		for round := range 10 {
			all = append(all, write(mongo, 20, int64(100*round))...)
			n.pass(time.Minute)
		}
		n.pass(10 * time.Minute)
		store.Before, store.After = nil, nil
		events := 0
		for _, h := range verify(t, store) {
			events += h.Events
		}
		if events != len(all) {
			t.Errorf("%d changes are stored, %d were written", events, len(all))
		}
		n.stop()
	})
}

// A writer whose every answer to a put is lost finds its own segments under their numbers, and
// counts each of them.
func TestWriterKnowsItsSegmentsWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store, registry := newMongo(), &retentiontest.Memory{}, prometheus.NewRegistry()
		lost := func(_ context.Context, op, key string) error {
			if op == "put" && strings.Contains(key, "/seg/") {
				return errors.New("lost answer")
			}
			return nil
		}
		store.After = lost
		n := start(t, mongo, store, retention.WriterConfig{Shared: true, Registerer: registry})
		defer n.stop()
		for round := range 5 {
			write(mongo, 20, int64(100*round))
			n.pass(2 * time.Minute)
		}
		store.After = nil
		chain := verify(t, store)
		if got := counted(t, registry, "streamer_retention_segments_written_total"); len(chain) < 5 || int(got) != len(chain) {
			t.Errorf("it counts %v segments, and there are %d", got, len(chain))
		}
		if got := counted(t, registry, "streamer_retention_write_failures_total"); got != 0 {
			t.Errorf("it counts %v failures", got)
		}
	})
}

// While the store does not answer, the log is read as before, and what was missed is written
// afterwards.
func TestSlowStoreDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, answer := newMongo(), make(chan struct{})
		store := &retentiontest.Memory{}
		store.Before = func(ctx context.Context, op, _ string) error {
			if op != "put" {
				return nil
			}
			select {
			case <-answer:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		live := n.log.Cursor(oplog.Start{Live: true})
		defer live.Close()
		var all []changetest.Event
		for round := range 20 {
			events := write(mongo, 100, int64(1000*round)) // more than the ring
			all = append(all, events...)
			began := time.Now()
			for read := 0; read < len(events); {
				b, err := live.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				read += b.Len()
			}
			if took := time.Since(began); took > 0 {
				t.Fatalf("round %d waited for %s", round, took)
			}
			n.pass(10 * time.Second)
		}
		if since, err := n.writer.Trouble(); err == nil || since.IsZero() {
			t.Error("nobody is told that the store does not answer")
		}
		close(answer)
		n.pass(3 * time.Minute)
		if _, err := n.writer.Trouble(); err != nil {
			t.Errorf("trouble: %v", err)
		}
		mongo.Truncate(1)
		got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
		if err := same(got, positions(all[1:])); err != nil || len(losses) > 0 {
			t.Errorf("%v, losses %v", err, losses)
		}
	})
}

// A damaged part is one loss that bounds what is missing; everything else is read.
func TestDamageIsABoundedLoss(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"a block":          func(b []byte) []byte { b[len(b)/4] ^= 1; return b },
		"the footer":       func(b []byte) []byte { b[len(b)-40] ^= 1; return b },
		"the header":       func(b []byte) []byte { b[30] ^= 1; return b },
		"the end":          func(b []byte) []byte { return b[:len(b)-1] },
		"all but a byte":   func(b []byte) []byte { return b[:1] },
		"everything":       func([]byte) []byte { return nil },
		"another's object": func([]byte) []byte { return []byte("<html>") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mongo, store := newMongo(), &retentiontest.Memory{}
				n := start(t, mongo, store, retention.WriterConfig{})
				defer n.stop()
				all := write(mongo, 300, 0)
				n.pass(2 * time.Minute)
				mongo.Truncate(1)
				headers := verify(t, store)
				const third = 2
				store.Damage(seg(int(headers[third].Number)), damage)
				got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
				if len(losses) != 1 || losses[0].Reason != gap.Damaged && losses[0].Reason != gap.HistoryLost {
					t.Fatalf("losses %v", losses)
				}
				l := losses[0]
				if l.From.Time.Compare(headers[third].From) < 0 || l.To.Time.Compare(headers[third].To) > 0 {
					t.Errorf("lost from %s to %s, the segment has %s to %s", l.From, l.To, headers[third].From, headers[third].To)
				}
				for _, e := range all[1:] {
					has := len(got) > 0 && got[0].Compare(e.Position()) == 0
					if has {
						got = got[1:]
					}
					within := e.Time.Compare(l.From.Time) >= 0 && e.Time.Compare(l.To.Time) < 0 && (len(l.Namespaces) == 0 || slices.Contains(l.Namespaces, "shop."+e.Coll))
					if !has && !within {
						t.Fatalf("change %d is missing silently", e.ID)
					}
				}
				if len(got) > 0 {
					t.Errorf("%d changes that nobody wrote, or twice", len(got))
				}
			})
		})
	}
}

// A store that falls silent within a damaged span hides no damage: what the reader passed of the
// span is a loss before it continues in MongoDB.
func TestSilentStoreHidesNoDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		silent := silencer(store)
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		all := write(mongo, 5, 0)
		begin := mongo.Append(changetest.Event{ID: 1000, Txn: 1})[0]
		all = append(all, begin)
		for i := range 300 { // more than a segment has: the damaged span is not over at its end
			all = append(all, mongo.Append(changetest.Event{ID: int64(1001 + i), Index: uint64(i + 1), Txn: 1, Time: begin.Time, Pad: 100, Coll: fmt.Sprintf("c%d", i%3)})...)
		}
		n.pass(2 * time.Minute)
		mongo.Truncate(1)
		headers := verify(t, store)
		cut := slices.IndexFunc(headers, func(h retention.Header) bool { return h.Cut })
		if cut < 0 {
			t.Fatal("no segment is cut")
		}
		store.Damage(seg(int(headers[cut].Number)), func(b []byte) []byte { b[len(b)/4] ^= 1; return b })
		stream, err := n.source.Open(t.Context(), all[0].Position())
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		var got []change.Position
		var losses []oplog.Loss
		place := all[0].Position()
		for {
			reply, err := stream.Next(t.Context())
			if err != nil {
				if !errors.Is(err, oplog.ErrPositionLost) {
					t.Fatal(err)
				}
				break
			}
			if reply.Loss != nil {
				losses, place = append(losses, *reply.Loss), change.Later(place, reply.Loss.To)
			}
			for _, raw := range reply.Events {
				e, err := change.Parse(raw)
				if err != nil {
					t.Fatal(err)
				}
				place = e.Position().Clone()
				got = append(got, place)
				silent.Store(silent.Load() || e.Time() == begin.Time)
			}
		}
		missing := 0
		for _, e := range all[1:] {
			if e.Position().After(place) || slices.ContainsFunc(got, func(p change.Position) bool { return p.Compare(e.Position()) == 0 }) {
				continue
			}
			missing++
			if !slices.ContainsFunc(losses, func(l oplog.Loss) bool {
				return e.Time.Compare(l.From.Time) >= 0 && e.Time.Compare(l.To.Time) < 0 && (len(l.Namespaces) == 0 || slices.Contains(l.Namespaces, "shop."+e.Coll))
			}) {
				t.Fatalf("change %d is missing silently; losses %v", e.ID, losses)
			}
		}
		if missing == 0 || len(got) == 0 {
			t.Errorf("%d changes are read, %d are missing", len(got), missing)
		}
	})
}

// A store that falls silent after a reader has asked where the log begins, or before, still has what
// the reader then skips: the loss says so.
func TestSilentStoreMayHaveWhatWasSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		silent := silencer(store)
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		all := write(mongo, 50, 0)
		n.pass(2 * time.Minute)
		all = append(all, write(mongo, 20, 1000)...)
		synctest.Wait()
		mongo.Truncate(10)
		first := verify(t, store)[0].From
		for _, goes := range []bool{true, false} {
			begins, err := n.log.Earliest(t.Context(), first)
			if err != nil || begins != first {
				t.Errorf("the log begins at %s, not at %s: %v", begins, first, err)
			}
			silent.Store(goes)
			n.pass(5 * time.Minute) // what was read meanwhile is forgotten
			got, losses := n.read(change.At(begins), all[len(all)-1].Position())
			if goes != (len(losses) == 1 && losses[0].Unanswered) || goes != (len(got) < len(all)) {
				t.Errorf("silent %t: %d changes, losses %+v", goes, len(got), losses)
			}
			if begins, err = n.log.Earliest(t.Context(), first); err != nil || begins != first {
				t.Errorf("silent %t: the log begins at %s, not at %s: %v", goes, begins, first, err)
			}
		}
	})
}

// A damaged object under the next number, as a broken store may leave it, is stepped over.
func TestDamagedNumberIsSteppedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		all := write(mongo, 150, 0)
		n.pass(2 * time.Minute)
		next := verify(t, store)
		number := int(next[len(next)-1].Number) + 1
		if err := store.Put(t.Context(), seg(number), []byte("half a segm")); err != nil {
			t.Fatal(err)
		}
		all = append(all, write(mongo, 150, 1000)...)
		n.pass(3 * time.Minute)
		mongo.Truncate(1)
		got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
		if err := same(got, positions(all[1:])); err != nil || len(losses) > 0 {
			t.Errorf("%v, losses %v", err, losses)
		}
	})
}

// Who asks for more than a segment covers gets what it has, and a loss with the missing namespaces.
func TestNarrowerSegmentsAreALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		of := func(namespaces ...string) retention.Coverage {
			return retention.Coverage{Coverage: change.Coverage{Namespaces: namespaces}}
		}
		n := start(t, mongo, store, retention.WriterConfig{Coverage: of("shop.*")})
		all := write(mongo, 40, 0)
		n.pass(2 * time.Minute)
		n.stop()
		segments := len(verify(t, store))
		n = start(t, mongo, store, retention.WriterConfig{Coverage: of("shop.*", "crm.leads")})
		defer n.stop()
		last := write(mongo, 2, 100)
		n.pass(2 * time.Minute)
		mongo.Truncate(1)
		got, losses := n.read(all[0].Position(), last[1].Position())
		if err := same(got, positions(append(all[1:], last...))); err != nil {
			t.Error(err)
		}
		if len(losses) != segments {
			t.Errorf("%d losses of %d segments", len(losses), segments)
		}
		for _, l := range losses {
			if l.Reason != gap.Unread || !slices.Equal(l.Namespaces, []string{"crm.leads"}) {
				t.Errorf("loss %+v", l)
			}
		}
	})
}

// What a node does not read any more is not delivered from segments that have it, and nothing else
// is missing for that.
func TestUnwatchedChangesOfSegmentsAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		all := write(mongo, 100, 0)
		n.pass(2 * time.Minute)
		n.stop()
		n = startWith(t, mongo, store, retention.WriterConfig{}, func(c *retention.SourceConfig) {
			c.Keep = func(e *change.Event) bool { return string(e.Coll()) != "c0" }
		})
		defer n.stop()
		last := write(mongo, 2, 100)
		n.pass(2 * time.Minute)
		mongo.Truncate(1)
		var want []changetest.Event
		for _, e := range append(all[1:], last...) {
			if e.Coll != "c0" {
				want = append(want, e)
			}
		}
		got, losses := n.read(all[0].Position(), last[1].Position())
		if err := same(got, positions(want)); err != nil || len(losses) > 0 || len(want) == len(all)+1 {
			t.Errorf("%v, %d losses", err, len(losses))
		}
	})
}

// A list of namespaces that is too long for a header has a bounded form there: who reads the same
// list lacks nothing, and who reads more does.
func TestLongWatchListLacksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		long := retention.Coverage{Coverage: change.Coverage{Namespaces: []string{"shop.*"}}}
		for i := range 1000 {
			long.Namespaces = append(long.Namespaces, fmt.Sprintf("crm.collection%d", i))
		}
		n := start(t, mongo, store, retention.WriterConfig{Coverage: long})
		defer n.stop()
		all := write(mongo, 200, 0)
		n.pass(2 * time.Minute)
		mongo.Truncate(1)
		got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
		if err := same(got, positions(all[1:])); err != nil || len(losses) > 0 {
			t.Errorf("%v, %d losses", err, len(losses))
		}
		longer := long
		longer.Namespaces = append(slices.Clone(long.Namespaces), "crm.leads")
		for _, h := range verify(t, store) {
			if names, lacks := h.Coverage.Lacks(longer); !lacks || !slices.Equal(names, []string{"crm.*"}) {
				t.Fatalf("who reads more lacks %.100v, %t", names, lacks)
			}
		}
	})
}

// A node whose watch has changed does not wait for a change that its stream does not read, however
// often it restarts.
func TestChangedWatchOutlivesRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		watch := func(ns string) retention.WriterConfig {
			return retention.WriterConfig{
				Coverage: retention.Coverage{Coverage: change.Coverage{Namespaces: []string{ns}}},
				Window:   func() time.Duration { return 4 * time.Minute }, // idle segments come soon
			}
		}
		n := start(t, mongo, store, watch("shop.a"))
		write(mongo, 20, 0)
		n.pass(2 * time.Minute)
		n.stop()
		other := newMongo() // without what is not read any more
		other.Tick(500)
		for range 3 {
			n = start(t, other, store, watch("shop.b"))
			n.pass(5 * time.Minute)
			if _, err := n.writer.Trouble(); err != nil {
				t.Errorf("trouble: %v", err)
			}
			n.stop()
		}
	})
}

// An idle chain does not leave the oplog: empty segments continue it.
func TestIdleChainContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{Window: func() time.Duration { return 4 * time.Minute }})
		defer n.stop()
		all := write(mongo, 5, 0)
		n.pass(20 * time.Minute)
		mongo.Truncate(0)
		headers := verify(t, store)
		if last := headers[len(headers)-1]; len(headers) < 15 || last.Events != 0 || last.LastRef() != all[len(all)-1].Position().Ref() {
			t.Errorf("%d segments, the last one is %+v", len(headers), last)
		}
		more := write(mongo, 5, 100)
		got, losses := n.read(all[0].Position(), more[len(more)-1].Position())
		if err := same(got, positions(append(all[1:], more...))); err != nil || len(losses) > 0 {
			t.Errorf("%v, losses %v", err, losses)
		}
	})
}

// A transaction that is larger than a segment may be is cut, and read whole.
func TestLargeTransactionsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		all := write(mongo, 5, 0)
		at := mongo.Append(changetest.Event{ID: 1000, Txn: 1})[0]
		all = append(all, at)
		for i := range 300 {
			all = append(all, mongo.Append(changetest.Event{ID: int64(1001 + i), Index: uint64(i + 1), Txn: 1, Time: at.Time, Pad: 100, Coll: fmt.Sprintf("c%d", i%3)})...)
		}
		all = append(all, write(mongo, 5, 2000)...)
		n.pass(2 * time.Minute)
		n.stop()
		cut := 0
		for _, h := range verify(t, store) {
			if h.Cut {
				cut++
			}
		}
		if cut < 3 {
			t.Errorf("%d segments are cut", cut)
		}
		n = start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		all = append(all, write(mongo, 5, 3000)...)
		n.pass(2 * time.Minute)
		mongo.Truncate(1)
		for _, from := range []int{0, 4, 5, 100, 200, 304, 306} {
			got, losses := n.read(all[from].Position(), all[len(all)-1].Position())
			if err := same(got, positions(all[from+1:])); err != nil || len(losses) > 0 {
				t.Errorf("from change %d: %v, losses %v", from, err, losses)
			}
		}
	})
}

// Where a chain ends within a transaction that MongoDB has lost, the rest is a loss: nothing is
// asked again and again.
func TestChainThatEndsWithinALostTransactionIsFollowedByALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{Interval: time.Hour})
		all := write(mongo, 5, 0)
		at := mongo.Append(changetest.Event{ID: 1000, Txn: 1})[0]
		for i := range 100 {
			all = append(all, mongo.Append(changetest.Event{ID: int64(1001 + i), Index: uint64(i + 1), Txn: 1, Time: at.Time, Pad: 100})...)
		}
		synctest.Wait()
		n.stop()
		extent, err := retention.ChainAt(store, chainFolder).Extent(t.Context())
		if err != nil || extent.To != at.Time {
			t.Fatalf("the chain ends at %s, the transaction is at %s: %v", extent.To, at.Time, err)
		}
		mongo.Tick(3600)
		later := write(mongo, 5, 3000)
		mongo.Truncate(len(later))
		mongo.Tick(1)
		var asked atomic.Int32
		store.Before = func(context.Context, string, string) error {
			if asked.Add(1)%1000 == 0 {
				time.Sleep(time.Minute)
			}
			return nil
		}
		n = start(t, mongo, store, retention.WriterConfig{Interval: time.Hour, Size: 1 << 20})
		defer n.stop()
		got, losses := n.read(all[0].Position(), later[len(later)-1].Position())
		if len(losses) != 1 || losses[0].From.Time != at.Time || losses[0].To.Time.Compare(later[0].Time) > 0 {
			t.Errorf("losses %v", losses)
		}
		if len(got) < len(later) || same(got[len(got)-len(later):], positions(later)) != nil {
			t.Errorf("%d changes were read", len(got))
		}
		if n := asked.Load(); n > 100 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// What MongoDB itself could not deliver is a loss in the chain too, and is not told as a new one.
func TestLossesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		all := write(mongo, 150, 0)
		poison := mongo.Append(changetest.Event{Op: change.SkippedName, Keyless: true})
		all = append(all, write(mongo, 150, 1000)...)
		n.pass(2 * time.Minute)
		told := len(n.lost)
		mongo.Truncate(1)
		got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
		if err := same(got, positions(all[1:])); err != nil {
			t.Error(err)
		}
		if len(losses) != 1 || losses[0].Reason != gap.Poison || losses[0].To.Compare(poison[0].Position()) != 0 {
			t.Errorf("losses %v", losses)
		}
		if told != 1 || len(n.lost) != 1 {
			t.Errorf("told %d times, then %d times", told, len(n.lost))
		}
	})
}

// counted returns the value of a metric.
func counted(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// A writer that stands still in a put until its number has expired creates that number again, and
// does not believe that it has written the chain.
func TestFloorFencesStalledWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		release, stalled := make(chan struct{}), make(chan string, 1)
		frozen := &stalling{Store: store, release: release, stalled: stalled}
		registry := prometheus.NewRegistry()
		a := start(t, mongo, frozen, retention.WriterConfig{Node: "a", Shared: true, Registerer: registry})
		defer a.stop()
		write(mongo, 20, 0)
		a.pass(2 * time.Minute)
		frozen.on.Store(true)
		write(mongo, 20, 100)
		a.pass(2 * time.Minute)
		key := <-stalled
		written := counted(t, registry, "streamer_retention_segments_written_total")

		b := start(t, mongo, store, retention.WriterConfig{Node: "b", Shared: true, MaxBytes: 4000})
		defer b.stop()
		for i := range 20 {
			write(mongo, 20, int64(1000+100*i))
			b.pass(5 * time.Minute)
		}
		if slices.Contains(store.Keys(), key) {
			t.Fatal("the number has not expired")
		}
		close(release)
		b.pass(2 * time.Minute)
		if !slices.Contains(store.Keys(), key) {
			t.Fatal("the number was not created again")
		}
		if again := counted(t, registry, "streamer_retention_segments_written_total"); again != written {
			t.Errorf("the stalled writer believes in %v segments, it has written %v", again, written)
		}
		all := write(mongo, 20, 5000)
		b.pass(5 * time.Minute)
		verify(t, store)
		mongo.Truncate(1)
		got, losses := b.read(all[0].Position(), all[len(all)-1].Position())
		if err := same(got, positions(all[1:])); err != nil || len(losses) > 0 {
			t.Errorf("%v, losses %v", err, losses)
		}
	})
}

// A stalling store stands still in a put until it is released.
type stalling struct {
	retention.Store

	on      atomic.Bool
	release chan struct{}
	stalled chan string
}

func (s *stalling) Put(ctx context.Context, key string, data []byte) error {
	if s.on.CompareAndSwap(true, false) {
		s.stalled <- key
		<-s.release // whatever the context says, as a frozen process
	}
	return s.Store.Put(context.WithoutCancel(ctx), key, data)
}

// careless is a store that overwrites objects.
type careless struct{ *retentiontest.Memory }

func (c careless) Put(ctx context.Context, key string, data []byte) error {
	return errors.Join(c.Delete(ctx, key), c.Memory.Put(ctx, key, data))
}

// A store that overwrites objects gets no segment of a writer that shares the chain, however long
// it waits; delivery does not depend on it.
func TestWriterRefusesStoresThatOverwrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, careless{store}, retention.WriterConfig{Shared: true})
		defer n.stop()
		write(mongo, 200, 0)
		n.pass(10 * time.Minute)
		if _, err := n.writer.Trouble(); fault.Of(err) != fault.RetentionCondition {
			t.Errorf("trouble: %v", err)
		}
		if keys := store.Keys(); len(keys) > 0 {
			t.Errorf("it has written %v", keys)
		}
	})
}

// However slow its store is, a probe ends soon after its context: a node stops, and a check
// answers.
func TestProbeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		hangs := &retentiontest.Memory{Before: func(ctx context.Context, _, _ string) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		began := time.Now()
		if _, err := retention.ChainAt(hangs, chainFolder).Probe(ctx); err == nil || time.Since(began) > 30*time.Second {
			t.Errorf("%v, after %s", err, time.Since(began))
		}
	})
}

// A probe waits for the deletion of its objects, however slow, as long as somebody waits for it,
// and for a little while after its context has ended.
func TestProbeOfASlowStoreLeavesNothing(t *testing.T) {
	for _, tt := range []struct {
		slow  time.Duration
		stops bool
		want  error
	}{{20 * time.Second, false, nil}, {time.Second, true, context.Canceled}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			store := &retentiontest.Memory{Before: func(ctx context.Context, op, _ string) error {
				switch {
				case op == "list" && tt.stops:
					cancel()
				case op == "delete":
					return retry.Sleep(ctx, tt.slow)
				}
				return nil
			}}
			if _, err := retention.ChainAt(store, chainFolder).Probe(ctx); !errors.Is(err, tt.want) || len(store.Keys()) > 0 {
				t.Errorf("%v, it has left %v", err, store.Keys())
			}
		})
	}
}

// The owner of a bucket pays for lists: one that fails is not listed at each attempt to write.
func TestFailingBucketIsListedRarely(t *testing.T) {
	for _, folder := range []string{"/probe/", "/seg/"} {
		synctest.Test(t, func(t *testing.T) {
			mongo, store := newMongo(), &retentiontest.Memory{}
			var puts, lists atomic.Int32
			store.Before = func(_ context.Context, op, key string) error {
				switch {
				case op == "list" && strings.HasSuffix(key, "/floor"): // which each expiry does once
					lists.Add(1)
				case op == "put" && strings.Contains(key, folder):
					puts.Add(1)
					return errors.New("no space left on device")
				}
				return nil
			}
			n := start(t, mongo, store, retention.WriterConfig{Shared: true, MaxBytes: 5000})
			defer n.stop()
			write(mongo, 100, 0)
			n.pass(10 * time.Minute)
			soon := lists.Load()
			if soon > 2 || puts.Load() < 10 { // the first one looks for the chain's end
				t.Errorf("%s: %d lists, %d attempts to write", folder, soon, puts.Load())
			}
			n.pass(20 * time.Minute)
			if lists.Load() == soon {
				t.Errorf("%s: nothing expires any more", folder)
			}
		})
	}
}

// Another node takes over where the writer has gone, and nothing is missing.
func TestAnotherNodeTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		a := start(t, mongo, store, retention.WriterConfig{Node: "a", Shared: true})
		first := write(mongo, 20, 9000)
		a.pass(2 * time.Minute)
		b := start(t, mongo, store, retention.WriterConfig{Node: "b", Shared: true, Rank: func() int { return 1 }})
		defer b.stop()
		all := append(first, write(mongo, 40, 0)...)
		b.pass(3 * time.Minute)
		a.stop()
		all = append(all, write(mongo, 40, 100)...)
		b.pass(10 * time.Minute)
		writers := map[string]int{}
		events := 0
		for _, h := range verify(t, store) {
			writers[h.Writer]++
			events += h.Events
		}
		if writers["a"] == 0 || writers["b"] == 0 || events != len(all) {
			t.Errorf("written by %v, %d of %d changes", writers, events, len(all))
		}
		mongo.Truncate(1)
		got, losses := b.read(all[0].Position(), all[len(all)-1].Position())
		if err := same(got, positions(all[1:])); err != nil || len(losses) > 0 {
			t.Errorf("%v, losses %v", err, losses)
		}
	})
}

// What has expired is deleted an hour after the floor has risen above it, never the newest segment,
// and whoever reads there gets the rest, behind one loss up to the floor.
func TestExpiredSegmentsAreALossForTheirReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{MaxAge: 3 * time.Hour})
		defer n.stop()
		var all []changetest.Event
		for i := range 30 {
			all = append(all, write(mongo, 10, int64(100*i))...)
			n.pass(10 * time.Minute)
		}
		chain := retention.ChainAt(store, chainFolder)
		floor, err := chain.Floor(t.Context())
		if err != nil || floor < 5 {
			t.Fatalf("the floor is %d, %v", floor, err)
		}
		if !slices.Contains(store.Keys(), seg(int(floor-1))) || slices.Contains(store.Keys(), seg(1)) {
			t.Errorf("segments: %v, the floor is %d", store.Keys(), floor)
		}
		mongo.Truncate(1)
		first, _, err := chain.Header(t.Context(), floor)
		if err != nil {
			t.Fatal(err)
		}
		got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
		rest := slices.IndexFunc(all, func(e changetest.Event) bool { return e.Time.Compare(first.From) >= 0 })
		if err := same(got, positions(all[rest:])); err != nil {
			t.Error(err)
		}
		if len(losses) != 1 || losses[0].Reason != gap.HistoryLost || losses[0].To.Time != first.From {
			t.Errorf("losses %v, the floor begins at %s", losses, first.From)
		}
		time.Sleep(24 * time.Hour) // nothing happens, and everything is old
		if _, err := chain.Expire(t.Context(), time.Second, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if _, err := chain.Expire(t.Context(), time.Second, 1); err != nil {
			t.Fatal(err)
		}
		if left := verify(t, store); len(left) != 1 {
			t.Errorf("%d segments are left", len(left))
		}
	})
}

// A segment from which a bucket's operator has erased changes is a new object, and expires when it
// would have.
func TestErasureInABucketProlongsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		write(mongo, 60, 0)
		n.pass(2 * time.Hour)
		chain := retention.ChainAt(store, chainFolder)
		first := verify(t, store)[0]
		e := retention.Erasure{Namespace: change.Namespace{DB: "shop", Coll: "c1"}, Before: first.To}
		_, before, err := chain.Header(t.Context(), first.Number)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := chain.Forget(t.Context(), e, "me", true); err != nil || f.Segments == 0 {
			t.Fatalf("%+v, %v", f, err)
		}
		if h, about, err := chain.Header(t.Context(), first.Number); err != nil || h.Rewritten == 0 || !about.Modified.Equal(before.Modified) {
			t.Errorf("rewritten %d times, written at %s instead of %s, %v", h.Rewritten, about.Modified, before.Modified, err)
		}
		if _, err := chain.Expire(t.Context(), time.Hour, 0); err != nil {
			t.Fatal(err)
		}
		if floor, err := chain.Floor(t.Context()); err != nil || floor <= first.Number {
			t.Errorf("the floor is %d, %v", floor, err)
		}
	})
}

// Where the ring of the tail does not have it either, as after a restart, reading continues in
// MongoDB at the chain's end.
func TestReadingContinuesInMongoDB(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		all := write(mongo, 100, 0)
		n.pass(2 * time.Minute)
		n.stop()
		later := write(mongo, 100, 1000)
		mongo.Truncate(len(later) + 1)
		mongo.Tick(1)
		n = start(t, mongo, store, retention.WriterConfig{Interval: time.Hour, Size: 1 << 20})
		defer n.stop()
		all = append(all, later...)
		for _, from := range []int{0, 50, len(all) - len(later) - 2} {
			got, losses := n.read(all[from].Position(), all[len(all)-1].Position())
			if err := same(got, positions(all[from+1:])); err != nil || len(losses) > 0 {
				t.Errorf("from change %d: %v, losses %v", from, err, losses)
			}
		}
	})
}

// A chain that ends right before a change, at the time of that, is followed by it: nothing is
// missing or twice at the place where reading continues in MongoDB.
func TestReadingContinuesRightAtTheChainsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{Interval: time.Hour})
		all := write(mongo, 100, 0) // segments end by their size
		synctest.Wait()
		n.stop()
		extent, err := retention.ChainAt(store, chainFolder).Extent(t.Context())
		first := slices.IndexFunc(all, func(e changetest.Event) bool { return e.Time == extent.To })
		if err != nil || first < 1 {
			t.Fatalf("the chain ends at %s, change %d: %v", extent.To, first, err)
		}
		mongo.Truncate(len(all) - first + 1)
		n = start(t, mongo, store, retention.WriterConfig{Interval: time.Hour, Size: 1 << 20})
		defer n.stop()
		got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
		if err := same(got, positions(all[1:])); err != nil || len(losses) > 0 {
			t.Errorf("%v, losses %v", err, losses)
		}
	})
}
