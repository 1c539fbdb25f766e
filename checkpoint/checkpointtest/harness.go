package checkpointtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// Partitions is the number of partitions of a harness.
const Partitions = 256

// Subscriber is the shared subscriber of most cases.
const Subscriber = "stdout"

// A Store is the complete interface of a checkpoint store.
type Store interface {
	checkpoint.Store
	checkpoint.Claimer
	checkpoint.OriginKeeper
	checkpoint.GapKeeper
	checkpoint.Rewinder
	checkpoint.Adopter
}

// A Harness is an empty store with its environment. Its functions fail the test if they fail.
type Harness struct {
	// Store reaches its server through Link, if there is one.
	Store Store
	// Begin begins a term of each partition, with epochs higher than all earlier ones, under the
	// current origin; without one it creates Origin("c1"). The suite claims the terms.
	Begin func(partitions ...change.Partition) []change.Term
	// Reopen opens the same checkpoints as another process would: without any cached state, and
	// without the Link.
	Reopen func() Store
	// Put stores bytes as the checkpoint of a key. It is nil for a store that has no stored form.
	Put func(k checkpoint.Key, stored []byte)
	// Fill stores the checkpoints of exclusive subscribers, in this order, faster than claims do.
	// It is nil for a store without a faster way.
	Fill func(all []checkpoint.Checkpoint)
	// PutGap stores bytes under an id of the gap log. It is nil for a store that has no stored
	// form.
	PutGap func(id string, stored []byte)
	// Raw returns the stored bytes of a key's checkpoint, nil if there are none.
	Raw func(k checkpoint.Key) []byte
	// Link is the connection of Store to its server, nil for a store without one.
	Link Link
}

// A Link is the connection between a store and its server.
type Link interface {
	// Hold delays the next write on its way to the server, and lets all other requests pass. The
	// write gets no reply until the caller gives up. held is closed when the write is held.
	// deliver, called after that, sends the write to the server and returns when the server has
	// processed it.
	Hold() (held <-chan struct{}, deliver func())
	// Mute lets the next write reach the server, and loses its reply. muted is closed when the
	// server has processed the write.
	Mute() (muted <-chan struct{})
	// Cut breaks the connection until heal is called.
	Cut() (heal func())
}

// Damage is a kind of damage to a stored checkpoint.
type Damage int

// The damages.
const (
	NewerVersion Damage = iota
	OtherPartitions
	Garbage
	OtherKey
)

// Of returns a checkpoint of a key with this damage, encoded as in a store.
func (d Damage) Of(k checkpoint.Key) []byte {
	if d == OtherKey {
		k.Subscriber += "-2"
	}
	name, err := json.Marshal(k.Subscriber)
	if err != nil {
		panic(err)
	}
	owner := `"claim":{"number":1,"process":"p","started":"2023-11-14T22:13:20Z","node":"a"}`
	if k.Shared {
		owner = fmt.Sprintf(`"partition":%d,"epoch":"1.1"`, k.Partition)
	}
	switch d {
	case NewerVersion:
		return []byte(`{"v":2,"n":{"from":256,"to":512},"position":"kept differently"}`)
	case OtherPartitions:
		return fmt.Appendf(nil, `{"v":1,"n":4,"subscriber":%s,%s,"position":{"t":1700000000,"i":1},"at":"2023-11-14T22:13:20Z"}`, name, owner)
	case OtherKey:
		return fmt.Appendf(nil, `{"v":1,"n":256,"subscriber":%s,%s,"position":{"t":1700000000,"i":1},"at":"2023-11-14T22:13:20Z"}`, name, owner)
	case Garbage:
		return []byte("not a checkpoint")
	}
	panic(fmt.Sprintf("damage %d", d))
}

// Code returns the fault code of the damage.
func (d Damage) Code() fault.Code {
	return [...]fault.Code{fault.CheckpointNewer, fault.CheckpointPartitions, fault.CheckpointCorrupt, fault.CheckpointCorrupt}[d]
}

// Event returns the position of the n-th event of a log, from 1. Four events share each cluster
// time.
func Event(n int) change.Position {
	return changetest.Event{
		Time:  change.Timestamp{T: 1_700_000_000, I: uint32(n / 4)},
		Index: uint64(n % 4),
		ID:    int64(n),
	}.Position()
}

// began is the start of the suite, by its own clock.
var began = time.Date(2024, time.May, 17, 8, 30, 0, 123_000_000, time.UTC) //nolint:gochecknoglobals // a constant

// Shared returns the checkpoint of the suite's shared subscriber at a position, saved by a term.
func Shared(term change.Term, position change.Position) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		Key:         SharedKey(term.Partition),
		Position:    position,
		Partitions:  Partitions,
		Fingerprint: "5f1e9a",
		Epoch:       term.Epoch,
		At:          began,
		By:          "node-a",
		Reason:      checkpoint.ReasonInterval,
	}
}

// SharedKey is the key of the suite's shared subscriber in a partition.
func SharedKey(p change.Partition) checkpoint.Key {
	return checkpoint.Key{Subscriber: Subscriber, Shared: true, Partition: p}
}

// Exclusive returns the checkpoint of an exclusive subscriber at a position, saved under a claim.
func Exclusive(subscriber string, c checkpoint.Claim, position change.Position) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		Key:         checkpoint.Key{Subscriber: subscriber},
		Position:    position,
		Partitions:  Partitions,
		Fingerprint: "5f1e9a",
		Claim:       c,
		At:          began,
		By:          "node-a",
		Reason:      checkpoint.ReasonInterval,
	}
}

// harness adds helpers to a Harness.
type harness struct {
	Harness
	*testing.T
}

// create writes the origin.
func (h harness) create() checkpoint.Origin {
	h.Helper()
	o, err := h.Store.Create(h.Context(), Origin("c1"))
	if err != nil {
		h.Fatalf("create: %v", err)
	}
	return o
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
	h.claimTerms(terms)
	return terms
}

// claimTerms claims terms for the shared subscriber.
func (h harness) claimTerms(terms []change.Term) []checkpoint.Checkpoint {
	h.Helper()
	claimed, err := h.Store.ClaimTerms(h.Context(), Subscriber, terms)
	if err != nil || len(claimed) != len(terms) {
		h.Fatalf("claimed %d of %d, %v", len(claimed), len(terms), err)
	}
	return claimed
}

// process is the claim of the n-th process of a subscriber, which started n minutes after the suite
// began.
func process(n int) checkpoint.Claim {
	return checkpoint.Claim{Process: fmt.Sprintf("process-%d", n), Started: began.Add(time.Duration(n) * time.Minute), Node: "node-a", By: "ann"}
}

// claim claims the name of a subscriber for its n-th process; if it has no checkpoint it begins at
// Event(1). The checkpoint has the claim.
func (h harness) claim(subscriber string, n int) checkpoint.Checkpoint {
	h.Helper()
	c, err := h.Store.ClaimName(h.Context(), process(n), first(subscriber))
	if err != nil {
		h.Fatalf("claim %q for process %d: %v", subscriber, n, err)
	}
	return c
}

// first returns the first checkpoint of a subscriber.
func first(subscriber string) checkpoint.Checkpoint {
	c := Exclusive(subscriber, checkpoint.Claim{}, Event(1))
	c.Reason = checkpoint.ReasonBegin
	return c
}

// save saves one checkpoint.
func (h harness) save(c checkpoint.Checkpoint) error {
	h.Helper()
	return h.saveTo(h.Store, c)
}

func (h harness) saveTo(s Store, c checkpoint.Checkpoint) error {
	h.Helper()
	results := s.Save(h.Context(), []checkpoint.Checkpoint{c})
	if len(results) != 1 {
		h.Fatalf("%d results for one checkpoint", len(results))
	}
	return results[0]
}

// mustSave saves one checkpoint.
func (h harness) mustSave(c checkpoint.Checkpoint) {
	h.Helper()
	if err := h.save(c); err != nil {
		h.Fatalf("save %s: %v", c.Position, err)
	}
}

func (h harness) wantError(what string, want, err error) {
	h.Helper()
	if !errors.Is(err, want) {
		h.Errorf("%s gave %v, want %v", what, err, want)
	}
}

func (h harness) wantFenced(what string, err error) {
	h.Helper()
	h.wantError(what, checkpoint.ErrFenced, err)
}

// find returns the checkpoint of a key, and whether there is one.
func (h harness) find(k checkpoint.Key) (checkpoint.Checkpoint, bool) {
	h.Helper()
	all, err := h.Store.Load(h.Context(), k.Subscriber)
	if err != nil {
		h.Fatalf("load: %v", err)
	}
	i := slices.IndexFunc(all, func(c checkpoint.Checkpoint) bool { return c.Key == k })
	if i < 0 {
		return checkpoint.Checkpoint{}, false
	}
	return all[i], true
}

// load returns the checkpoint of a key.
func (h harness) load(k checkpoint.Key) checkpoint.Checkpoint {
	h.Helper()
	c, there := h.find(k)
	if !there {
		h.Fatalf("%s has no checkpoint", k)
	}
	return c
}

// wantAt checks the position of the shared subscriber in a partition.
func (h harness) wantAt(p change.Partition, want change.Position) {
	h.Helper()
	if got := h.load(SharedKey(p)).Position; got.Compare(want) != 0 || !slices.Equal(got.Token, want.Token) {
		h.Fatalf("the checkpoint is at %s, want %s", got, want)
	}
}

// want checks a complete checkpoint.
func (h harness) want(want checkpoint.Checkpoint) {
	h.Helper()
	if diff := cmp.Diff(want, h.load(want.Key)); diff != "" {
		h.Errorf("the checkpoint of %s is otherwise (-want +got):\n%s", want.Key, diff)
	}
}

// wantNone checks that there is no checkpoint.
func (h harness) wantNone(k checkpoint.Key) {
	h.Helper()
	if c, there := h.find(k); there {
		h.Errorf("%s has a checkpoint: %+v", k, c)
	}
}

// all returns all partitions.
func all() []change.Partition {
	partitions := make([]change.Partition, Partitions)
	for i := range partitions {
		partitions[i] = change.Partition(i)
	}
	return partitions
}
