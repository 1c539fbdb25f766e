package retention

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// grace is how long segments below the floor stay, for readers that are on their way through them.
const grace = time.Hour

// expire deletes the segments that have been below the floor for a while, and raises the floor.
// Failures are harmless: the next segment's writer tries again. It does nothing in a bucket where
// that was tried a short while ago: each attempt lists it, and its owner pays for lists.
func (w *Writer) expire(ctx context.Context) {
	keepsAll := w.cfg.MaxAge == 0 && w.cfg.MaxBytes == 0
	isTooSoon := w.cfg.Shared && time.Since(w.expired) < grace/4
	if keepsAll || isTooSoon {
		return
	}
	w.expired = time.Now()
	deleted, err := w.chain.Expire(ctx, w.cfg.MaxAge, w.cfg.MaxBytes)
	w.metrics.deleted.Add(float64(deleted))
	if err != nil && ctx.Err() == nil {
		w.cfg.Logger.Warn("expiring segments failed; the next attempt follows", "error", err)
	}
}

// Expire raises the floor above segments that are older than an age or too many bytes together;
// zero is no bound. It deletes segments that have been below the floor for an hour, and returns how
// many. The newest segment always stays.
func (c *Chain) Expire(ctx context.Context, age time.Duration, bytes int64) (deleted int, err error) {
	now, err := c.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	floors, err := c.list(ctx, c.floors(), 0)
	if err != nil {
		return 0, err
	}
	floor := uint64(0)
	if len(floors) > 0 {
		floor = floors[len(floors)-1].Number
	}
	deleted, undeleted := c.deleteBelow(ctx, floors, now) // first: a full disk may have no room for a floor
	defer func() { err = errors.Join(err, undeleted) }()
	kept, err := c.list(ctx, c.segments(), floor)
	if err != nil {
		return deleted, err
	}
	raised, err := c.expired(ctx, kept, now, age, bytes)
	if err != nil || raised <= floor {
		return deleted, err
	}
	if err := c.store.Put(ctx, c.floors()+"/"+name(raised), nil); err != nil && !errors.Is(err, ErrExists) {
		return deleted, err
	}
	return deleted, nil
}

// Expired returns the floor, and how many segments below it have not been deleted yet.
func (c *Chain) Expired(ctx context.Context) (floor uint64, n int, err error) {
	if floor, err = c.Floor(ctx); err != nil {
		return 0, 0, err
	}
	all, err := c.list(ctx, c.segments(), 0)
	for _, s := range all {
		if s.Number < floor {
			n++
		}
	}
	return floor, n, err
}

// expired returns the number of the first segment to keep, zero if there is none.
func (c *Chain) expired(ctx context.Context, kept []Segment, now time.Time, age time.Duration, bytes int64) (uint64, error) {
	if len(kept) == 0 {
		return 0, nil
	}
	total := bytesOf(kept)
	// Age is by the time of the changes and by the time of the objects: a clock that has jumped
	// must not empty the store.
	newest, readable, err := c.readable(ctx, kept[len(kept)-1:])
	if err != nil {
		return 0, err
	}
	for _, s := range kept[:len(kept)-1] {
		old := false
		if age > 0 && readable {
			h, about, err := c.Header(ctx, s.Number)
			if err != nil && !unreadable(err) {
				return 0, err
			}
			written := s.Modified
			if err == nil {
				written = about.Modified // erasing changes of it prolongs nothing
			}
			old = now.Sub(written) > age && (err != nil || newest.To.Time().Sub(h.To.Time()) > age)
		}
		if !old && (bytes == 0 || total <= bytes) {
			return s.Number, nil
		}
		total -= s.Size
	}
	return kept[len(kept)-1].Number, nil
}

// deleteBelow deletes the segments below the highest floor that is old enough, and the lower
// floors.
func (c *Chain) deleteBelow(ctx context.Context, floors []Segment, now time.Time) (deleted int, err error) {
	old := uint64(0)
	for _, f := range floors {
		if now.Sub(f.Modified) >= grace {
			old = f.Number
		}
	}
	if old == 0 {
		return 0, nil
	}
	all, err := c.list(ctx, c.segments(), 0)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout) // of all: the writer waits, and continues the next time
	defer cancel()
	for _, s := range all {
		if s.Number >= old || ctx.Err() != nil {
			break
		}
		if failed := c.store.Delete(ctx, c.segment(s.Number)); failed != nil {
			err = cmp.Or(err, failed) // it costs its space only
			continue
		}
		deleted++
	}
	for _, f := range floors[:max(0, len(floors)-2)] {
		if f.Number < old && ctx.Err() == nil {
			err = cmp.Or(err, c.store.Delete(ctx, c.floors()+"/"+name(f.Number)))
		}
	}
	return deleted, err
}
