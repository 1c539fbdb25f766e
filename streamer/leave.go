package streamer

import (
	"context"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/wake"
)

// Term returns the term under which events of a partition in a batch may be delivered, false if
// they may not: the term has ended, the partition was attached again, or it moves to another node.
// A transport that delivers events later than their batch calls it again.
func (s *Shared) Term(p change.Partition, seq uint64) (change.Term, bool) {
	return s.session.Term(p, seq)
}

// Lease returns the term under which events of a partition in a batch may be handed over, as Term
// does, and the incarnation of the checkpoint that they belong to.
func (s *Shared) Lease(p change.Partition, seq uint64) (term change.Term, incarnation string, ok bool) {
	s.mu.Lock()
	incarnation = s.mu.incarnations[p] // before the term: a rewind ends earlier deliveries, and then changes the incarnation
	s.mu.Unlock()
	term, ok = s.session.Term(p, seq)
	return term, incarnation, ok
}

// AwaitPlaces waits until the entries after a rewind have the incarnation of its checkpoint. The
// caller has received the rewind, and nothing after it.
func (s *Shared) AwaitPlaces(ctx context.Context) error {
	select {
	case s.placing <- struct{}{}:
		<-s.placing
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stall sets whether the subscriber will acknowledge nothing until an operator acts. Meanwhile no
// drain waits for it.
func (s *Shared) Stall(stalled bool) {
	s.stalled.Store(stalled)
	wake.Notify(s.passed)
}

// handOut stops handing out events of partitions after the batches that subscribers have received,
// and waits until these are acknowledged.
func (n *Node) handOut(ctx context.Context, shared []*Shared, leaving []change.Partition) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.FlushTimeout)
	defer cancel()
	lasts := make([]uint64, len(shared))
	for i, s := range shared {
		lasts[i] = s.session.Cut(leaving)
	}
	for i, s := range shared {
		if !s.awaitAck(ctx, lasts[i]) {
			n.logger.Warn("events were not acknowledged in time, the next owner redelivers them", "subscriber", s.name, "partitions", len(leaving))
		}
	}
}

// awaitAck waits until the batches up to seq are acknowledged. It returns false if the subscriber
// is stalled, or the context ends before.
func (s *Shared) awaitAck(ctx context.Context, seq uint64) bool {
	for !s.session.HasAcked(seq) {
		if s.stalled.Load() {
			return false
		}
		select {
		case <-s.passed:
		case <-s.session.Done():
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}
