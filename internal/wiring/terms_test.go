package wiring

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// told are the terms that an owner has been given back.
type told chan change.Term

func (t told) Return(term change.Term) { t <- term }

// A term whose context has ended, because the claim has run out while the store was away, is given
// back: its partition would have no owner for ever.
func TestTermThatIsOverIsGivenBack(t *testing.T) {
	node, _ := newNode(t, 4, checkpointtest.NewMemory(4))
	m := &Membership{cfg: MembershipConfig{Node: node}}
	ctx, stop := context.WithCancel(t.Context())
	running := make(chan error, 1)
	go func() { running <- node.Run(ctx) }()
	lives, end := context.WithCancelCause(ctx)
	terms := []change.Term{
		{Partition: 1, Epoch: change.Epoch{Incarnation: 1, Revision: 1}, Context: lives}, {Partition: 2, Epoch: change.Epoch{Incarnation: 1, Revision: 1}, Context: ctx},
	}
	if err := m.resume(ctx, terms); err != nil {
		t.Fatal(err)
	}
	back := make(told, 10)
	var wg sync.WaitGroup
	wg.Go(func() { m.terms.returnEnded(ctx, node, back) })
	end(change.ErrTermLost)
	timeout := time.NewTimer(3 * time.Minute)
	defer timeout.Stop()
	select {
	case term := <-back:
		if term.Partition != 1 || node.Epoch(1) != (change.Epoch{}) || node.Epoch(2) == (change.Epoch{}) {
			t.Errorf("%+v is given back", term)
		}
	case <-timeout.C:
		t.Error("it is not given back")
	}
	stop()
	wg.Wait()
	if err := <-running; err != nil {
		t.Error(err)
	}
}

// A term that begins while it is looked for terms that have ended is none of them: given back, it
// would end just begun.
func TestTermThatBeginsIsNotGivenBack(t *testing.T) {
	const partitions, rounds = 64, 200
	node, _ := newNode(t, partitions, checkpointtest.NewMemory(partitions))
	m := &Membership{cfg: MembershipConfig{Node: node}}
	ctx, stop := context.WithCancel(t.Context())
	running := make(chan error, 1)
	go func() { running <- node.Run(ctx) }()
	begun := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-begun:
				return
			default:
			}
			for _, term := range m.terms.ended(node) {
				if node.Epoch(term.Partition) == term.Epoch {
					t.Errorf("partition %d: epoch %s is given back, though it is served", term.Partition, term.Epoch)
				}
			}
		}
	})
	for round := range uint64(rounds) {
		terms := make([]change.Term, partitions)
		for p := range terms {
			terms[p] = change.Term{Partition: change.Partition(p), Epoch: change.Epoch{Incarnation: 1, Revision: round + 1}, Context: ctx}
		}
		if err := m.resume(ctx, terms); err != nil {
			t.Error(err)
		}
		node.Drain(ctx, terms)
	}
	close(begun)
	looking.Wait()
	stop()
	if err := <-running; err != nil {
		t.Error(err)
	}
}

// A term whose context has ended is the node's no longer, whether or not anything is saved under
// it, and is given back.
func TestTermThatHasEndedIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, _ := newNode(t, 2, checkpointtest.NewMemory(2))
		m := NewMembership(MembershipConfig{Node: node, Registry: &registry{partitions: 2}, Partitions: 2})
		owned, end := context.WithCancel(t.Context())
		term := change.Term{Partition: 1, Epoch: change.Epoch{Incarnation: 1, Revision: 7}, Context: owned}
		if err := m.resume(t.Context(), []change.Term{term}); err != nil {
			t.Fatal(err)
		}
		given := make(takes, 1)
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go m.terms.returnEnded(running, node, given)
		time.Sleep(time.Minute)
		if len(given) > 0 {
			t.Fatal("it is given back while it lasts")
		}
		end()
		if back := <-given; back.Epoch != term.Epoch || len(node.Status()) > 0 {
			t.Errorf("%+v is given back, the node serves %+v", back, node.Status())
		}
	})
}

// The key of a drained term stays until it is transferred: returned in between, the partition would
// have no owner until the other node claims it.
func TestTermThatIsHandedOverIsNotGivenBack(t *testing.T) {
	node, _ := newNode(t, 2, checkpointtest.NewMemory(2))
	m := NewMembership(MembershipConfig{Node: node, Registry: &registry{partitions: 2}, Partitions: 2})
	var terms []change.Term
	for p := range change.Partition(2) {
		terms = append(terms, change.Term{Partition: p, Epoch: change.Epoch{Incarnation: 1, Revision: 7}, Context: t.Context()})
	}
	if err := m.resume(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	donorServer{m}.Drain(t.Context(), terms[:1])
	if ended := m.terms.ended(node); len(ended) > 0 || node.Epoch(0) != (change.Epoch{}) || node.Epoch(1) == (change.Epoch{}) {
		t.Errorf("%+v would be given back, the node serves %+v", ended, node.Status())
	}
}

// The clock of a claim is a system call: it is not asked for each of its terms every time, but all
// of them are over once it cannot be relied on.
func TestClaimIsAskedOnceForItsTerms(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	trusted, asked := true, 0
	var all terms
	for p := range change.Partition(100) {
		term := change.Term{Partition: p, Context: t.Context(), Trusted: func() bool { asked++; return trusted }}
		if p < 10 {
			term.Context = ended
		}
		all.add([]change.Term{term})
	}
	if over := all.over(); len(over) != 10 || asked != 1 {
		t.Errorf("%d terms have ended, the claim was asked %d times", len(over), asked)
	}
	trusted = false
	if over := all.over(); len(over) != 100 {
		t.Errorf("of a claim that cannot be relied on, %d terms have ended", len(over))
	}
}

type takes chan change.Term

func (t takes) Return(term change.Term) { t <- term }
