package streamer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/streamer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 8

// A bench is a log in memory and a Hub over it.
type bench struct {
	t      *testing.T
	source *oplogtest.Log
	log    *oplog.Log
	hub    *streamer.Hub
	end    func()
}

func begin(t *testing.T, source *oplogtest.Log, cfg streamer.Config) *bench {
	t.Helper()
	b := &bench{t: t, source: source}
	b.log = oplog.New(oplog.Config{
		Partitions: partitions, RingBytes: 50_000, PrefetchBytes: 20_000,
		Reach: func(context.Context) (gap.Reach, error) {
			first, last := source.Reach()
			return gap.Reach{First: first, Last: last}, nil
		},
	}, source)
	cfg.Partitions = partitions
	b.hub = streamer.New(cfg, b.log)
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

// compile compiles a filter.
func compile(t *testing.T, f match.Filter) *match.Program {
	t.Helper()
	f.Carries.Document = true
	p, err := match.Compile(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func everything(t *testing.T) []streamer.Subscription {
	return []streamer.Subscription{{ID: "all", Program: compile(t, match.Filter{})}}
}

func (b *bench) open(cfg streamer.SessionConfig, subscriptions []streamer.Subscription) *streamer.Session {
	b.t.Helper()
	s, err := b.hub.Open(b.t.Context(), cfg, subscriptions)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// receive receives batches until there are so many events and losses, without acknowledging them.
func receive(t *testing.T, s *streamer.Session, n int) (batches []*streamer.Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for got := 0; got < n; {
		more, _, err := s.Receive(ctx)
		if err != nil {
			t.Fatalf("after %d of %d: %v", got, n, err)
		}
		for _, b := range more {
			got += len(b.Events)
			if b.Loss != nil {
				got++
			}
		}
		batches = append(batches, more...)
	}
	return batches
}

// refs returns what the batches hold: the Refs of events, and losses as text.
func refs(batches []*streamer.Batch) (all []string) {
	for _, b := range batches {
		if b.Loss != nil {
			all = append(all, fmt.Sprintf("%s %s %s–%s", b.Loss.Kind, b.Loss.Reason, b.Loss.From, b.Loss.To))
		}
		for _, e := range b.Events {
			all = append(all, fmt.Sprintf("%x", e.Ref.Append(nil)))
		}
	}
	return all
}

func wanted(events []changetest.Event) (all []string) {
	for _, e := range events {
		all = append(all, fmt.Sprintf("%x", e.Position().Ref().Append(nil)))
	}
	return all
}

func inserts(n int, from int64) []changetest.Event {
	events := make([]changetest.Event, n)
	for i := range events {
		events[i].ID = from + int64(i)
	}
	return events
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %d entries, want %d:\n%v\nwant\n%v", what, len(got), len(want), got, want)
	}
}

func TestSessionsGetWhatTheyAskForInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(inserts(30, 0)...)
		b := begin(t, source, streamer.Config{})
		defer b.end()
		early, live := b.open(streamer.SessionConfig{Start: streamer.Place{At: old[9].Position()}}, everything(t)), b.open(streamer.SessionConfig{}, everything(t))
		some := b.open(streamer.SessionConfig{}, []streamer.Subscription{
			{ID: "deletes", Program: compile(t, match.Filter{Ops: []change.Op{change.OpDelete}})},
			{ID: "json", Program: compile(t, match.Filter{Ops: []change.Op{change.OpDelete}}), Form: streamer.Form{Format: streamer.JSON}},
			{ID: "none", Program: compile(t, match.Filter{Coll: "nothing"})},
		})
		synctest.Wait()
		mixed := inserts(30, 100)
		for i := range mixed {
			mixed[i].Op = []string{"insert", "delete", "update"}[i%3]
		}
		source.Append(mixed...)
		equal(t, "early", refs(receive(t, early, 50)), wanted(append(old[10:], mixed...)))
		equal(t, "live", refs(receive(t, live, 30)), wanted(mixed))
		var deletes []changetest.Event
		for _, e := range mixed {
			if e.Op == "delete" {
				deletes = append(deletes, e, e)
			}
		}
		batches := receive(t, some, 20)
		equal(t, "some", refs(batches), wanted(deletes))
		for _, batch := range batches {
			for i, e := range batch.Events {
				p, _ := change.NewPartitioner(partitions).Of(parse(t, deletes[i]))
				want := map[streamer.Format]string{streamer.BSON: "deletes", streamer.JSON: "json"}[e.Format] // in either order
				if len(e.Subscriptions) != 1 || e.Subscriptions[0] != want || i%2 == 1 && e.Format == batch.Events[i-1].Format || e.Partition != p || e.Keyless {
					t.Errorf("event %d: %+v", i, e)
				}
				if payload := batch.Payload(i); json.Valid(payload) != (e.Format == streamer.JSON) || bytes.Contains(payload, []byte("_data")) {
					t.Errorf("event %d: payload %q", i, payload)
				}
			}
		}
	})
}

// The first batch is empty and ends where the session begins, however much there is to deliver by the time that it is received.
func TestFirstBatchSaysWhereTheSessionBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(inserts(30, 0)...)
		b := begin(t, source, streamer.Config{})
		defer b.end()
		for _, place := range []streamer.Place{{At: old[9].Position()}, {Ref: old[9].Position().Ref()}, {}} {
			s := b.open(streamer.SessionConfig{Start: place}, everything(t))
			synctest.Wait()
			want := place.From()
			if place.IsZero() {
				want = old[29].Position()
				source.Append(inserts(10, 100)...)
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
		last := source.Append(inserts(10, 0)...)[9].Position()
		b := begin(t, source, streamer.Config{})
		defer b.end()
		// The log has nothing at this place, so that the session does not know whether it has passed it.
		other := changetest.Event{ID: 77, Time: last.Time}
		s := b.open(streamer.SessionConfig{Start: streamer.Place{Ref: other.Position().Ref()}, Attached: true}, everything(t))
		synctest.Wait()
		if s.State().Live {
			t.Fatal("it does not wait by itself")
		}
		here := map[change.Partition]streamer.Place{3: {At: last}}
		for what, ask := range map[string]func(){
			"attach": func() { _ = s.Attach(here, nil, nil) }, "detach": func() { _ = s.Detach([]change.Partition{3}) }, "pause": func() { s.Pause(context.Background()) },
			"subscribe": func() { s.Subscribe(everything(t)) }, "unsubscribe": func() { s.Unsubscribe([]string{"all"}) },
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

// A session without credit leaves the live path, holds no more than its credit and a reply, and comes back without a gap. Others do not
// notice.
func TestSessionWithoutCreditComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 10}
		source.Tick(1)
		b := begin(t, source, streamer.Config{CreditEvents: 100})
		defer b.end()
		slow, fast := b.open(streamer.SessionConfig{}, everything(t)), b.open(streamer.SessionConfig{}, everything(t))
		synctest.Wait()
		var all []changetest.Event
		for round := range 50 {
			events := source.Append(inserts(50, int64(50*round))...)
			all = append(all, events...)
			batches := receive(t, fast, 50)
			equal(t, "fast", refs(batches), wanted(events))
			if err := fast.Ack(batches[len(batches)-1].Seq); err != nil {
				t.Fatal(err)
			}
		}
		if st := slow.State(); st.Live || st.Events < 100 || st.Events > 110 {
			t.Errorf("%+v", st)
		}
		var got []string
		for len(got) < len(all) {
			batches := receive(t, slow, 1)
			got = append(got, refs(batches)...)
			if err := slow.Ack(batches[len(batches)-1].Seq); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, "slow", got, wanted(all))
		synctest.Wait()
		if l := b.hub.Load(); l.Live != 2 || l.Bytes != 0 {
			t.Errorf("%+v", l)
		}
	})
}

func TestAcknowledgementsOfWhatWasNotReceivedAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, streamer.Config{})
		defer b.end()
		s := b.open(streamer.SessionConfig{}, everything(t))
		synctest.Wait()
		source.Append(inserts(10, 0)...)
		synctest.Wait()
		if err := s.Ack(1); fault.Of(err) != fault.SessionBadAck {
			t.Errorf("before it was received: %v", err)
		}
		batches := receive(t, s, 10)
		last := batches[len(batches)-1]
		if err := s.Ack(last.Seq + 1); fault.Of(err) != fault.SessionBadAck {
			t.Errorf("beyond the last: %v", err)
		}
		for range 2 {
			if err := s.Ack(last.Seq); err != nil {
				t.Error(err)
			}
		}
		if st := s.State(); st.Events != 0 || st.Bytes != 0 || st.At.Compare(last.To) != 0 {
			t.Errorf("%+v, want %v", st, last.To)
		}
	})
}

// Losses come in their place, whether a session is live or catching up, and are acknowledged like events.
func TestLossesComeInTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(inserts(20, 0)...)
		source.Truncate(10)
		b := begin(t, source, streamer.Config{})
		defer b.end()
		late, live := b.open(streamer.SessionConfig{Start: streamer.Place{At: old[3].Position()}}, everything(t)), b.open(streamer.SessionConfig{}, everything(t))
		other := b.open(streamer.SessionConfig{}, []streamer.Subscription{{ID: "x", Program: compile(t, match.Filter{DB: "shop", Coll: "other"})}})
		synctest.Wait()
		now := b.log.End()
		events := source.Append(
			changetest.Event{ID: 1}, changetest.Event{Op: change.SkippedName, Keyless: true}, changetest.Event{ID: 2},
			changetest.Event{Op: "rename", Coll: "elsewhere", To: "orders", Keyless: true}, changetest.Event{ID: 3})
		lost := fmt.Sprintf("resync history_lost %s–%s", old[3].Position(), change.At(old[10].Time))
		poison := fmt.Sprintf("resync poison %s–%s", events[0].Position(), events[1].Position())
		renamed := fmt.Sprintf("resync renamed %s–%s", events[2].Position(), events[2].Position())
		e := wanted(events)
		equal(t, "live", refs(receive(t, live, 6)), []string{e[0], poison, e[2], renamed, e[3], e[4]})
		equal(t, "late", refs(receive(t, late, 17)), append(append([]string{lost}, wanted(old[10:])...), e[0], poison, e[2], renamed, e[3], e[4]))
		if got := refs(receive(t, other, 1)); len(got) != 1 || got[0] != poison {
			t.Errorf("one that follows another collection: %v after %v", got, now)
		}
		if st := live.State(); st.Losses != 2 || st.Events != 6 {
			t.Errorf("%+v", st)
		}
	})
}

func TestHaltEndsTheSessionsThatWouldLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(inserts(20, 0)...)
		source.Truncate(10)
		b := begin(t, source, streamer.Config{Halt: true})
		defer b.end()
		for range 2 { // also when it comes back
			late := b.open(streamer.SessionConfig{Start: streamer.Place{At: old[3].Position()}}, everything(t))
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
		// One that has acknowledged everything before the loss stays there too, whatever comes after it.
		for acked := false; !acked; { // until it was faster than the loss
			done := b.open(streamer.SessionConfig{Start: streamer.Place{At: old[3].Position()}}, everything(t))
			if batches, _, err := done.Receive(t.Context()); err == nil {
				acked = done.Ack(last(batches).Seq) == nil
			}
			synctest.Wait()
			if st := done.State(); st.At.After(old[3].Position()) {
				t.Errorf("%+v", st)
			}
		}
		live := b.open(streamer.SessionConfig{Start: streamer.Place{At: old[10].Position()}}, everything(t))
		equal(t, "one that loses nothing", refs(receive(t, live, 9)), wanted(old[11:]))
	})
}

// A subscriber that is known by a Ref only resumes exactly after it, also among events of equal heads, wherever it was.
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
			b := begin(t, source, streamer.Config{})
			defer b.end()
			s := b.open(streamer.SessionConfig{Start: streamer.Place{Ref: events[i].Position().Ref()}}, everything(t))
			if i < len(events)-1 {
				equal(t, fmt.Sprintf("after event %d", i), refs(receive(t, s, len(events)-1-i)), wanted(events[i+1:]))
			}
			more := source.Append(changetest.Event{ID: 99})
			equal(t, "and then", refs(receive(t, s, 1)), wanted(more))
		})
	}
	// One whose own event the log does not have: what has its head comes again.
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 2}
		source.Append(events...)
		source.Tick(1)
		b := begin(t, source, streamer.Config{})
		defer b.end()
		unknown := changetest.Event{ID: 77, Time: at(2)}
		s := b.open(streamer.SessionConfig{Start: streamer.Place{Ref: unknown.Position().Ref()}}, everything(t))
		equal(t, "unknown", refs(receive(t, s, 5)), wanted(events[1:]))
	})
}

func TestRewindDeliversAgainAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, streamer.Config{})
		defer b.end()
		s := b.open(streamer.SessionConfig{}, everything(t))
		synctest.Wait()
		events := source.Append(inserts(20, 0)...)
		batches := receive(t, s, 20)
		if err := s.Ack(batches[len(batches)-1].Seq); err != nil {
			t.Fatal(err)
		}
		to := events[4].Position()
		s.Rewind(to, 1, nil)
		rewound := fmt.Sprintf("rewound operator %s–%s", to, to)
		equal(t, "rewound", refs(receive(t, s, 16)), append([]string{rewound}, wanted(events[5:])...))
		if st := s.State(); st.At.Compare(to) != 0 {
			t.Errorf("stands at %v, want %v", st.At, to)
		}
		more := source.Append(inserts(3, 50)...)
		equal(t, "and then", refs(receive(t, s, 3)), wanted(more))
		synctest.Wait()
		if !s.State().Live {
			t.Error("it is not back on the live path")
		}
		s.Rewind(events[19].Position().Clone(), 2, nil)
		s.Rewind(change.At(change.Timestamp{T: 9999}), 3, nil) // it is not as far
		equal(t, "forward", refs(receive(t, s, 1))[:1], []string{fmt.Sprintf("rewound operator %s–%s", events[19].Position(), events[19].Position())})
	})
}

func TestBookmarksMoveQuietSubscribersOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, streamer.Config{Bookmark: 10 * time.Second})
		defer b.end()
		s := b.open(streamer.SessionConfig{}, []streamer.Subscription{{ID: "x", Program: compile(t, match.Filter{Coll: "nothing"})}})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		first, _, err := s.Receive(ctx)
		if err != nil || len(first) != 1 || len(first[0].Events) != 0 {
			t.Fatalf("%v, %v", first, err)
		}
		if err := s.Ack(first[0].Seq); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		source.Append(inserts(5, 0)...)
		source.Tick(60)
		batches, _, err := s.Receive(ctx)
		if err != nil || len(batches) != 1 || len(batches[0].Events) != 0 || batches[0].To.Time.T < 1060 {
			t.Errorf("%+v, %v", batches, err)
		}
	})
}

func TestSubscriptionsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, streamer.Config{})
		defer b.end()
		s := b.open(streamer.SessionConfig{}, nil)
		synctest.Wait()
		source.Append(inserts(5, 0)...)
		synctest.Wait()
		from := s.Subscribe(everything(t))
		if from.Compare(b.log.End()) != 0 {
			t.Errorf("holds from %v, the log is at %v", from, b.log.End())
		}
		events := source.Append(inserts(5, 10)...)
		equal(t, "subscribed", refs(receive(t, s, 5)), wanted(events))
		s.Unsubscribe([]string{"all", "unknown"})
		source.Append(inserts(5, 20)...)
		synctest.Wait()
		s.Subscribe(everything(t))
		events = source.Append(inserts(5, 30)...)
		equal(t, "subscribed again", refs(receive(t, s, 5)), wanted(events))
	})
}

// Whoever looks where a subscriber is while it is moved back never sees it in the generation of the rewind, and later than where it was moved:
// that would undo the rewind.
func TestSubscriberThatIsMovedBackIsNowhereElseMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, streamer.Config{})
		defer b.end()
		s := b.open(streamer.SessionConfig{Start: streamer.Place{At: b.log.End()}}, everything(t))
		to := source.Append(inserts(1, 0)...)[0].Position()
		source.Append(inserts(3, 1)...)
		ack := func(batches []*streamer.Batch) {
			if err := s.Ack(batches[len(batches)-1].Seq); err != nil {
				t.Error(err)
			}
		}
		ack(receive(t, s, 4))
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
			again := receive(t, s, 4)
			generation.Store(0)
			ack(again)
		}
		close(ended)
		looking.Wait()
	})
}

// Whoever resumes at the place of a document of a snapshot, which is no event's, gets the events of that head again, and need not wait for the
// log to move on.
func TestResumeAtTheDocumentOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, streamer.Config{})
		defer b.end()
		events := source.Append(inserts(10, 0)...)
		synctest.Wait()
		s := b.open(streamer.SessionConfig{Start: streamer.Place{Ref: events[9].Position().Ref().Between()}}, everything(t))
		equal(t, "it", refs(receive(t, s, 1)), wanted(events[9:]))
		synctest.Wait()
		if !s.State().Live {
			t.Error("it waits")
		}
	})
}

// A loss that shares its head with other events, of other shards, skips nobody who is at one of those before it, on the live path or not.
func TestLossesAmongEventsOfEqualHeads(t *testing.T) {
	at := func(i uint32) change.Timestamp { return change.Timestamp{T: 1000, I: i} }
	for _, what := range []changetest.Event{{Op: change.SkippedName, Keyless: true}, {Op: "rename", Coll: "other", To: "orders", Keyless: true}} {
		loss := what
		loss.ID, loss.Time = 13, at(2)
		events := []changetest.Event{{ID: 1, Time: at(1)}, {ID: 11, Time: at(2)}, {ID: 12, Time: at(2)}, loss, {ID: 14, Time: at(2)}, {ID: 2, Time: at(3)}}
		for i := range 3 {
			for _, live := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					source := &oplogtest.Log{ReplyEvents: 2}
					source.Append(events[:i+1]...)
					b := begin(t, source, streamer.Config{})
					defer b.end()
					if !live {
						source.Append(events[i+1:]...)
						synctest.Wait()
					}
					s := b.open(streamer.SessionConfig{Start: streamer.Place{Ref: events[i].Position().Ref()}}, everything(t))
					if live {
						synctest.Wait()
						source.Append(events[i+1:]...)
					}
					want := len(events) - i
					if loss.Op == change.SkippedName {
						want-- // no event comes with it
					}
					told := 0
					for _, b := range receive(t, s, want-1) {
						if b.Loss != nil {
							told++
						}
					}
					if told != 1 {
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
	h := streamer.New(streamer.Config{Partitions: partitions, Bookmark: 10 * time.Millisecond}, log)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx, change.Position{}) })
	running.Go(func() { _ = h.Run(ctx) })
	defer running.Wait()
	defer cancel()
	open := func(f match.Filter, fields ...string) *streamer.Session {
		s, err := h.Open(ctx, streamer.SessionConfig{}, []streamer.Subscription{{ID: "x", Program: compile(t, f), Form: streamer.Form{Format: streamer.JSON, Fields: fields}}})
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
				if err != nil || busy.Ack(last(batches).Seq) != nil {
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
		if err := quiet.Ack(last(batches).Seq); err != nil {
			t.Fatal(err)
		}
	}
}
