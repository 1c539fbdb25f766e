package checkpoints

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// ClaimTerms implements checkpoint.Claimer: it writes the terms' epochs into the documents, and
// creates missing documents.
func (s *Store) ClaimTerms(ctx context.Context, subscriber string, terms []change.Term) (claimed []checkpoint.Checkpoint, err error) {
	if len(terms) == 0 {
		return nil, nil
	}
	var unread *checkpoint.UnreadError
	err = s.inSession(ctx, func(ctx context.Context) error {
		if err := s.alive(ctx, terms); err != nil {
			return err
		}
		if claimed, unread, err = s.claimTerms(ctx, subscriber, terms); err != nil {
			return err
		}
		// An operator who adopted the checkpoints before these documents were written has not ended
		// these epochs, but then the new origin is visible here.
		return s.alive(ctx, terms)
	})
	switch {
	case err != nil:
		return nil, err
	case unread != nil:
		return claimed, unread
	}
	return claimed, nil
}

// claimTerms claims the documents, including those with unreadable checkpoints.
func (s *Store) claimTerms(ctx context.Context, subscriber string, terms []change.Term) (claimed []checkpoint.Checkpoint, unread *checkpoint.UnreadError, err error) {
	keys := make([]checkpoint.Key, len(terms))
	claimed = make([]checkpoint.Checkpoint, len(terms))
	for i, t := range terms {
		keys[i] = checkpoint.Key{Subscriber: subscriber, Shared: true, Partition: t.Partition}
	}
	results := s.change(ctx, keys, true, func(i int, d document, cause error) (*write, error) {
		t := terms[i]
		if cause != nil {
			if !checkpoint.IsDamage(cause) {
				return nil, cause
			}
			unread = unread.Unread(t.Partition, cause)
		}
		claimed[i] = checkpoint.Checkpoint{Key: keys[i], Partitions: s.partitions}
		if d.checkpoint != nil {
			claimed[i] = *d.checkpoint
		}
		switch order := d.epoch.Compare(t.Epoch); {
		case order > 0:
			return nil, fmt.Errorf("%s, epoch %s, owner %s: %w", keys[i], t.Epoch, d.epoch, checkpoint.ErrFenced)
		case order == 0 && !d.version.IsZero():
			return nil, nil //nolint:nilnil // it is claimed already
		}
		return &write{epoch: &t.Epoch}, nil
	})
	for _, err := range results {
		if err != nil {
			return nil, nil, err
		}
	}
	return claimed, unread, nil
}

// ClaimName implements checkpoint.Claimer.
func (s *Store) ClaimName(ctx context.Context, c checkpoint.Claim, first checkpoint.Checkpoint) (claimed checkpoint.Checkpoint, err error) {
	if first, err = first.Trimmed(); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	if err = s.hasRoom(ctx, first.Key); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	added := false
	err = s.change(ctx, []checkpoint.Key{first.Key}, false, func(_ int, d document, unread error) (*write, error) {
		if unread != nil {
			return nil, unread
		}
		claim, err := c.Claimed(d.checkpoint, time.Now())
		if err != nil {
			return nil, err
		}
		claimed = first
		added = d.checkpoint == nil
		if !added {
			claimed = d.checkpoint.Clone()
		}
		claimed.Claim = claim
		return &write{checkpoint: &claimed, unnoted: !added}, nil
	})[0]
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	if added && checkpoint.Owner(first.Subscriber) == "" {
		s.makeRoom(ctx)
	}
	return claimed, nil
}

// Rewind implements checkpoint.Rewinder.
func (s *Store) Rewind(ctx context.Context, k checkpoint.Key, to change.Position, by, why string) (next checkpoint.Checkpoint, err error) {
	o, err := s.Origin(ctx)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	err = s.change(ctx, []checkpoint.Key{k}, false, func(_ int, d document, unread error) (_ *write, err error) {
		switch {
		case fault.Of(unread) == fault.CheckpointCorrupt:
			last, trail, there, err := s.lastEntry(ctx, k)
			if err != nil || !there {
				return nil, cmp.Or(err, unread)
			}
			next, err = last.Repaired(to, o.Incarnation, by, why)
			return &write{checkpoint: &next, trail: &trail}, err
		case unread != nil:
			return nil, unread
		case d.checkpoint == nil:
			return nil, fmt.Errorf("%s: %w", k, checkpoint.ErrNone)
		}
		if next, err = d.checkpoint.Rewound(to, o.Incarnation, by, why); err != nil {
			return nil, err
		}
		return &write{checkpoint: &next}, nil
	})[0]
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	return next, nil
}

// Put implements checkpoint.Rewinder. It refuses to replace an unreadable checkpoint, because the
// generation of that one is unknown.
func (s *Store) Put(ctx context.Context, c checkpoint.Checkpoint) error {
	o, err := s.Origin(ctx)
	if err != nil {
		return err
	}
	added := false
	err = s.change(ctx, []checkpoint.Key{c.Key}, false, func(_ int, d document, unread error) (*write, error) {
		if unread != nil {
			return nil, unread
		}
		added = d.checkpoint == nil
		next, err := c.Imported(d.checkpoint, o)
		return &write{checkpoint: &next}, err
	})[0]
	if err == nil && added && !c.Shared {
		s.makeRoom(ctx)
	}
	return err
}
