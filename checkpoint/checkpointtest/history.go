package checkpointtest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// noted returns the checkpoint of the n-th event, saved for a reason at the given seconds after the
// suite's start.
func noted(term change.Term, n int, reason checkpoint.Reason, seconds int) checkpoint.Checkpoint {
	c := Shared(term, Event(n))
	c.At = c.At.Add(time.Duration(seconds) * time.Second)
	c.Reason = reason
	return c
}

func (h harness) history(k checkpoint.Key) []checkpoint.Checkpoint {
	h.Helper()
	entries, err := h.Reopen().History(h.Context(), k)
	if err != nil {
		h.Fatalf("history: %v", err)
	}
	return entries
}

// wantHistory checks the events of the shared subscriber's history, newest first.
func (h harness) wantHistory(p change.Partition, events ...int) {
	h.Helper()
	h.wantEntries(SharedKey(p), events...)
}

func (h harness) wantEntries(k checkpoint.Key, events ...int) {
	h.Helper()
	var got, want []string
	for _, c := range h.history(k) {
		got = append(got, c.Position.String())
	}
	for _, n := range events {
		want = append(want, Event(n).String())
	}
	if !slices.Equal(got, want) {
		h.Errorf("the history of %s is %v, want %v", k, got, want)
	}
}

func testNoHistory(h harness) {
	h.term(0)
	h.wantHistory(0)
	h.wantHistory(255)
	h.wantEntries(checkpoint.Key{Subscriber: "nobody"})
}

func testHistoryThins(h harness) {
	term := h.term(3)
	// Every fourth event has a new cluster time.
	begin := noted(term, 4, checkpoint.ReasonBegin, 0)
	h.mustSave(begin)
	h.mustSave(noted(term, 8, checkpoint.ReasonInterval, 5))
	h.mustSave(noted(term, 12, checkpoint.ReasonIdle, 59))
	h.wantHistory(3, 4)
	h.mustSave(noted(term, 16, checkpoint.ReasonInterval, 60))
	h.mustSave(noted(term, 20, checkpoint.ReasonIdle, 119))
	h.mustSave(noted(term, 24, checkpoint.ReasonIdle, 120))
	h.mustSave(noted(term, 28, checkpoint.ReasonBegin, 121))
	h.mustSave(noted(term, 32, checkpoint.ReasonHandoff, 122))
	h.mustSave(noted(term, 36, checkpoint.ReasonInterval, 123))
	last := noted(term, 40, checkpoint.ReasonFinal, 124)
	last.Note, last.Fingerprint, last.By = "for the upgrade", "0123456789abcdef", "knoten-ä/1"
	h.mustSave(last)
	h.wantHistory(3, 40, 32, 28, 24, 16, 4)
	history := h.history(SharedKey(3))
	if diff := cmp.Diff(last, history[0]); diff != "" {
		h.Errorf("the newest entry came back otherwise (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(begin, history[len(history)-1]); diff != "" {
		h.Errorf("the oldest entry came back otherwise (-want +got):\n%s", diff)
	}
}

func testHistoryClock(h harness) {
	term := h.term(0)
	h.mustSave(noted(term, 4, checkpoint.ReasonBegin, 7200))
	for i := range 12 {
		h.mustSave(noted(term, 8+4*i, checkpoint.ReasonInterval, 10*i)) // two hours earlier, by the clock
	}
	h.wantHistory(0, 8+4*6, 8, 4)
}

func testHistoryLength(h harness) {
	term := h.term(0)
	const saves = 2*checkpoint.HistoryLength + 5
	var want []int
	for n := range saves {
		h.mustSave(noted(term, 4*n+4, checkpoint.ReasonInterval, 60*n))
		want = append([]int{4*n + 4}, want...)
	}
	h.wantHistory(0, want[:checkpoint.HistoryLength]...)
}

func testHistoryReopened(h harness) {
	term := h.term(0)
	h.mustSave(noted(term, 4, checkpoint.ReasonInterval, 0))
	for i, seconds := range []int{1, 30, 59, 60, 61} {
		if err := h.saveTo(h.Reopen(), noted(term, 8+4*i, checkpoint.ReasonInterval, seconds)); err != nil {
			h.Fatalf("save: %v", err)
		}
	}
	h.wantHistory(0, 20, 4)
}

func testHistoryOfRefused(h harness) {
	old := h.term(0)
	h.mustSave(noted(old, 40, checkpoint.ReasonBegin, 0))
	h.mustSave(noted(old, 36, checkpoint.ReasonFinal, 100)) // left out: it is earlier
	h.mustSave(noted(old, 40, checkpoint.ReasonFinal, 100)) // the same
	young := h.term(0)
	h.wantFenced("a save of the old term", h.save(noted(old, 44, checkpoint.ReasonFinal, 200)))
	h.wantHistory(0, 40)
	h.mustSave(noted(young, 44, checkpoint.ReasonBegin, 201))
	h.wantHistory(0, 44, 40)
}

func testHistoryOfMany(h harness) {
	terms := h.terms(all()...)
	for round := 1; round <= 2; round++ {
		saved := make([]checkpoint.Checkpoint, len(terms))
		for i, term := range terms {
			saved[i] = noted(term, 400*round+4*(i%50), checkpoint.ReasonInterval, int(time.Minute/time.Second)*round)
		}
		for i, err := range h.Store.Save(h.Context(), saved) {
			if err != nil {
				h.Fatalf("checkpoint %d: %v", i, err)
			}
		}
	}
	for _, p := range []change.Partition{0, 125, 126, 127, 252, 255} {
		h.wantHistory(p, 800+4*(int(p)%50), 400+4*(int(p)%50))
	}
}

func testHistoryDeleted(h harness) {
	terms := h.terms(0, 1)
	for _, term := range terms {
		h.mustSave(noted(term, 40, checkpoint.ReasonBegin, 0))
	}
	h.claim("gw-1", 1)
	h.wantEntries(checkpoint.Key{Subscriber: "gw-1"}, 1)
	for _, subscriber := range []string{Subscriber, "gw-1"} {
		if err := h.Store.Delete(h.Context(), subscriber); err != nil {
			h.Fatalf("delete: %v", err)
		}
	}
	h.wantHistory(0)
	h.wantHistory(1)
	h.wantEntries(checkpoint.Key{Subscriber: "gw-1"})
	h.mustSave(noted(terms[0], 4, checkpoint.ReasonInterval, 1))
	h.wantHistory(0, 4)
}

// The history of an exclusive subscriber records its earliest position.
func testHistoryOfExclusive(h harness) {
	h.create()
	claim := h.claim("gw-1", 1).Claim
	c := Exclusive("gw-1", claim, Event(20))
	c.Reason = checkpoint.ReasonFinal
	c.Positions = map[change.Partition]change.Position{3: Event(50)}
	h.mustSave(c)
	next := h.claim("gw-1", 2).Claim // a claim is no entry
	c = Exclusive("gw-1", next, change.Position{})
	c.Reason = checkpoint.ReasonFinal
	c.Positions = at(4, Event(60))
	h.mustSave(c)
	k := checkpoint.Key{Subscriber: "gw-1"}
	h.wantEntries(k, 20, 20, 1)
	entries := h.history(k)
	if entries[0].Claim.Process != next.Process || entries[0].Positions != nil {
		h.Errorf("the newest entry is %+v", entries[0])
	}
}
