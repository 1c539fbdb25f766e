package checkpointtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// lossAt returns a loss after an event and up to a later one, as a session has it.
func lossAt(from, to int) checkpoint.Gap {
	return checkpoint.Gap{
		From: Event(from), To: Event(to), Reason: "history_lost", Namespaces: []string{"shop.orders"},
		Found: began.Add(time.Duration(from) * time.Second), By: "node-a",
	}
}

// keptLoss is the form in which a checkpoint keeps a loss.
func keptLoss(g checkpoint.Gap) checkpoint.Gap {
	g.From, g.To = change.At(g.From.Time), change.At(g.To.Time)
	return g
}

func (h harness) wantLosses(k checkpoint.Key, losses ...checkpoint.Gap) {
	h.Helper()
	all, err := h.Reopen().Load(h.Context(), k.Subscriber)
	if err != nil {
		h.Fatal(err)
	}
	for _, c := range all {
		if c.Key != k {
			continue
		}
		if diff := cmp.Diff(losses, c.Losses); diff != "" {
			h.Errorf("%s has other losses (-want +got):\n%s", k, diff)
		}
		return
	}
	h.Errorf("there is no checkpoint of %s", k)
}

// A checkpoint passes a loss of its subscriber in the write that has the loss. There are never more
// than so many, and each stretch stays bounded.
func testLosses(h harness) {
	h.create()
	claim := h.claim("gw-1", 1).Claim
	c := Exclusive("gw-1", claim, Event(20))
	c.Losses = []checkpoint.Gap{lossAt(24, 40)} // not acknowledged in what is saved
	h.mustSave(c)
	h.wantLosses(c.Key)
	c.Position = Event(60)
	h.mustSave(c)
	h.wantLosses(c.Key, keptLoss(lossAt(24, 40)))
	h.mustSave(c)
	c.Position = Event(64)
	h.mustSave(c) // of a session that has it still
	h.wantLosses(c.Key, keptLoss(lossAt(24, 40)))
	c.Position, c.Losses = Event(68), nil // of another session
	h.mustSave(c)
	h.wantLosses(c.Key, keptLoss(lossAt(24, 40)))
	if entries, err := h.Store.History(h.Context(), c.Key); err != nil || len(entries) == 0 || len(entries[0].Losses) > 0 {
		h.Errorf("%+v, %v", entries, err)
	}

	back := h.rewind(c.Key, Event(28))
	h.wantLosses(c.Key, keptLoss(lossAt(24, 40)))
	c = of(Exclusive("gw-1", claim, Event(72)), back.Generation)
	c.Losses = []checkpoint.Gap{lossAt(28, 40)} // met again
	h.mustSave(c)
	h.wantLosses(c.Key, keptLoss(lossAt(24, 40)))

	for n := range 4 * checkpoint.MaxLosses {
		from := 100 + 8*n
		c.Position = Event(from + 4)
		c.Losses = []checkpoint.Gap{lossAt(from, from+4)}
		for i := range c.Losses {
			c.Losses[i].Namespaces = []string{strings.Repeat("n", 200) + fmt.Sprint(n)}
		}
		h.mustSave(c)
	}
	kept := h.load(c.Key).Losses
	if len(kept) != checkpoint.MaxLosses || kept[0].From.Time != Event(24).Time {
		h.Errorf("%d losses are kept, from %s", len(kept), kept[0].From)
	}
	for i := range kept[1:] {
		if kept[i].To.After(kept[i+1].From) {
			h.Errorf("%+v", kept)
		}
	}
}

// Of the partitions of a shared subscriber those have a loss that had not passed it before.
func testSharedLosses(h harness) {
	h.create()
	terms := h.terms(3, 4)
	early, late := Shared(terms[0], Event(20)), Shared(terms[1], Event(44))
	h.mustSave(early)
	h.mustSave(late)
	early.Position, late.Position = Event(60), Event(60)
	early.Losses, late.Losses = []checkpoint.Gap{lossAt(24, 40)}, []checkpoint.Gap{lossAt(24, 40)}
	h.mustSave(early)
	h.mustSave(late)
	h.wantLosses(early.Key, keptLoss(lossAt(24, 40)))
	h.wantLosses(late.Key)
	claimed := h.claimTerms(h.Begin(3))
	if diff := cmp.Diff([]checkpoint.Gap{keptLoss(lossAt(24, 40))}, claimed[0].Losses); diff != "" {
		h.Errorf("the next owner finds other losses (-want +got):\n%s", diff)
	}
	imported := Shared(terms[0], Event(50))
	imported.Losses = []checkpoint.Gap{keptLoss(lossAt(8, 12))}
	if err := h.Store.Put(h.Context(), imported); err != nil {
		h.Fatal(err)
	}
	h.wantLosses(early.Key, keptLoss(lossAt(24, 40)), keptLoss(lossAt(8, 12)))
}
