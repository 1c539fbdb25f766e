package checkpointtest

import (
	"errors"
	"sync"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// A model is one partition as it must be: which term owns it and where its mark stands.
type model struct {
	harness
	partition change.Partition
	stores    []Store
	terms     []change.Term
	at        change.Position
}

// testModel lets two stores save to one partition in random order, with terms that begin and end.
func testModel(h harness) {
	stores := []Store{h.Store, h.Reopen()}
	partition := change.Partition(0)
	rapid.Check(h.T, func(t *rapid.T) {
		m := &model{harness: h, partition: partition % Partitions, stores: stores}
		partition++
		if err := h.Store.Delete(h.Context(), m.partition); err != nil {
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

// store draws a store by its number: rapid shows what is drawn, and a store is busy.
func (m *model) store(t *rapid.T) Store {
	return m.stores[rapid.IntRange(0, len(m.stores)-1).Draw(t, "store")]
}

func (m *model) draw(t *rapid.T, term change.Term) (Store, checkpoint.Mark) {
	return m.store(t), MarkAt(term, Event(rapid.IntRange(1, 40).Draw(t, "event")))
}

// begin starts a term; the claim must find the mark where the model has it.
func (m *model) begin(t *rapid.T) {
	terms := m.Begin(m.partition)
	marks, err := m.store(t).Claim(m.Context(), terms)
	if err != nil || marks[0].Position.Compare(m.at) != 0 {
		t.Fatalf("claim found %v, %v; want %s", marks, err, m.at)
	}
	m.terms = append(m.terms, terms[0])
}

func (m *model) owner() change.Term { return m.terms[len(m.terms)-1] }

// save saves with the owner's epoch.
func (m *model) save(t *rapid.T) {
	store, mark := m.draw(t, m.owner())
	if err := store.Save(m.Context(), []checkpoint.Mark{mark})[0]; err != nil {
		t.Fatalf("save %s: %v", mark.Position, err)
	}
	m.at = change.Later(m.at, mark.Position)
}

// race saves several marks of the owner, and one of a deposed owner, at the same time.
func (m *model) race(t *rapid.T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	saves := rapid.IntRange(2, 4).Draw(t, "saves")
	results := make([]error, saves)
	for i := range saves {
		store, mark := m.draw(t, m.owner())
		m.at = change.Later(m.at, mark.Position)
		wg.Go(func() { results[i] = store.Save(m.Context(), []checkpoint.Mark{mark})[0] })
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
	store, mark := m.draw(t, rapid.SampledFrom(m.terms[:len(m.terms)-1]).Draw(t, "term"))
	if err := store.Save(m.Context(), []checkpoint.Mark{mark})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Fatalf("save of a deposed owner: %v", err)
	}
}

// check compares what is stored with the model.
func (m *model) check(t *rapid.T) {
	mark, err := m.stores[0].Load(m.Context(), m.partition)
	if errors.Is(err, checkpoint.ErrNoMark) {
		err = nil
	}
	if err != nil || mark.Position.Compare(m.at) != 0 {
		t.Fatalf("the mark stands at %s, %v; want %s", mark.Position, err, m.at)
	}
}
