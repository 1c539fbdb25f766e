package delivery

import (
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// Owe sets the progress of the subscriber's snapshots from its checkpoint, by partition: a session
// with attached partitions applies it to those that are attached from now on, and to those that are
// named.
func (s *Session) Owe(left []snapshot.Progress, partitions ...change.Partition) {
	s.await(func(s *stream) {
		if s.owed = left; len(partitions) > 0 {
			s.joinSnapshots(partitions)
		}
	})
}

// takenOut returns the unread rest of the snapshots after the last acknowledged batch, if one of
// the partitions is attached already: Prune drops its queued events, and documents, unlike changes,
// do not come again from its place. A partition that leaves has had no documents since its cut.
func (s *stream) takenOut(places map[change.Partition]Place) (left []snapshot.Progress) {
	attached := *s.attached.Load()
	again := false
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range places {
		_, has := attached[p]
		again = again || has
		if c, leaves := s.mu.cuts[p]; leaves {
			left = append(left, Unread(c.snapshots)...)
		}
	}
	if again && len(s.mu.unacked) > 0 {
		left = append(left, Unread(s.mu.unacked[0].snapshots)...)
	}
	return left
}

// joinSnapshots makes newly attached partitions take part in the snapshots of the session, which
// may have read documents that they have not had, and in the unfinished snapshots of the
// subscriber's checkpoint. These are unfinished from now on, whatever the subscriber acknowledges.
func (s *stream) joinSnapshots(partitions []change.Partition) {
	owed := snapshot.Together(snapshot.In(s.owed, partitions))
	for _, sub := range s.byKey {
		s.mu.Lock()
		for i := range s.mu.unacked {
			s.mu.unacked[i].snapshots, _ = sub.joined(s.mu.unacked[i].snapshots, owed)
		}
		all, joined := sub.joined(s.mu.snapshots, owed)
		if joined {
			s.setSnapshots(all)
		}
		s.mu.Unlock()
		partly := slices.ContainsFunc(sub.readers, func(r *reader) bool { return r.Partly })
		if !joined && !partly { // otherwise the page is read again: the partitions have not had the part of it
			continue
		}
		if sub.traced == nil {
			s.hub.traceSnapshot(sub, *sub.progress())
		}
		sub.abandon()
		if s.loop != nil {
			s.loop.advance(sub)
		}
	}
}

// joined returns the progress of all snapshots after partitions have joined that of a subscription,
// in which owed is left. It returns false if that changes nothing.
func (sub *Subscription) joined(all, owed []snapshot.Progress) ([]snapshot.Progress, bool) {
	of := func(p snapshot.Progress) bool {
		return p.Subscription == sub.ID || p.Subscription == snapshot.Key(sub.ID)
	}
	i, j := slices.IndexFunc(all, of), slices.IndexFunc(owed, of)
	var next snapshot.Progress
	if j >= 0 {
		owed = slices.Clone(owed)
		owed[j].Subscription = sub.ID
	}
	filter := FilterHash(sub.Program)
	reads := i >= 0 && !all[i].Done
	owes := j >= 0 && (!owed[j].Done || owed[j].Filter != filter)
	if owes && owed[j].Filter != filter { // no document that was read counts
		owed[j] = snapshot.Progress{Subscription: sub.ID, Filter: filter, Reason: owed[j].Reason, Number: owed[j].Number}
	}
	switch owner := sub.session.cfg.Owner; {
	case reads && owes && all[i].Same(owed[j]): // they are where the others are
		return all, false
	case reads && owes && owner: // its checkpoints have all that is left
		if next = all[i].And(owed[j]); next.Same(all[i]) {
			return all, false
		}
	case reads && owner:
		return all, false
	case reads && owes:
		next = all[i].Joined(sub.collections(all[i])).And(owed[j])
	case reads:
		next = all[i].Joined(sub.collections(all[i]))
	case owes:
		next = owed[j]
		next.Paused = false
	default:
		return all, false
	}
	return replaced(all, sub.ID, &next), true
}

// collections returns the collections that a snapshot is of, nil if they must be listed.
func (sub *Subscription) collections(p snapshot.Progress) []change.Namespace {
	f := sub.Program.Filter()
	switch {
	case len(p.Some) > 0:
		return p.Some
	case f.DB != "" && f.Coll != "":
		return []change.Namespace{{DB: f.DB, Coll: f.Coll}}
	default:
		return nil
	}
}

// HasSnapshots reports whether a subscription may get a snapshot without a separate request: at its
// start or after a loss.
func (h *Hub) HasSnapshots(sub Subscription) bool {
	f := sub.Program.Filter()
	return sub.Snapshot || sub.Recover || slices.ContainsFunc(h.cfg.Recover, f.Includes)
}
