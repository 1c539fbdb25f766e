package member

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
)

// reclaimPause is the least time between two claims of one partition: a term that ends again and
// again must not cost its registry more than that.
const reclaimPause = time.Second

// A termSet is the terms of a claim. They end together when owned ends, and one by one.
type termSet struct {
	owned context.Context //nolint:containedctx // the terms' contexts are made of it
	clock func() time.Duration
	until atomic.Int64  // the reading of the clock, in nanoseconds, up to which the claim can be relied on
	Ended chan struct{} // holds one signal when a term has been given back

	mu struct {
		sync.Mutex
		tenures map[change.Partition]*termState
	}
}

// A termState is the latest term of one partition.
type termState struct {
	term  change.Term
	epoch change.Epoch
	end   context.CancelCauseFunc
	over  bool          // its context has ended
	back  bool          // whoever served it is done with it
	begun time.Duration // the reading of the clock when the partition was claimed
	again time.Duration // the reading before which the partition is not claimed again

	offered bool // to other nodes
	given   bool // its key has been returned
}

// newTermSet makes a termSet whose terms end with owned, by a clock that counts suspension.
func newTermSet(owned context.Context, clock func() time.Duration, t leaseDeadline) *termSet {
	h := &termSet{owned: owned, clock: clock, Ended: make(chan struct{}, 1)}
	h.Rely(t)
	h.mu.tenures = make(map[change.Partition]*termState)
	return h
}

// Rely takes over how long the claim can be relied on.
func (h *termSet) Rely(t leaseDeadline) { h.until.Store(int64(t.Until)) }

// Trusted reports whether the claim can be relied on now.
func (h *termSet) Trusted() bool { return h.clock() < time.Duration(h.until.Load()) }

// Begin makes terms of partitions that were claimed at now. Of one epoch there is one term, whoever
// has claimed it, and one of each partition.
func (h *termSet) Begin(partitions []change.Partition, epochs []change.Epoch, now time.Duration) []change.Term {
	h.mu.Lock()
	defer h.mu.Unlock()
	terms := make([]change.Term, len(partitions))
	for i, p := range partitions {
		if t := h.mu.tenures[p]; t != nil && !t.over {
			if t.epoch == epochs[i] {
				terms[i] = t.term
				continue
			}
			t.end(change.ErrTermLost) // it was taken, and has come back before anybody looked
		}
		ctx, end := context.WithCancelCause(h.owned)
		terms[i] = change.Term{Partition: p, Epoch: epochs[i], Context: ctx, Trusted: h.Trusted}
		h.mu.tenures[p] = &termState{term: terms[i], epoch: epochs[i], end: end, begun: now, again: now + reclaimPause}
	}
	return terms
}

// Window returns terms that are over after d or with the claim. Those of another claim are returned
// as they are, over.
func (h *termSet) Window(terms []change.Term, d time.Duration) []change.Term {
	ctx, end := context.WithTimeoutCause(h.owned, d, change.ErrTermLost)
	context.AfterFunc(ctx, end)
	window := make([]change.Term, len(terms))
	for i, term := range terms {
		if window[i] = term; h.Had(term.Partition, term.Epoch) {
			window[i].Context, window[i].Trusted = ctx, h.Trusted //nolint:fatcontext // one for all of them
		}
	}
	return window
}

// Had reports whether the latest term of a partition is or was of an epoch.
func (h *termSet) Had(p change.Partition, e change.Epoch) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.mu.tenures[p]
	return t != nil && t.epoch == e
}

// Return takes a term back from whoever served it. One that is not the latest of its partition is
// left out.
func (h *termSet) Return(term change.Term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.mu.tenures[term.Partition]
	if t == nil || t.epoch != term.Epoch || t.back {
		return
	}
	t.back, t.over = true, true
	t.end(change.ErrTermLost)
	select {
	case h.Ended <- struct{}{}:
	default:
	}
}

// Postpone puts the next claim of partitions off.
func (h *termSet) Postpone(partitions []change.Partition, until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range partitions {
		if t := h.mu.tenures[p]; t != nil {
			t.again = until
		}
	}
}
