package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// TestNothingIsLostWhateverHappens drives subscribers through crashes, stalls, filters that are too
// costly for the live path, lost acknowledgements, partitions that come and go, jumps, refused
// positions and a log that wraps, against the model that each gets every change that it asked for,
// or a loss that bounds it, in the order of its partition; and that what comes again after a crash
// begins where it had acknowledged.
func TestNothingIsLostWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				do: rapid.SampledFrom([]string{
					"append", "append", "append", "receive", "receive", "receive", "receive", "ack", "ack", "open", "crash", "crash by ref", "attach", "detach", "rewind",
					"tick", "wait", "sleep", "suspect", "refuse", "wrap",
				}).Draw(rt, "do"),
				n: rapid.IntRange(0, 40).Draw(rt, "n"), m: rapid.IntRange(0, 1000).Draw(rt, "m"),
			}
		}), 1, 120).Draw(rt, "steps")
		credit := rapid.IntRange(1, 60).Draw(rt, "credit")
		budget := rapid.SampledFrom([]int{0, 1000, 5000, 20_000, 100_000}).Draw(rt, "budget")
		reply := rapid.IntRange(1, 30).Draw(rt, "reply")
		var failure string
		synctest.Test(t, func(t *testing.T) {
			failure = drive(t, reply, delivery.Config{CreditEvents: credit, QueueBytes: budget}, steps)
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

type step struct {
	do   string
	n, m int
}

// A subscriber is one that the model follows over its sessions.
type subscriber struct {
	name    string
	owned   bool
	odd     bool // wants odd _ids only; some of them cost too much on the live path
	session *delivery.Session
	batches []*delivery.Batch // received and not acknowledged

	start  change.Position
	got    map[change.Partition][]change.Position // in the order in which they came, repetitions left out
	losses []*delivery.Loss
	acked  map[change.Partition]change.Position // by the model: up to where everything was acknowledged
	seen   map[seenIn]bool
	has    map[change.Partition]bool // attached
	failed string
}

// A seenIn is an event in a partition: one of no document is in all that the subscriber has then.
type seenIn struct {
	partition change.Partition
	ref       string
}

func drive(t *testing.T, reply int, cfg delivery.Config, steps []step) string {
	source := &oplogtest.Log{ReplyEvents: reply}
	source.Tick(1)
	all := source.Append(deliverytest.Inserts(5, 0)...)
	b := begin(t, source, cfg)
	defer b.end()
	var subscribers []*subscriber
	open := func(owned, odd bool) {
		s := &subscriber{
			name: fmt.Sprintf("subscriber %d", len(subscribers)), owned: owned, odd: odd, start: b.log.End(), got: make(map[change.Partition][]change.Position),
			acked: make(map[change.Partition]change.Position), seen: make(map[seenIn]bool), has: make(map[change.Partition]bool),
		}
		for p := range change.Partition(partitions) {
			s.acked[p] = s.start
		}
		s.connect(t, b, false)
		subscribers = append(subscribers, s)
	}
	open(false, false)
	for _, st := range steps {
		s := subscribers[st.m%len(subscribers)]
		switch st.do {
		case "append":
			events := deliverytest.Inserts(st.n, int64(st.m))
			if st.m%5 == 0 {
				events = append(events, changetest.Event{Op: "drop", Keyless: true})
			}
			all = append(all, source.Append(events...)...)
		case "tick":
			source.Tick(uint32(st.n*st.n + 1))
		case "suspect":
			source.Suspect()
		case "refuse":
			if source.FailNext(oplog.ErrPositionLost) == 1 {
				all = append(all, source.Append(deliverytest.Inserts(1, int64(st.m))...)...)
				synctest.Wait()
			}
		case "wrap":
			if st.m%4 == 0 {
				source.Truncate(st.n)
			}
		case "wait":
			synctest.Wait()
		case "sleep": // so that who has left the live path may come back
			time.Sleep(time.Minute)
		case "open":
			if len(subscribers) < 5 {
				open(st.n%3 == 0, st.n%2 == 0)
			}
		case "receive":
			s.receive(t)
		case "ack":
			s.ack(t, st.n)
		case "crash", "crash by ref":
			s.session.Close(nil)
			s.batches = nil
			s.connect(t, b, st.do == "crash by ref")
		case "attach":
			if s.owned {
				p := change.Partition(st.n % partitions)
				s.attach(map[change.Partition]delivery.Place{p: {At: s.acked[p]}})
			}
		case "detach":
			if p := change.Partition(st.n % partitions); s.owned && s.has[p] {
				if err := s.session.Detach([]change.Partition{p}); err != nil {
					s.failed = err.Error()
				}
				s.drain(t)
				delete(s.has, p)
			}
		case "rewind":
			if !s.owned && st.n%4 == 0 && s.acked[0].After(s.start) {
				to := all[st.m%len(all)].Position()
				if to.After(s.start) && s.acked[0].After(to) {
					s.session.Rewind(to, 1, nil)
				}
			}
		}
	}
	for _, s := range subscribers {
		if s.owned {
			places := make(map[change.Partition]delivery.Place)
			for p := range change.Partition(partitions) {
				if !s.has[p] {
					places[p] = delivery.Place{At: s.acked[p]}
				}
			}
			s.attach(places)
		}
		for quiet := 0; quiet < 40; quiet++ {
			if s.receive(t) {
				quiet = 0
			}
			s.ack(t, 1000)
		}
		if failure := s.check(t, all); failure != "" {
			return s.name + ": " + failure + fmt.Sprintf(" (%+v, %+v)", s.session.State(), b.log.Stats())
		}
	}
	return ""
}

// connect opens a session where the subscriber has acknowledged, as a store would have kept it.
func (s *subscriber) connect(t *testing.T, b *bench, byRef bool) {
	cfg := delivery.SessionConfig{
		Subscriber: s.name, Account: s.name, Identity: fmt.Sprint(s.odd), Attached: s.owned, Start: delivery.Place{At: s.acked[0]}, Partitions: make(map[change.Partition]delivery.Place),
	}
	for p, at := range s.acked {
		place := delivery.Place{At: at}
		if byRef {
			place = delivery.Place{Ref: at.Ref()}
		}
		if p == 0 {
			cfg.Start = place
		}
		cfg.Partitions[p] = place
	}
	subs := deliverytest.Everything(t)
	if s.odd {
		subs = []delivery.Subscription{{ID: "odd", Program: deliverytest.Compile(t, match.Filter{Source: costlyOn("key._id % 31 == 5") + " && (key._id % 2 == 1 || op == 'drop')"})}}
	}
	if s.owned {
		cfg.Partitions = nil
	}
	s.session = b.open(cfg, subs)
	if has := slices.Collect(maps.Keys(s.has)); len(has) > 0 {
		places := make(map[change.Partition]delivery.Place)
		for _, p := range has {
			places[p] = delivery.Place{At: s.acked[p]}
			if byRef {
				places[p] = delivery.Place{Ref: s.acked[p].Ref()}
			}
		}
		s.has = make(map[change.Partition]bool)
		s.attach(places)
	}
}

func (s *subscriber) attach(places map[change.Partition]delivery.Place) {
	if err := s.session.Attach(places, nil, nil); err != nil {
		s.failed = err.Error()
	}
}

// receive takes what is there, and reports whether anything was.
func (s *subscriber) receive(t *testing.T) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	batches, _, err := s.session.Receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if err != nil {
		s.failed = err.Error()
		return false
	}
	for _, b := range batches {
		s.take(b)
	}
	s.batches = append(s.batches, batches...)
	return true
}

// drain takes what was queued before a partition was detached.
func (s *subscriber) drain(t *testing.T) {
	s.receive(t)
	s.ack(t, 1000)
}

func (s *subscriber) take(b *delivery.Batch) {
	for _, p := range b.Attached {
		s.has[p] = true
	}
	if l := b.Loss; l != nil && l.Kind == delivery.Resync {
		s.losses = append(s.losses, l)
	}
	if l := b.Loss; l != nil && l.Kind == delivery.Rewound {
		for p := range s.acked {
			if s.acked[p].After(l.To) {
				s.acked[p] = l.To
			}
		}
		s.batches = nil // what was on its way counts no more
	}
	for _, e := range b.Events {
		key := string(e.Ref.Append(nil))
		first, last := e.Partition, e.Partition
		if e.Keyless {
			first, last = 0, partitions-1
		}
		for p := first; p <= last; p++ {
			if in := (seenIn{p, key}); !s.seen[in] && (!s.owned || s.has[p]) {
				s.got[p] = append(s.got[p], change.Position{Token: []byte(key)})
				s.seen[in] = true
			}
		}
	}
}

// ack acknowledges some of what was received.
func (s *subscriber) ack(t *testing.T, n int) {
	n = min(n, len(s.batches))
	if n == 0 {
		return
	}
	b := s.batches[n-1]
	if _, err := s.session.Ack(b.Seq); err != nil {
		s.failed = err.Error()
	}
	s.batches = s.batches[n:]
	st := s.session.State()
	for p := range change.Partition(partitions) {
		at, told := st.Partitions[p]
		if !told {
			at = st.At
		}
		if s.owned && !told {
			continue
		}
		if !s.acked[p].After(at) {
			s.acked[p] = at
		}
	}
	_ = t
}

// check holds what the subscriber got against what happened.
func (s *subscriber) check(t *testing.T, all []changetest.Event) string {
	if s.failed != "" {
		return s.failed
	}
	for p := range change.Partition(partitions) {
		var order []string
		known := make(map[string]int)
		lost := make(map[string]bool) // by what it was told: such a change may still come after a crash
		for _, ev := range all {
			at := ev.Position()
			of, keyed := change.NewPartitioner(partitions).Of(parse(t, ev))
			if keyed && of != p || s.odd && ev.Op != "drop" && ev.ID%2 == 0 {
				continue
			}
			ref := string(at.Ref().Append(nil))
			known[ref] = len(order)
			lost[ref] = s.excused(at)
			order = append(order, ref)
			if at.After(s.start) && !s.seen[seenIn{p, ref}] && !s.excused(at) {
				return fmt.Sprintf("partition %d: %s is missing", p, at)
			}
		}
		last := -1
		for _, at := range s.got[p] {
			i, there := known[string(at.Token)]
			if !there || lost[string(at.Token)] {
				continue // of a partition that shares an event of no document, or read again
			}
			if i <= last {
				return fmt.Sprintf("partition %d: event %d came first after event %d", p, i, last)
			}
			last = i
		}
	}
	return ""
}

// excused reports whether a loss that the subscriber was told of covers the position.
func (s *subscriber) excused(at change.Position) bool {
	return slices.ContainsFunc(s.losses, func(l *delivery.Loss) bool { return at.After(l.From) && !at.After(l.To) })
}
