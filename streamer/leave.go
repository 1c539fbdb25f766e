package streamer

import (
	"context"
	"slices"

	"github.com/mongostream/streamer/change"
)

// Term returns the term under which events of a partition in a batch may be handed over, false if they may not: the term has ended, the
// partition was attached anew, or it moves to another node. A transport that hands events over later than their batch asks again.
func (s *Shared) Term(p change.Partition, seq uint64) (change.Term, bool) {
	return s.session.term(p, seq)
}

// Stall says whether the subscriber acknowledges nothing of what it has received before somebody acts. Nobody waits for it then.
func (s *Shared) Stall(stalled bool) {
	s.stalled.Store(stalled)
	notify(s.passed)
}

// handOut stops handing out events of partitions after the batches that subscribers have received, and waits until these are acknowledged.
func (n *Node) handOut(ctx context.Context, shared []*Shared, leaving []change.Partition) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.FlushTimeout)
	defer cancel()
	lasts := make([]uint64, len(shared))
	for i, s := range shared {
		lasts[i] = s.session.cut(leaving)
	}
	for i, s := range shared {
		if !s.awaitAck(ctx, lasts[i]) {
			n.logger.Warn("events were not acknowledged in time, the next owner redelivers them", "subscriber", s.name, "partitions", len(leaving))
		}
	}
}

// awaitAck waits until the batches up to seq are acknowledged. It returns false if the subscriber is stalled, or the context ends before.
func (s *Shared) awaitAck(ctx context.Context, seq uint64) bool {
	for !s.session.hasAcked(seq) {
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

// cut ends what is handed over of partitions with the last batch that was received, and returns its number. Their checkpoints do not pass it.
func (s *Session) cut(partitions []change.Partition) (last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last = s.mu.given
	end, reading := s.mu.considered, s.mu.reading
	if i := slices.IndexFunc(s.mu.sent, func(b sent) bool { return b.seq > last }); i >= 0 {
		end, reading = s.mu.sent[i].before, s.mu.sent[i].reading
	}
	if s.mu.cuts == nil {
		s.mu.cuts = make(map[change.Partition]attachment)
	}
	for _, p := range partitions {
		s.mu.cuts[p] = attachment{at: reading.place(p, end), seq: last}
	}
	return last
}

// hasAcked reports whether the batches up to seq are acknowledged.
func (s *Session) hasAcked(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.sent) == 0 || s.mu.sent[0].seq > seq
}
