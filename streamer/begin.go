package streamer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// Begin sets where partitions without a checkpoint begin: StartNow, StartEarliest, StartTime at a
// time, or StartSnapshot. Without it that is the origin. Call it before the first Serve.
func (s *Shared) Begin(start StartPolicy, at time.Time) { s.start, s.from = start, at }

// begin gives the partitions without a checkpoint the one where the subscriber begins, and saves it
// before anything is served: the next owner must not begin later, and must know what targets have
// had. After a repartition or an adoption (a later incarnation) it is unknown whether the
// subscriber is new, and it begins at the origin, which is no later than it was. With StartSnapshot
// it then reads the documents, too. begin returns the time at which they begin with the log, zero
// if they do not.
func (s *Shared) begin(ctx context.Context, terms []change.Term, claimed []checkpoint.Checkpoint) (logBegins change.Timestamp, err error) {
	n := s.node
	var first []checkpoint.Checkpoint
	var places []int
	for i, t := range terms {
		if claimed[i].Position.IsZero() {
			first = append(first, checkpoint.Checkpoint{
				Key: checkpoint.Key{Subscriber: s.name, Shared: true, Partition: t.Partition}, Partitions: n.cfg.Origin.Partitions, Epoch: t.Epoch,
				Fingerprint: n.cfg.Fingerprint, Coverage: n.cfg.Coverage.Bounded(), At: time.Now(), By: n.cfg.By, Reason: checkpoint.ReasonBegin, Generation: claimed[i].Generation,
			})
			places = append(places, i)
		}
	}
	if len(first) == 0 {
		return logBegins, nil
	}
	others, err := n.store.Load(ctx, s.name)
	if err != nil && len(others) == 0 {
		return logBegins, err
	}
	others = slices.DeleteFunc(others, func(c checkpoint.Checkpoint) bool { return !c.Shared || c.Partitions != n.cfg.Origin.Partitions })
	at := beginningOf(others)
	if at.IsZero() {
		var begins bool
		if at, begins, err = s.startTime(ctx, first[0].Epoch.Incarnation); err != nil {
			return logBegins, err
		}
		if begins {
			logBegins = at
		}
	}
	for i := range first {
		if err := s.beginAt(ctx, &first[i], at); err != nil {
			return logBegins, err
		}
	}
	if err := errors.Join(n.store.Save(ctx, first)...); err != nil {
		return logBegins, fmt.Errorf("save where it begins: %w", err)
	}
	for i, c := range first {
		claimed[places[i]] = c
	}
	return logBegins, nil
}

// beginningOf returns a subscriber's start from its checkpoints in other partitions, zero if it has
// none. A partition without a checkpoint has never begun, or has lost its checkpoint, so it begins
// at the same start, or at the earliest of them if that is earlier, because an operator has moved
// it back, or if they do not contain the start.
func beginningOf(others []checkpoint.Checkpoint) (at change.Timestamp) {
	for _, c := range others {
		began := c.Began.At
		if began.IsZero() || began.Compare(c.Position.Time) > 0 {
			began = c.Position.Time
		}
		if at.IsZero() || at.Compare(began) > 0 {
			at = began
		}
	}
	return at
}

// beginAt sets where a checkpoint begins: at the last entry of its history if it has been lost,
// otherwise at a time. Entries of another incarnation of the origin do not count: an adoption or a
// repartition may have moved the subscriber to before them.
func (s *Shared) beginAt(ctx context.Context, c *checkpoint.Checkpoint, at change.Timestamp) error {
	n := s.node
	entries, err := n.store.History(ctx, c.Key)
	if err != nil && len(entries) == 0 {
		return err
	}
	if len(entries) > 0 && entries[0].Partitions == c.Partitions && entries[0].Epoch.Incarnation == c.Epoch.Incarnation {
		last := entries[0]
		c.Position, c.Fingerprint, c.Generation, c.Began = last.Position, last.Fingerprint, last.Generation, last.Began
		c.Coverage, c.Lapse, c.Snapshots = last.Coverage, last.Lapse, last.Snapshots
		n.logger.Warn("checkpoint was lost, the partition begins at the last one of its history",
			"subscriber", s.name, "partition", c.Partition, "position", last.Position.String())
	} else {
		c.Position = change.At(at)
		c.Began = checkpoint.NewBeginning(at)
	}
	if s.start == StartSnapshot { // the unread documents are unknown
		c.Snapshots = s.documents
	}
	return nil
}

// startTime returns the cluster time at which the subscriber begins in an incarnation of the
// origin: that of its terms, because the node may have read the origin before an adoption. begins
// says that the log begins there.
func (s *Shared) startTime(ctx context.Context, incarnation uint64) (at change.Timestamp, begins bool, err error) {
	n := s.node
	if incarnation > 1 {
		origin, err := n.store.Origin(ctx)
		return origin.Start, false, err
	}
	switch s.start {
	case 0, StartTime:
		reach, err := n.cfg.Range.Now(ctx)
		at := n.cfg.Origin.Start
		if s.start == StartTime {
			at = reach.At(s.from)
		}
		if err != nil || reach.Begins().Compare(at) <= 0 {
			return at, false, err
		}
		// The log never had this span for the subscriber, so there is no loss.
		n.logger.Warn("subscriber begins later than its start, where the log does", "subscriber", s.name, "start", at.String(), "log_begins", reach.Begins().String())
		at, err = n.log.Earliest(ctx, reach.Begins())
		return at, true, err
	case StartEarliest:
		reach, err := n.cfg.Range.Recently(ctx)
		if err != nil {
			return at, false, err
		}
		if reach.Begins().IsZero() {
			return at, false, fault.Newf(fault.LogHidden, "cannot determine the oldest oplog entry: use a start time")
		}
		at, err = n.log.Earliest(ctx, reach.Begins())
		return at, true, err
	case StartSnapshot: // a later one is not reached while nothing happens
		reach, err := n.cfg.Range.Now(ctx)
		return reach.Last, false, err
	default:
		reach, err := n.cfg.Range.Now(ctx)
		return reach.Last.Next(), false, err
	}
}
