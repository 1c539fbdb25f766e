package checkpointtest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// A model is the expected state of one partition: the term that owns it and its checkpoint.
type model struct {
	harness
	partition change.Partition
	stores    []Store
	terms     []change.Term
	at        change.Position
}

// testRaces lets two stores save to one partition, in random order and concurrently, while terms
// begin and end.
func testRaces(h harness) {
	stores := []Store{h.Store, h.Reopen()}
	partition := change.Partition(0)
	rapid.Check(h.T, func(t *rapid.T) {
		m := &model{harness: h, partition: partition % Partitions, stores: stores}
		partition++
		if err := h.Store.Delete(h.Context(), Subscriber); err != nil {
			t.Fatalf("delete: %v", err)
		}
		m.begin(t)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"save", "save", "race", "depose", "begin"}).Draw(t, "step") {
			case "save":
				m.save(t)
			case "race":
				m.race(t)
			case "depose":
				m.depose(t)
			case "begin":
				m.begin(t)
			}
			m.check(t)
		}
	})
}

// store draws a store by its number, because rapid prints drawn values, and a store in use must not
// be printed.
func (m *model) store(t *rapid.T) Store {
	return m.stores[rapid.IntRange(0, len(m.stores)-1).Draw(t, "store")]
}

func (m *model) draw(t *rapid.T, term change.Term) (Store, checkpoint.Checkpoint) {
	return m.store(t), Shared(term, Event(rapid.IntRange(1, 40).Draw(t, "event")))
}

// begin starts a term; the claim must return the checkpoint of the model.
func (m *model) begin(t *rapid.T) {
	terms := m.Begin(m.partition)
	claimed, err := m.store(t).ClaimTerms(m.Context(), Subscriber, terms)
	if err != nil || claimed[0].Position.Compare(m.at) != 0 {
		t.Fatalf("claim found %v, %v; want %s", claimed, err, m.at)
	}
	m.terms = append(m.terms, terms[0])
}

func (m *model) owner() change.Term { return m.terms[len(m.terms)-1] }

// save saves with the owner's epoch.
func (m *model) save(t *rapid.T) {
	store, c := m.draw(t, m.owner())
	if err := store.Save(m.Context(), []checkpoint.Checkpoint{c})[0]; err != nil {
		t.Fatalf("save %s: %v", c.Position, err)
	}
	m.at = change.Later(m.at, c.Position)
}

// race saves several checkpoints of the owner, and one of a deposed owner, at the same time.
func (m *model) race(t *rapid.T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	results := make([]error, rapid.IntRange(2, 4).Draw(t, "saves"))
	for i := range results {
		store, c := m.draw(t, m.owner())
		m.at = change.Later(m.at, c.Position)
		wg.Go(func() { results[i] = store.Save(m.Context(), []checkpoint.Checkpoint{c})[0] })
	}
	m.depose(t)
	wg.Wait()
	if err := errors.Join(results...); err != nil {
		t.Fatalf("race: %v", err)
	}
}

// depose saves with the epoch of an earlier owner.
func (m *model) depose(t *rapid.T) {
	if len(m.terms) == 1 {
		return
	}
	store, c := m.draw(t, rapid.SampledFrom(m.terms[:len(m.terms)-1]).Draw(t, "term"))
	if err := store.Save(m.Context(), []checkpoint.Checkpoint{c})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Fatalf("save of a deposed owner: %v", err)
	}
}

// check compares the store with the model.
func (m *model) check(t *rapid.T) {
	all, err := m.stores[0].Load(m.Context(), Subscriber)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	var at change.Position
	for _, c := range all {
		at = c.Position
	}
	if len(all) > 1 || at.Compare(m.at) != 0 {
		t.Fatalf("the checkpoints are %v; want %s", all, m.at)
	}
}

// testModel applies the same random operations to two stores of the same checkpoints and to a
// Memory, and compares the results.
func testModel(h harness) {
	stores := []Store{h.Store, h.Reopen()}
	round := 0
	o := h.create()
	rapid.Check(h.T, func(t *rapid.T) {
		round++
		memory := NewMemory(Partitions)
		if _, err := memory.Create(h.Context(), o); err != nil {
			t.Fatal(err)
		}
		l := &lockstep{harness: h, t: t, stores: stores, memory: memory, exclusive: fmt.Sprintf("gw-%d", round), shared: fmt.Sprintf("sink-%d", round)}
		l.begin()
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"save", "save", "save", "claim", "begin", "rewind", "put", "delete"}).Draw(t, "step") {
			case "save":
				l.save()
			case "claim":
				l.claim()
			case "begin":
				l.begin()
			case "rewind":
				l.rewind()
			case "put":
				l.put()
			case "delete":
				l.delete()
			}
		}
		l.compare()
	})
}

// A lockstep applies the same operations to stores and to a Memory.
type lockstep struct {
	harness
	t      *rapid.T
	stores []Store
	memory *Memory

	exclusive, shared string
	terms             []change.Term
	claims            []checkpoint.Claim
}

const few = 3 // partitions of the model

func (l *lockstep) store() Store {
	return l.stores[rapid.IntRange(0, len(l.stores)-1).Draw(l.t, "store")]
}

// outcome returns the part of an error that must be equal in all stores.
func outcome(err error) string {
	if _, taken := errors.AsType[*checkpoint.TakenError](err); taken {
		return "taken"
	}
	for _, known := range []error{checkpoint.ErrFenced, checkpoint.ErrRewound, checkpoint.ErrNone, checkpoint.ErrForward} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "error"
	}
	return "done"
}

func (l *lockstep) same(what string, got, want error) {
	if outcome(got) != outcome(want) {
		l.t.Fatalf("%s gave %v, and %v in memory", what, got, want)
	}
}

func (l *lockstep) event() change.Position {
	return Event(rapid.IntRange(1, 40).Draw(l.t, "event"))
}

func (l *lockstep) generation() uint64 { return rapid.Uint64Range(0, 3).Draw(l.t, "generation") }

// checkpoint draws a checkpoint to save.
func (l *lockstep) checkpoint() checkpoint.Checkpoint {
	var c checkpoint.Checkpoint
	if len(l.claims) > 0 && rapid.Bool().Draw(l.t, "exclusive") {
		c = Exclusive(l.exclusive, l.claims[rapid.IntRange(0, len(l.claims)-1).Draw(l.t, "claim")], l.event())
		c.Positions = rapid.MapOfN(rapid.Map(rapid.IntRange(0, few-1), func(p int) change.Partition { return change.Partition(p) }),
			rapid.Map(rapid.IntRange(1, 40), Event), 0, few).Draw(l.t, "positions")
		if len(c.Positions) > 0 && rapid.Bool().Draw(l.t, "part") {
			c.Position = change.Position{}
		}
		if rapid.Bool().Draw(l.t, "snapshots") {
			c.Snapshots = snapshots(rapid.IntRange(0, 3).Draw(l.t, "read"))
		}
		if rapid.IntRange(0, 9).Draw(l.t, "count") == 0 {
			c.Partitions = few
			for i := range c.Snapshots {
				c.Snapshots[i].Partitions = nil
			}
		}
	} else {
		c = Shared(l.terms[rapid.IntRange(0, len(l.terms)-1).Draw(l.t, "term")], l.event())
		c.Subscriber = l.shared
	}
	for _, from := range rapid.SliceOfN(rapid.IntRange(1, 38), 0, 2).Draw(l.t, "losses") {
		c.Losses = append(c.Losses, lossAt(from, from+2))
	}
	c.Generation = l.generation()
	c.Reason = rapid.SampledFrom([]checkpoint.Reason{checkpoint.ReasonInterval, checkpoint.ReasonIdle, checkpoint.ReasonFinal}).Draw(l.t, "reason")
	c.At = began.Add(time.Duration(rapid.IntRange(0, 4).Draw(l.t, "at")) * 50 * time.Second)
	return c
}

func (l *lockstep) save() {
	saved := make([]checkpoint.Checkpoint, 0, 3)
	for range rapid.IntRange(1, 3).Draw(l.t, "saves") {
		c := l.checkpoint()
		if !containsKey(saved, c.Key) {
			saved = append(saved, c)
		}
	}
	got := l.store().Save(l.Context(), saved)
	want := l.memory.Save(l.Context(), saved)
	for i := range saved {
		l.same("save of "+saved[i].Key.String(), got[i], want[i])
	}
}

func containsKey(all []checkpoint.Checkpoint, k checkpoint.Key) bool {
	for _, c := range all {
		if c.Key == k {
			return true
		}
	}
	return false
}

func (l *lockstep) begin() {
	partitions := make([]change.Partition, few)
	for p := range partitions {
		partitions[p] = change.Partition(p)
	}
	terms := l.Begin(partitions...)
	got, err := l.store().ClaimTerms(l.Context(), l.shared, terms)
	want, failed := l.memory.ClaimTerms(l.Context(), l.shared, terms)
	l.same("claim", err, failed)
	l.equal("what was claimed", want, got)
	l.terms = append(l.terms, terms...)
}

func (l *lockstep) claim() {
	p := process(rapid.IntRange(0, 3).Draw(l.t, "process"))
	got, err := l.store().ClaimName(l.Context(), p, first(l.exclusive))
	want, failed := l.memory.ClaimName(l.Context(), p, first(l.exclusive))
	l.same("claim", err, failed)
	l.equal("what was claimed", []checkpoint.Checkpoint{want}, []checkpoint.Checkpoint{got})
	if err == nil {
		l.claims = append(l.claims, got.Claim)
	}
}

func (l *lockstep) key() checkpoint.Key {
	if rapid.Bool().Draw(l.t, "exclusive") {
		return checkpoint.Key{Subscriber: l.exclusive}
	}
	return checkpoint.Key{Subscriber: l.shared, Shared: true, Partition: change.Partition(rapid.IntRange(0, few-1).Draw(l.t, "partition"))}
}

func (l *lockstep) rewind() {
	k, to := l.key(), l.event()
	got, err := l.store().Rewind(l.Context(), k, to, "ann", "why")
	want, failed := l.memory.Rewind(l.Context(), k, to, "ann", "why")
	l.same("rewind", err, failed)
	l.equal("what was rewound", []checkpoint.Checkpoint{want}, []checkpoint.Checkpoint{got})
}

func (l *lockstep) put() {
	c := l.checkpoint()
	l.same("put", l.store().Put(l.Context(), c), l.memory.Put(l.Context(), c))
}

func (l *lockstep) delete() {
	subscriber := l.key().Subscriber
	l.same("delete", l.store().Delete(l.Context(), subscriber), l.memory.Delete(l.Context(), subscriber))
}

// compare compares all stored data.
func (l *lockstep) compare() {
	for _, subscriber := range []string{l.exclusive, l.shared} {
		s := l.store()
		got, err := s.Load(l.Context(), subscriber)
		if err != nil {
			l.t.Fatalf("load: %v", err)
		}
		want, _ := l.memory.Load(l.Context(), subscriber)
		l.equal("what is stored", want, got)
		for _, c := range want {
			got, err := s.History(l.Context(), c.Key)
			if err != nil {
				l.t.Fatalf("history: %v", err)
			}
			want, _ := l.memory.History(l.Context(), c.Key)
			l.equal("the history", want, got)
		}
	}
}

// equal compares checkpoints, except for the time of a rewind.
func (l *lockstep) equal(what string, want, got []checkpoint.Checkpoint) {
	for _, all := range [][]checkpoint.Checkpoint{want, got} {
		for i := range all {
			if all[i].Reason == checkpoint.ReasonRewind {
				all[i].At = began
			}
		}
	}
	if len(want)+len(got) > 0 && !reflect.DeepEqual(want, got) { // cmp is slow
		l.t.Fatalf("%s is otherwise (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}
