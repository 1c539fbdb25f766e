package gateway

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// startOf returns the start time of the subscriber's process: by the node's clock if the process
// reports for how long it has run, else by its own. A process that reports neither counts as just
// started.
func startOf(m *streampb.Hello) time.Time {
	switch {
	case m.GetRunningFor() != nil:
		return time.Now().Add(-m.GetRunningFor().AsDuration())
	case m.GetStartedAt() != nil:
		return m.GetStartedAt().AsTime()
	default:
		return time.Now()
	}
}

// readHello converts a Hello of an identity, which input has checked, to a request.
func (s *Server) readHello(m *streampb.Hello, by *access.Identity) (r streamer.Request, err error) {
	bad := func(format string, args ...any) (streamer.Request, error) {
		return r, fault.Newf(fault.SessionBadRequest, "hello: "+format, args...)
	}
	r = streamer.Request{
		Subscriber: m.GetSubscriber(), Process: m.GetProcessId(), Started: startOf(m), Time: m.GetTime().AsTime(),
		Generation: m.GetGeneration(), Attached: m.GetPartitions() == streampb.Partitions_PARTITIONS_OWNED, Detachable: m.GetDetachable(),
		Known: len(m.GetPosition()) > 0 || len(m.GetPositions()) > 0,
	}
	switch {
	case len(m.GetSubscriptions()) > s.cfg.MaxSubscriptions:
		return r, fault.Newf(fault.SessionTooWide, "%d subscriptions, at most %d are allowed in a session", len(m.GetSubscriptions()), s.cfg.MaxSubscriptions)
	case r.Known && m.GetCluster() != s.cfg.Cluster:
		return r, fault.Newf(fault.SessionBadPosition, "positions belong to cluster %q, this is %q", m.GetCluster(), s.cfg.Cluster)
	}
	identify(&r, by)
	switch m.GetStart() {
	case streampb.Start_START_RESUME:
		r.Start = streamer.StartResume
	case streampb.Start_START_NOW:
		r.Start = streamer.StartNow
	case streampb.Start_START_EARLIEST:
		r.Start = streamer.StartEarliest
	case streampb.Start_START_TIME:
		r.Start = streamer.StartTime
		if m.GetTime() == nil || r.Time.Unix() <= 0 || r.Time.Unix() > 1<<32-1 {
			return bad("START_TIME needs a time")
		}
	case streampb.Start_START_SNAPSHOT:
		r.Start = streamer.StartSnapshot
		if err := snapshotsKept(m); err != nil {
			return bad("START_SNAPSHOT: %w", err)
		}
	default:
		return bad("start must be given: START_RESUME, START_NOW, START_EARLIEST, START_TIME or START_SNAPSHOT")
	}
	if !r.Known {
		return r, nil
	}
	if r.Partitions, err = s.readPositions(m.GetPositions(), int(m.GetPartitionCount())); err != nil {
		return r, err
	}
	if len(m.GetPosition()) > 0 {
		ref, err := change.ParseRef(m.GetPosition())
		if err != nil {
			return r, fault.Newf(fault.SessionBadPosition, "position: malformed")
		}
		r.At = delivery.Place{Ref: ref}
	}
	if r.At.IsZero() || int(m.GetPartitionCount()) != s.cfg.Partitions && len(r.Partitions) > 0 {
		r.At, r.Partitions = earliest(r.At, r.Partitions), nil // the number of partitions has changed
	}
	return r, nil
}

// identify sets the identity of the request: the name of a subscriber belongs to its identity. The
// client reports the start time of its process; identify limits it to valid times that are not in
// the future.
func identify(r *streamer.Request, by *access.Identity) {
	if by != nil {
		r.By = by.Name
	}
	if owner := by.Owner(); owner != "" {
		r.By = owner
	}
	r.Subscriber = by.Subscriber(r.Subscriber)
	if now := time.Now(); r.Started.After(now) {
		r.Started = now
	}
	if begin := time.Unix(0, 0); r.Started.Before(begin) {
		r.Started = begin
	}
}

// snapshotsKept returns why a session cannot be sure of its snapshots, nil if it can. Their
// progress is in the checkpoint of a subscriber, for all partitions together.
func snapshotsKept(m *streampb.Hello) error {
	switch {
	case m.GetSubscriber() == "":
		return errors.New("a snapshot needs a subscriber: what is left of it is kept under the name")
	case m.GetPartitions() == streampb.Partitions_PARTITIONS_OWNED:
		return errors.New("a snapshot needs PARTITIONS_ALL")
	case m.GetAck() == streampb.AckMode_ACK_MODE_AUTO:
		return errors.New("a snapshot needs ACK_MODE_EXPLICIT")
	}
	return nil
}

// earliest returns the earliest of the places.
func earliest(at delivery.Place, of map[change.Partition]delivery.Place) delivery.Place {
	for _, place := range of {
		if at.IsZero() || at.From().After(place.From()) {
			at = place
		}
	}
	return at
}

// readPositions decodes the positions of a client, in a given number of partitions.
func (s *Server) readPositions(positions []*streampb.PartitionPosition, partitions int) (map[change.Partition]delivery.Place, error) {
	if len(positions) == 0 {
		return nil, nil
	}
	places := make(map[change.Partition]delivery.Place, len(positions))
	for _, m := range positions {
		p := change.Partition(m.GetPartition())
		if _, twice := places[p]; int(m.GetPartition()) >= cmp.Or(partitions, s.cfg.Partitions) || twice {
			return nil, fault.Newf(fault.SessionBadPosition, "position of partition %d of %d: no such partition, or a duplicate", p, partitions)
		}
		ref, err := change.ParseRef(m.GetPosition())
		if err != nil {
			return nil, fault.Newf(fault.SessionBadPosition, "position of partition %d: malformed", p)
		}
		places[p] = delivery.Place{Ref: ref}
	}
	return places, nil
}

// readSubscription converts a subscription that input has checked. Its filter is still to be
// compiled.
func readSubscription(m *streampb.Subscription, carries match.Carries) (sub delivery.Subscription, filter match.Filter, err error) {
	if m.GetId() == "" {
		return sub, filter, fault.Newf(fault.SessionBadRequest, "a subscription needs an id")
	}
	for _, field := range m.GetFields() {
		if field == "" || strings.ContainsAny(field, ".\x00") {
			return sub, filter, fault.Newf(fault.SessionBadRequest, "field %q: only top-level fields can be selected", field)
		}
	}
	ops, err := match.ParseOps(m.GetOps())
	if err != nil {
		return sub, filter, fault.New(fault.SessionBadRequest, err)
	}
	filter = match.Filter{Source: m.GetFilter(), DB: m.GetDb(), Coll: m.GetColl(), Ops: ops, Carries: carries}
	switch m.GetDeletes() {
	case streampb.Deletes_DELETES_NONE:
		filter.Deletes = match.DeletesNone
	case streampb.Deletes_DELETES_BEFORE:
		filter.Deletes = match.DeletesBefore
	default:
		filter.Deletes = match.DeletesAll
	}
	sub = delivery.Subscription{
		ID: m.GetId(), Form: delivery.Form{Fields: m.GetFields()}, Recover: m.GetOnLoss() == streampb.OnLoss_ON_LOSS_SNAPSHOT, Leaves: m.GetLeaves(), Fresh: m.GetFresh(),
	}
	if m.GetFormat() == streampb.Format_FORMAT_JSON {
		sub.Form.Format = delivery.JSON
	}
	return sub, filter, nil
}
