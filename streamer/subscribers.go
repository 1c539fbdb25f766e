package streamer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
)

// Subscribers returns the status of the named subscribers with a session at this node, ordered by
// name.
func (n *Node) Subscribers() (all []SubscriberStatus) {
	now := time.Now()
	read := n.hub.Position() // before the sessions, which have been given it
	reach, known := n.reach(now)
	add := func(s SubscriberStatus, of *delivery.Session) {
		st := of.State()
		s.Position = st.At
		s.Snapshots = of.Snapshots()
		if s.Partitions = n.cfg.Origin.Partitions; of.Attached() {
			s.Partitions = len(st.Partitions)
		}
		s.CreditEvents, s.CreditBytes = of.Credit()
		for _, at := range st.Partitions {
			if s.Position.IsZero() || s.Position.After(at) {
				s.Position = at
			}
		}
		s.Live, s.Unacknowledged, s.Bytes, s.Losses, s.Acknowledged = st.Live, st.Events, st.Bytes, st.Losses, st.Acked
		s.Lost = st.Own
		if !st.Owes.IsZero() {
			s.Owes = now.Sub(st.Owes)
			s.Overdue = n.cfg.AckTimeout > 0 && s.Owes >= n.cfg.AckTimeout/2
		}
		if known && !s.Position.IsZero() {
			at := s.Position
			isIdle := s.Live && st.Events == 0 && st.Losses == 0
			if isIdle && read.After(at) {
				at = read // nothing waits for it: its checkpoint may be older
			}
			lag := max(0, reach.Last.Time().Sub(at.Time.Time()))
			s.Lag = &lag
			if room, level, ok := n.cfg.Range.HeadRoom(reach, s.Position); ok {
				s.HeadRoom = &room
				s.HeadRoomLevel = level
			}
		}
		all = append(all, s)
	}
	for _, e := range n.exclusives() {
		if e.name == "" {
			continue
		}
		e.mu.Lock()
		claim, generation := e.mu.claim, e.mu.generation
		e.mu.Unlock()
		add(SubscriberStatus{Name: e.name, Process: claim.Process, By: claim.By, Generation: generation}, e.session)
	}
	for _, s := range n.sharedSubscribers() {
		add(SubscriberStatus{Name: s.name, Shared: true, Failure: cmp.Or(s.failed(), s.waiting())}, s.session)
	}
	slices.SortFunc(all, func(a, b SubscriberStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// endUnacknowledged ends the sessions whose subscribers have acknowledged nothing for
// NodeConfig.AckTimeout.
func (n *Node) endUnacknowledged(now time.Time) {
	if n.cfg.AckTimeout == 0 {
		return
	}
	for _, e := range n.exclusives() {
		if st := e.session.State(); !st.Owes.IsZero() && now.Sub(st.Owes) >= n.cfg.AckTimeout && !e.session.Ended() {
			n.logger.Warn("session ended, its subscriber acknowledges nothing", "subscriber", e.name, "events", st.Events, "ack_timeout", n.cfg.AckTimeout)
			e.session.Close(fault.Newf(fault.SessionUnacknowledged, "nothing of what was sent was acknowledged for %s", n.cfg.AckTimeout))
		}
	}
}

// OperateSnapshot does something with the snapshots of a subscriber that has a session at this
// node, as Session.Operate does. connected is false if it has none.
func (n *Node) OperateSnapshot(subscriber string, do delivery.Operation, subscription string, ns change.Namespace) (done int, connected bool) {
	n.mu.Lock()
	e := n.mu.exclusive[subscriber]
	n.mu.Unlock()
	if e == nil || e.session == nil {
		return 0, false
	}
	done, did := e.session.Operate(do, subscription, ns)
	if !did || done > 0 && !e.Keep(n.lifetime) {
		return 0, false
	}
	return done, true
}

// Filters returns the subscriptions of a subscriber's session at this node as Session.Filters does;
// ok is false where it has none.
func (n *Node) Filters(ctx context.Context, subscriber string, most int) (filters []delivery.Subscription, total int, ok bool) {
	for _, s := range n.sharedSubscribers() {
		if s.name == subscriber && s.session != nil {
			return s.session.Filters(ctx, most)
		}
	}
	n.mu.Lock()
	e := n.mu.exclusive[subscriber]
	n.mu.Unlock()
	if e == nil || e.session == nil {
		return nil, 0, false
	}
	return e.session.Filters(ctx, most)
}
