package match_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match"
)

// A world is an index beside the filters that are in it.
type world struct {
	index    match.Index
	programs map[match.ID]*match.Program
	next     match.ID
	pairs    int
	matched  int
	failed   int
	refused  int
}

// churn adds filters and takes some away.
func (w *world) churn(t testing.TB, d dice, add int) {
	for id := range w.next {
		if w.programs[id] != nil && d(8) == 0 {
			if !w.index.Remove(id) || w.index.Remove(id) {
				t.Fatalf("%d: removed once", id)
			}
			delete(w.programs, id)
		}
	}
	for range add {
		p, err := match.Compile(d.filter())
		if err != nil {
			w.refused++
			continue
		}
		if !w.index.Add(w.next, p) || w.index.Add(w.next, p) {
			t.Fatalf("%d: added once", w.next)
		}
		w.programs[w.next] = p
		w.next++
	}
	if w.index.Len() != len(w.programs) {
		t.Fatalf("%d subscriptions, want %d", w.index.Len(), len(w.programs))
	}
}

// agree asks the index and every filter, each by itself and all of it in CEL.
func (w *world) agree(t testing.TB, e *change.Event) {
	failed := make(map[match.ID]string)
	got := w.index.Match(e, nil, match.Report(func(id match.ID, err error) { failed[id] = err.Error() }))
	found := make(map[match.ID]bool, len(got))
	for _, id := range got {
		if found[id] {
			t.Errorf("%d twice", id)
		}
		found[id] = true
	}
	for id, p := range w.programs {
		w.pairs++
		want, wantErr := p.MatchInCEL(e)
		if alone, err := p.Match(e); alone != want || (err != nil) != (wantErr != nil) {
			t.Errorf("%+v\n%s\nalone: %v, %v; in CEL: %v, %v", p.Filter(), show(e), alone, err, want, wantErr)
		}
		if text, hasFailed := failed[id]; found[id] != want || hasFailed != (wantErr != nil) {
			t.Errorf("%+v\n%s\nindex: %v, %q; in CEL: %v, %v", p.Filter(), show(e), found[id], text, want, wantErr)
		}
		if want {
			w.matched++
		}
		if wantErr != nil {
			w.failed++
		}
		delete(found, id)
		delete(failed, id)
	}
	if len(found)+len(failed) > 0 {
		t.Errorf("IDs that are not in the index: %v %v", found, failed)
	}
}

// agreeOn compares pairs of random filters and events.
func agreeOn(t *testing.T, seed uint64, pairs int) {
	d := dice(rand.New(rand.NewPCG(seed, 1)).IntN)
	w := &world{programs: make(map[match.ID]*match.Program)}
	for w.pairs < pairs && !t.Failed() {
		w.churn(t, d, 8)
		for range 5 {
			e := d.event()
			w.agree(t, &e)
		}
	}
	t.Logf("%d pairs: %d match, %d fail; %d filters, %d refused", w.pairs, w.matched, w.failed, w.next, w.refused)
	if w.matched < w.pairs/50 || w.failed < w.pairs/200 || w.refused > int(w.next) {
		t.Errorf("the pairs do not try enough")
	}
}

func TestIndexAgreesWithFilters(t *testing.T) { agreeOn(t, 7, 20_000) }

// TestIndexAgreesOnSmallWorlds finds the smallest world in which the index and the filters differ.
func TestIndexAgreesOnSmallWorlds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := dice(func(n int) int { return rapid.IntRange(0, n-1).Draw(r, "dice") })
		w := &world{programs: make(map[match.ID]*match.Program)}
		for range 2 {
			w.churn(t, d, 3)
			e := d.event()
			w.agree(t, &e)
		}
		if t.Failed() {
			r.FailNow()
		}
	})
}

func show(e *change.Event) string { return bsonString(e.Raw()) }
