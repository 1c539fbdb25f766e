package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
)

// A saved is a checkpoint of a shared subscriber in a partition.
type saved struct {
	at   change.Position
	left []snapshot.Progress
}

// A shared is a shared subscriber that begins with documents, at two nodes that give partitions to
// each other and crash. Its target has what was handed over. It may be an exclusive one as well,
// which attaches the partitions by itself, each from where it is.
type shared struct {
	exclusive   bool
	had         [partitions]change.Position // up to where an exclusive one has had everything
	attaching   [2][partitions]int          // sessions that have not told an exclusive one yet that they have attached a partition
	target      replica
	subscribes  delivery.Subscription
	nodes       [2]*bench
	sessions    [2]*delivery.Session
	received    [2][]uint64        // and not acknowledged
	reached     [2]change.Position // the ends of the last batches
	terms       [partitions]change.Term
	end         [partitions]context.CancelFunc
	owner       [partitions]int
	checkpoints [partitions]saved
}

// open opens the session of a node.
func (s *shared) open(node int) {
	s.received[node], s.reached[node] = nil, change.Position{}
	clear(s.attaching[node][:])
	s.sessions[node] = s.nodes[node].open(delivery.SessionConfig{Subscriber: "sink", Attached: true, Owner: !s.exclusive, CreditEvents: s.target.credit}, []delivery.Subscription{s.subscribes})
}

// attach gives partitions to a node, as it takes them: documents come after everything that the
// owner before may have handed over.
func (s *shared) attach(t *testing.T, node int, list []change.Partition) {
	places, terms := make(map[change.Partition]delivery.Place), make(map[change.Partition]change.Term)
	var left []snapshot.Progress
	for _, p := range list {
		ctx, cancel := context.WithCancel(t.Context())
		s.owner[p], s.end[p] = node, cancel
		s.terms[p] = change.Term{Partition: p, Epoch: change.Epoch{Incarnation: 1, Revision: s.terms[p].Epoch.Revision + 1}, Context: ctx}
		places[p], terms[p] = delivery.Place{At: s.checkpoints[p].at}, s.terms[p]
		for _, of := range s.checkpoints[p].left {
			of.Partitions = []change.Partition{p}
			left = append(left, of)
		}
	}
	s.sessions[node].Owe(left)
	if s.exclusive { // nothing comes again
		for p := range places {
			places[p] = delivery.Place{At: s.had[p]}
			s.attaching[node][p]++
		}
		if err := s.sessions[node].Attach(places, nil, nil); err != nil {
			s.target.failed = err.Error()
		}
		return
	}
	_, last := s.nodes[node].source.Reach()
	s.sessions[node].DocumentsFrom(last)
	if err := s.sessions[node].Attach(places, terms, nil); err != nil {
		s.target.failed = err.Error()
	}
	clear(s.target.last) // what comes again may be older
	clear(s.target.newest)
}

// of returns the partitions of a node.
func (s *shared) of(node int) (list []change.Partition) {
	for p := range change.Partition(partitions) {
		if s.owner[p] == node {
			list = append(list, p)
		}
	}
	return list
}

// save saves checkpoints of partitions of a node.
func (s *shared) save(node int, list []change.Partition) {
	st := s.sessions[node].State()
	for _, p := range list {
		left := st.Snapshots
		if cut, leaves := st.Leaving[p]; leaves {
			left = cut
		}
		if at, has := st.Partitions[p]; has {
			s.checkpoints[p] = saved{at, delivery.Unread(left)}
		}
	}
}

// rewind moves a partition back within the node that has it, as an operator does.
func (s *shared) rewind(node int, p change.Partition) {
	at := s.checkpoints[p].at
	if err := s.sessions[node].Attach(map[change.Partition]delivery.Place{p: {At: at}}, map[change.Partition]change.Term{p: s.terms[p]}, nil); err != nil {
		s.target.failed = err.Error()
	}
	clear(s.target.last) // what comes again may be older
	clear(s.target.newest)
}

// move gives a partition to the other node, with or without what was received acknowledged. It may
// be rewound while it leaves.
func (s *shared) move(t *testing.T, of *store, p change.Partition, acks, rewinds bool) {
	node := s.owner[p]
	s.sessions[node].Cut([]change.Partition{p})
	if rewinds && !s.exclusive {
		for range 3 { // pages without it
			s.receive(t, of, node)
			s.ack(node, 1000)
		}
		s.rewind(node, p)
	}
	if acks {
		s.ack(node, 1000)
	}
	s.save(node, []change.Partition{p})
	s.end[p]()
	if err := s.sessions[node].Detach([]change.Partition{p}); err != nil {
		s.target.failed = err.Error()
	}
	s.attach(t, 1-node, []change.Partition{p})
}

// crash kills a node: the other one, or its own next process, gets its partitions where they were
// saved.
func (s *shared) crash(t *testing.T, node int, comesBack bool) {
	list := s.of(node)
	for _, p := range list {
		s.end[p]()
	}
	s.sessions[node].Close(nil)
	s.open(node)
	if !comesBack {
		node = 1 - node
	}
	if len(list) > 0 {
		s.attach(t, node, list)
	}
}

// receive hands over what a node has, and reports whether it has something.
func (s *shared) receive(t *testing.T, of *store, node int) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	batches, _, err := s.sessions[node].Receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if err != nil {
		s.target.failed = err.Error()
		return false
	}
	for _, b := range batches {
		if b.Attached == nil && s.reached[node].After(b.To) { // clients refuse it
			s.target.failed = fmt.Sprintf("batch %d ends at %s, its predecessor at %s", b.Seq, b.To, s.reached[node])
		}
		s.reached[node] = b.To.Clone()
		s.sessions[node].Prune(b)
		for _, p := range b.Attached {
			s.attaching[node][p]--
		}
		for i := range b.Events {
			if s.takes(node, b.Events[i].Partition) {
				s.target.apply(of, b, i)
			}
		}
		for p := range change.Partition(partitions) {
			if s.takes(node, p) {
				s.had[p] = change.Later(s.had[p], b.To)
			}
		}
		s.received[node] = append(s.received[node], b.Seq)
	}
	return len(batches) > 0
}

// takes reports whether the subscriber takes what comes of a partition: an exclusive one only from
// the node at which it is attached now.
func (s *shared) takes(node int, p change.Partition) bool {
	return !s.exclusive || s.owner[p] == node && s.attaching[node][p] == 0
}

func (s *shared) ack(node, n int) {
	if n = min(n, len(s.received[node])); n == 0 {
		return
	}
	if _, err := s.sessions[node].Ack(s.received[node][n-1]); err != nil {
		s.target.failed = err.Error()
	}
	s.received[node] = s.received[node][n:]
}

// Whatever happens to the nodes of a shared subscriber, or of an exclusive one with partitions, it
// has what the collections have. No document goes back, but for what comes again where a partition
// of a shared one has a new owner.
func TestMovedSnapshotsMeetTheirChanges(t *testing.T) {
	t.Parallel()
	during(t, shortly, movedSnapshotsMeetTheirChanges)
}

func movedSnapshotsMeetTheirChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				do: rapid.SampledFrom([]string{
					"insert", "insert", "update", "update", "whole", "delete", "transaction", "receive", "receive", "ack", "take", "take", "take", "save", "sleep", "sleep",
					"move", "move", "crash", "snapshot",
				}).Draw(rt, "do"),
				n: rapid.IntRange(0, 40).Draw(rt, "n"), m: rapid.IntRange(0, 1000).Draw(rt, "m"),
			}
		}), 30, 150).Draw(rt, "steps")
		exclusive := rapid.Bool().Draw(rt, "exclusive")
		exact, page, seed, credit := rapid.Bool().Draw(rt, "exact"), rapid.IntRange(1, 6).Draw(rt, "page"), rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 15).Draw(rt, "credit")
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = share(t, exclusive, exact, page, credit, seed, steps) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// documentsOfShared are many times the credit, so that partitions move while some are left.
const documentsOfShared = 60

func share(t *testing.T, exclusive, exact bool, page, credit int, seed uint64, steps []step) string {
	source := &oplogtest.Log{ReplyEvents: 1 + page, Delay: time.Duration(page%3) * 3 * time.Millisecond}
	source.Tick(1)
	docs := &store{log: source, exact: exact, page: page, dice: rand.New(rand.NewPCG(seed, 0)), now: make(contents), times: make(map[int64]change.Timestamp), several: make(map[change.Timestamp]bool)}
	for id := range int64(documentsOfShared) {
		docs.write("insert", "orders", id)
	}
	program := deliverytest.Compile(t, match.Filter{})
	s := &shared{
		exclusive: exclusive, subscribes: delivery.Subscription{ID: "docs", Program: program},
		target: replica{has: make(contents), last: make(map[string]change.Timestamp), newest: make(map[string]int64), credit: credit},
	}
	for node := range s.nodes {
		s.nodes[node] = begin(t, source, delivery.Config{Snapshots: docs})
		defer s.nodes[node].end()
	}
	begins := snapshot.Progress{Subscription: "docs", Filter: delivery.FilterHash(program), Reason: snapshot.Start}
	for p := range s.checkpoints {
		s.checkpoints[p] = saved{s.nodes[0].log.End(), []snapshot.Progress{begins}}
		s.owner[p], s.had[p] = p%2, s.checkpoints[p].at
	}
	for node := range s.sessions {
		s.open(node)
		s.attach(t, node, s.of(node))
	}
	for _, st := range steps {
		node := st.m % 2
		switch st.do {
		case "insert", "update", "whole", "delete":
			docs.write(st.do, "orders", int64(st.n*3/2))
		case "transaction":
			docs.transaction("orders", int64(st.n*3/2))
		case "sleep":
			time.Sleep(time.Duration(st.n) * time.Millisecond)
		case "receive":
			s.receive(t, docs, node)
		case "ack":
			s.ack(node, st.n)
		case "take":
			s.receive(t, docs, node)
			s.ack(node, 1000)
		case "save":
			s.save(node, s.of(node))
		case "move":
			s.move(t, docs, change.Partition(st.n%partitions), st.m%4 > 1, st.m%8 > 5)
		case "crash":
			s.crash(t, node, st.n%2 == 0)
		case "snapshot":
			for _, session := range s.sessions {
				session.Snapshot([]string{"docs"}, snapshot.Operator)
			}
		}
	}
	for quiet := 0; quiet < 5; quiet++ {
		for node := range s.sessions {
			if s.receive(t, docs, node) {
				quiet = 0
			}
			s.ack(node, 1000)
		}
	}
	if s.target.failed != "" {
		return s.target.failed
	}
	for node, session := range s.sessions {
		if left := delivery.Unread(session.Snapshots()); len(left) > 0 && len(s.of(node)) > 0 {
			return fmt.Sprintf("node %d: its snapshot does not end: %+v, %s", node, left, s.nodes[node].hub.Scans())
		}
	}
	if got, want := s.target.has["orders"], docs.now["orders"]; !maps.Equal(got, want) {
		for _, id := range slices.Sorted(maps.Keys(want)) {
			if got[id] != want[id] {
				return fmt.Sprintf("document %d is %v, want %v", id, got[id], want[id])
			}
		}
		return fmt.Sprintf("there is %v, want %v", got, want)
	}
	return ""
}
