package partition

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A node sends a partition on, as long as nothing of it has got lost on the way.
type node struct {
	*book

	from *streampb.Position
	next int
}

// whatever two nodes send of one partition, which moves from one to the other and back, each change is handled once, in order, and none is
// left out: what a node sends behind something lost is not taken unless the other has brought it.
func whateverTwoNodesSend(t *rapid.T) {
	l := drawLog(t)
	b := &book{after: -1}
	lane := newLane(t, b, Have{Known: true, At: Of(l.after(0))})
	nodes := [2]*node{}
	handled := 0 // the changes that have been handled for certain
	attach := func(i int) {
		nodes[i] = &node{book: &book{}, from: lane.stand().At.message(), next: handled}
	}
	attach(0)
	attach(1)
	for range rapid.IntRange(0, 40).Draw(t, "steps") {
		i := rapid.IntRange(0, 1).Draw(t, "node")
		n := nodes[i]
		switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
		case what == 0:
			attach(i)
			continue
		case what == 1:
			lane.forget(n)
			continue
		default:
			to := rapid.IntRange(n.next, len(l.places)).Draw(t, "to")
			sent := l.batch(n.next, to)
			sent.From, sent.Cursor = n.from, []byte{byte(to)}
			if n.next, n.from = to, l.after(to); what == 2 {
				continue // it got lost
			}
			if err := lane.handle(t.Context(), queued{source: n, batch: sent}); err != nil {
				t.Fatal(err)
			}
			if lane.stand().At.reaches(Of(l.after(to))) {
				handled = max(handled, to)
			}
		}
		if c := lane.mu.cursor; len(c.sealed) > 0 && !lane.stand().At.reaches(c.at) {
			t.Fatalf("the cursor is at %s, the partition at %s", c.at, lane.stand().At)
		}
	}
	if err := lane.handle(t.Context(), queued{source: &book{}, batch: l.batch(0, len(l.places))}); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, wanted := range l.wanted {
		if wanted {
			want = append(want, string(event(l.places[i])[0].GetChange()))
		}
	}
	if !slices.Equal(b.lines, want) {
		t.Fatalf("handled %q, want %q", b.lines, want)
	}
}

func TestEveryChangeIsHandledOnceWhateverTwoNodesSend(t *testing.T) {
	rapid.Check(t, whateverTwoNodesSend)
}

func FuzzTwoNodes(f *testing.F) { f.Fuzz(rapid.MakeFuzz(whateverTwoNodesSend)) }

// Whatever bytes positions are made of, a batch moves its partition nowhere back, and nothing that it has seen is handled again.
func FuzzBatch(f *testing.F) {
	f.Add([]byte("a"), []byte("b1"), []byte("c1"), []byte("b2"), []byte("c2"), uint8(0))
	f.Add([]byte{}, []byte{}, []byte{0}, []byte{255}, []byte{255, 255}, uint8(2))
	f.Fuzz(func(t *testing.T, stand, from, event1, event2, to []byte, kind uint8) {
		place := func(b []byte) *streampb.Position { // a head, and a hash where there is something left
			n := min(len(b), 2)
			p := &streampb.Position{Head: b[:n]}
			if len(b) > n {
				p.Hashes = [][]byte{b[n:]}
			}
			return p
		}
		b := &book{after: -1}
		l := newLane(t, b, Have{Known: true, At: Of(place(stand))})
		sent := batch(place(from), place(to), append(event(place(event1)), event(place(event2))...)...)
		if kind%3 > 0 {
			sent.Events, sent.Loss = nil, &streampb.Loss{Kind: streampb.Loss_Kind(kind % 3)}
		}
		before := l.stand().At
		if err := l.handle(t.Context(), queued{source: b, batch: sent}); err != nil {
			t.Fatal(err)
		}
		after := l.stand().At
		if sent.GetLoss().GetKind() != streampb.Loss_KIND_REWOUND && !after.reaches(before) {
			t.Errorf("%s moved back to %s", before, after)
		}
		if b.holes > 0 && (len(b.lines) > 0 || !after.Equal(before)) {
			t.Errorf("behind a hole %q were handled", b.lines)
		}
		handled := len(b.lines)
		if err := l.handle(t.Context(), queued{source: b, batch: sent}); err != nil {
			t.Fatal(err)
		}
		if sent.GetLoss() == nil && len(place(event1).GetHashes()) > 0 && len(place(event2).GetHashes()) > 0 && len(b.lines) != handled {
			t.Errorf("handled again: %q", b.lines[handled:])
		}
	})
}
