package streamer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/snapshot"
)

// Attach attaches partitions to the subscriber's session, like Session.Attach, with the progress of
// its snapshots in them from its checkpoint, because sessions at other nodes, which may have ended,
// have begun them. If the checkpoint cannot be loaded, changes are delivered, the snapshots follow
// when it can, and nothing is saved until then.
func (e *Exclusive) Attach(ctx context.Context, places map[change.Partition]delivery.Place) error {
	if e.name == "" || !e.session.Attached() {
		return e.session.Attach(places, nil, nil)
	}
	if e.waits(places, false) {
		return e.session.Attach(places, nil, nil)
	}
	left, err := e.left(ctx, places)
	if err == nil {
		e.session.Owe(left)
	} else if !e.waits(places, true) {
		e.node.logger.Warn("loading checkpoint failed, what is left of snapshots waits", "subscriber", e.name, "error", err)
		go e.awaitLeft()
	}
	return e.session.Attach(places, nil, nil)
}

// waits notes places whose snapshot progress is loaded later, if such a load is pending or begins
// now. It reports whether it was pending already.
func (e *Exclusive) waits(places map[change.Partition]delivery.Place, begins bool) (waited bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if waited = len(e.mu.unread) > 0; !waited && begins {
		e.mu.unread = make(map[change.Partition]delivery.Place, len(places))
	}
	if waited || begins {
		maps.Copy(e.mu.unread, places)
	}
	return waited
}

// left loads the progress of the subscriber's snapshots. A client that is before its checkpoint in
// one of the places has not had the documents that were read after that place.
func (e *Exclusive) left(ctx context.Context, places map[change.Partition]delivery.Place) ([]snapshot.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, e.node.cfg.CheckpointTimeout)
	defer cancel()
	saved, err := e.node.store.Load(ctx, e.name)
	if err != nil || len(saved) != 1 {
		return nil, err
	}
	for _, loss := range saved[0].Losses {
		e.node.remember(loss, e.name)
	}
	c := saved[0].Recounted(e.node.cfg.Origin.Partitions)
	for p, place := range places {
		if (Request{At: place}).earlier(c.In(p).Ref()) {
			return leftAt(c, Request{Partitions: places}), nil
		}
	}
	return c.Snapshots, nil
}

// leftAt returns the unfinished snapshots of a checkpoint for a subscriber that is earlier: all but
// those that were complete before.
func leftAt(c checkpoint.Checkpoint, r Request) (left []snapshot.Progress) {
	for _, p := range c.Snapshots {
		if !p.Done || r.earlier(change.At(p.At.Next()).Ref()) {
			p = snapshot.Progress{Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason, Number: p.Number, Some: p.Some, Partitions: p.Partitions}
		}
		left = append(left, p)
	}
	return left
}

// awaitLeft loads the progress of the subscriber's snapshots in partitions that were attached while
// it could not be loaded.
func (e *Exclusive) awaitLeft() {
	wait := retry.Backoff{First: time.Second, Longest: 15 * time.Second}
	for failures := 1; e.session.Outlives(wait.After(failures)); failures++ {
		for waiting := true; waiting; {
			e.mu.Lock()
			places := maps.Clone(e.mu.unread)
			e.mu.Unlock()
			left, err := e.left(e.node.lifetime, places)
			if err != nil {
				break
			}
			e.session.Owe(left, slices.Collect(maps.Keys(places))...)
			e.mu.Lock()
			maps.DeleteFunc(e.mu.unread, func(p change.Partition, _ delivery.Place) bool {
				_, loaded := places[p]
				return loaded
			})
			waiting = len(e.mu.unread) > 0
			e.mu.Unlock()
			if !waiting {
				return
			}
		}
	}
}
