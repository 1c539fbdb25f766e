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
// it then reads the documents, too.
func (s *Shared) begin(ctx context.Context, terms []change.Term, claimed []checkpoint.Checkpoint) error {
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
		return nil
	}
	others, err := n.store.Load(ctx, s.name)
	if err != nil && len(others) == 0 {
		return err
	}
	others = slices.DeleteFunc(others, func(c checkpoint.Checkpoint) bool { return !c.Shared || c.Partitions != n.cfg.Origin.Partitions })
	at, log := beginningOf(others)
	if at.IsZero() {
		if at, log, err = s.startTime(ctx, first[0].Epoch.Incarnation); err != nil {
			return err
		}
	}
	for i := range first {
		if err := s.beginAt(ctx, &first[i], at, log); err != nil {
			return err
		}
	}
	if err := errors.Join(n.store.Save(ctx, first)...); err != nil {
		return fmt.Errorf("save where it begins: %w", err)
	}
	for i, c := range first {
		claimed[places[i]] = c
	}
	return nil
}

// beginningOf returns a subscriber's start from its checkpoints in other partitions, zero if it has
// none. A partition without a checkpoint has never begun, or has lost its checkpoint, so it begins
// at the same start. If the checkpoints do not contain the start, it is the earliest of them. log is
// where the log ended then, if the subscriber began with it.
func beginningOf(others []checkpoint.Checkpoint) (at, log change.Timestamp) {
	for _, c := range others {
		began := c.Began.At
		if began.IsZero() {
			began = c.Position.Time
		}
		if at.IsZero() || at.Compare(began) > 0 {
			at, log = began, c.Began.Log
		}
	}
	return at, log
}

// beginAt sets where a checkpoint begins: at the last entry of its history if it has been lost,
// otherwise at a time, with a log that ends at another one, or not with the log.
func (s *Shared) beginAt(ctx context.Context, c *checkpoint.Checkpoint, at, log change.Timestamp) error {
	n := s.node
	entries, err := n.store.History(ctx, c.Key)
	if err != nil && len(entries) == 0 {
		return err
	}
	if len(entries) > 0 && entries[0].Partitions == c.Partitions {
		last := entries[0]
		c.Position, c.Fingerprint, c.Generation, c.Began = last.Position, last.Fingerprint, last.Generation, last.Began
		c.Coverage, c.Lapse = last.Coverage, last.Lapse
		n.logger.Warn("checkpoint was lost, the partition begins at the last one of its history",
			"subscriber", s.name, "partition", c.Partition, "position", last.Position.String())
	} else {
		c.Position = change.At(at)
		c.Began = checkpoint.NewBeginning(at)
		c.Began.Log = log
	}
	if s.start == StartSnapshot { // the unread documents are unknown
		c.Snapshots = s.documents
	}
	return nil
}

// startTime returns the cluster time at which the subscriber begins in an incarnation of the
// origin: that of its terms, because the node may have read the origin before an adoption. If
// the log begins there, log is where it ends.
func (s *Shared) startTime(ctx context.Context, incarnation uint64) (at, log change.Timestamp, err error) {
	n := s.node
	if incarnation > 1 {
		origin, err := n.store.Origin(ctx)
		return origin.Start, log, err
	}
	switch s.start {
	case 0, StartTime:
		reach, err := n.cfg.Range.Now(ctx)
		at := n.cfg.Origin.Start
		if s.start == StartTime {
			at = reach.At(s.from)
		}
		if err != nil || reach.Begins().Compare(at) <= 0 {
			return at, log, err
		}
		// The log never had this span for the subscriber, so there is no loss.
		n.logger.Warn("subscriber begins later than its start, where the log does", "subscriber", s.name, "start", at.String(), "log_begins", reach.Begins().String())
		at, err = n.log.Earliest(ctx, reach.Begins())
		return at, reach.Last, err
	case StartEarliest:
		reach, err := n.cfg.Range.Recently(ctx)
		if err != nil {
			return at, log, err
		}
		if reach.Begins().IsZero() {
			return at, log, fault.Newf(fault.LogHidden, "cannot determine the oldest oplog entry: use a start time")
		}
		at, err = n.log.Earliest(ctx, reach.Begins())
		return at, reach.Last, err
	case StartSnapshot: // a later one is not reached while nothing happens
		reach, err := n.cfg.Range.Now(ctx)
		return reach.Last, log, err
	default:
		reach, err := n.cfg.Range.Now(ctx)
		return reach.Last.Next(), log, err
	}
}
