package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/streamer"
)

// A shelf is where the cluster's marks are kept: beside the roster, so that a mark is compared with its owner in the moment of the write.
type shelf struct {
	world *world
	gaps  *checkpoint.Memory

	mu struct {
		sync.Mutex

		marks  map[change.Partition]checkpoint.Mark
		failed bool // nothing can be written
	}
}

func newShelf(w *world) *shelf {
	s := &shelf{world: w, gaps: checkpoint.NewMemory(w.partitions)}
	s.mu.marks = map[change.Partition]checkpoint.Mark{}
	return s
}

var errAway = errors.New("the store of marks is away")

func (s *shelf) fail(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.failed = on
}

// mark returns a partition's mark.
func (s *shelf) mark(p change.Partition) checkpoint.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.marks[p]
}

// save takes marks whose epochs are those of their owners.
func (s *shelf) save(from *process, marks []checkpoint.Mark) []error {
	results := make([]error, len(marks))
	s.world.roster.Within(func(owners []roster.Owner) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, m := range marks {
			owner := owners[m.Partition]
			switch {
			case s.mu.failed:
				results[i] = errAway
			case owner.Epoch != m.Epoch && !s.world.breaks.fence:
				results[i] = fmt.Errorf("partition %d, epoch %s, owner %s: %w", m.Partition, m.Epoch, owner.Epoch, checkpoint.ErrFenced)
				s.world.count(func(f *figures) { f.refused++ })
				s.world.say("mark of partition %d refused: %s has epoch %s, owned by %s under %s", m.Partition, from.id, m.Epoch, owner.Process, owner.Epoch)
			case s.world.breaks.release && m.Reason == checkpoint.ReasonHandoff:
			case m.Position.After(s.mu.marks[m.Partition].Position):
				s.world.accepted(from, m, owner)
				m.Position = m.Position.Clone()
				s.mu.marks[m.Partition] = m
			}
		}
	})
	return results
}

// claim reads the marks of terms that own their partitions.
func (s *shelf) claim(terms []change.Term) (marks []checkpoint.Mark, err error) {
	s.world.roster.Within(func(owners []roster.Owner) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mu.failed {
			err = errAway
			return
		}
		for _, term := range terms {
			if owner := owners[term.Partition]; owner.Epoch != term.Epoch {
				err = fmt.Errorf("partition %d, epoch %s, owner %s: %w", term.Partition, term.Epoch, owner.Epoch, checkpoint.ErrFenced)
				return
			}
			m := s.mu.marks[term.Partition]
			m.Partition = term.Partition
			marks = append(marks, m)
		}
	})
	return marks, err
}

// accepted looks at a mark that is about to be taken.
func (w *world) accepted(from *process, m checkpoint.Mark, owner roster.Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.figures.marks++
	p := m.Partition
	if owner.Epoch != m.Epoch || owner.Process != from.id {
		w.complain("partition %d: a mark of %s under epoch %s is accepted, the owner is %s under %s", p, from.id, m.Epoch, owner.Process, owner.Epoch)
	}
	if _, last := w.source.Reach(); m.Position.Time.Compare(last) > 0 {
		w.complain("partition %d: a mark at %s, the log is at %s", p, m.Position.Time, last)
	}
	n := w.upTo(p, m.Position)
	if sunk := w.mu.sunk[p]; n > sunk {
		w.complain("partition %d: the mark of %s passes %d events, %d have been acknowledged to nodes", p, from.id, n, sunk)
	}
	for s := range from.seats() {
		if acked := s.holds(p); acked >= 0 && n > acked {
			w.complain("partition %d: the mark of %s passes %d events, %s has acknowledged %d", p, from.id, n, s.gateway.name, acked)
		}
	}
}

// marks are the marks as a process reaches them.
type marks struct {
	*network
	*shelf

	process *process
	errors  *atomic.Int64 // saves without an answer
}

// reach returns the marks' own error where they do not answer this process alone.
func (m marks) reach() error {
	if m.process.markless.Load() {
		return errAway
	}
	return nil
}

var _ streamer.Marks = marks{}

// Save implements [checkpoint.Store].
func (m marks) Save(ctx context.Context, marks []checkpoint.Mark) []error {
	results, err := asked(ctx, m.network, func(context.Context) ([]error, error) {
		if err := m.reach(); err != nil {
			return nil, err
		}
		return m.save(m.process, marks), nil
	})
	if err != nil {
		results = slices.Repeat([]error{err}, len(marks))
	}
	if err := errors.Join(results...); err != nil {
		m.errors.Add(1)
	}
	return results
}

// Claim implements [checkpoint.Claimer].
func (m marks) Claim(ctx context.Context, terms []change.Term) ([]checkpoint.Mark, error) {
	return asked(ctx, m.network, func(context.Context) ([]checkpoint.Mark, error) {
		if err := m.reach(); err != nil {
			return nil, err
		}
		return m.claim(terms)
	})
}

// Load, List and Delete implement [checkpoint.Store]; nodes do not need them.
func (m marks) Load(context.Context, change.Partition) (checkpoint.Mark, error) {
	return checkpoint.Mark{}, checkpoint.ErrNoMark
}

func (m marks) List(context.Context) ([]checkpoint.Mark, error) { return nil, nil }

func (m marks) Delete(context.Context, change.Partition) error { return nil }

// AddGap implements [checkpoint.GapKeeper]: there is nothing to be told, because the log keeps everything.
func (m marks) AddGap(ctx context.Context, g checkpoint.Gap) error {
	m.world.wrong("partition %d: a loss of %s to %s is recorded", g.Partition, g.From, g.To)
	return m.gaps.AddGap(ctx, g)
}

// Gaps implements [checkpoint.GapKeeper].
func (m marks) Gaps(ctx context.Context) ([]checkpoint.Gap, error) { return m.gaps.Gaps(ctx) }
