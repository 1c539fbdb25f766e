package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const partitions = 8

// A bench is a log in memory and a Hub over it.
type bench struct {
	t      *testing.T
	source *oplogtest.Log
	log    *oplog.Log
	hub    *delivery.Hub
	end    func()
}

func begin(t *testing.T, source *oplogtest.Log, cfg delivery.Config) *bench {
	t.Helper()
	return beginThrough(t, source, source, cfg)
}

// beginThrough is begin for a log that is read through another source.
func beginThrough(t *testing.T, source *oplogtest.Log, through oplog.Source, cfg delivery.Config) *bench {
	t.Helper()
	b := &bench{t: t, source: source}
	b.log = oplog.New(oplog.Config{
		Partitions: partitions, RingBytes: 50_000, PrefetchBytes: 20_000,
		Reach: func(context.Context) (gap.Reach, error) {
			first, last := source.Reach()
			return gap.Reach{First: first, Last: last}, nil
		},
	}, through)
	cfg.Partitions = partitions
	b.hub = delivery.New(cfg, b.log)
	ctx, cancel := context.WithCancel(t.Context())
	logEnded, hubEnded := make(chan error, 1), make(chan error, 1)
	go func() { logEnded <- b.log.Run(ctx, change.Position{}) }()
	go func() { hubEnded <- b.hub.Run(ctx) }()
	b.end = func() {
		cancel()
		for _, ended := range []chan error{logEnded, hubEnded} {
			if err := <-ended; err != nil {
				t.Errorf("ended with %v", err)
			}
		}
	}
	synctest.Wait()
	return b
}

func (b *bench) open(cfg delivery.SessionConfig, subscriptions []delivery.Subscription) *delivery.Session {
	b.t.Helper()
	s, err := b.hub.Open(b.t.Context(), cfg, subscriptions)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func TestSessionsGetWhatTheyAskForInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(deliverytest.Inserts(30, 0)...)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		early, live := b.open(delivery.SessionConfig{Start: delivery.Place{At: old[9].Position()}}, deliverytest.Everything(t)), b.open(delivery.SessionConfig{}, deliverytest.Everything(t))
		some := b.open(delivery.SessionConfig{}, []delivery.Subscription{
			{ID: "deletes", Program: deliverytest.Compile(t, match.Filter{Ops: []change.Op{change.OpDelete}})},
			{ID: "json", Program: deliverytest.Compile(t, match.Filter{Ops: []change.Op{change.OpDelete}}), Form: delivery.Form{Format: delivery.JSON}},
			{ID: "none", Program: deliverytest.Compile(t, match.Filter{Coll: "nothing"})},
		})
		synctest.Wait()
		mixed := deliverytest.Inserts(30, 100)
		for i := range mixed {
			mixed[i].Op = []string{"insert", "delete", "update"}[i%3]
		}
		source.Append(mixed...)
		deliverytest.Equal(t, "early", deliverytest.Refs(deliverytest.Receive(t, early, 50)), deliverytest.Wanted(append(old[10:], mixed...)))
		deliverytest.Equal(t, "live", deliverytest.Refs(deliverytest.Receive(t, live, 30)), deliverytest.Wanted(mixed))
		var deletes []changetest.Event
		for _, e := range mixed {
			if e.Op == "delete" {
				deletes = append(deletes, e, e)
			}
		}
		batches := deliverytest.Receive(t, some, 20)
		deliverytest.Equal(t, "some", deliverytest.Refs(batches), deliverytest.Wanted(deletes))
		for _, batch := range batches {
			for i, e := range batch.Events {
				p, _ := change.NewPartitioner(partitions).Of(parse(t, deletes[i]))
				want := map[delivery.Format]string{delivery.BSON: "deletes", delivery.JSON: "json"}[e.Format] // in either order
				if len(e.Subscriptions) != 1 || e.Subscriptions[0] != want || i%2 == 1 && e.Format == batch.Events[i-1].Format || e.Partition != p || e.Keyless {
					t.Errorf("event %d: %+v", i, e)
				}
				if payload := batch.Payload(i); json.Valid(payload) != (e.Format == delivery.JSON) || bytes.Contains(payload, []byte("_data")) {
					t.Errorf("event %d: payload %q", i, payload)
				}
			}
		}
	})
}

// The first batch is empty and ends where the session begins, however much there is to deliver by
// the time that it is received.
func TestFirstBatchSaysWhereTheSessionBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(deliverytest.Inserts(30, 0)...)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		for _, place := range []delivery.Place{{At: old[9].Position()}, {Ref: old[9].Position().Ref()}, {}} {
			s := b.open(delivery.SessionConfig{Start: place}, deliverytest.Everything(t))
			synctest.Wait()
			want := place.From()
			if place.IsZero() {
				want = old[29].Position()
				source.Append(deliverytest.Inserts(10, 100)...)
				synctest.Wait()
			}
			batches, _, err := s.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if first := batches[0]; first.Seq != 1 || len(first.Events) > 0 || first.To.Compare(want) != 0 || len(batches) < 2 {
				t.Errorf("from %+v: the first of %d batches has %d events and ends at %s", place, len(batches), len(first.Events), first.To)
			}
		}
	})
}

// A session that waits by itself for the log to go on does at once what it is asked for.
func TestSessionThatWaitsForTheLogDoesWhatItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		last := source.Append(deliverytest.Inserts(10, 0)...)[9].Position()
		b := begin(t, source, delivery.Config{})
		defer b.end()
		// The log has nothing at this place, so that the session does not know whether it has
		// passed it.
		other := changetest.Event{ID: 77, Time: last.Time}
		s := b.open(delivery.SessionConfig{Start: delivery.Place{Ref: other.Position().Ref()}, Attached: true}, deliverytest.Everything(t))
		synctest.Wait()
		if s.State().Live {
			t.Fatal("it does not wait by itself")
		}
		here := map[change.Partition]delivery.Place{3: {At: last}}
		for what, ask := range map[string]func(){
			"attach": func() { _ = s.Attach(here, nil, nil) }, "detach": func() { _ = s.Detach([]change.Partition{3}) }, "pause": func() { s.Pause(context.Background()) },
			"subscribe": func() { s.Subscribe(deliverytest.Everything(t)) }, "unsubscribe": func() { s.Unsubscribe([]string{"all"}) },
		} {
			did := make(chan struct{})
			go func() { ask(); close(did) }()
			synctest.Wait()
			select {
			case <-did:
			default:
				t.Errorf("%s waits", what)
				s.Close(nil)
				<-did
				return
			}
		}
	})
}

func parse(t *testing.T, ev changetest.Event) *change.Event {
	t.Helper()
	e, err := change.Parse(ev.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return &e
}

// A session without credit leaves the live path, holds no more than its credit and a reply, and
// comes back without a gap. Others do not notice.
func TestSessionWithoutCreditComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 10}
		source.Tick(1)
		b := begin(t, source, delivery.Config{CreditEvents: 100})
		defer b.end()
		slow, fast := b.open(delivery.SessionConfig{}, deliverytest.Everything(t)), b.open(delivery.SessionConfig{}, deliverytest.Everything(t))
		synctest.Wait()
		var all []changetest.Event
		for round := range 50 {
			events := source.Append(deliverytest.Inserts(50, int64(50*round))...)
			all = append(all, events...)
			batches := deliverytest.Receive(t, fast, 50)
			deliverytest.Equal(t, "fast", deliverytest.Refs(batches), deliverytest.Wanted(events))
			if _, err := fast.Ack(batches[len(batches)-1].Seq); err != nil {
				t.Fatal(err)
			}
		}
		if st := slow.State(); st.Live || st.Events < 100 || st.Events > 110 {
			t.Errorf("%+v", st)
		}
		var got []string
		for len(got) < len(all) {
			batches := deliverytest.Receive(t, slow, 1)
			got = append(got, deliverytest.Refs(batches)...)
			if _, err := slow.Ack(batches[len(batches)-1].Seq); err != nil {
				t.Fatal(err)
			}
		}
		deliverytest.Equal(t, "slow", got, deliverytest.Wanted(all))
		synctest.Wait()
		if l := b.hub.Load(); l.Live != 2 || l.Bytes != 0 {
			t.Errorf("%+v", l)
		}
	})
}

// goroutines returns how many there are in bubbles. The world stands still while it counts:
// runtime.NumGoroutine sums counters that change meanwhile, so ended ones appear in it.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("synctest bubble"))
}

// Sessions that wait have no goroutine, on the live path as well as without credit.
func TestSessionsThatWaitHaveNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(1, 0)...)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		before, sessions := goroutines(), make([]*delivery.Session, 100)
		wait := func(what string) {
			synctest.Wait()
			if more := goroutines() - before; more != 0 {
				t.Errorf("%d sessions %s have %d goroutines", len(sessions), what, more)
			}
		}
		for i := range sessions {
			sessions[i] = b.open(delivery.SessionConfig{CreditEvents: 1}, deliverytest.Everything(t))
		}
		wait("on the live path")
		written := source.Append(deliverytest.Inserts(2, 10)...)
		written = append(written, source.Append(deliverytest.Inserts(2, 20)...)...)
		wait("without credit")
		for _, s := range sessions {
			var got []string
			for len(got) < len(written) { // it has credit for one batch
				batches := deliverytest.Receive(t, s, 1)
				got = append(got, deliverytest.Refs(batches)...)
				if _, err := s.Ack(deliverytest.Last(batches).Seq); err != nil {
					t.Fatal(err)
				}
			}
			deliverytest.Equal(t, "a session", got, deliverytest.Wanted(written))
		}
		wait("that have come back")
		if live := b.hub.Load().Live; live != len(sessions) {
			t.Errorf("%d of %d sessions have come back", live, len(sessions))
		}
	})
}

// A batch that is taken back is the next one, and has nothing left of what it was. One that grows
// does so into the memory of others. The pool of large ones loses some now and then.
func TestBatchesAreRecycled(t *testing.T) {
	for _, c := range []struct{ pad, many, batches, places int }{{100, 1, 10, 3}, {3000, 1, 40, 30}, {3000, 20, 80, 30}} {
		synctest.Test(t, func(t *testing.T) {
			source := &oplogtest.Log{}
			source.Append(deliverytest.Inserts(1, 0)...)
			b := begin(t, source, delivery.Config{})
			defer b.end()
			s := b.open(delivery.SessionConfig{}, deliverytest.Everything(t))
			synctest.Wait()
			seen := make(map[*byte]int)
			for i := range c.batches {
				pad := c.pad * (i%2 + 1) // the second is longer than the first
				events := make([]changetest.Event, 1+i%2*(c.many-1))
				for k := range events {
					events[k] = changetest.Event{ID: int64(i*c.many + k), Pad: pad}
				}
				written := source.Append(events...)
				synctest.Wait()
				batches := deliverytest.Receive(t, s, len(events))
				last := batches[len(batches)-1]
				deliverytest.Equal(t, "the batch", deliverytest.Refs(batches), deliverytest.Wanted(written))
				if payload := last.Payload(0); len(payload) < pad || len(payload) > pad+400 {
					t.Errorf("event %d has %d bytes", i, len(payload))
				} else if len(last.Events) == c.many {
					seen[&payload[0]]++
				}
				if _, err := s.Ack(last.Seq); err != nil {
					t.Fatal(err)
				}
				s.Recycle(last)
			}
			if len(seen) == 0 || len(seen) > c.places {
				t.Errorf("%d batches have had %d places in memory", c.batches, len(seen))
			}
		})
	}
}

func TestAcknowledgementsOfWhatWasNotReceivedAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{}, deliverytest.Everything(t))
		synctest.Wait()
		source.Append(deliverytest.Inserts(10, 0)...)
		synctest.Wait()
		if _, err := s.Ack(1); fault.Of(err) != fault.SessionBadAck {
			t.Errorf("before it was received: %v", err)
		}
		batches := deliverytest.Receive(t, s, 10)
		last := batches[len(batches)-1]
		if _, err := s.Ack(last.Seq + 1); fault.Of(err) != fault.SessionBadAck {
			t.Errorf("beyond the last: %v", err)
		}
		for range 2 {
			if _, err := s.Ack(last.Seq); err != nil {
				t.Error(err)
			}
		}
		if st := s.State(); st.Events != 0 || st.Bytes != 0 || st.At.Compare(last.To) != 0 {
			t.Errorf("%+v, want %v", st, last.To)
		}
	})
}

// Losses come in their place, whether a session is live or catching up, and are acknowledged like
// events. A rename is told like one, and counts as none.
func TestLossesComeInTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(deliverytest.Inserts(20, 0)...)
		source.Truncate(10)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		late, live := b.open(delivery.SessionConfig{Start: delivery.Place{At: old[3].Position()}}, deliverytest.Everything(t)), b.open(delivery.SessionConfig{}, deliverytest.Everything(t))
		other := b.open(delivery.SessionConfig{}, []delivery.Subscription{{ID: "x", Program: deliverytest.Compile(t, match.Filter{DB: "shop", Coll: "other"})}})
		synctest.Wait()
		now := b.log.End()
		events := source.Append(
			changetest.Event{ID: 1}, changetest.Event{Op: change.SkippedName, Keyless: true}, changetest.Event{ID: 2},
			changetest.Event{Op: "rename", Coll: "elsewhere", To: "orders", Keyless: true}, changetest.Event{ID: 3})
		lost := fmt.Sprintf("resync history_lost %s–%s", old[3].Position(), change.At(old[10].Time))
		poison := fmt.Sprintf("resync poison %s–%s", events[0].Position(), events[1].Position())
		renamed := fmt.Sprintf("resync renamed %s–%s", events[2].Position(), events[2].Position())
		e := deliverytest.Wanted(events)
		deliverytest.Equal(t, "live", deliverytest.Refs(deliverytest.Receive(t, live, 6)), []string{e[0], poison, e[2], renamed, e[3], e[4]})
		deliverytest.Equal(t, "late", deliverytest.Refs(deliverytest.Receive(t, late, 17)), append(append([]string{lost}, deliverytest.Wanted(old[10:])...), e[0], poison, e[2], renamed, e[3], e[4]))
		if got := deliverytest.Refs(deliverytest.Receive(t, other, 1)); len(got) != 1 || got[0] != poison {
			t.Errorf("one that follows another collection: %v after %v", got, now)
		}
		if st := live.State(); st.Losses != 1 || st.Events != 6 {
			t.Errorf("%+v", st)
		}
	})
}

// A session with nothing attached, which may read before its subscriber says what it wants, tells
// of no loss; what is attached then, from where its subscriber was, gets it once.
func TestLossComesOnceToWhatIsAttachedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(deliverytest.Inserts(20, 0)...)
		source.Truncate(10)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		start := delivery.Place{At: old[3].Position()}
		s := b.open(delivery.SessionConfig{Start: start, Attached: true}, deliverytest.Everything(t))
		synctest.Wait() // it reads
		places := make(map[change.Partition]delivery.Place)
		for p := range change.Partition(partitions) {
			places[p] = start
		}
		if err := s.Attach(places, nil, nil); err != nil {
			t.Fatal(err)
		}
		lost := fmt.Sprintf("resync history_lost %s–%s", old[3].Position(), change.At(old[10].Time))
		deliverytest.Equal(t, "attached", deliverytest.Refs(deliverytest.Receive(t, s, 11)), append([]string{lost}, deliverytest.Wanted(old[10:])...))
	})
}

func TestHaltEndsTheSessionsThatWouldLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(deliverytest.Inserts(20, 0)...)
		source.Truncate(10)
		b := begin(t, source, delivery.Config{Halt: true})
		defer b.end()
		for range 2 { // also when it comes back
			late := b.open(delivery.SessionConfig{Start: delivery.Place{At: old[3].Position()}}, deliverytest.Everything(t))
			for {
				if _, _, err := late.Receive(t.Context()); err != nil {
					if fault.Of(err) != fault.LogHistoryLost {
						t.Errorf("%v", err)
					}
					break
				}
			}
			if st := late.State(); st.At.Compare(old[3].Position()) != 0 {
				t.Errorf("%+v", st)
			}
		}
		// One that has acknowledged everything before the loss stays there too, whatever comes
		// after it.
		for acked := false; !acked; { // until it was faster than the loss
			done := b.open(delivery.SessionConfig{Start: delivery.Place{At: old[3].Position()}}, deliverytest.Everything(t))
			if batches, _, err := done.Receive(t.Context()); err == nil {
				_, err := done.Ack(deliverytest.Last(batches).Seq)
				acked = err == nil
			}
			synctest.Wait()
			if st := done.State(); st.At.After(old[3].Position()) {
				t.Errorf("%+v", st)
			}
		}
		live := b.open(delivery.SessionConfig{Start: delivery.Place{At: old[10].Position()}}, deliverytest.Everything(t))
		deliverytest.Equal(t, "one that loses nothing", deliverytest.Refs(deliverytest.Receive(t, live, 9)), deliverytest.Wanted(old[11:]))
	})
}

// A subscriber that is known by a Ref only resumes exactly after it, also among events of equal
// heads, wherever it was.
func TestResumeAmongEventsOfEqualHeads(t *testing.T) {
	at := func(i uint32) change.Timestamp { return change.Timestamp{T: 1000, I: i} }
	events := []changetest.Event{
		{ID: 1, Time: at(1)},
		{ID: 11, Time: at(2)}, {ID: 12, Time: at(2)}, {ID: 13, Time: at(2)}, {ID: 14, Time: at(2)}, // of four shards, in the order of their tokens
		{ID: 2, Time: at(3)},
	}
	for i := range events {
		synctest.Test(t, func(t *testing.T) {
			source := &oplogtest.Log{ReplyEvents: 2}
			source.Append(events...)
			source.Tick(1)
			b := begin(t, source, delivery.Config{})
			defer b.end()
			s := b.open(delivery.SessionConfig{Start: delivery.Place{Ref: events[i].Position().Ref()}}, deliverytest.Everything(t))
			if i < len(events)-1 {
				deliverytest.Equal(t, fmt.Sprintf("after event %d", i), deliverytest.Refs(deliverytest.Receive(t, s, len(events)-1-i)), deliverytest.Wanted(events[i+1:]))
			}
			more := source.Append(changetest.Event{ID: 99})
			deliverytest.Equal(t, "and then", deliverytest.Refs(deliverytest.Receive(t, s, 1)), deliverytest.Wanted(more))
		})
	}
	// One whose own event the log does not have: what has its head comes again.
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 2}
		source.Append(events...)
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		unknown := changetest.Event{ID: 77, Time: at(2)}
		s := b.open(delivery.SessionConfig{Start: delivery.Place{Ref: unknown.Position().Ref()}}, deliverytest.Everything(t))
		deliverytest.Equal(t, "unknown", deliverytest.Refs(deliverytest.Receive(t, s, 5)), deliverytest.Wanted(events[1:]))
	})
}

func TestRewindDeliversAgainAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{}, deliverytest.Everything(t))
		synctest.Wait()
		events := source.Append(deliverytest.Inserts(20, 0)...)
		batches := deliverytest.Receive(t, s, 20)
		if _, err := s.Ack(batches[len(batches)-1].Seq); err != nil {
			t.Fatal(err)
		}
		to := events[4].Position()
		s.Rewind(to, 1, nil)
		rewound := fmt.Sprintf("rewound operator %s–%s", to, to)
		deliverytest.Equal(t, "rewound", deliverytest.Refs(deliverytest.Receive(t, s, 16)), append([]string{rewound}, deliverytest.Wanted(events[5:])...))
		if st := s.State(); st.At.Compare(to) != 0 {
			t.Errorf("stands at %v, want %v", st.At, to)
		}
		more := source.Append(deliverytest.Inserts(3, 50)...)
		deliverytest.Equal(t, "and then", deliverytest.Refs(deliverytest.Receive(t, s, 3)), deliverytest.Wanted(more))
		synctest.Wait()
		if !s.State().Live {
			t.Error("it is not back on the live path")
		}
		s.Rewind(events[19].Position().Clone(), 2, nil)
		s.Rewind(change.At(change.Timestamp{T: 9999}), 3, nil) // it is not as far
		deliverytest.Equal(t, "forward", deliverytest.Refs(deliverytest.Receive(t, s, 1))[:1], []string{fmt.Sprintf("rewound operator %s–%s", events[19].Position(), events[19].Position())})
	})
}

func TestBookmarksMoveQuietSubscribersOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{Bookmark: 10 * time.Second})
		defer b.end()
		s := b.open(delivery.SessionConfig{}, []delivery.Subscription{{ID: "x", Program: deliverytest.Compile(t, match.Filter{Coll: "nothing"})}})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		first, _, err := s.Receive(ctx)
		if err != nil || len(first) != 1 || len(first[0].Events) != 0 {
			t.Fatalf("%v, %v", first, err)
		}
		if _, err := s.Ack(first[0].Seq); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		source.Append(deliverytest.Inserts(5, 0)...)
		source.Tick(60)
		batches, _, err := s.Receive(ctx)
		if err != nil || len(batches) != 1 || len(batches[0].Events) != 0 || batches[0].To.Time.T < 1060 {
			t.Errorf("%+v, %v", batches, err)
		}
	})
}

// Beside any amount of changes that nobody wants, positions follow the log: they are no older than
// 15 s, and in an oplog of less than two minutes no older than 5 s, even while it becomes shorter.
func TestPositionsOfQuietSubscribersFollowTheLog(t *testing.T) {
	for _, c := range []struct {
		name   string
		length uint32 // of the log, in seconds
		oldest time.Duration
	}{{"long", 3600, 15 * time.Second}, {"short", 60, 5 * time.Second}, {"shorter than a bookmark", 8, 5 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &oplogtest.Log{}
				source.Tick(1)
				extent := oplog.NewRange(oplog.RangeConfig{Ask: func(context.Context) (gap.Reach, error) {
					_, last := source.Reach()
					return gap.Reach{First: change.Timestamp{T: last.T - c.length}, Last: last}, nil
				}})
				b := begin(t, source, delivery.Config{Range: extent})
				defer b.end()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go extent.Run(ctx)
				s := b.open(delivery.SessionConfig{}, []delivery.Subscription{{ID: "x", Program: deliverytest.Compile(t, match.Filter{DB: "other"})}})
				var has atomic.Uint32 // the time of the position that the subscriber has
				go func() {
					for {
						batches, _, err := s.Receive(ctx)
						if err != nil {
							return
						}
						last := deliverytest.Last(batches)
						has.Store(last.To.Time.T)
						if _, err := s.Ack(last.Seq); err != nil {
							return
						}
					}
				}()
				for range 120 {
					time.Sleep(time.Second)
					source.Append(deliverytest.Inserts(10, 0)...)
					source.Tick(1)
					synctest.Wait()
					_, now := source.Reach()
					if age := time.Duration(now.T-has.Load()) * time.Second; has.Load() > 0 && age > c.oldest+time.Second {
						t.Fatalf("a position is %s old", age)
					}
				}
				if has.Load() == 0 {
					t.Error("nothing has come")
				}
			})
		})
	}
}

func TestSubscriptionsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{}, nil)
		synctest.Wait()
		source.Append(deliverytest.Inserts(5, 0)...)
		synctest.Wait()
		from := s.Subscribe(deliverytest.Everything(t))
		if from.Compare(b.log.End()) != 0 {
			t.Errorf("holds from %v, the log is at %v", from, b.log.End())
		}
		events := source.Append(deliverytest.Inserts(5, 10)...)
		deliverytest.Equal(t, "subscribed", deliverytest.Refs(deliverytest.Receive(t, s, 5)), deliverytest.Wanted(events))
		s.Unsubscribe([]string{"all", "unknown"})
		source.Append(deliverytest.Inserts(5, 20)...)
		synctest.Wait()
		s.Subscribe(deliverytest.Everything(t))
		events = source.Append(deliverytest.Inserts(5, 30)...)
		deliverytest.Equal(t, "subscribed again", deliverytest.Refs(deliverytest.Receive(t, s, 5)), deliverytest.Wanted(events))
	})
}

// A session may end while it is being subscribed to: the hub may still do that, unseen. The race
// detector tells of a position that is read meanwhile.
func TestSubscribeToASessionThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		for range 500 {
			s := b.open(delivery.SessionConfig{}, nil)
			synctest.Wait()
			var ending sync.WaitGroup
			ending.Go(func() { s.Close(nil) })
			if from := s.Subscribe(deliverytest.Everything(t)); !from.IsZero() && from.Compare(b.log.End()) != 0 {
				t.Errorf("holds from %v, the log is at %v", from, b.log.End())
			}
			ending.Wait()
		}
	})
}

// Whoever looks where a subscriber is while it is moved back never sees it in the generation of the
// rewind, and later than where it was moved: that would undo the rewind.
func TestSubscriberThatIsMovedBackIsNowhereElseMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, deliverytest.Everything(t))
		to := source.Append(deliverytest.Inserts(1, 0)...)[0].Position()
		source.Append(deliverytest.Inserts(3, 1)...)
		ack := func(batches []*delivery.Batch) {
			if _, err := s.Ack(batches[len(batches)-1].Seq); err != nil {
				t.Error(err)
			}
		}
		ack(deliverytest.Receive(t, s, 4))
		synctest.Wait()
		var generation atomic.Uint64 // of which nothing is acknowledged
		var looking sync.WaitGroup
		ended := make(chan struct{})
		looking.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				g := generation.Load()
				st := s.State()
				if g > 0 && st.Generation == g && st.At.After(to) && generation.Load() == g {
					t.Errorf("generation %d, at %s: an operator has moved it to %s", g, st.At, to)
					return
				}
			}
		})
		for g := range uint64(2000) {
			for !s.State().Live {
				runtime.Gosched()
			}
			generation.Store(g + 1)
			s.Rewind(to, g+1, nil)
			again := deliverytest.Receive(t, s, 4)
			generation.Store(0)
			ack(again)
		}
		close(ended)
		looking.Wait()
	})
}

// Whoever resumes at the place of a document of a snapshot, which is no event's, gets the events of
// that head again, and need not wait for the log to move on.
func TestResumeAtTheDocumentOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		events := source.Append(deliverytest.Inserts(10, 0)...)
		synctest.Wait()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{Ref: events[9].Position().Ref().Between()}}, deliverytest.Everything(t))
		deliverytest.Equal(t, "it", deliverytest.Refs(deliverytest.Receive(t, s, 1)), deliverytest.Wanted(events[9:]))
		synctest.Wait()
		if !s.State().Live {
			t.Error("it waits")
		}
	})
}

// A loss that shares its head with other events, of other shards, skips nobody who is at one of
// those before it, on the live path or not. Whoever is at the change to which it belongs was told
// of it.
func TestLossesAmongEventsOfEqualHeads(t *testing.T) {
	at := func(i uint32) change.Timestamp { return change.Timestamp{T: 1000, I: i} }
	for _, what := range []changetest.Event{{Op: change.SkippedName, Keyless: true}, {Op: "rename", Coll: "other", To: "orders", Keyless: true}} {
		loss := what
		loss.ID, loss.Time = 13, at(2)
		events := []changetest.Event{{ID: 1, Time: at(1)}, {ID: 11, Time: at(2)}, {ID: 12, Time: at(2)}, loss, {ID: 14, Time: at(2)}, {ID: 2, Time: at(3)}}
		places := 3
		if loss.Op != change.SkippedName { // an event comes with it
			places++
		}
		for i := range places {
			for _, live := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					source := &oplogtest.Log{ReplyEvents: 2}
					source.Append(events[:i+1]...)
					b := begin(t, source, delivery.Config{})
					defer b.end()
					if !live {
						source.Append(events[i+1:]...)
						synctest.Wait()
					}
					s := b.open(delivery.SessionConfig{Start: delivery.Place{Ref: events[i].Position().Ref()}}, deliverytest.Everything(t))
					if live {
						synctest.Wait()
						source.Append(events[i+1:]...)
					}
					want, losses := len(events)-i, 1
					switch {
					case loss.Op == change.SkippedName:
						want-- // no event comes with it
					case i == 3:
						losses = 0
					}
					told := 0
					for _, b := range deliverytest.Receive(t, s, want-1) {
						if b.Loss != nil {
							told++
						}
					}
					if told != losses {
						t.Errorf("%s: whoever is at event %d (live: %v) is told %d times", loss.Op, i, live, told)
					}
				})
			}
		}
	}
}

// A log that never pauses keeps nobody from hearing how far it is.
func TestBookmarksComeThoughTheLogNeverPauses(t *testing.T) {
	source := newEndless(100, 500)
	reach := func(context.Context) (gap.Reach, error) { return gap.Reach{}, nil }
	log := oplog.New(oplog.Config{Partitions: partitions, Reach: reach}, source)
	h := delivery.New(delivery.Config{Partitions: partitions, Bookmark: 10 * time.Millisecond}, log)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx, change.Position{}) })
	running.Go(func() { _ = h.Run(ctx) })
	defer running.Wait()
	defer cancel()
	open := func(f match.Filter, fields ...string) *delivery.Session {
		s, err := h.Open(ctx, delivery.SessionConfig{}, []delivery.Subscription{{ID: "x", Program: deliverytest.Compile(t, f), Form: delivery.Form{Format: delivery.JSON, Fields: fields}}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for i := range 20 { // which the hub is slower with than the log
		busy := open(match.Filter{}, "pad", fmt.Sprint(i))
		running.Go(func() {
			for {
				batches, _, err := busy.Receive(ctx)
				if err != nil {
					return
				}
				if _, err := busy.Ack(deliverytest.Last(batches).Seq); err != nil {
					return
				}
			}
		})
	}
	quiet := open(match.Filter{DB: "other"})
	for h.Load().Live < 21 {
		time.Sleep(time.Millisecond)
	}
	source.replies <- 1 << 30
	for n := 0; n < 6; { // many, so that it is not that the log begins
		batches, _, err := quiet.Receive(ctx)
		if err != nil {
			t.Fatalf("after %d: %v", n, err)
		}
		n += len(batches)
		if _, err := quiet.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
	}
}

// A silent source loses what its oplog does, and its retained log does not answer.
type silent struct{ *oplogtest.Log }

func (s silent) Open(ctx context.Context, from change.Position) (oplog.Stream, error) {
	stream, err := s.Log.Open(ctx, from)
	if err != nil {
		return nil, errors.Join(err, oplog.ErrUnanswered)
	}
	return stream, nil
}

// A subscriber that begins with the log is told of what that may still have, or one of its
// partitions had asked for.
func TestSubscriberThatBeginsWithTheLogIsToldOfTrueLosses(t *testing.T) {
	for name, test := range map[string]struct {
		through   func(*oplogtest.Log) oplog.Source
		elsewhere bool // a partition has another place
		losses    int
	}{
		"gone":         {func(l *oplogtest.Log) oplog.Source { return l }, false, 0},
		"gone for one": {func(l *oplogtest.Log) oplog.Source { return l }, true, 1},
		"unanswered":   {func(l *oplogtest.Log) oplog.Source { return silent{l} }, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &oplogtest.Log{}
				old := source.Append(deliverytest.Inserts(20, 0)...)
				source.Truncate(10)
				b := beginThrough(t, source, test.through(source), delivery.Config{})
				defer b.end()
				cfg := delivery.SessionConfig{Start: delivery.Place{At: change.At(old[3].Time), Begins: true}}
				if test.elsewhere {
					cfg.Partitions = map[change.Partition]delivery.Place{0: {At: old[5].Position()}}
				}
				s := b.open(cfg, deliverytest.Everything(t))
				losses := 0
				for _, b := range deliverytest.Receive(t, s, 10+test.losses) {
					if b.Loss != nil {
						losses++
					}
				}
				if losses != test.losses {
					t.Errorf("%d losses", losses)
				}
			})
		})
	}
}
