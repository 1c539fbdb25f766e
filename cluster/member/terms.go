package member

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
)

// reclaimPause is the least time between two claims of one partition. It bounds the load on the
// registry when a term keeps ending.
const reclaimPause = time.Second

// A termSet is the set of a claim's terms. They end one by one, or together when owned ends.
type termSet struct {
	owned context.Context //nolint:containedctx // the parent of the terms' contexts
	clock func() time.Duration
	until atomic.Int64  // the reading of the clock, in nanoseconds, until which the claim can be relied on
	Ended chan struct{} // holds one signal when a term has been returned

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
	back  bool          // its server has returned it
	begun time.Duration // the reading of the clock when the partition was claimed
	again time.Duration // the reading before which the node does not claim the partition again

	served  bool // the node has accepted it
	offered bool // to other nodes
	given   bool // its key has been returned
}

// newTermSet makes a termSet whose terms end with owned, on a clock that includes suspension.
func newTermSet(owned context.Context, clock func() time.Duration, t leaseDeadline) *termSet {
	h := &termSet{owned: owned, clock: clock, Ended: make(chan struct{}, 1)}
	h.Rely(t)
	h.mu.tenures = make(map[change.Partition]*termState)
	return h
}

// Rely sets how long the claim can be relied on.
func (h *termSet) Rely(t leaseDeadline) { h.until.Store(int64(t.Until)) }

// Trusted reports whether the claim can be relied on now.
func (h *termSet) Trusted() bool { return h.clock() < time.Duration(h.until.Load()) }

// Begin makes the terms of partitions that were claimed at now. Each partition has one term, and
// each epoch of it one, however often it was claimed.
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
			t.end(change.ErrTermLost) // it was taken, and came back before the next view
		}
		ctx, end := context.WithCancelCause(h.owned)
		terms[i] = change.Term{Partition: p, Epoch: epochs[i], Context: ctx, Trusted: h.Trusted}
		h.mu.tenures[p] = &termState{term: terms[i], epoch: epochs[i], end: end, begun: now, again: now + reclaimPause}
	}
	return terms
}

// Window returns terms that end after d or with the claim. It returns terms of another claim
// unchanged; they have ended.
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

// Return takes a term back from its server. It ignores a term that is not the latest of its
// partition.
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

// Postpone delays the next claim of partitions.
func (h *termSet) Postpone(partitions []change.Partition, until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range partitions {
		if t := h.mu.tenures[p]; t != nil {
			t.again = until
		}
	}
}
