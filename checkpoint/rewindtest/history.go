package rewindtest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

// wantHistory checks which events the entries stand at, newest first.
func (h harness) wantHistory(p change.Partition, events ...int) {
	h.Helper()
	var got, want []string
	for _, m := range h.history(p) {
		got = append(got, m.Position.String())
	}
	for _, n := range events {
		want = append(want, checkpointtest.Event(n).String())
	}
	if !slices.Equal(got, want) {
		h.Errorf("the history of partition %d is %v, want %v", p, got, want)
	}
}

func testNoHistory(h harness) {
	h.term(0)
	h.wantHistory(0)
	h.wantHistory(255)
}

func testHistoryThins(h harness) {
	term := h.term(3)
	// Every fourth event has a cluster time of its own.
	begin := markAt(term, 4, checkpoint.ReasonBegin, 0)
	h.mustSave(begin)
	h.mustSave(markAt(term, 8, checkpoint.ReasonInterval, 5))
	h.mustSave(markAt(term, 12, checkpoint.ReasonIdle, 59))
	h.wantHistory(3, 4)
	h.mustSave(markAt(term, 16, checkpoint.ReasonInterval, 60))
	h.mustSave(markAt(term, 20, checkpoint.ReasonIdle, 119))
	h.mustSave(markAt(term, 24, checkpoint.ReasonIdle, 120))
	h.mustSave(markAt(term, 28, checkpoint.ReasonRecovery, 121))
	h.mustSave(markAt(term, 32, checkpoint.ReasonHandoff, 122))
	h.mustSave(markAt(term, 36, checkpoint.ReasonInterval, 123))
	last := markAt(term, 40, checkpoint.ReasonFinal, 124)
	last.Note, last.Fingerprint, last.By = "for the upgrade", "0123456789abcdef", "knoten-ä/1"
	h.mustSave(last)
	h.wantHistory(3, 40, 32, 28, 24, 16, 4)
	history := h.history(3)
	if diff := cmp.Diff(last, history[0]); diff != "" {
		h.Errorf("the newest entry came back otherwise (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(begin, history[len(history)-1]); diff != "" {
		h.Errorf("the oldest entry came back otherwise (-want +got):\n%s", diff)
	}
}

func testHistoryClock(h harness) {
	term := h.term(0)
	h.mustSave(markAt(term, 4, checkpoint.ReasonBegin, 7200))
	for i := range 12 {
		h.mustSave(markAt(term, 8+4*i, checkpoint.ReasonInterval, 10*i)) // two hours earlier, by the clock
	}
	h.wantHistory(0, 8+4*6, 8, 4)
}

func testHistoryLength(h harness) {
	term := h.term(0)
	const saves = 2*checkpoint.HistoryLength + 5
	var want []int
	for n := range saves {
		h.mustSave(markAt(term, 4*n+4, checkpoint.ReasonInterval, 60*n))
		want = append([]int{4*n + 4}, want...)
	}
	h.wantHistory(0, want[:checkpoint.HistoryLength]...)
}

func testHistoryReopened(h harness) {
	term := h.term(0)
	h.mustSave(markAt(term, 4, checkpoint.ReasonInterval, 0))
	for i, seconds := range []int{1, 30, 59, 60, 61} {
		m := markAt(term, 8+4*i, checkpoint.ReasonInterval, seconds)
		if err := h.Reopen().Save(h.Context(), []checkpoint.Mark{m})[0]; err != nil {
			h.Fatalf("save: %v", err)
		}
	}
	h.wantHistory(0, 20, 4)
}

func testHistoryOfRefused(h harness) {
	old := h.term(0)
	h.mustSave(markAt(old, 40, checkpoint.ReasonBegin, 0))
	h.mustSave(markAt(old, 36, checkpoint.ReasonFinal, 100)) // left out: it stands before
	h.mustSave(markAt(old, 40, checkpoint.ReasonFinal, 100)) // the same
	young := h.term(0)
	h.wantFenced("a save of the old term", h.save(markAt(old, 44, checkpoint.ReasonFinal, 200)))
	h.wantHistory(0, 40)
	h.mustSave(markAt(young, 44, checkpoint.ReasonBegin, 201))
	h.wantHistory(0, 44, 40)
}

func testHistoryOfMany(h harness) {
	partitions := make([]change.Partition, checkpointtest.Partitions)
	for p := range partitions {
		partitions[p] = change.Partition(p)
	}
	terms, _ := h.terms(partitions...)
	for round := 1; round <= 2; round++ {
		marks := make([]checkpoint.Mark, len(terms))
		for i, term := range terms {
			marks[i] = markAt(term, 400*round+4*(i%50), checkpoint.ReasonInterval, int(time.Minute/time.Second)*round)
		}
		for i, err := range h.Store.Save(h.Context(), marks) {
			if err != nil {
				h.Fatalf("mark %d: %v", i, err)
			}
		}
	}
	for _, p := range []change.Partition{0, 125, 126, 127, 252, 255} {
		h.wantHistory(p, 800+4*(int(p)%50), 400+4*(int(p)%50))
	}
}

func testHistoryDeleted(h harness) {
	terms, _ := h.terms(0, 1)
	for _, term := range terms {
		h.mustSave(markAt(term, 40, checkpoint.ReasonBegin, 0))
	}
	if err := h.Store.Delete(h.Context(), 0); err != nil {
		h.Fatalf("delete: %v", err)
	}
	h.wantHistory(0)
	h.wantHistory(1, 40)
	h.mustSave(markAt(terms[0], 4, checkpoint.ReasonInterval, 1))
	h.wantHistory(0, 4)
}
