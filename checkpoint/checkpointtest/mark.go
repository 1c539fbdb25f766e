package checkpointtest

import (
	"context"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

func testFields(h harness) {
	term := h.term(3)
	for i, reason := range []checkpoint.Reason{checkpoint.ReasonInterval, checkpoint.ReasonIdle, checkpoint.ReasonFinal} {
		want := checkpoint.Mark{
			Partition:   3,
			Position:    Event(10 + i),
			Fingerprint: "0123456789abcdef",
			Epoch:       term.Epoch,
			At:          time.Date(2031, time.January, 2, 3, 4, 5, 678_000_000, time.UTC),
			By:          "knoten-ä/1",
			Reason:      reason,
		}
		h.mustSave(want)
		got, err := h.Store.Load(h.Context(), 3)
		if err != nil {
			h.Fatalf("load: %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			h.Errorf("the mark came back otherwise (-want +got):\n%s", diff)
		}
	}
}

func testPositions(h harness) {
	for name, want := range map[string]change.Position{
		"event":            Event(5),
		"of a transaction": Event(7),
		"high-watermark":   changetest.HighWater(change.Timestamp{T: 1_700_000_000, I: 9}),
		"time only":        change.At(change.Timestamp{T: 1_700_000_000, I: 9}),
		"with type bits":   withTypeBits(Event(5), []byte{0x82, 0, 0xff}),
		"at the limit":     withTypeBits(Event(5), make([]byte, maxTokenBytes-len(withTypeBits(Event(5), nil).Token))),
	} {
		term := h.term(0)
		h.mustSave(MarkAt(term, want))
		if got := h.position(0); got.Time != want.Time || !slices.Equal(got.Token, want.Token) {
			h.Errorf("%s: %s came back as %s, with a token of %d bytes, not %d", name, want, got, len(got.Token), len(want.Token))
		}
		if err := h.Store.Delete(h.Context(), 0); err != nil {
			h.Fatalf("delete: %v", err)
		}
	}
}

func testLargeToken(h harness) {
	term := h.term(0)
	large := func(n int) change.Position { return withTypeBits(Event(n), make([]byte, maxTokenBytes)) }
	h.mustSave(MarkAt(term, large(4)))
	h.wantAt(0, change.At(Event(4).Time))
	h.mustSave(MarkAt(term, large(4)))
	h.wantAt(0, change.At(Event(4).Time))

	// Its time stands before an event of the same time that is marked already.
	h.mustSave(MarkAt(term, Event(5)))
	h.mustSave(MarkAt(term, large(6)))
	h.wantAt(0, Event(5))

	h.mustSave(MarkAt(term, Event(8)))
	h.wantAt(0, Event(8))
}

func testStrangeToken(h harness) {
	term := h.term(0)
	strange := change.Position{Token: []byte("\x05\x00\x00\x00\x00"), Time: change.Timestamp{T: 7, I: 1}}
	h.mustSave(MarkAt(term, strange))
	h.wantAt(0, change.At(strange.Time))
}

func testAliasing(h harness) {
	term := h.term(0)
	marks := []checkpoint.Mark{MarkAt(term, Event(1).Clone())}
	results := h.Store.Save(h.Context(), marks)
	clear(marks[0].Position.Token)
	clear(marks)
	if results[0] != nil {
		h.Fatalf("save: %v", results[0])
	}
	// What the store remembers must not have changed either: look at it before anything is read.
	h.mustSave(MarkAt(term, Event(0)))
	h.wantAt(0, Event(1))
	clear(h.position(0).Token)
	h.mustSave(MarkAt(term, Event(0)))
	h.wantAt(0, Event(1))
	h.mustSave(MarkAt(term, Event(2)))
	h.wantAt(0, Event(2))
}

func testNoMark(h harness) {
	h.term(0)
	if m, err := h.Store.Load(h.Context(), 0); !errors.Is(err, checkpoint.ErrNoMark) {
		h.Errorf("load gave %v, %v", m, err)
	}
	if err := h.Store.Delete(h.Context(), 0); err != nil {
		h.Errorf("delete: %v", err)
	}
	if marks, err := h.Store.List(h.Context()); len(marks) != 0 || err != nil {
		h.Errorf("list gave %v, %v", marks, err)
	}
}

func testList(h harness) {
	partitions := []change.Partition{200, 3, 100, 20, 0, 255, 9, 10, 11}
	for i, term := range h.terms(partitions...) {
		h.mustSave(MarkAt(term, Event(i+1)))
	}
	marks, err := h.Store.List(h.Context())
	if err != nil {
		h.Fatalf("list: %v", err)
	}
	var listed []change.Partition
	for _, m := range marks {
		listed = append(listed, m.Partition)
		if want := Event(slices.Index(partitions, m.Partition) + 1); m.Position.Compare(want) != 0 {
			h.Errorf("the mark of partition %d stands at %s, want %s", m.Partition, m.Position, want)
		}
	}
	slices.Sort(partitions)
	if !slices.Equal(listed, partitions) {
		h.Errorf("listed %v, want %v", listed, partitions)
	}
}

func testDelete(h harness) {
	terms := h.terms(0, 1)
	for _, term := range terms {
		h.mustSave(MarkAt(term, Event(10)))
	}
	if err := h.Store.Delete(h.Context(), 0); err != nil {
		h.Fatalf("delete: %v", err)
	}
	if m, err := h.Store.Load(h.Context(), 0); !errors.Is(err, checkpoint.ErrNoMark) {
		h.Errorf("load gave %v, %v", m, err)
	}
	h.wantAt(1, Event(10))
	h.mustSave(MarkAt(terms[0], Event(5)))
	h.wantAt(0, Event(5))
	if err := h.Reopen().Delete(h.Context(), 0); err != nil {
		h.Fatalf("delete from elsewhere: %v", err)
	}
	h.mustSave(MarkAt(terms[0], Event(7)))
	h.wantAt(0, Event(7))
}

func testSaveNothing(h harness) {
	if results := h.Store.Save(h.Context(), nil); len(results) != 0 {
		h.Errorf("results %v", results)
	}
}

func testSaveCanceled(h harness) {
	terms := h.terms(0, 1)
	ctx, cancel := context.WithCancel(h.Context())
	cancel()
	for i, err := range h.Store.Save(ctx, []checkpoint.Mark{MarkAt(terms[0], Event(1)), MarkAt(terms[1], Event(1))}) {
		if err == nil || errors.Is(err, checkpoint.ErrFenced) || fault.Of(err) == fault.CheckpointCorrupt {
			h.Errorf("mark %d: %v", i, err)
		}
	}
	h.mustSave(MarkAt(terms[0], Event(1)))
}

func testSaveOlder(h harness) {
	term := h.term(0)
	h.mustSave(MarkAt(term, Event(6)))
	for _, older := range []change.Position{Event(5), Event(1), change.At(Event(6).Time), changetest.HighWater(Event(6).Time)} {
		h.mustSave(MarkAt(term, older))
		h.wantAt(0, Event(6))
	}
	// A later term begins behind the mark that it has not moved yet.
	h.mustSave(MarkAt(h.term(0), Event(3)))
	h.wantAt(0, Event(6))
	h.mustSave(MarkAt(h.term(0), changetest.HighWater(change.Timestamp{T: 1_700_000_000, I: 2})))
	h.wantAt(0, changetest.HighWater(change.Timestamp{T: 1_700_000_000, I: 2}))
}

func testSaveRepeated(h harness) {
	term := h.term(0)
	for range 3 {
		h.mustSave(MarkAt(term, Event(4)))
		h.wantAt(0, Event(4))
	}
}

func testSaveReopened(h harness) {
	term := h.term(0)
	h.mustSave(MarkAt(term, Event(4)))
	for i, position := range []change.Position{Event(4), Event(3), Event(5)} {
		if err := h.Reopen().Save(h.Context(), []checkpoint.Mark{MarkAt(term, position)})[0]; err != nil {
			h.Fatalf("save %d: %v", i, err)
		}
	}
	h.wantAt(0, Event(5))
	h.mustSave(MarkAt(term, Event(6)))
	h.wantAt(0, Event(6))
}

func testSaveMany(h harness) {
	terms := h.terms(all()...)
	// Together they are larger than most servers take in one request.
	bits := []byte(strings.Repeat("b", maxTokenBytes-1024))
	for round := 1; round <= 2; round++ {
		marks := make([]checkpoint.Mark, len(terms))
		for i, term := range terms {
			marks[i] = MarkAt(term, withTypeBits(Event(round*1000+i), bits))
		}
		for i, err := range h.Store.Save(h.Context(), marks) {
			if err != nil {
				h.Fatalf("mark %d: %v", i, err)
			}
		}
		stored, err := h.Store.List(h.Context())
		if err != nil {
			h.Fatalf("list: %v", err)
		}
		if len(stored) != len(marks) {
			h.Fatalf("round %d: %d marks came back, of %d", round, len(stored), len(marks))
		}
		for i := range marks {
			if !reflect.DeepEqual(marks[i], stored[i]) { // not cmp, which takes a minute for so many bytes
				h.Fatalf("round %d: mark %d at %s came back otherwise, at %s", round, i, marks[i].Position, stored[i].Position)
			}
		}
	}
}

func testDamage(h harness) {
	if h.Damage == nil {
		return
	}
	for _, d := range []Damage{NewerVersion, OtherPartitions, Garbage} {
		p := change.Partition(d)
		term := h.term(p)
		h.mustSave(MarkAt(term, Event(1)))
		h.Damage(p, d)
		want := h.Raw(p)
		if _, err := h.Store.Load(h.Context(), p); fault.Of(err) != d.Code() {
			h.Errorf("load gave %v, want %s", err, d.Code())
		}
		if err := h.save(MarkAt(term, Event(2))); fault.Of(err) != d.Code() {
			h.Errorf("save gave %v, want %s", err, d.Code())
		}
		if err := h.Reopen().Save(h.Context(), []checkpoint.Mark{MarkAt(term, Event(2))})[0]; fault.Of(err) != d.Code() {
			h.Errorf("save by a store that remembers nothing gave %v, want %s", err, d.Code())
		}
		if _, err := h.Store.Claim(h.Context(), h.Begin(p)); fault.Of(err) != d.Code() {
			h.Errorf("claim gave %v, want %s", err, d.Code())
		}
		if got := h.Raw(p); !slices.Equal(got, want) {
			h.Errorf("the damaged mark was changed from %q to %q", want, got)
		}
	}
	whole := h.term(100)
	h.mustSave(MarkAt(whole, Event(1)))
	marks, err := h.Store.List(h.Context())
	if fault.Of(err) == "" || len(marks) != 1 || marks[0].Partition != 100 {
		h.Errorf("list gave %v, %v; want the whole mark and a fault", marks, err)
	}
}

// maxTokenBytes is the largest token that is kept.
const maxTokenBytes = 16 << 10

// all returns all partitions.
func all() []change.Partition {
	partitions := make([]change.Partition, Partitions)
	for i := range partitions {
		partitions[i] = change.Partition(i)
	}
	return partitions
}

// withTypeBits returns the position with _typeBits in its token.
func withTypeBits(p change.Position, bits []byte) change.Position {
	token := slices.Clone(p.Token[:len(p.Token)-1])
	token = append(token, 0x05)
	token = append(token, "_typeBits\x00"...)
	token = binary.LittleEndian.AppendUint32(token, uint32(len(bits)))
	token = append(append(token, 0), bits...)
	token = append(token, 0)
	binary.LittleEndian.PutUint32(token, uint32(len(token)))
	return change.Position{Token: token, Time: p.Time}
}
