package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/wire"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
	"github.com/mongostream/streamer/match"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 4

// A world is a log with a hub over it.
type world struct {
	t      *testing.T
	source *lanetest.Log
	log    *lane.Log
	hub    *fanout.Hub
	stop   func()
}

func newWorld(t *testing.T, cfg fanout.Config) *world {
	t.Helper()
	source := &lanetest.Log{}
	return newWorldOver(t, cfg, source, source)
}

// newWorldOver makes a world whose log is read through another source.
func newWorldOver(t *testing.T, cfg fanout.Config, log *lanetest.Log, through lane.Source) *world {
	t.Helper()
	w := &world{t: t, source: log}
	w.log = lane.NewLog(lane.Config{Partitions: partitions, RingBytes: 10_000, PrefetchBytes: 5_000}, through)
	cfg.Partitions = partitions
	cfg.JSON = func(b, doc []byte) ([]byte, error) { return append(b, fmt.Sprintf("%d bytes", len(doc))...), nil }
	w.hub = fanout.New(cfg, w.log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- w.log.Run(ctx, change.Position{}) }()
	go func() { ended <- w.hub.Run(ctx) }()
	w.stop = func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	return w
}

// all is a subscription to everything.
func all(t *testing.T) []fanout.Subscription {
	return []fanout.Subscription{filter(t, "all", match.Filter{})}
}

func filter(t *testing.T, id string, f match.Filter) fanout.Subscription {
	t.Helper()
	program, err := match.Compile(f)
	if err != nil {
		t.Fatal(err)
	}
	return fanout.Subscription{ID: id, Program: program}
}

// A gateway does what a client does: it keeps where it stands in each partition, and drops what it has.
type gateway struct {
	t        *testing.T
	have     map[change.Partition]wire.Place
	got      map[change.Partition][]int64 // documents' ids, in the order in which they came
	repeated int
	losses   []*wire.Batch
	unacked  []*wire.Batch
}

func newGateway(t *testing.T) *gateway {
	return &gateway{t: t, have: map[change.Partition]wire.Place{}, got: map[change.Partition][]int64{}}
}

// take takes a batch as the protocol says.
func (g *gateway) take(b *wire.Batch) {
	g.unacked = append(g.unacked, b)
	have, known := g.have[b.Partition]
	if known && string(b.From.Head[:]) > string(have.Head[:]) {
		g.t.Fatalf("partition %d: a hole between %x and %x", b.Partition, have.Head, b.From.Head)
	}
	if b.Loss != nil {
		g.losses = append(g.losses, b)
		g.have[b.Partition] = b.To
		return
	}
	for _, e := range b.Events {
		c := slices.Compare(e.Head[:], have.Head[:])
		if known && (c < 0 || c == 0 && slices.Contains(have.Hashes, e.Hash)) {
			g.repeated++
			continue
		}
		parsed, err := change.Parse(slices.Concat(withToken(e.Payload)))
		if err != nil {
			g.t.Fatal(err)
		}
		id, _ := parsed.ID().Int64()
		g.got[b.Partition] = append(g.got[b.Partition], id)
	}
	if !known || string(b.To.Head[:]) >= string(have.Head[:]) {
		to := b.To
		if known && to.Head == have.Head {
			to.Hashes = slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(to.Hashes, have.Hashes)), func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) }))
		}
		g.have[b.Partition] = to
	}
}

// withToken gives a payload a token again, without which it cannot be parsed.
func withToken(doc []byte) []byte {
	token := changetest.Token(changetest.Event{Time: change.Timestamp{T: 1}})
	return slices.Concat(lengthOf(len(doc)+5+len(token)), []byte("\x03_id\x00"), token, doc[4:])
}

func lengthOf(n int) []byte { return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)} }

// follow takes and acknowledges until the session is over.
func (g *gateway) follow(s *fanout.Session) error {
	for {
		batches, _, err := s.Receive(g.t.Context())
		if err != nil {
			return err
		}
		for _, b := range batches {
			g.take(b)
		}
		if err := g.ack(s, len(g.unacked)); err != nil {
			return err
		}
	}
}

// ack acknowledges the first n of what is not.
func (g *gateway) ack(s *fanout.Session, n int) error {
	for _, b := range g.unacked[:n] {
		if err := s.Ack(b.Partition, b.To); err != nil {
			return err
		}
	}
	g.unacked = g.unacked[n:]
	return nil
}

// expect compares what came with what was written.
func (g *gateway) expect(written []changetest.Event) {
	g.t.Helper()
	want := map[change.Partition][]int64{}
	partitioner := change.NewPartitioner(partitions)
	for _, w := range written {
		e, err := change.Parse(w.Bytes())
		if err != nil {
			g.t.Fatal(err)
		}
		if p, keyed := partitioner.Of(&e); keyed {
			id, _ := e.ID().Int64()
			want[p] = append(want[p], id)
			continue
		}
		for p := range change.Partition(partitions) {
			want[p] = append(want[p], 0)
		}
	}
	for p := range change.Partition(partitions) {
		if !slices.Equal(g.got[p], want[p]) {
			g.t.Errorf("partition %d: got %d events, want %d: %v, %v", p, len(g.got[p]), len(want[p]), g.got[p], want[p])
		}
	}
}

func inserts(n int, from int64) []changetest.Event {
	events := make([]changetest.Event, n)
	for i := range events {
		events[i].ID = from + int64(i)
	}
	return events
}

func TestSessionGetsEverythingFromItsStartOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		early := w.source.Append(inserts(300, 0)...)
		synctest.Wait()
		g := newGateway(t)
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g", Start: early[99].Position()}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- g.follow(s) }()
		time.Sleep(time.Second)
		late := w.source.Append(append(inserts(50, 300), changetest.Event{Op: "drop", Keyless: true})...)
		time.Sleep(time.Minute)
		w.stop()
		if err := <-ended; fault.Of(err) != fault.NodeStopping {
			t.Error(err)
		}
		g.expect(slices.Concat(early[100:], late))
		if g.repeated > 0 {
			t.Errorf("%d events came twice", g.repeated)
		}
	})
}

// Whatever sessions do, their gateways get everything once, in order: they stall, acknowledge late or not at all, break and come back,
// subscribe late, and the log goes on meanwhile.
func TestGatewaysGetEverythingWhateverHappens(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, fanout.Config{CreditEvents: 1 + r.IntN(40), CreditBytes: 1 + r.IntN(20_000), Bookmark: time.Duration(1+r.IntN(20)) * time.Second})
			written := w.source.Append(inserts(20, 0)...)
			next := int64(20)
			gateways, sessions := make([]*gateway, 3), make([]*fanout.Session, 3)
			for i := range gateways {
				gateways[i] = newGateway(t)
			}
			connect := func(i int) {
				cfg := fanout.SessionConfig{Gateway: fmt.Sprint(i), Have: gateways[i].have}
				if len(cfg.Have) > 0 {
					first := change.Timestamp{T: 1 << 31}
					for _, p := range cfg.Have {
						if p.Time().Compare(first) < 0 {
							first = p.Time()
						}
					}
					cfg.Start = change.At(first)
				} else {
					cfg.Start = change.At(change.Timestamp{T: written[0].Position().Time.T - 1})
				}
				s, err := w.hub.Open(t.Context(), cfg, all(t))
				if err != nil {
					t.Fatal(err)
				}
				sessions[i], gateways[i].unacked = s, nil
			}
			for i := range gateways {
				connect(i)
			}
			for range 300 {
				i := r.IntN(3)
				switch r.IntN(6) {
				case 0:
					written = append(written, w.source.Append(inserts(1+r.IntN(30), next)...)...)
					next += 30
				case 1, 2:
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(1000))*time.Millisecond)
					batches, _, err := sessions[i].Receive(ctx)
					cancel()
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Fatal(err)
					}
					for _, b := range batches {
						gateways[i].take(b)
					}
				case 3:
					if n := len(gateways[i].unacked); n > 0 {
						if err := gateways[i].ack(sessions[i], 1+r.IntN(n)); err != nil {
							t.Fatal(err)
						}
					}
				case 4:
					time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
				case 5:
					if r.IntN(4) == 0 {
						sessions[i].Close(nil)
						connect(i)
					}
				}
			}
			ended := make(chan error, 3)
			for i := range gateways {
				go func() {
					if err := gateways[i].ack(sessions[i], len(gateways[i].unacked)); err != nil {
						ended <- err
						return
					}
					ended <- gateways[i].follow(sessions[i])
				}()
			}
			time.Sleep(5 * time.Minute)
			w.stop()
			for i := range gateways {
				if err := <-ended; fault.Of(err) != fault.NodeStopping {
					t.Error(err)
				}
				gateways[i].expect(written)
				if g := gateways[i]; len(g.losses) > 0 || g.repeated > 0 {
					t.Errorf("%d losses, %d events came twice", len(g.losses), g.repeated)
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

// A mark never passes what a session on the live path has not acknowledged; one off the live path holds nothing.
func TestSessionsOnTheLivePathHoldMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{CreditEvents: 30})
		w.source.Append(inserts(1, 0)...)
		synctest.Wait()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: w.log.End()}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		g := newGateway(t)
		receive := func() {
			batches, _, err := s.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range batches {
				g.take(b)
			}
		}
		receive()
		if err := g.ack(s, len(g.unacked)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // it joins the live path
		before := w.log.End()
		w.source.Append(inserts(20, 1)...)
		synctest.Wait()
		low := func() (held int) {
			for p := range change.Partition(partitions) {
				switch at := w.hub.Low(p, w.log.End()); {
				case before.After(at):
					t.Errorf("partition %d is held at %v, before what was acknowledged at %v", p, at, before)
				case w.log.End().After(at):
					held++
				}
			}
			return held
		}
		if n := low(); n != partitions {
			t.Errorf("%d partitions are held, each has something on its way", n)
		}
		receive()
		if n := low(); n != partitions {
			t.Errorf("%d partitions are held after the batches were received", n)
		}
		if err := g.ack(s, len(g.unacked)); err != nil {
			t.Fatal(err)
		}
		if n := low(); n != 0 {
			t.Errorf("%d partitions are held although all is acknowledged", n)
		}
		w.source.Append(inserts(100, 21)...) // beyond its credit: it leaves the live path
		time.Sleep(time.Second)
		if n := low(); n != 0 {
			t.Errorf("%d partitions are held by a session off the live path", n)
		}
		w.stop()
	})
}

// A session that stalls until the log has wrapped past it is told, in each partition, and goes on behind.
func TestSessionBeyondTheLogIsToldOfTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{CreditEvents: 10})
		first := w.source.Append(inserts(10, 0)...)
		synctest.Wait()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: change.At(first[0].Time)}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			w.source.Append(inserts(20, 100)...)
			synctest.Wait()
		}
		w.source.Truncate(10)
		w.source.Append(inserts(1, 5000)...)
		g := newGateway(t)
		ended := make(chan error, 1)
		go func() { ended <- g.follow(s) }()
		time.Sleep(time.Minute)
		late := w.source.Append(inserts(40, 6000)...)
		time.Sleep(time.Minute)
		w.stop()
		<-ended
		if len(g.losses) != partitions {
			t.Fatalf("%d losses in %d partitions", len(g.losses), partitions)
		}
		for _, b := range g.losses {
			if b.Loss.Kind != delivery.Resync || string(b.From.Head[:]) >= string(b.To.Head[:]) {
				t.Errorf("%+v from %x to %x", b.Loss, b.From.Head, b.To.Head)
			}
		}
		n := 0
		for _, got := range g.got {
			for _, id := range got {
				if id >= 6000 {
					n++
				}
			}
		}
		if n != len(late) {
			t.Errorf("%d events after the loss, %d were written", n, len(late))
		}
	})
}

// An operator moves a partition back: what follows comes again in that partition, after a notice, and in no other.
func TestRewoundPartitionComesAgain(t *testing.T) {
	for _, behind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := fanout.Config{}
			if behind {
				cfg.CreditEvents = 5
			}
			w := newWorld(t, cfg)
			written := w.source.Append(inserts(80, 0)...)
			synctest.Wait()
			s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: change.At(written[0].Time)}, all(t))
			if err != nil {
				t.Fatal(err)
			}
			g := newGateway(t)
			ended := make(chan error, 1)
			if !behind {
				go func() { ended <- g.follow(s) }()
			}
			time.Sleep(time.Minute)
			w.hub.Rewound(2, written[39].Position())
			if behind {
				go func() { ended <- g.follow(s) }()
			}
			time.Sleep(time.Minute)
			written = append(written, w.source.Append(inserts(20, 80)...)...)
			time.Sleep(time.Minute)
			w.stop()
			if err := <-ended; fault.Of(err) != fault.NodeStopping {
				t.Error(err)
			}
			if len(g.losses) != 1 && !behind || len(g.losses) > 1 {
				t.Fatalf("%d notices", len(g.losses))
			}
			again := slices.DeleteFunc(slices.Clone(written[40:80]), func(e changetest.Event) bool {
				parsed, _ := change.Parse(e.Bytes())
				p, _ := change.NewPartitioner(partitions).Of(&parsed)
				return p != 2
			})
			if len(g.losses) == 1 {
				g.expect(slices.Concat(written[:80], again, written[80:]))
			} else {
				g.expect(written)
			}
		})
	}
}

func TestAcknowledgementBeyondWhatWasSentIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		events := w.source.Append(inserts(10, 0)...)
		synctest.Wait()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: change.At(events[0].Time)}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		future := wire.PlaceOf(change.At(change.Timestamp{T: events[9].Time.T + 100}))
		for _, p := range []change.Partition{0, partitions + 1} {
			if err := s.Ack(p, future); fault.Of(err) != fault.SessionBadAck {
				t.Errorf("partition %d: %v", p, err)
			}
		}
		w.stop()
	})
}

// A batch has all forms of a change, also where it is full with the first: who has the batch drops what another holds of the change.
func TestFormsOfAChangeStayInOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		w.source.Append(inserts(1, 0)...)
		synctest.Wait()
		a, b := filter(t, "a", match.Filter{}), filter(t, "b", match.Filter{})
		b.Shape.Format = wire.JSON
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: w.log.End()}, []fanout.Subscription{a, b})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		events := make([]changetest.Event, 3*wire.MaxBatchEvents)
		for i := range events {
			events[i].ID = 7 // one partition
		}
		w.source.Append(events[0])
		w.source.Append(changetest.Event{ID: 7, Pad: wire.MaxBatchBytes})
		w.source.Append(events...)
		time.Sleep(time.Second)
		batches, _, err := s.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, batch := range batches {
			forms := map[[change.HeadSize]byte]int{}
			for _, e := range batch.Events {
				forms[e.Head]++
			}
			for head, n := range forms {
				if n != 2 {
					t.Fatalf("%d forms of the change at %x are in the batch, there are 2", n, head)
				}
			}
		}
		w.stop()
	})
}

func TestEachFormIsSentOnceWithItsSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		w.source.Append(inserts(1, 0)...)
		synctest.Wait()
		a, b, c := filter(t, "a", match.Filter{}), filter(t, "b", match.Filter{}), filter(t, "c", match.Filter{})
		b.Shape.Format = wire.JSON
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: w.log.End()}, []fanout.Subscription{a, b, c, filter(t, "d", match.Filter{DB: "other"})})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.source.Append(inserts(1, 1)...)
		synctest.Wait()
		got := map[wire.Format][]string{}
		batches, _, err := s.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			for _, e := range b.Events {
				if got[e.Format] != nil {
					t.Error("a form came twice")
				}
				got[e.Format] = slices.Sorted(slices.Values(e.Subscriptions))
			}
		}
		if !slices.Equal(got[wire.BSON], []string{"a", "c"}) || !slices.Equal(got[wire.JSON], []string{"b"}) {
			t.Errorf("%v", got)
		}
		w.stop()
	})
}
