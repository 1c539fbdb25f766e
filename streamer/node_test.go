package streamer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
)

// A world is a log and a store that outlive nodes.
type world struct {
	t      *testing.T
	source *oplogtest.Log
	store  *flaky
	origin checkpoint.Origin
	halt   bool
	policy checkpoint.Policy
	stall  func(context.Context) // of the hubs; nil for none
	blind  atomic.Bool           // the extent of the log cannot be asked for
	away   func() time.Time      // since when nodes judge that MongoDB is away

	documents snapshot.Source // nil for none
	board     *notice.Board   // nil for none

	flushes, saves time.Duration // the timeouts of nodes; 0 for the defaults
	asks           time.Duration // how long the extent of the log takes to be asked for
}

// A flaky store is one that may be away.
type flaky struct {
	*checkpointtest.Memory

	away, unread atomic.Bool
	stuck        atomic.Bool  // saves are not answered
	corrupt      atomic.Value // the subscriber whose checkpoint is corrupt
	garbled      atomic.Bool  // the shared checkpoints of partition 0 are corrupt
	loaded       func()       // called after a Load; nil for nothing
	begins       func()       // called before a History, when it is known where a subscriber begins; nil for nothing
}

var errAway = errors.New("the store is away")

func (f *flaky) Save(ctx context.Context, all []checkpoint.Checkpoint) []error {
	if f.away.Load() {
		results := make([]error, len(all))
		for i := range results {
			results[i] = errAway
		}
		return results
	}
	if f.stuck.Load() {
		<-ctx.Done()
		return slices.Repeat([]error{ctx.Err()}, len(all))
	}
	results := f.Memory.Save(ctx, all)
	for i, c := range all {
		if c.Subscriber == f.corrupt.Load() {
			results[i] = fault.Newf(fault.CheckpointCorrupt, "checkpoints/%s: garbage", c.Subscriber)
		}
	}
	return results
}

func (f *flaky) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	if f.away.Load() || f.unread.Load() {
		return nil, errAway
	}
	all, err := f.Memory.Load(ctx, subscriber)
	if f.loaded != nil {
		f.loaded()
	}
	return all, err
}

func (f *flaky) History(ctx context.Context, k checkpoint.Key) ([]checkpoint.Checkpoint, error) {
	if f.begins != nil {
		f.begins()
	}
	return f.Memory.History(ctx, k)
}

func (f *flaky) ClaimTerms(ctx context.Context, subscriber string, terms []change.Term) ([]checkpoint.Checkpoint, error) {
	claimed, err := f.Memory.ClaimTerms(ctx, subscriber, terms)
	var unread *checkpoint.UnreadError
	for i, t := range terms {
		if f.garbled.Load() && err == nil && t.Partition == 0 {
			claimed[i], unread = checkpoint.Checkpoint{}, unread.Unread(0, fault.Newf(fault.CheckpointCorrupt, "checkpoints/%s/0: garbage", subscriber))
		}
	}
	if unread != nil {
		return claimed, unread
	}
	return claimed, err
}

func (f *flaky) ClaimName(ctx context.Context, c checkpoint.Claim, first checkpoint.Checkpoint) (checkpoint.Checkpoint, error) {
	if f.away.Load() {
		return checkpoint.Checkpoint{}, errAway
	}
	return f.Memory.ClaimName(ctx, c, first)
}

func (f *flaky) AddGap(ctx context.Context, g checkpoint.Gap) error {
	if f.away.Load() {
		return errAway
	}
	return f.Memory.AddGap(ctx, g)
}

func newWorld(t *testing.T, source *oplogtest.Log) *world {
	t.Helper()
	w := &world{t: t, source: source, store: &flaky{Memory: checkpointtest.NewMemory(partitions)}, policy: checkpoint.Policy{Interval: 5 * time.Second}}
	_, last := source.Reach()
	var err error
	w.origin, err = w.store.Create(t.Context(), checkpoint.Origin{Cluster: "c", Incarnation: 1, Partitions: partitions, Source: "s", Start: last.Next()})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A running node.
type node struct {
	*streamer.Node

	metrics *prometheus.Registry
	cancel  context.CancelFunc
	kill    context.CancelCauseFunc // ends its terms
	terms   context.Context
	ended   chan error
}

// start starts a node; prepare may share subscribers before it runs.
func (w *world) start(name string, prepare func(*streamer.Node)) *node {
	w.t.Helper()
	reach := oplog.NewRange(oplog.RangeConfig{Ask: func(context.Context) (gap.Reach, error) {
		time.Sleep(w.asks)
		if w.blind.Load() {
			return gap.Reach{}, errAway
		}
		first, last := w.source.Reach()
		return gap.Reach{First: first, Last: last}, nil
	}})
	n := &node{metrics: prometheus.NewRegistry(), ended: make(chan error, 1)}
	log := oplog.New(oplog.Config{
		Partitions: partitions, Reach: reach.Now, Lost: func(l oplog.Loss) { n.Lost(l) },
	}, w.source)
	hub := delivery.New(delivery.Config{Partitions: partitions, Halt: w.halt, Stall: w.stall, Snapshots: w.documents}, log)
	n.Node = streamer.NewNode(streamer.NodeConfig{
		Origin: w.origin, By: name, Range: reach, Policy: w.policy, Registerer: n.metrics, Board: w.board, Away: w.away,
		FlushTimeout: w.flushes, CheckpointTimeout: w.saves,
	}, hub, log, w.store)
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(w.t.Context())
	n.terms, n.kill = context.WithCancelCause(w.t.Context())
	if prepare != nil {
		prepare(n.Node)
	}
	go func() { n.ended <- n.Run(ctx) }()
	return n
}

// A node that never runs leaves no session behind when it is closed.
func TestClosedNodeEndsSessionsThatItNeverServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &oplogtest.Log{})
		log := oplog.New(oplog.Config{Partitions: partitions}, w.source)
		var shared *streamer.Shared
		idle := streamer.NewNode(streamer.NodeConfig{Origin: w.origin, By: "b"}, delivery.New(delivery.Config{Partitions: partitions}, log), log, w.store)
		sharing(t, &shared)(idle)
		idle.Close()
		<-shared.Session().Done()
	})
}

// sharing prepares a node to serve a shared subscriber of everything.
func sharing(t *testing.T, s **streamer.Shared) func(*streamer.Node) {
	return func(n *streamer.Node) {
		t.Helper()
		var err error
		if *s, err = n.Share(t.Context(), "stdout", deliverytest.Everything(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// stop stops the node softly.
func (n *node) stop(t *testing.T) {
	t.Helper()
	n.cancel()
	if err := <-n.ended; err != nil {
		t.Error(err)
	}
	n.kill(nil)
}

// own gives the node terms of all partitions.
func (n *node) own(t *testing.T, epoch uint64) []change.Term {
	t.Helper()
	return n.ownIn(t, 1, epoch)
}

// ownIn gives the node all partitions in an incarnation of the origin.
func (n *node) ownIn(t *testing.T, incarnation, epoch uint64) []change.Term {
	t.Helper()
	terms := n.allTerms(epoch)
	for i := range terms {
		terms[i].Epoch.Incarnation = incarnation
	}
	if err := n.Serve(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	return terms
}

func (n *node) allTerms(epoch uint64) []change.Term { return termsOf(n.terms, epoch) }

// termsOf returns terms of all partitions that end with a context.
func termsOf(ctx context.Context, epoch uint64) []change.Term {
	terms := make([]change.Term, partitions)
	for p := range terms {
		terms[p] = change.Term{Partition: change.Partition(p), Epoch: change.Epoch{Incarnation: 1, Revision: epoch}, Context: ctx}
	}
	return terms
}

func (w *world) connect(n *node, r streamer.Request) *streamer.Exclusive {
	w.t.Helper()
	e, err := n.Connect(w.t.Context(), r, deliverytest.Everything(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// receiveShared receives until there are so many events, all of which are to be handed over.
func receiveShared(t *testing.T, s *streamer.Shared, n int) (batches []*delivery.Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for got := 0; got < n; {
		more, err := s.Receive(ctx)
		if err != nil {
			t.Fatalf("after %d of %d: %v", got, n, err)
		}
		for _, b := range more {
			got += len(b.Events)
		}
		batches = append(batches, more...)
	}
	return batches
}

// A subscriber with a name resumes where it had acknowledged, on any node, whether its node
// stopped, or was killed after the checkpoint was saved.
func TestExclusiveSubscribersResumeAtTheirCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		a, b := w.start("a", nil), w.start("b", nil)
		defer b.stop(t)
		synctest.Wait()
		e := w.connect(a, streamer.Request{Subscriber: "orders", Process: "1", Started: time.Now(), Start: streamer.StartNow})
		if e.Begin() != streamer.BeginStart {
			t.Errorf("began at %v", e.Begin())
		}
		events := source.Append(deliverytest.Inserts(30, 0)...)
		batches := deliverytest.Receive(t, e.Session(), 30)
		deliverytest.Equal(t, "first", deliverytest.Refs(batches), deliverytest.Wanted(events))
		if err := e.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		more := source.Append(deliverytest.Inserts(5, 30)...)
		deliverytest.Receive(t, e.Session(), 5) // and not acknowledged
		time.Sleep(10 * time.Second)
		// a is killed: nothing is said. Its subscriber comes back at b, as the same process and
		// then as another one.
		for i, process := range []string{"1", "2"} {
			again := w.connect(b, streamer.Request{Subscriber: "orders", Process: process, Started: time.Now(), Start: streamer.StartResume})
			if again.Begin() != streamer.BeginCheckpoint {
				t.Errorf("began at %v", again.Begin())
			}
			deliverytest.Equal(t, "again", deliverytest.Refs(deliverytest.Receive(t, again.Session(), 5)), deliverytest.Wanted(more))
			if i == 1 {
				again.Close(t.Context(), nil)
			}
		}
		// The one at a is fenced when it saves.
		if err := e.Ack(deliverytest.Last(batches).Seq + 1); err != nil {
			t.Fatal(err)
		}
		<-e.Session().Done()
		if _, _, err := e.Session().Receive(t.Context()); fault.Of(err) != fault.SessionReplaced {
			t.Errorf("the one at a: %v", err)
		}
		a.stop(t)
	})
}

// A session that is fenced by the next one of its own process ends for that reason: the store has
// answered, and no other process has the name.
func TestSessionOfTheSameProcessAtAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		a, b := w.start("a", nil), w.start("b", nil)
		defer a.stop(t)
		defer b.stop(t)
		synctest.Wait()
		request := streamer.Request{Subscriber: "orders", Process: "1", Started: time.Now(), Start: streamer.StartNow}
		first := w.connect(a, request)
		source.Append(deliverytest.Inserts(5, 0)...)
		batches := deliverytest.Receive(t, first.Session(), 5)
		w.connect(b, request)
		if err := first.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		<-first.Session().Done()
		if _, _, err := first.Session().Receive(t.Context()); fault.Of(err) != fault.SessionRenewed {
			t.Errorf("the first one: %v", err)
		}
	})
}

// What is left of a subscriber's snapshots goes with its checkpoint. Where the subscriber is
// earlier by its own account, those that are under way begin again.
func TestSnapshotsResumeAtTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil) // which has no source of snapshots: they stay as they are
		defer n.stop(t)
		synctest.Wait()
		wants := func() []delivery.Subscription {
			subscriptions := deliverytest.Everything(t)
			subscriptions[0].Snapshot = true
			return subscriptions
		}
		connect := func(process string, r streamer.Request) *streamer.Exclusive {
			t.Helper()
			r.Subscriber, r.Process, r.Started = "orders", process, time.Now()
			e, err := n.Connect(t.Context(), r, wants())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return e
		}
		e := connect("1", streamer.Request{Start: streamer.StartNow})
		first := source.Append(deliverytest.Inserts(3, 0)...)
		batches := deliverytest.Receive(t, e.Session(), 3)
		if err := e.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		e.Close(t.Context(), nil)
		stored, err := w.store.Load(t.Context(), "orders")
		if err != nil || len(stored) != 1 || len(stored[0].Snapshots) != 1 || stored[0].Snapshots[0].Reason != snapshot.Start {
			t.Fatalf("%+v, %v", stored, err)
		}
		// Half of it has been read since.
		half := stored[0]
		half.Snapshots[0].Listed, half.Snapshots[0].Read = true, 50
		half.Snapshots[0].Left = []snapshot.Left{{Namespace: change.Namespace{DB: "shop", Coll: "orders"}, From: change.Value{Type: 0x10, Data: []byte{1, 0, 0, 0}}}}
		if err := w.store.Save(t.Context(), []checkpoint.Checkpoint{half})[0]; err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			request streamer.Request
			read    uint64
		}{
			"at the checkpoint":    {streamer.Request{}, 50},
			"at its own position":  {streamer.Request{Known: true, At: delivery.Place{Ref: half.Position.Ref()}}, 50},
			"at an earlier one":    {streamer.Request{Known: true, At: delivery.Place{At: first[0].Position()}}, 0},
			"and in one partition": {streamer.Request{Known: true, At: delivery.Place{At: half.Position}, Partitions: map[change.Partition]delivery.Place{1: {At: first[0].Position()}}}, 0},
		} {
			s, err := w.store.Load(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			again := half.Clone()
			again.Claim = s[0].Claim
			if err := w.store.Save(t.Context(), []checkpoint.Checkpoint{again})[0]; err != nil {
				t.Fatal(err)
			}
			got := connect(name, c.request)
			if all := got.Session().Snapshots(); len(all) != 1 || all[0].Read != c.read || all[0].Listed != (c.read > 0) {
				t.Errorf("%s: %+v", name, all)
			}
			got.Session().Close(nil) // killed
			time.Sleep(time.Second)
		}
	})
}

// What is left of a snapshot after a loss is left when a session comes back that has its partitions
// attached, even if these are all that it saves.
func TestSnapshotsOfAttachedPartitionsAreSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil) // which has no source of snapshots: they stay as they are
		defer n.stop(t)
		synctest.Wait()
		connect := func(process string) *streamer.Exclusive {
			t.Helper()
			e, err := n.Connect(t.Context(), streamer.Request{
				Subscriber: "orders", Process: process, Started: time.Now(), Start: streamer.StartNow, Attached: true,
			}, deliverytest.Everything(t))
			if err != nil {
				t.Fatal(err)
			}
			places := make(map[change.Partition]delivery.Place)
			for p := range change.Partition(partitions) {
				places[p] = delivery.Place{At: source.Append(deliverytest.Inserts(1, 0)...)[0].Position()}
			}
			if err := e.Session().Attach(places, nil, nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return e
		}
		e := connect("1")
		e.Session().Snapshot([]string{deliverytest.Everything(t)[0].ID}, snapshot.Loss)
		source.Append(deliverytest.Inserts(3, 1)...)
		if err := e.Ack(deliverytest.Last(deliverytest.Receive(t, e.Session(), 3)).Seq); err != nil {
			t.Fatal(err)
		}
		e.Close(t.Context(), nil)
		e = connect("2")
		if all := e.Session().Snapshots(); len(all) != 1 || all[0].Done || all[0].Reason != snapshot.Loss {
			t.Errorf("left: %+v", all)
		}
		e.Close(t.Context(), nil)
	})
}

// A process that keeps its own position, and comes back at one that is earlier than its checkpoint,
// has had the snapshots that were complete before it.
func TestCompleteSnapshotsDoNotComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		synctest.Wait()
		events := source.Append(deliverytest.Inserts(6, 0)...)
		done := events[2].Position().Time
		wants := func() []delivery.Subscription {
			subscriptions := deliverytest.Everything(t)
			subscriptions[0].Snapshot = true
			return subscriptions
		}
		begun, err := n.Connect(t.Context(), streamer.Request{Subscriber: "other", Start: streamer.StartNow}, wants())
		if err != nil {
			t.Fatal(err)
		}
		had := begun.Session().Snapshots()[0]
		had.Listed, had.Done, had.At, had.Read = true, true, done, 9
		first := checkpoint.Checkpoint{
			Key: checkpoint.Key{Subscriber: "orders"}, Position: events[5].Position(), Partitions: partitions, At: time.Now(), Reason: checkpoint.ReasonInterval,
			Snapshots: []snapshot.Progress{had},
		}
		if _, err := w.store.ClaimName(t.Context(), checkpoint.Claim{Process: "0", Started: time.Now()}, first); err != nil {
			t.Fatal(err)
		}
		for i, again := range []bool{true, true, true, false, false} {
			r := streamer.Request{Subscriber: "orders", Process: fmt.Sprint(i + 1), Started: time.Now(), Known: true, At: delivery.Place{Ref: events[i].Position().Ref()}}
			e, err := n.Connect(t.Context(), r, wants())
			if err != nil {
				t.Fatal(err)
			}
			if all := e.Session().Snapshots(); len(all) != 1 || all[0].Done == again {
				t.Errorf("at change %d: %+v", i, all)
			}
			e.Session().Close(nil) // killed
			time.Sleep(time.Second)
		}
	})
}

func TestStartPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		old := source.Append(deliverytest.Inserts(20, 0)...)
		source.Tick(10)
		newer := source.Append(deliverytest.Inserts(5, 20)...)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		synctest.Wait()
		_, err := n.Connect(t.Context(), streamer.Request{Subscriber: "x", Start: streamer.StartResume}, deliverytest.Everything(t))
		if fault.Of(err) != fault.SessionUnknown {
			t.Errorf("to resume where nothing is known: %v", err)
		}
		_, err = n.Connect(t.Context(), streamer.Request{Start: streamer.StartTime, Time: time.Unix(99999, 0)}, deliverytest.Everything(t))
		last := newer[len(newer)-1].Time.Time().Format(time.RFC3339)
		if fault.Of(err) != fault.SessionBadRequest || !strings.HasSuffix(err.Error(), "the start 1970-01-02T03:46:39Z is in the future: MongoDB is at "+last) {
			t.Errorf("in the future: %v", err)
		}
		earliest := w.connect(n, streamer.Request{Start: streamer.StartEarliest})
		deliverytest.Equal(t, "earliest", deliverytest.Refs(deliverytest.Receive(t, earliest.Session(), 25)), deliverytest.Wanted(append(old, newer...)))
		at := w.connect(n, streamer.Request{Start: streamer.StartTime, Time: newer[0].Time.Time()})
		deliverytest.Equal(t, "at a time", deliverytest.Refs(deliverytest.Receive(t, at.Session(), 5)), deliverytest.Wanted(newer))
		known := w.connect(n, streamer.Request{Known: true, At: delivery.Place{Ref: old[11].Position().Ref()}, Start: streamer.StartResume})
		deliverytest.Equal(t, "at a position", deliverytest.Refs(deliverytest.Receive(t, known.Session(), 13)), deliverytest.Wanted(append(old[12:], newer...)))
		now := w.connect(n, streamer.Request{Start: streamer.StartNow})
		synctest.Wait()
		events := source.Append(deliverytest.Inserts(3, 50)...)
		deliverytest.Equal(t, "now", deliverytest.Refs(deliverytest.Receive(t, now.Session(), 3)), deliverytest.Wanted(events))
	})
}

// A shared subscriber that begins at a time before the log, or with the log, has missed nothing, as
// an exclusive one: it begins where the log does. What leaves the log meanwhile is no loss either,
// except of partitions that have begun before.
func TestStartBeforeTheLogIsNoLoss(t *testing.T) {
	for name, begin := range map[string]func(*streamer.Shared){
		"a time":     func(s *streamer.Shared) { s.Begin(streamer.StartTime, time.Unix(1, 0)) },
		"start_from": func(*streamer.Shared) {},
		"earliest":   func(s *streamer.Shared) { s.Begin(streamer.StartEarliest, time.Time{}) },
	} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, begun %t", name, begun), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					source := &oplogtest.Log{}
					events := source.Append(deliverytest.Inserts(20, 0)...)
					source.Truncate(6)
					w := newWorld(t, source)
					w.origin.Start = change.Timestamp{T: 1, I: 1}
					w.store.begins = func() { source.Truncate(4) }
					var shared *streamer.Shared
					n := w.start("a", func(n *streamer.Node) {
						sharing(t, &shared)(n)
						begin(shared)
					})
					defer n.stop(t)
					if begun {
						epoch := change.Epoch{Incarnation: 1, Revision: 1}
						saved := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: "stdout", Shared: true}, Position: events[2].Position(), Partitions: partitions, Epoch: epoch}
						_, err := w.store.ClaimTerms(t.Context(), "stdout", []change.Term{{Epoch: epoch}})
						if err := errors.Join(append(w.store.Save(t.Context(), []checkpoint.Checkpoint{saved}), err)...); err != nil {
							t.Fatal(err)
						}
					}
					n.own(t, 2)
					got, losses := 0, 0
					for _, b := range receiveShared(t, shared, 3) {
						if b.Loss != nil {
							losses++
						}
						got += len(b.Events)
					}
					if got < 3 || got > len(events) || (losses > 0) != begun {
						t.Errorf("%d changes, %d losses", got, losses)
					}
				})
			})
		}
	}
}

// The log of an idle deployment is some seconds behind the clocks: who begins at the present by the
// clock is served with what comes then, and resumes there.
func TestStartTimesThatAnIdleLogHasNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(3, 0)...)
		w := newWorld(t, source)
		present := w.origin.Start.Time().Add(9 * time.Second)
		var shared *streamer.Shared
		n := w.start("a", func(n *streamer.Node) {
			sharing(t, &shared)(n)
			shared.Begin(streamer.StartTime, present)
		})
		defer n.stop(t)
		n.own(t, 1)
		synctest.Wait()
		start := streamer.Request{Subscriber: "x", Process: "p", Started: time.Now(), Start: streamer.StartTime, Time: present}
		w.connect(n, start).Close(t.Context(), nil)
		again := w.connect(n, start)
		if again.Begin() != streamer.BeginCheckpoint {
			t.Errorf("begins at %v", again.Begin())
		}
		events := source.Append(deliverytest.Inserts(3, 50)...)
		deliverytest.Equal(t, "exclusive", deliverytest.Refs(deliverytest.Receive(t, again.Session(), 3)), deliverytest.Wanted(events))
		got := 0
		for _, b := range receiveShared(t, shared, 3) {
			got += len(b.Events)
		}
		if got != 3 {
			t.Errorf("%d changes for the shared subscriber", got)
		}
		_, err := n.Connect(t.Context(), streamer.Request{Start: streamer.StartTime, Time: present.Add(time.Minute)}, deliverytest.Everything(t))
		if fault.Of(err) != fault.SessionBadRequest {
			t.Errorf("a minute ahead: %v", err)
		}
	})
}

// Of two processes with one name the later one is served; the earlier one is told, and cannot come
// back.
func TestNameBelongsToTheLaterProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		synctest.Wait()
		begun := time.Now()
		old := w.connect(n, streamer.Request{Subscriber: "x", Process: "old", Started: begun, Start: streamer.StartNow})
		time.Sleep(time.Minute)
		// One that lies about when it started is taken to have started now.
		young := w.connect(n, streamer.Request{Subscriber: "x", Process: "young", Started: begun.AddDate(8000, 0, 0), Start: streamer.StartNow})
		<-old.Session().Done()
		if _, _, err := old.Session().Receive(t.Context()); fault.Of(err) != fault.SessionReplaced {
			t.Errorf("the older one: %v", err)
		}
		_, err := n.Connect(t.Context(), streamer.Request{Subscriber: "x", Process: "old", Started: begun, Start: streamer.StartNow}, deliverytest.Everything(t))
		if fault.Of(err) != fault.SessionReplaced {
			t.Errorf("the older one again: %v", err)
		}
		time.Sleep(time.Minute)
		w.connect(n, streamer.Request{Subscriber: "x", Process: "honest", Started: time.Now(), Start: streamer.StartNow})
		<-young.Session().Done()
	})
}

// An operator's rewind reaches a subscriber that is connected, through whatever node, and one that
// comes back with its own later positions.
func TestRewoundSubscribersGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		synctest.Wait()
		e := w.connect(n, streamer.Request{Subscriber: "x", Process: "1", Started: time.Now(), Start: streamer.StartNow})
		events := source.Append(deliverytest.Inserts(20, 0)...)
		batches := deliverytest.Receive(t, e.Session(), 20)
		if err := e.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		key := checkpoint.Key{Subscriber: "x"}
		if _, err := w.store.Rewind(t.Context(), key, events[4].Position(), "operator", "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // nobody says so, and nothing happens: it is noticed all the same
		got := deliverytest.Receive(t, e.Session(), 16)
		if got[0].Loss == nil || got[0].Loss.Kind != delivery.Rewound || got[0].Loss.Generation != 1 {
			t.Errorf("%+v", got[0])
		}
		deliverytest.Equal(t, "again", deliverytest.Refs(got[1:]), deliverytest.Wanted(events[5:]))
		e.Close(t.Context(), nil)
		if _, err := w.store.Rewind(t.Context(), key, events[1].Position(), "operator", "test"); err != nil {
			t.Fatal(err)
		}
		back := w.connect(n, streamer.Request{
			Subscriber: "x", Process: "1", Started: time.Now(), Known: true, At: delivery.Place{Ref: events[19].Position().Ref()}, Generation: 1,
		})
		if back.Begin() != streamer.BeginCheckpoint || back.Generation() != 2 {
			t.Errorf("began at %v, generation %d", back.Begin(), back.Generation())
		}
		deliverytest.Equal(t, "with positions of before", deliverytest.Refs(deliverytest.Receive(t, back.Session(), 18)), deliverytest.Wanted(events[2:]))
	})
}

// What was on its way to a subscriber when an operator moved it back is not taken for where it is
// now: a checkpoint of the new generation is never later than where the operator has moved it,
// until the subscriber has acknowledged what is redelivered.
func TestRewindIsNotUndoneByWhatWasOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var shared *streamer.Shared
		n := w.start("a", func(n *streamer.Node) {
			var err error
			if shared, err = n.Share(t.Context(), "sink", deliverytest.Everything(t)); err != nil {
				t.Fatal(err)
			}
		})
		defer n.stop(t)
		n.own(t, 1)
		synctest.Wait()
		e := w.connect(n, streamer.Request{Subscriber: "x", Process: "1", Started: time.Now(), Start: streamer.StartNow})
		events := source.Append(deliverytest.Inserts(20, 0)...)
		batches, sunk := deliverytest.Receive(t, e.Session(), 20), receiveShared(t, shared, 20)
		if err := errors.Join(e.Ack(deliverytest.Last(batches).Seq), shared.Ack(deliverytest.Last(sunk).Seq)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		source.Append(deliverytest.Inserts(5, 20)...)
		onTheirWay := deliverytest.Last(deliverytest.Receive(t, e.Session(), 5)).Seq
		receiveShared(t, shared, 5)
		time.Sleep(2 * time.Minute) // quiet partitions have a checkpoint, too
		to := events[4].Position()
		before, err := w.store.List(t.Context())
		if err != nil || len(before) != partitions+1 {
			t.Fatal(before, err)
		}
		for _, c := range before {
			if _, err := w.store.Rewind(t.Context(), c.Key, to, "operator", "test"); err != nil {
				t.Fatal(err)
			}
		}
		n.Rewound("x")
		n.Rewound("sink")
		check := func(what string) {
			t.Helper()
			stored, err := w.store.List(t.Context())
			if err != nil || len(stored) != len(before) {
				t.Fatal(stored, err)
			}
			for _, c := range stored {
				if c.Generation != 1 || c.Earliest().After(to) || c.Position.After(to) || len(c.Positions) > 0 {
					t.Errorf("%s: %s is at %s, %v, generation %d", what, c.Key, c.Position, c.Positions, c.Generation)
				}
			}
		}
		time.Sleep(2 * time.Minute)
		check("nothing is acknowledged")
		got := deliverytest.Receive(t, e.Session(), 21)
		if err := e.Ack(onTheirWay); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		check("what was on its way is acknowledged")
		if got[0].Loss == nil || got[0].Loss.Kind != delivery.Rewound {
			t.Errorf("%+v", got[0])
		}
	})
}

// A store that is away keeps nobody out who knows where it is; checkpoints wait, and a loss is in
// the gap log before any checkpoint passes it.
func TestStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 5}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		synctest.Wait()
		e := w.connect(n, streamer.Request{Subscriber: "x", Process: "1", Started: time.Now(), Start: streamer.StartNow})
		events := source.Append(deliverytest.Inserts(5, 0)...)
		if err := e.Ack(deliverytest.Last(deliverytest.Receive(t, e.Session(), 5)).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		w.store.away.Store(true)
		source.Stall(true)
		source.Append(deliverytest.Inserts(20, 5)...)
		source.Truncate(5)
		source.Stall(false)
		batches := deliverytest.Receive(t, e.Session(), 6)
		if batches[0].Loss == nil {
			t.Fatalf("%+v", batches[0])
		}
		if err := e.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if !n.Failing() {
			t.Error("it does not say that checkpoints cannot be saved")
		}
		known := w.connect(n, streamer.Request{Subscriber: "y", Process: "2", Known: true, At: delivery.Place{Ref: deliverytest.Last(batches).To.Ref()}})
		if known.Begin() != streamer.BeginPositions {
			t.Errorf("began at %v", known.Begin())
		}
		if _, err := n.Connect(t.Context(), streamer.Request{Subscriber: "z", Start: streamer.StartNow}, nil); fault.Of(err) != fault.CheckpointUnreadable {
			t.Errorf("one of which nothing can be known: %v", err)
		}
		saved, err := w.store.Memory.Load(t.Context(), "x")
		if err != nil || len(saved) != 1 || saved[0].Position.Compare(events[4].Position()) < 0 {
			t.Fatalf("%v, %+v", err, saved)
		}
		if gaps, err := w.store.Gaps(t.Context()); err != nil || len(gaps) != 0 {
			t.Fatalf("%v, %v", err, gaps)
		}
		w.store.away.Store(false)
		time.Sleep(time.Minute)
		gaps, err := w.store.Gaps(t.Context())
		if err != nil || len(gaps) != 1 || gaps[0].Reason != string(gap.HistoryLost) {
			t.Errorf("%v, %+v", err, gaps)
		}
		if saved, err = w.store.Load(t.Context(), "x"); err != nil || saved[0].Position.Compare(deliverytest.Last(batches).To) < 0 || n.Failing() {
			t.Errorf("%v, %+v, failing: %v", err, saved, n.Failing())
		}
		if _, _, err := known.Session().Receive(t.Context()); fault.Of(err) != fault.SessionRenewed {
			t.Errorf("what the store did not hear of goes on: %v", err)
		}
		known.Close(t.Context(), nil)
		known = w.connect(n, streamer.Request{Subscriber: "y", Process: "2", Known: true, At: delivery.Place{Ref: deliverytest.Last(batches).To.Ref()}})
		source.Append(deliverytest.Inserts(25, 5)...)
		batches = deliverytest.Receive(t, known.Session(), 5)
		if err := known.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if saved, err = w.store.Load(t.Context(), "y"); err != nil || len(saved) != 1 || saved[0].Position.Compare(deliverytest.Last(batches).To) < 0 {
			t.Errorf("%v, %+v", err, saved)
		}
	})
}

// A subscriber for which nothing waits is not late, however long ago it acknowledged something.
func TestWhatWaitsForNothingIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var s *streamer.Shared
		n := w.start("a", sharing(t, &s))
		defer n.stop(t)
		n.own(t, 1)
		source.Append(deliverytest.Inserts(10, 0)...)
		batches := receiveShared(t, s, 10)
		source.Tick(600)
		lag := func() time.Duration {
			t.Helper()
			time.Sleep(time.Minute)
			all := n.Subscribers()
			if len(all) != 1 || all[0].Lag == nil {
				t.Fatalf("%+v", all)
			}
			return *all[0].Lag
		}
		if late := lag(); late < time.Minute {
			t.Errorf("%s late while ten changes wait", late)
		}
		if err := s.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		if late := lag(); late != 0 {
			t.Errorf("%s late while nothing waits", late)
		}
		if !n.Reading().Known {
			t.Error("how late the node reads is unknown")
		}
		w.blind.Store(true)
		time.Sleep(time.Minute)
		if all := n.Subscribers(); n.Reading().Known || all[0].Lag != nil || all[0].Position.IsZero() {
			t.Errorf("nothing says how far the log goes: %+v, %+v", n.Reading(), all)
		}
	})
}

// A partition whose checkpoint cannot be read waits for an operator; the others of the subscriber
// are served. When it has been repaired, the partition goes on where it was.
func TestCorruptCheckpointOfAPartitionIsThatPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var s *streamer.Shared
		of := func(batches []*delivery.Batch) (first, others int) {
			for _, b := range batches {
				for _, e := range b.Events {
					if e.Partition == 0 {
						first++
					} else {
						others++
					}
				}
			}
			return first, others
		}
		before := w.start("a", sharing(t, &s))
		before.own(t, 1)
		source.Append(deliverytest.Inserts(100, 0)...)
		batches := receiveShared(t, s, 100)
		waiting, rest := of(batches)
		if waiting == 0 || rest == 0 {
			t.Fatalf("%d events are of partition 0, %d of others", waiting, rest)
		}
		if err := s.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // saved
		before.stop(t)
		w.store.garbled.Store(true)
		after := w.start("b", sharing(t, &s))
		defer after.stop(t)
		after.own(t, 2)
		source.Append(deliverytest.Inserts(100, 0)...) // of the same documents
		first, others := of(receiveShared(t, s, rest))
		time.Sleep(time.Minute)
		if first != 0 || others != rest {
			t.Errorf("%d events of the partition that waits, %d of others", first, others)
		}
		if all := after.Subscribers(); len(all) != 1 || fault.Of(all[0].Failure) != fault.CheckpointCorrupt || !strings.Contains(all[0].Failure.Error(), "[0]") {
			t.Errorf("it does not say what waits: %+v", all)
		}
		w.store.garbled.Store(false)
		if first, others := of(receiveShared(t, s, waiting)); first != waiting || others != 0 {
			t.Errorf("%d events of the partition that waited, %d of others, want %d", first, others, waiting)
		}
		synctest.Wait()
		if all := after.Subscribers(); len(all) != 1 || all[0].Failure != nil {
			t.Errorf("nothing waits any more: %+v", all)
		}
	})
}

// Shared subscribers get the partitions that their node owns, from the checkpoints of whoever had
// them before.
func TestSharedSubscribersFollowTheOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		got := make(map[string]int)
		var order []string
		run := func(name string, epoch uint64, n, ackUpTo int) {
			var s *streamer.Shared
			node := w.start(name, sharing(t, &s))
			node.own(t, epoch)
			have := 0
			for _, b := range receiveShared(t, s, n) {
				s.Prune(b)
				have += len(b.Events)
				for i, e := range b.Events {
					if drop := bytes.Contains(b.Payload(i), []byte("drop")); e.Keyless != drop {
						t.Errorf("an event of no document (%v) came as one (%v)", drop, e.Keyless)
					}
				}
				for _, r := range deliverytest.Refs([]*delivery.Batch{b}) {
					if got[r]++; got[r] == 1 {
						order = append(order, r)
					}
				}
				if have <= ackUpTo {
					if err := s.Ack(b.Seq); err != nil {
						t.Fatal(err)
					}
				}
			}
			node.stop(t)
		}
		all := source.Append(append(deliverytest.Inserts(30, 0), changetest.Event{Op: "drop", Keyless: true})...)
		run("a", 1, 31, 31) // everything is acknowledged, and saved when the node stops
		all = append(all, source.Append(deliverytest.Inserts(20, 100)...)...)
		run("b", 2, 20, 0) // nothing of this is
		all = append(all, source.Append(deliverytest.Inserts(20, 200)...)...)
		run("c", 3, 40, 40)
		deliverytest.Equal(t, "in order of their first coming", order, deliverytest.Wanted(all))
		for i, e := range deliverytest.Wanted(all) {
			if want := map[bool]int{false: 1, true: 2}[i >= 31 && i < 51]; got[e] != want {
				t.Errorf("event %d came %d times, want %d", i, got[e], want)
			}
		}
	})
}

// A partition leaves when a shared subscriber has acknowledged what it has received of it, and what
// it has not received is for the next owner.
func TestPartitionsLeaveWhenTheyAreAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var s *streamer.Shared
		n := w.start("a", func(n *streamer.Node) {
			var err error
			if s, err = n.Share(t.Context(), "stdout", deliverytest.Everything(t)); err != nil {
				t.Fatal(err)
			}
		})
		terms := n.own(t, 1)
		received := source.Append(deliverytest.Inserts(20, 0)...)
		batches := receiveShared(t, s, 20)
		var left atomic.Bool
		go func() {
			n.Drain(t.Context(), terms)
			left.Store(true)
		}()
		source.Append(deliverytest.Inserts(20, 100)...)
		synctest.Wait() // it goes no further by itself
		if left.Load() {
			t.Error("the partitions left before what was received was acknowledged")
		}
		if err := s.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !left.Load() {
			t.Error("the partitions stayed when it was acknowledged")
		}
		saved, err := w.store.Load(t.Context(), "stdout")
		if err != nil || len(saved) != partitions {
			t.Fatalf("%d checkpoints, %v", len(saved), err)
		}
		for _, c := range saved {
			if c.Position.Compare(received[19].Position()) != 0 {
				t.Errorf("partition %d is saved at %s, not %s", c.Partition, c.Position, received[19].Position())
			}
		}
		n.stop(t)
	})
}

// Sessions that wait where a quiet log ends are taken onto the live path when the hub has come
// there, whoever comes there first.
func TestSessionsJoinInAQuietLog(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			source := &oplogtest.Log{}
			source.Tick(1)
			w := newWorld(t, source)
			const sessions = 50
			n := w.start("a", func(n *streamer.Node) {
				for range sessions {
					if _, err := n.Hub().Open(t.Context(), delivery.SessionConfig{}, deliverytest.Everything(t)); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
			})
			synctest.Wait()
			if live := n.Hub().Load().Live; live != sessions {
				t.Errorf("%d of %d sessions are on the live path", live, sessions)
			}
			n.stop(t)
		})
	}
}

// A node is given its first terms before it runs, as its place in the cluster does: what opens its
// log where the subscribers are waits for them.
func TestTermsMayComeBeforeTheNodeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		all := source.Append(deliverytest.Inserts(10, 0)...)
		var s *streamer.Shared
		node := w.start("a", func(n *streamer.Node) {
			var err error
			if s, err = n.Share(t.Context(), "stdout", deliverytest.Everything(t)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // its session has nothing to read yet
			terms := make([]change.Term, partitions)
			for p := range terms {
				terms[p] = change.Term{Partition: change.Partition(p), Epoch: change.Epoch{Incarnation: 1, Revision: 1}, Context: t.Context()}
			}
			if err := n.Serve(t.Context(), terms); err != nil {
				t.Fatal(err)
			}
		})
		batches := receiveShared(t, s, 10)
		deliverytest.Equal(t, "received", deliverytest.Refs(batches), deliverytest.Wanted(all))
		if err := s.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		node.stop(t)
	})
}

// What is acknowledged late is saved as soon as what is acknowledged at once.
func TestLateAcknowledgementsAreSavedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var s *streamer.Shared
		node := w.start("a", sharing(t, &s))
		node.own(t, 1)
		for round := range int64(3) {
			events := source.Append(deliverytest.Inserts(40, 100*round)...)
			batches := receiveShared(t, s, 40)
			time.Sleep(10 * time.Second) // rounds of checkpoints go by
			if err := s.Ack(deliverytest.Last(batches).Seq); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			saved, err := w.store.Load(t.Context(), "stdout")
			if err != nil || len(saved) != partitions {
				t.Fatalf("%d checkpoints, %v", len(saved), err)
			}
			for _, c := range saved {
				if c.Position.Compare(events[39].Position()) != 0 {
					t.Errorf("round %d: partition %d is saved at %s", round, c.Partition, c.Position)
				}
			}
		}
		node.stop(t)
	})
}

// A shared subscriber goes where an operator has moved it also where that cannot be read at once.
func TestRewindThatCannotBeReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var s *streamer.Shared
		node := w.start("a", sharing(t, &s))
		node.own(t, 1)
		events := source.Append(deliverytest.Inserts(20, 0)...)
		if err := s.Ack(deliverytest.Last(receiveShared(t, s, 20)).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for p := range change.Partition(partitions) {
			if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "stdout", Shared: true, Partition: p}, events[9].Position(), "operator", "a test"); err != nil {
				t.Fatal(err)
			}
		}
		w.store.unread.Store(true)
		events = append(events, source.Append(deliverytest.Inserts(20, 100)...)...)
		if err := s.Ack(deliverytest.Last(receiveShared(t, s, 20)).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // checkpoints are refused, in every partition
		w.store.unread.Store(false)
		moved := fmt.Sprintf("rewound operator %s–%s", events[9].Position(), events[9].Position())
		deliverytest.Equal(t, "again", deliverytest.Refs(receiveShared(t, s, 30)), append([]string{moved}, deliverytest.Wanted(events[10:])...))
		// It is told again until it has acknowledged that.
		node.kill(errors.New("killed"))
		node = w.start("b", sharing(t, &s))
		node.own(t, 2)
		received := receiveShared(t, s, 30)
		deliverytest.Equal(t, "in another process", deliverytest.Refs(received), append([]string{moved}, deliverytest.Wanted(events[10:])...))
		if err := s.Ack(deliverytest.Last(received).Seq); err != nil {
			t.Fatal(err)
		}
		node.stop(t)
		node = w.start("c", sharing(t, &s))
		node.own(t, 3)
		events = source.Append(deliverytest.Inserts(1, 200)...)
		deliverytest.Equal(t, "acknowledged", deliverytest.Refs(receiveShared(t, s, 1)), deliverytest.Wanted(events))
		node.stop(t)
	})
}

// A shared subscriber that waits for a checkpoint to be saved ends with its session.
func TestSharedSubscriberThatWaitsForACheckpointEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		w.policy.MaxUnsaved = 5
		var s *streamer.Shared
		node := w.start("a", sharing(t, &s))
		node.own(t, 1)
		w.store.away.Store(true)
		source.Append(deliverytest.Inserts(10, 0)...)
		if err := s.Ack(deliverytest.Last(receiveShared(t, s, 10)).Seq); err != nil {
			t.Fatal(err)
		}
		source.Append(deliverytest.Inserts(10, 10)...)
		over := errors.New("over")
		ended := make(chan error, 1)
		go func() {
			_, err := s.Receive(t.Context())
			ended <- err
		}()
		synctest.Wait()
		s.Session().Close(over)
		if err := <-ended; !errors.Is(err, over) {
			t.Errorf("it ended with %v", err)
		}
		w.store.away.Store(false)
		node.stop(t)
	})
}

// A shared subscriber whose session has ended gets no later terms: a checkpoint that an operator
// has moved back stays there.
func TestEndedSharedSubscriberSavesNothingOfLaterTerms(t *testing.T) {
	for _, later := range []bool{false, true} { // or it notices the rewind itself
		synctest.Test(t, func(t *testing.T) {
			source := &oplogtest.Log{}
			source.Tick(1)
			w := newWorld(t, source)
			var s *streamer.Shared
			node := w.start("a", sharing(t, &s))
			node.own(t, 1)
			events := source.Append(deliverytest.Inserts(20, 0)...)
			if err := s.Ack(deliverytest.Last(receiveShared(t, s, 20)).Seq); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			s.Session().Close(errors.New("over"))
			back := events[0].Position()
			saved, err := w.store.Load(t.Context(), "stdout")
			if err != nil || len(saved) == 0 {
				t.Fatal(saved, err)
			}
			for _, c := range saved {
				if !c.Position.After(back) {
					continue
				}
				if _, err := w.store.Rewind(t.Context(), c.Key, back, "operator", "test"); err != nil {
					t.Fatal(err)
				}
			}
			if later {
				node.own(t, 2)
			}
			time.Sleep(time.Minute)
			node.stop(t)
			saved, err = w.store.Load(t.Context(), "stdout")
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range saved {
				if c.Generation > 0 && c.Position.After(back) {
					t.Errorf("the checkpoint of partition %d is at %s, an operator has moved it to %s", c.Partition, c.Position, back)
				}
			}
		})
	}
}

// An event whose term is over when it is to be handed over is taken out, and a checkpoint of that
// partition is refused.
func TestDeposedOwnerHandsNothingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var sa, sb *streamer.Shared
		a := w.start("a", sharing(t, &sa))
		a.own(t, 1)
		synctest.Wait()
		source.Append(deliverytest.Inserts(20, 0)...)
		synctest.Wait()
		batches := receiveShared(t, sa, 20) // it has them in hand
		b := w.start("b", sharing(t, &sb))
		b.own(t, 2)
		a.kill(change.ErrTermLost)
		synctest.Wait()
		events := 0
		for _, batch := range batches {
			sa.Prune(batch)
			events += len(batch.Events)
		}
		if events != 0 {
			t.Errorf("%d events would be handed over", events)
		}
		if err := sa.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		a.stop(t)
		events = 0
		for _, batch := range receiveShared(t, sb, 20) {
			sb.Prune(batch)
			events += len(batch.Events)
		}
		if events != 20 {
			t.Errorf("the new owner hands %d events over", events)
		}
		b.stop(t)
	})
}

func TestStatesOfPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		n.own(t, 1)
		synctest.Wait()
		states := func() map[health.Status]int {
			all := make(map[health.Status]int)
			for _, s := range n.Status() {
				all[s.State]++
			}
			return all
		}
		expect := func(what string, want map[health.Status]int) {
			t.Helper()
			if got := states(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		expect("quiet", map[health.Status]int{health.Idle: partitions})
		e := w.connect(n, streamer.Request{Start: streamer.StartNow})
		synctest.Wait()
		source.Append(deliverytest.Inserts(100, 0)...)
		time.Sleep(2 * time.Second)
		expect("busy", map[health.Status]int{health.Healthy: partitions})
		source.Append(changetest.Event{Op: change.SkippedName, Keyless: true})
		time.Sleep(2 * time.Second)
		expect("with a loss that one client has not acknowledged", map[health.Status]int{health.Healthy: partitions})
		if err := e.Ack(deliverytest.Last(deliverytest.Receive(t, e.Session(), 101)).Seq); err != nil {
			t.Fatal(err)
		}
		expect("acknowledged", map[health.Status]int{health.Healthy: partitions})
		source.Stall(true)
		time.Sleep(time.Minute)
		expect("MongoDB does not answer", map[health.Status]int{health.Stuck: partitions})
		source.Stall(false)
		time.Sleep(2 * time.Second)
		expect("it answers", map[health.Status]int{health.Idle: partitions})
	})
}

// From the moment on at which the node judges that MongoDB is away, whatever it said of the log is
// what was last known: no state is well, and no lag and no head-room are shown as current.
func TestNothingIsCurrentWhileMongoDBIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var since time.Time
		w.away = func() time.Time { return since }
		var shared *streamer.Shared
		n := w.start("a", sharing(t, &shared))
		defer n.stop(t)
		n.own(t, 1)
		synctest.Wait()
		source.Append(deliverytest.Inserts(20, 0)...)
		time.Sleep(6 * time.Second) // the oplog's extent is asked for
		look := func() (streamer.PartitionStatus, streamer.SubscriberStatus, bool) {
			families, err := n.metrics.Gather()
			if err != nil {
				t.Fatal(err)
			}
			measured := false
			for _, f := range families {
				measured = measured || f.GetName() == "streamer_partition_lag_seconds"
			}
			return n.Status()[0], n.Subscribers()[0], measured
		}
		if p, s, measured := look(); p.State != health.Healthy || p.Lag == nil || s.Lag == nil || p.LastKnown != nil || !measured {
			t.Fatalf("%+v %+v %v", p, s, measured)
		}
		since = time.Now()
		time.Sleep(time.Second)
		p, s, measured := look()
		if p.State != health.Stuck || p.Lag != nil || p.HeadRoom != nil || s.Lag != nil || measured {
			t.Errorf("shown as current: %+v %+v %v", p, s, measured)
		}
		if last := p.LastKnown; last == nil || !last.At.Equal(since) || last.Status != health.Healthy || last.Lag == nil {
			t.Errorf("last known: %+v", last)
		}
		since = time.Time{}
		if p, s, _ := look(); p.State != health.Healthy || p.Lag == nil || s.Lag == nil || p.LastKnown != nil {
			t.Errorf("after it is back: %+v %+v", p, s)
		}
	})
}

// Events that were queued before a partition was attached under the term that it has now are not
// handed over: that attachment delivers what follows the checkpoint, and what was queued before has
// a hole where terms were over.
func TestWhatWasQueuedUnderAnEarlierTermIsTakenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var shared *streamer.Shared
		n := w.start("n", func(n *streamer.Node) {
			var err error
			if shared, err = n.Share(t.Context(), "sink", deliverytest.Everything(t)); err != nil {
				t.Error(err)
			}
		})
		n.own(t, 1)
		synctest.Wait()
		source.Append(changetest.Event{ID: 1})
		synctest.Wait()
		n.own(t, 2)
		source.Append(changetest.Event{ID: 2})
		synctest.Wait()
		var seen []int
		attached := 0
		for len(seen) < 2 {
			batches, err := shared.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range batches {
				if b.Attached != nil {
					attached++
				}
				shared.Prune(b)
				for range b.Events {
					seen = append(seen, attached)
				}
			}
		}
		if seen[0] != 2 || seen[1] != 2 {
			t.Errorf("events came after so many attachments: %v", seen)
		}
		n.stop(t)
	})
}

// What a subscriber got before a rewind and has not acknowledged yet is of the generation before:
// its checkpoint stays where the operator has moved it.
func TestRewoundCheckpointStaysWhileOlderBatchesAreNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("n", nil)
		e, err := n.Connect(t.Context(), streamer.Request{Subscriber: "a", Process: "p", Start: streamer.StartTime, Time: time.Unix(1001, 0)},
			deliverytest.Everything(t))
		if err != nil {
			t.Fatal(err)
		}
		take := func() (last uint64) {
			synctest.Wait()
			batches, _, err := e.Session().Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return batches[len(batches)-1].Seq
		}
		first := source.Append(changetest.Event{ID: 1})[0]
		source.Append(changetest.Event{ID: 2})
		if err := e.Ack(take()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // its checkpoint is saved
		source.Append(changetest.Event{ID: 3})
		take() // and not acknowledged
		to, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "a"}, first.Position(), "operator", "")
		if err != nil {
			t.Fatal(err)
		}
		n.Rewound("a")
		time.Sleep(5 * time.Minute)
		saved, err := w.store.Load(t.Context(), "a")
		if err != nil || len(saved) != 1 || saved[0].Generation != to.Generation || saved[0].Position.After(to.Position) {
			t.Errorf("it is moved to %s, generation %d, and stands at %+v, %v", to.Position, to.Generation, saved, err)
		}
		e.Close(t.Context(), nil)
		n.stop(t)
	})
}

// A checkpoint that an operator moves while its subscriber connects counts.
func TestRewindWhileASubscriberConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		event := source.Append(changetest.Event{ID: 1})[0]
		source.Append(changetest.Event{ID: 2})
		_, last := source.Reach()
		first := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: "a"}, Position: change.At(last.Next()), Partitions: partitions}
		if _, err := w.store.ClaimName(t.Context(), checkpoint.Claim{Process: "p", Started: time.Now()}, first); err != nil {
			t.Fatal(err)
		}
		n := w.start("n", nil)
		w.store.loaded = func() {
			w.store.loaded = nil
			if _, err := w.store.Rewind(t.Context(), first.Key, event.Position(), "operator", ""); err != nil {
				t.Error(err)
			}
		}
		e, err := n.Connect(t.Context(), streamer.Request{Subscriber: "a", Process: "p", Start: streamer.StartResume}, deliverytest.Everything(t))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if at := e.Session().State().At; at.After(event.Position()) || e.Generation() != 1 {
			t.Errorf("it begins at %s in generation %d, the operator has moved it to %s", at, e.Generation(), event.Position())
		}
		e.Close(t.Context(), nil)
		n.stop(t)
	})
}

// A subscriber that is earlier in a partition than in the others has a checkpoint that says so,
// until it has acknowledged what is between.
func TestCheckpointOfAPartitionThatIsEarlierStaysThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		events := source.Append(deliverytest.Inserts(20, 0)...)
		n := w.start("a", nil)
		defer n.stop(t)
		early := change.Partition(3)
		e := w.connect(n, streamer.Request{
			Subscriber: "x", Process: "1", Started: time.Now(), Known: true, At: delivery.Place{Ref: events[15].Position().Ref()},
			Partitions: map[change.Partition]delivery.Place{early: {Ref: events[2].Position().Ref()}},
		})
		stored := func() checkpoint.Checkpoint {
			t.Helper()
			time.Sleep(2 * time.Minute)
			all, err := w.store.Load(t.Context(), "x")
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			return all[0]
		}
		if c := stored(); c.In(early).After(events[2].Position()) || c.In(0).After(events[15].Position()) {
			t.Errorf("nothing is acknowledged, and the partition is at %s, others at %s", c.In(early), c.In(0))
		}
		synctest.Wait()
		batches, _, err := e.Session().Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		if c := stored(); c.In(early).Compare(events[19].Position()) < 0 || len(c.Positions) > 0 {
			t.Errorf("everything is acknowledged, and the partition is at %s, %+v", c.In(early), c)
		}
		e.Close(t.Context(), nil)
	})
}

// The sessions of an identity begin one after the other where there are others. An identity that
// begins many holds up another one for no longer than two of them take.
func TestBeginningsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer leave()
		connect := func(account string) (took time.Duration) {
			begun := time.Now()
			if _, err := n.Connect(ctx, streamer.Request{Account: account, Start: streamer.StartNow}, deliverytest.Everything(t)); err != nil {
				t.Error(err)
			}
			return time.Since(begun)
		}
		if alone := connect("honest") + connect("honest"); alone != 0 {
			t.Errorf("an identity without others waited for %s", alone)
		}
		const many = 200
		longest := make(chan time.Duration, many)
		for range many {
			go func() { longest <- connect("greedy") }()
		}
		synctest.Wait()
		const each, strained = time.Millisecond, 8 // what a beginning costs, and how much longer it may take while the node is busy
		for range 3 {
			if took := connect("honest"); took > 2*each*strained {
				t.Errorf("an identity waited for %s beside one that begins many sessions", took)
			}
		}
		var last time.Duration
		for range many {
			last = max(last, <-longest)
		}
		if least := many * each / time.Duration(max(1, runtime.GOMAXPROCS(0)/2)) / 2; last < least {
			t.Errorf("%d sessions of one identity began within %s", many, last)
		}
	})
}

// A stop waits FlushTimeout for a subscriber that acknowledges nothing, and CheckpointTimeout for a
// store that answers nothing.
func TestStopWaitsAsConfigured(t *testing.T) {
	for name, tt := range map[string]struct{ acknowledged, stuck bool }{"flush": {false, false}, "save": {true, true}} {
		synctest.Test(t, func(t *testing.T) {
			source := &oplogtest.Log{}
			source.Tick(1)
			w := newWorld(t, source)
			w.flushes, w.saves = 3*time.Second, 2*time.Second
			w.policy.Interval = time.Hour // so that the last checkpoint is that of the stop
			var s *streamer.Shared
			n := w.start("a", sharing(t, &s))
			n.own(t, 1)
			source.Append(deliverytest.Inserts(10, 0)...)
			last := deliverytest.Last(receiveShared(t, s, 10)).Seq
			if tt.acknowledged {
				if err := s.Ack(last); err != nil {
					t.Fatal(err)
				}
			}
			w.store.stuck.Store(tt.stuck)
			begun := time.Now()
			n.cancel()
			err := <-n.ended
			want := map[bool]time.Duration{false: 3 * time.Second, true: 2 * time.Second}[tt.stuck]
			if took := time.Since(begun); took < want || took > want+500*time.Millisecond || (err != nil) != tt.stuck {
				t.Errorf("%s: the stop took %v, want %v: %v", name, took, want, err)
			}
			n.kill(nil)
		})
	}
}
