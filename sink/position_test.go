package sink

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
)

// places are events in the order of the log; some of them share a head, as events of two shards do.
func places(t *rapid.T) (all []change.Ref) {
	for i := range uint32(rapid.IntRange(1, 12).Draw(t, "heads")) {
		for id := range int64(rapid.IntRange(1, 3).Draw(t, "events")) {
			all = append(all, changetest.Event{Time: change.Timestamp{T: 1000, I: i + 1}, ID: id}.Position().Ref())
		}
	}
	return all
}

// However owners repeat what comes after a checkpoint, a target that skips by position has each
// message once and in order, and a document after everything that was published before it was read.
// It is so although what the target has is known only from its text.
func TestRepetitionsAreSkippedByPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := places(t)
		var at Position
		var has []string
		acked, documents := 0, 0 // acked is the checkpoint
		for owner := range uint64(rapid.IntRange(1, 5).Draw(t, "owners")) {
			epoch, number, next := change.Epoch{Incarnation: 1, Revision: owner + 1}, uint64(0), acked
			published := len(slices.DeleteFunc(slices.Clone(has), func(s string) bool { return s[0] == 'd' }))
			until := rapid.IntRange(max(next, published), len(log)).Draw(t, "until")
			var sent []*Message
			send := func(m *Message) {
				number++
				m.Epoch, m.Number, m.Incarnation = epoch, number, "1-A-0"
				sent = append(sent, m)
			}
			for ; next < until; next++ {
				send(&Message{ID: fmt.Sprint(next), Ref: log[next]})
				if next+1 >= published && rapid.Bool().Draw(t, "document") { // it is read after what may have been published
					send(&Message{ID: fmt.Sprintf("d%d.%d", owner, next), Ref: log[next], Snapshot: true})
					documents++
				}
			}
			for range rapid.IntRange(1, 3).Draw(t, "attempts") { // the owner's own, after outcomes that got lost
				for _, m := range sent {
					if at.Has(m) {
						continue
					}
					has, at = append(has, m.ID), at.With(m)
					parsed, err := ParsePosition(string(at.AppendText(nil)))
					if err != nil {
						t.Fatal(err)
					}
					at = parsed
				}
			}
			acked = rapid.IntRange(acked, until).Draw(t, "acknowledged")
		}
		want := 0
		seen := map[string]bool{}
		for _, id := range has {
			if seen[id] {
				t.Fatalf("%s twice: %q", id, has)
			}
			seen[id] = true
			if id[0] != 'd' {
				if id != fmt.Sprint(want) {
					t.Fatalf("%s, want %d: %q", id, want, has)
				}
				want++
			} else {
				documents--
			}
		}
		if documents != 0 {
			t.Fatalf("%d documents are missing: %q", documents, has)
		}
	})
}

// Under another incarnation nothing is skipped.
func TestAnotherIncarnationHasNothing(t *testing.T) {
	t.Parallel()
	m := &Message{Incarnation: "1-A-0", Epoch: change.Epoch{Revision: 1}, Number: 5, Ref: changetest.Event{Time: change.Timestamp{T: 5}}.Position().Ref()}
	at := Position{}.With(m)
	for _, other := range []string{"1-A-1", "1-B-0", "2-A-0"} {
		again := *m
		if again.Incarnation = other; at.Has(&again) {
			t.Errorf("%s is taken for %s", other, m.Incarnation)
		}
	}
	if !at.Has(m) {
		t.Error("a repetition is not known")
	}
	for _, text := range []string{"", "0 a 1.1 1 x", "1 a b 1 x", "1 a 1.1 -1 x", "1 a 1.1 1 x", string(at.AppendText(nil)) + " !"} {
		if _, err := ParsePosition(text); err == nil {
			t.Errorf("%q is a position", text)
		}
	}
}

// FuzzPosition holds that whatever a target tells is read or refused.
func FuzzPosition(f *testing.F) {
	f.Add(string(Position{Incarnation: "1-A-0", Beside: []uint64{1, 2}}.AppendText(nil)))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePosition(text)
		if err != nil {
			return
		}
		if again, err := ParsePosition(string(p.AppendText(nil))); err != nil || fmt.Sprint(again) != fmt.Sprint(p) {
			t.Errorf("%+v, then %+v, %v", p, again, err)
		}
	})
}
