package checkpointtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// Partitions is the number of partitions that a harness is for.
const Partitions = 256

// A Store is all that a store of marks does.
type Store interface {
	checkpoint.Store
	checkpoint.Claimer
	checkpoint.OriginKeeper
	checkpoint.HistoryKeeper
	checkpoint.GapKeeper
	checkpoint.Rewinder
	checkpoint.Adopter
}

// A Harness is an empty store of marks and what surrounds it. Its functions fail the test where they cannot do their part.
type Harness struct {
	// Store reaches its server through Link, if there is one.
	Store Store
	// Begin begins a term of each partition, with epochs higher than any before, under the origin that stands. The suite claims them.
	Begin func(partitions ...change.Partition) []change.Term
	// Reopen opens the same marks anew, as another process would: nothing is remembered, and the Link is not in the way.
	Reopen func() Store
	// Damage replaces the stored mark of a partition by a damaged one. It is nil for a store that has no stored form.
	Damage func(p change.Partition, d Damage)
	// Raw returns what is stored as the mark of a partition, nil where nothing is.
	Raw func(p change.Partition) []byte
	// Link is the connection of Store to its server, nil for a store without one.
	Link Link
}

// A Link is the connection between a store and its server.
type Link interface {
	// Hold keeps the first write that is sent from now on from reaching the server, and lets everything else pass. It is
	// unanswered until the caller gives up. Held is closed when the write is kept; Deliver, called after that, lets it arrive
	// at last and returns when the server has decided it.
	Hold() (held <-chan struct{}, deliver func())
	// Mute loses the answer to the first write that is sent from now on, which reaches the server. Muted is closed when the
	// server has decided it.
	Mute() (muted <-chan struct{})
	// Cut breaks the connection until heal is called.
	Cut() (heal func())
}

// Damage is what can be wrong with a stored mark.
type Damage int

// The damages.
const (
	NewerVersion Damage = iota
	OtherPartitions
	Garbage
)

// JSON returns a mark damaged in this way, in the form that checkpoint.EncodeMark gives marks.
func (d Damage) JSON() []byte {
	switch d {
	case NewerVersion:
		return []byte(`{"v":2,"n":{"from":256,"to":512},"position":"kept differently"}`)
	case OtherPartitions:
		return []byte(`{"v":1,"n":4,"position":{"t":1700000000,"i":1},"epoch":"1.1","at":"2023-11-14T22:13:20Z"}`)
	case Garbage:
		return []byte("not a mark")
	}
	panic(fmt.Sprintf("damage %d", d))
}

// Code returns what a store calls the damage.
func (d Damage) Code() fault.Code {
	return [...]fault.Code{fault.CheckpointNewer, fault.CheckpointPartitions, fault.CheckpointCorrupt}[d]
}

// Event returns the position of the n-th event of a log, from 1. Four events share each cluster time.
func Event(n int) change.Position {
	return changetest.Event{
		Time:  change.Timestamp{T: 1_700_000_000, I: uint32(n / 4)},
		Index: uint64(n % 4),
		ID:    int64(n),
	}.Position()
}

// MarkAt returns a mark of the term at a position.
func MarkAt(term change.Term, position change.Position) checkpoint.Mark {
	return checkpoint.Mark{
		Partition:   term.Partition,
		Position:    position,
		Fingerprint: "5f1e9a",
		Epoch:       term.Epoch,
		At:          time.Date(2024, time.May, 17, 8, 30, 0, 123_000_000, time.UTC),
		By:          "node-a",
		Reason:      checkpoint.ReasonInterval,
	}
}

// harness adds to a Harness what the cases say over and over.
type harness struct {
	Harness
	*testing.T
}

// term begins a term of a partition and claims it.
func (h harness) term(p change.Partition) change.Term {
	h.Helper()
	return h.terms(p)[0]
}

// terms begins terms of partitions and claims them.
func (h harness) terms(partitions ...change.Partition) []change.Term {
	h.Helper()
	terms := h.Begin(partitions...)
	if _, err := h.Store.Claim(h.Context(), terms); err != nil {
		h.Fatalf("claim: %v", err)
	}
	return terms
}

// save saves one mark.
func (h harness) save(m checkpoint.Mark) error {
	h.Helper()
	results := h.Store.Save(h.Context(), []checkpoint.Mark{m})
	if len(results) != 1 {
		h.Fatalf("%d results for one mark", len(results))
	}
	return results[0]
}

// mustSave saves one mark.
func (h harness) mustSave(m checkpoint.Mark) {
	h.Helper()
	if err := h.save(m); err != nil {
		h.Fatalf("save %s: %v", m.Position, err)
	}
}

// position returns where the stored mark of a partition stands.
func (h harness) position(p change.Partition) change.Position {
	h.Helper()
	m, err := h.Store.Load(h.Context(), p)
	if err != nil {
		h.Fatalf("load: %v", err)
	}
	return m.Position
}

// wantAt checks where the stored mark of a partition stands.
func (h harness) wantAt(p change.Partition, want change.Position) {
	h.Helper()
	if got := h.position(p); got.Compare(want) != 0 || !slices.Equal(got.Token, want.Token) {
		h.Fatalf("the mark stands at %s, want %s", got, want)
	}
}
