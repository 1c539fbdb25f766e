package delivery

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/mongostream/streamer/change"
)

// Limit makes the session deliver attached partitions only under terms. When a term is over, the
// session loses its partition, and the next batch says so. Partitions that the subscriber attaches
// again meanwhile, or detaches, are not limited. A session that cannot inform its subscriber,
// because that is not Detachable, keeps them.
func (s *Session) Limit(terms []change.Term) {
	canInform := s.cfg.Detachable && s.cfg.Attached && !s.cfg.Owner
	if !canInform || len(terms) == 0 {
		return
	}
	s.do(func(s *stream) {
		attached := *s.attached.Load()
		s.mu.Lock()
		var limited []change.Term
		for _, term := range terms {
			_, has := attached[term.Partition]
			if _, before := s.mu.windows[term.Partition]; !has || before {
				continue
			}
			s.mu.windows[term.Partition] = &window{term: term, joined: s.mu.joined[term.Partition].seq + 1, until: math.MaxUint64}
			limited = append(limited, term)
		}
		s.limited.Store(len(s.mu.windows) > 0)
		s.mu.Unlock()
		for _, term := range slices.CompactFunc(limited, func(a, b change.Term) bool { return a.Context == b.Context }) {
			context.AfterFunc(term.Context, func() { s.do((*stream).endWindows) })
		}
	})
}

// endWindows removes the partitions whose windows are over, and reports them in a batch.
func (s *stream) endWindows() {
	attached := maps.Clone(*s.attached.Load())
	some := false
	s.mu.Lock()
	for p, w := range s.mu.windows {
		if !w.removed && w.term.Err() != nil {
			w.removed, some = true, true
			delete(attached, p)
		}
	}
	s.mu.Unlock()
	if !some {
		return
	}
	s.attached.Store(&attached)
	at := s.at()
	s.queue(at)
	s.open = &Batch{}
	s.queue(at)
}

// reopen ends the window of a partition that the subscriber attaches again or detaches. Events that
// the window has withheld until now stay withheld, because they come again. The caller holds the
// mutex.
func (s *Session) reopen(p change.Partition) {
	switch w := s.mu.windows[p]; {
	case w == nil:
	case w.removed || w.told > 0:
		w.removed = true
		w.until = s.mu.last
	default:
		delete(s.mu.windows, p)
	}
}

// closeWindows lists in a batch, before its delivery, the partitions that the session has lost, and
// returns those whose events must not be delivered with it.
func (s *Session) closeWindows(b *Batch) (over map[change.Partition]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over = make(map[change.Partition]bool)
	for p, w := range s.mu.windows {
		switch {
		case w.told == 0 && (w.removed || w.term.Err() != nil):
			s.cutAfter(p, b.Seq-1)
			fallthrough
		case w.told > 0 && w.told <= w.joined && b.Seq > w.joined: // the batch that attaches the partition came after that
			w.told = b.Seq
			b.Detached = append(b.Detached, p)
		}
		over[p] = w.told > 0 && b.Seq <= w.until
		if w.told > 0 && b.Seq >= w.until {
			delete(s.mu.windows, p)
		}
	}
	slices.Sort(b.Detached)
	s.limited.Store(len(s.mu.windows) > 0)
	return over
}

// Prune removes events that may not be handed over: those whose term or window has ended, or that
// were queued before their partition was attached under its current term. The transport calls it
// right before it hands over a batch. The next owner, or later batches, deliver the removed events.
func (s *Session) Prune(b *Batch) {
	switch {
	case s.cfg.Owner:
		over := make(map[change.Partition]bool)
		b.prune(func(e *Event) bool {
			is, looked := over[e.Partition]
			if !looked {
				_, hands := s.Term(e.Partition, b.Seq)
				is = !hands
				over[e.Partition] = !hands
			}
			return is
		})
	case s.limited.Load():
		over := s.closeWindows(b)
		b.prune(func(e *Event) bool { return over[e.Partition] && !e.Keyless })
	}
}

// Term returns the term under which events of a partition in a batch may be handed over, false if
// they may not.
func (s *Session) Term(p change.Partition, seq uint64) (change.Term, bool) {
	term, there := (*s.attached.Load())[p]
	if !there || term.Err() != nil {
		return term, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cut, leaves := s.mu.cuts[p]
	return term, seq > s.mu.joined[p].seq && (!leaves || seq <= cut.seq)
}
