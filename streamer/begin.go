package streamer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// Begin sets where partitions without a checkpoint begin: StartNow, StartEarliest, StartTime at a time, or StartSnapshot. Without it that is the
// origin. Call it before the first Serve.
func (s *Shared) Begin(start StartPolicy, at time.Time) { s.start, s.from = start, at }

// begin gives the partitions without a checkpoint the one where the subscriber begins, and saves it before anything is served: the next owner must
// not begin later. After a repartition or an adoption (a later incarnation) it is unknown whether the subscriber is new, and it begins at the
// origin, which is no later than it was. With StartSnapshot it then reads the documents, too.
func (s *Shared) begin(ctx context.Context, terms []change.Term, claimed []checkpoint.Checkpoint) error {
	n := s.node
	later := n.cfg.Origin.Incarnation > 1
	if s.start == 0 || later && s.start != StartSnapshot {
		return nil
	}
	var first []checkpoint.Checkpoint
	var places []int
	for i, t := range terms {
		if claimed[i].Position.IsZero() {
			first = append(first, checkpoint.Checkpoint{
				Key: checkpoint.Key{Subscriber: s.name, Shared: true, Partition: t.Partition}, Partitions: n.cfg.Origin.Partitions, Epoch: t.Epoch,
				Fingerprint: n.cfg.Fingerprint, At: time.Now(), By: n.cfg.By, Reason: checkpoint.ReasonBegin, Generation: claimed[i].Generation,
			})
			places = append(places, i)
		}
	}
	if len(first) == 0 {
		return nil
	}
	at := n.cfg.Origin.Start
	if !later {
		var err error
		if at, err = s.startTime(ctx); err != nil {
			return err
		}
	}
	for i := range first {
		if first[i].Position = change.At(at); s.start == StartSnapshot {
			first[i].Snapshots = s.documents
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

// startTime returns the cluster time of the start.
func (s *Shared) startTime(ctx context.Context) (change.Timestamp, error) {
	n := s.node
	switch s.start {
	case StartTime:
		reach, err := n.cfg.Range.Now(ctx)
		return reach.At(s.from), err
	case StartEarliest:
		reach, err := n.cfg.Range.Recently(ctx)
		if err != nil {
			return change.Timestamp{}, err
		}
		if reach.First.IsZero() {
			return change.Timestamp{}, errors.New("cannot determine the oldest oplog entry: use a start time")
		}
		return n.log.Earliest(ctx, reach.First)
	case StartSnapshot: // a later one is not reached while nothing happens
		reach, err := n.cfg.Range.Now(ctx)
		return reach.Last, err
	default:
		reach, err := n.cfg.Range.Now(ctx)
		return reach.Last.Next(), err
	}
}
