package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/streamer"
)

// sink is the name of the subscriber that all nodes serve together.
const sink = "sink"

// A shelf is where the cluster's checkpoints are kept. Those of the sink are fenced as the seed
// says: by the owner's key in the moment of the write, or by the epoch that has claimed them.
type shelf struct {
	*checkpointtest.Memory

	world *world
	keyed bool // fenced by the owner's key

	mu struct {
		sync.Mutex
		failed bool // nothing can be read or written
	}
}

func newShelf(w *world, keyed bool) *shelf {
	s := &shelf{Memory: checkpointtest.NewMemory(w.partitions), world: w, keyed: keyed}
	if _, err := s.Create(context.Background(), w.origin); err != nil {
		panic(err)
	}
	return s
}

var errAway = errors.New("the store of checkpoints is away")

func (s *shelf) fail(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.failed = on
}

// stands returns the checkpoint of a key, zero where there is none.
func (s *shelf) stands(k checkpoint.Key) checkpoint.Checkpoint {
	all, err := s.Load(context.Background(), k.Subscriber)
	if err != nil {
		panic(err)
	}
	for _, c := range all {
		if c.Key == k {
			return c
		}
	}
	return checkpoint.Checkpoint{Key: k}
}

// within has do carried out at one moment of the roster and the shelf.
func (s *shelf) within(do func(owners []cluster.Owner) error) (err error) {
	s.world.roster.Within(func(owners []cluster.Owner) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err = errAway; !s.mu.failed {
			err = do(owners)
		}
	})
	return err
}

// save takes one checkpoint.
func (s *shelf) save(from *process, c checkpoint.Checkpoint) error {
	w := s.world
	return s.within(func(owners []cluster.Owner) error {
		var owner cluster.Owner
		if c.Shared {
			owner = owners[c.Partition]
		}
		fenced := c.Shared && s.keyed && owner.Epoch != c.Epoch
		if fenced && !w.breaks.fence {
			w.refused(from, c, fmt.Sprintf("owned by %s under %s", owner.Process, owner.Epoch))
			return fmt.Errorf("%s, epoch %s, owner %s: %w", c.Key, c.Epoch, owner.Epoch, checkpoint.ErrFenced)
		}
		if w.breaks.release && c.Reason == checkpoint.ReasonHandoff {
			return nil
		}
		before := s.stands(c.Key)
		if w.breaks.ahead {
			_, last := w.source.Reach()
			c.Position, c.Positions = change.At(last), nil
		}
		if w.breaks.generation {
			c.Generation = max(c.Generation, before.Generation)
		}
		if fenced || w.breaks.fence && c.Shared {
			_, _ = s.Memory.ClaimTerms(context.Background(), sink, []change.Term{{Partition: c.Partition, Epoch: c.Epoch}}) // as if it were his
		}
		err := s.Memory.Save(context.Background(), []checkpoint.Checkpoint{c})[0]
		switch {
		case errors.Is(err, checkpoint.ErrFenced), errors.Is(err, checkpoint.ErrRewound):
			w.refused(from, c, err.Error())
		case err == nil:
			w.accepted(from, before, c, s.stands(c.Key), owner)
		}
		return err
	})
}

func (w *world) refused(from *process, c checkpoint.Checkpoint, why string) {
	w.count(func(f *figures) { f.refused++ })
	w.say("checkpoint %s of %s refused, epoch %s, generation %d: %s", c.Key, from.id, c.Epoch, c.Generation, why)
}

// accepted looks at a checkpoint that was taken.
func (w *world) accepted(from *process, before, c, after checkpoint.Checkpoint, owner cluster.Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.figures.checkpoints++
	if c.Shared && w.shelf.keyed && (owner.Epoch != c.Epoch || owner.Process != from.id) {
		w.complain("a checkpoint %s of %s under epoch %s is accepted, the owner is %s under %s", c.Key, from.id, c.Epoch, owner.Process, owner.Epoch)
	}
	if c.Shared && c.Epoch.Compare(before.Epoch) < 0 {
		w.complain("a checkpoint %s of %s under epoch %s is accepted after one of %s", c.Key, from.id, c.Epoch, before.Epoch)
	}
	if after.Generation < before.Generation || c.Generation < before.Generation {
		w.complain("a checkpoint %s of generation %d is accepted, there was %d", c.Key, c.Generation, before.Generation)
	}
	_, last := w.source.Reach()
	at := func(p change.Partition, kind string, t *track, to, had change.Position, acked int) {
		if to.Time.Compare(last.Next()) > 0 {
			w.complain("a checkpoint %s at %s, the log is at %s", c.Key, to.Time, last)
		}
		if after.Generation == before.Generation && had.After(to) {
			w.complain("the checkpoint %s goes back in %s %d, from %s to %s", c.Key, kind, p, had, to)
		}
		if n := t.upTo(to); n > acked {
			w.complain("the checkpoint %s of %s, generation %d, passes %d events of %s %d, %d have been acknowledged", c.Key, from.id, c.Generation, n, kind, p, acked)
		}
	}
	if c.Shared {
		at(c.Partition, "partition", w.mu.sunk[c.Partition], after.Position, before.Position, w.mu.drunk[c.Partition].n)
		return
	}
	g := w.client(c.Subscriber)
	for p := range w.partitions {
		p := change.Partition(p)
		at(p, "partition", w.mu.keyed[p], after.In(p), before.In(p), g.acked[p].n)
	}
	at(0, "no partition", w.mu.keyed[w.partitions], after.Earliest(), before.Earliest(), g.acked[w.partitions].n)
}

// rewind moves a checkpoint back, as an operator does.
func (s *shelf) rewind(k checkpoint.Key, back time.Duration) {
	w := s.world
	_ = s.within(func([]cluster.Owner) error {
		stands := s.stands(k)
		if stands.Position.IsZero() {
			return nil
		}
		to := change.At(change.Timestamp{T: stands.Earliest().Time.T, I: uint32(max(1, int(stands.Earliest().Time.I)-int(back/(10*time.Millisecond))))})
		next, err := s.Rewind(context.Background(), k, to, "operator", "")
		if err != nil {
			w.wrong("%s cannot be rewound: %v", k, err)
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.mu.figures.rewound++
		w.say("%s is moved back to %s, generation %d", k, next.Earliest(), next.Generation)
		if k.Shared {
			w.mu.moved[k.Partition] = true
			w.mu.drunk[k.Partition].rewind(w.mu.sunk[k.Partition].upTo(next.Position))
			return nil
		}
		g := w.client(k.Subscriber)
		g.rewound = next.Generation
		for p := range w.partitions {
			g.acked[p].rewind(w.mu.keyed[p].upTo(next.In(change.Partition(p))))
		}
		g.acked[w.partitions].rewind(w.mu.keyed[w.partitions].upTo(next.Earliest()))
		return nil
	})
}

// checkpoints are those of the shelf as a process reaches them.
type checkpoints struct {
	*network
	*shelf

	process *process
}

// reach returns the store's own error where it does not answer this process alone.
func (c checkpoints) reach() error {
	if c.process.shunned.Load() {
		return errAway
	}
	return nil
}

var _ streamer.Checkpoints = checkpoints{}

// asking is how long a request may take.
const asking = 2 * time.Second

// Save implements [checkpoint.Store].
func (c checkpoints) Save(ctx context.Context, all []checkpoint.Checkpoint) []error {
	c.process.promises(all)
	results, err := asked(ctx, c.network, func(context.Context) ([]error, error) {
		if err := c.reach(); err != nil {
			return nil, err
		}
		results := make([]error, len(all))
		for i := range all {
			results[i] = c.save(c.process, all[i])
		}
		return results, nil
	})
	if err != nil {
		results = slices.Repeat([]error{err}, len(all))
	}
	if errors.Join(results...) != nil {
		c.process.saves.Add(1)
	}
	return results
}

// Load implements [checkpoint.Store].
func (c checkpoints) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	all, err := asked(ctx, c.network, func(ctx context.Context) (all []checkpoint.Checkpoint, err error) {
		if err := c.reach(); err != nil {
			return nil, err
		}
		err = c.within(func([]cluster.Owner) error {
			all, err = c.shelf.Load(ctx, subscriber)
			return err
		})
		return all, err
	})
	c.process.offered(all)
	return all, err
}

// ClaimTerms implements [checkpoint.Claimer].
func (c checkpoints) ClaimTerms(ctx context.Context, subscriber string, terms []change.Term) ([]checkpoint.Checkpoint, error) {
	c.world.begun(c.process, terms)
	all, err := asked(ctx, c.network, func(ctx context.Context) (claimed []checkpoint.Checkpoint, err error) {
		if err := c.reach(); err != nil {
			return nil, err
		}
		err = c.within(func(owners []cluster.Owner) error {
			for _, term := range terms {
				if owner := owners[term.Partition]; c.keyed && owner.Epoch != term.Epoch {
					return fmt.Errorf("partition %d, epoch %s, owner %s: %w", term.Partition, term.Epoch, owner.Epoch, checkpoint.ErrFenced)
				}
			}
			claimed, err = c.Memory.ClaimTerms(ctx, subscriber, terms)
			return err
		})
		return claimed, err
	})
	c.process.offered(all)
	return all, err
}

// ClaimName implements [checkpoint.Claimer].
func (c checkpoints) ClaimName(ctx context.Context, claim checkpoint.Claim, first checkpoint.Checkpoint) (checkpoint.Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	claimed, err := asked(ctx, c.network, func(ctx context.Context) (claimed checkpoint.Checkpoint, err error) {
		if err := c.reach(); err != nil {
			return claimed, err
		}
		err = c.within(func([]cluster.Owner) error {
			claimed, err = c.Memory.ClaimName(ctx, claim, first)
			return err
		})
		return claimed, err
	})
	if err == nil {
		c.process.offered([]checkpoint.Checkpoint{claimed})
	}
	return claimed, err
}

// AddGap implements [checkpoint.GapKeeper]: there is nothing to be told, because the log keeps
// everything.
func (c checkpoints) AddGap(ctx context.Context, g checkpoint.Gap) error {
	c.world.wrong("a loss of %s to %s is recorded", g.From, g.To)
	return c.Memory.AddGap(ctx, g)
}

// List implements [checkpoint.Store]; nodes have no need of it.
func (c checkpoints) List(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	return c.Memory.List(ctx)
}

// wasRewound reports whether an operator has rewound the sink in all of these partitions, of which
// there are some.
func (w *world) wasRewound(partitions []change.Partition) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(partitions) > 0 && !slices.ContainsFunc(partitions, func(p change.Partition) bool { return !w.mu.moved[p] })
}
