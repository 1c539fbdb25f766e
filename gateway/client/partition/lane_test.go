package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/gateway/streampb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errStopped interrupts a batch.
var errStopped = errors.New("stopped")

// A book writes down what a lane hands over, and stops it when it is told to.
type book struct {
	lines   []string
	after   int // deliveries until it stops; negative: never
	acked   []*streampb.Position
	holes   int
	moved   int
	passed  []Position
	blocked chan struct{} // deliveries wait for one value each, if there is a channel
}

func (b *book) Deliver(_ context.Context, _ uint32, e *streampb.Event) error {
	if b.blocked != nil {
		<-b.blocked
	}
	if b.after == 0 {
		return errStopped
	}
	b.after--
	b.lines = append(b.lines, string(e.GetChange()))
	return nil
}

func (b *book) Lose(_ context.Context, batch *streampb.Batch) error {
	if b.after == 0 {
		return errStopped
	}
	b.after--
	b.lines = append(b.lines, batch.GetLoss().GetKind().String())
	return nil
}

func (b *book) Passed(_ uint32, _ *streampb.Event, at Position) { b.passed = append(b.passed, at) }
func (b *book) Ack(_ uint32, to *streampb.Position)             { b.acked = append(b.acked, to) }
func (b *book) Moved()                                          { b.moved++ }
func (b *book) Hole()                                           { b.holes++ }

func newLane(t interface {
	Cleanup(func())
	Context() context.Context
}, b *book, at Have) *Lane {
	set := NewSet(t.Context(), Config{Cluster: "c", Count: 1, Worker: b, Room: NewRoom(1 << 20), Counts: &Counts{}}, nil)
	t.Cleanup(set.Close)
	l := set.lane(0)
	l.mu.have = at
	return l
}

// at is a place: a head of one letter, and hashes of one letter each.
func at(head string, hashes ...string) *streampb.Position {
	p := &streampb.Position{Head: []byte(head)}
	for _, h := range hashes {
		p.Hashes = append(p.Hashes, []byte(h))
	}
	return p
}

func event(p *streampb.Position, forms ...string) (events []*streampb.Event) {
	for _, form := range append([]string{""}, forms...) {
		events = append(events, &streampb.Event{Position: p, Change: []byte(string(p.Head) + string(bytes.Join(p.Hashes, nil)) + form)})
	}
	return events
}

func batch(from, to *streampb.Position, events ...*streampb.Event) *streampb.Batch {
	return &streampb.Batch{From: from, To: to, Events: events}
}

func TestBatchesAgainstWhereThePartitionStands(t *testing.T) {
	resync := func(b *streampb.Batch) *streampb.Batch {
		b.Loss = &streampb.Loss{Kind: streampb.Loss_KIND_RESYNC}
		return b
	}
	rewound := func(b *streampb.Batch) *streampb.Batch {
		b.Loss = &streampb.Loss{Kind: streampb.Loss_KIND_REWOUND}
		return b
	}
	known := func(p *streampb.Position) Have { return Have{Known: true, At: Of(p)} }
	tests := []struct {
		name    string
		have    Have
		batches []*streampb.Batch
		want    []string
		end     *streampb.Position
		holes   int
		acked   int
	}{
		{"the first says where it begins", Have{}, []*streampb.Batch{batch(at("b"), at("d", "1"), event(at("d", "1"))...)}, []string{"d1"}, at("d", "1"), 0, 1},
		{"the first keeps the hashes it begins with", Have{}, []*streampb.Batch{batch(at("b", "1"), at("b", "2"), event(at("b", "2"))...), batch(at("b", "1", "2"), at("b", "1", "2"))}, []string{"b2"}, at("b", "1", "2"), 0, 2},
		{"a bookmark moves", known(at("b")), []*streampb.Batch{batch(at("b"), at("f"))}, nil, at("f"), 0, 1},
		{"what it has had is dropped", known(at("c", "1")), []*streampb.Batch{batch(at("a"), at("d", "1"), slices.Concat(event(at("b", "1")), event(at("c", "1")), event(at("d", "1")))...)}, []string{"d1"}, at("d", "1"), 0, 1},
		{"a batch behind it moves nothing back", known(at("e")), []*streampb.Batch{batch(at("a"), at("b", "1"), event(at("b", "1"))...)}, nil, at("e"), 0, 1},
		{"equal heads in two batches", known(at("b")), []*streampb.Batch{batch(at("b"), at("c", "1"), event(at("c", "1"))...), batch(at("c", "1"), at("c", "2"), event(at("c", "2"))...)}, []string{"c1", "c2"}, at("c", "1", "2"), 0, 2},
		{"equal heads sent again in one", known(at("c", "1")), []*streampb.Batch{batch(at("b"), at("c", "3"), slices.Concat(event(at("c", "1")), event(at("c", "2")), event(at("c", "3")))...)}, []string{"c2", "c3"}, at("c", "1", "2", "3"), 0, 1},
		{"two forms of one change", known(at("b")), []*streampb.Batch{batch(at("b"), at("c", "1"), event(at("c", "1"), "json")...)}, []string{"c1", "c1json"}, at("c", "1"), 0, 1},
		{"a hole", known(at("b")), []*streampb.Batch{batch(at("c"), at("d", "1"), event(at("d", "1"))...), batch(at("b"), at("d", "1"), event(at("d", "1"))...)}, nil, at("b"), 1, 0},
		{"a hole among equal heads", known(at("c", "1")), []*streampb.Batch{batch(at("c", "1", "2"), at("c", "3"), event(at("c", "3"))...)}, nil, at("c", "1"), 1, 0},
		{"progress at a head is no hole", known(at("c", "1")), []*streampb.Batch{batch(at("c"), at("c", "2"), event(at("c", "2"))...)}, []string{"c2"}, at("c", "1", "2"), 0, 1},
		{"a change without a hash is not taken for seen", known(at("c", "1")), []*streampb.Batch{batch(at("b"), at("c"), event(at("c"))...)}, []string{"c"}, at("c", "1"), 0, 1},
		{"a loss", known(at("b")), []*streampb.Batch{resync(batch(at("b"), at("f")))}, []string{"KIND_RESYNC"}, at("f"), 0, 1},
		{"a loss behind it is told, and moves nothing back", known(at("g")), []*streampb.Batch{resync(batch(at("b"), at("f")))}, []string{"KIND_RESYNC"}, at("g"), 0, 1},
		{"a rewind", known(at("f", "1")), []*streampb.Batch{rewound(batch(at("b"), at("b"))), batch(at("b"), at("f", "1"), slices.Concat(event(at("c", "1")), event(at("f", "1")))...)}, []string{"KIND_REWOUND", "c1", "f1"}, at("f", "1"), 0, 2},
		{"a rewind forward leaves nothing out", known(at("b")), []*streampb.Batch{rewound(batch(at("b"), at("f"))), batch(at("f"), at("g"))}, []string{"KIND_REWOUND"}, at("b"), 1, 1},
		{"a longer head is behind the shorter", known(at("b")), []*streampb.Batch{batch(at("b"), at("ba", "1"), event(at("ba", "1"))...)}, []string{"ba1"}, at("ba", "1"), 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := &book{after: -1}
			l := newLane(t, b, tt.have)
			for _, batch := range tt.batches {
				if err := l.handle(t.Context(), queued{source: b, batch: batch}); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(b.lines, tt.want) || b.holes != tt.holes {
				t.Errorf("handed over %q, want %q; %d holes, want %d", b.lines, tt.want, b.holes, tt.holes)
			}
			if got := l.stand(); !got.Known || !got.At.Equal(Of(tt.end)) {
				t.Errorf("stands at %s, want %s", got.At, Of(tt.end))
			}
			if tt.acked != len(b.acked) {
				t.Errorf("%d batches acknowledged, want %d", len(b.acked), tt.acked)
			}
		})
	}
}

func TestInterruptedBatchGoesOnWhereItWas(t *testing.T) {
	whole := batch(at("a"), at("d", "1"), slices.Concat(event(at("b", "1"), "json"), event(at("c", "1")), event(at("d", "1")))...)
	all := []string{"b1", "b1json", "c1", "d1"}
	for after := range len(all) + 1 {
		b := &book{after: after}
		l := newLane(t, b, Have{Known: true, At: Of(at("a"))})
		err := l.handle(t.Context(), queued{source: b, batch: whole})
		if (after < len(all)) != errors.Is(err, errStopped) || errors.Is(err, errStopped) && len(b.acked) > 0 {
			t.Fatalf("after %d: %v, %d acknowledged", after, err, len(b.acked))
		}
		b.after = -1
		if err := l.handle(t.Context(), queued{source: b, batch: whole}); err != nil {
			t.Fatal(err)
		}
		want := all
		if after == 1 { // one form of a change was handled, and the change was not
			want = []string{"b1", "b1", "b1json", "c1", "d1"}
		}
		if !slices.Equal(b.lines, want) || len(b.acked) == 0 {
			t.Errorf("after %d: %q, %d acknowledged", after, b.lines, len(b.acked))
		}
	}
}

// A log is one partition's, with heads that several changes share, and changes that nobody subscribes to.
type log struct {
	places []*streampb.Position
	wanted []bool
}

func drawLog(t *rapid.T) (l log) {
	head := 0
	for i := range rapid.IntRange(0, 25).Draw(t, "changes") {
		head += rapid.IntRange(0, 1).Draw(t, "further")
		l.places = append(l.places, &streampb.Position{Head: []byte{1, byte(head), 128}, Hashes: [][]byte{{byte(i)}}})
		l.wanted = append(l.wanted, rapid.IntRange(0, 3).Draw(t, "wanted") > 0)
	}
	return l
}

// after returns the position of one who has read n changes: at the last of them, with what was seen at its head.
func (l log) after(n int) *streampb.Position {
	if n == 0 {
		return &streampb.Position{Head: []byte{0}}
	}
	p := Of(l.places[n-1])
	for i := n - 2; i >= 0 && bytes.Equal(l.places[i].Head, p.Head); i-- {
		p = p.join(Of(l.places[i]))
	}
	return p.message()
}

func (l log) batch(from, to int) *streampb.Batch {
	b := batch(l.after(from), l.after(to))
	for i := from; i < to; i++ {
		if l.wanted[i] {
			b.Events = append(b.Events, event(l.places[i])...)
		}
	}
	return b
}

// A reader is what a partition should have handled: so much of the log, and these lines.
type reader struct {
	log     log
	handled int
	lines   []string
}

// read handles up to a place, or so many changes; it reports whether it came to the place.
func (r *reader) read(to, atMost int) bool {
	at := r.handled
	for ; at < to; at++ {
		if !r.log.wanted[at] {
			continue
		}
		if atMost == 0 {
			return false
		}
		atMost--
		r.lines = append(r.lines, string(event(r.log.places[at])[0].GetChange()))
		r.handled = at + 1
	}
	r.handled = max(r.handled, to)
	return true
}

// TestEveryChangeIsHandledOnceWhateverTheSessions lets a server send a log through sessions that begin too early, lose batches on the way,
// are interrupted, and go back.
func TestEveryChangeIsHandledOnceWhateverTheSessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLog(t)
		b := &book{after: -1}
		lane := newLane(t, b, Have{Known: true, At: Of(l.after(0))})
		model := &reader{log: l}
		for range rapid.IntRange(0, 8).Draw(t, "sessions") {
			drawSession(t, l, lane, b, model)
			lane.forget(nil)
			if !slices.Equal(b.lines, model.lines) {
				t.Fatalf("handled %q, want %q", b.lines, model.lines)
			}
		}
		model.read(len(l.places), -1)
		if err := lane.handle(t.Context(), queued{source: &book{}, batch: l.batch(0, len(l.places))}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.lines, model.lines) {
			t.Fatalf("in the end handled %q, want %q", b.lines, model.lines)
		}
	})
}

func drawSession(t *rapid.T, l log, lane *Lane, b *book, model *reader) {
	source := &book{}
	at := rapid.IntRange(0, model.handled).Draw(t, "begin")
	from := l.after(at)
	if have := lane.stand().At; !have.reaches(Of(from)) { // among changes of the head where it stands, which nobody wants
		at, from = model.handled, have.message()
	}
	broken := false
	for range rapid.IntRange(0, 6).Draw(t, "batches") {
		to, lost, atMost := rapid.IntRange(at, len(l.places)).Draw(t, "to"), false, -1
		sent := l.batch(at, to)
		sent.From = from
		switch rapid.IntRange(0, 9).Draw(t, "what") {
		case 0:
			lost = true
		case 1:
			atMost = rapid.IntRange(0, 3).Draw(t, "stop")
		case 2:
			to = rapid.IntRange(0, at).Draw(t, "back")
			sent = batch(l.after(to), l.after(to))
			sent.Loss = &streampb.Loss{Kind: streampb.Loss_KIND_REWOUND}
			at = to
		}
		from = l.after(to)
		if lost {
			at = to
			continue
		}
		// Where changes of one head have been left out, because nobody wants them, it may take for a hole what is none; never the reverse.
		broken = broken || at > model.handled || !lane.stand().At.reaches(Of(sent.GetFrom()))
		whole := true
		switch {
		case broken:
		case sent.GetLoss() != nil:
			model.lines, model.handled = append(model.lines, "KIND_REWOUND"), to
		default:
			whole = model.read(to, atMost)
		}
		b.after = atMost
		err := lane.handle(t.Context(), queued{source: source, batch: sent})
		b.after = -1
		if whole != (err == nil) {
			t.Fatalf("the batch %d to %d: %v", at, to, err)
		}
		if broken != (source.holes > 0) {
			t.Fatalf("%d holes", source.holes)
		}
		if err != nil {
			return
		}
		at = to
	}
}

// String shows a position in failures.
func (p Position) String() string { return fmt.Sprintf("%q%q", p.Head, p.Hashes) }
