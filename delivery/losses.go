package delivery

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/snapshot"
)

// lost reports a loss to the live sessions.
func (l *loop) lost(loss *oplog.Loss, batch *oplog.Batch) {
	at := loss.To
	if loss.From.Compare(loss.To) == 0 && batch.Len() > 0 {
		at = batch.Event(0).Position() // it has the position of the event
	}
	if loss.Reason != gap.Renamed { // a rename is also an event
		l.scanner.Spoil()
	}
	for _, s := range l.live {
		if (s.from.IsZero() || !s.from.Has(at)) && s.tell(loss) {
			l.touched[s] = struct{}{}
		}
	}
}

// tell queues a loss of the log if it concerns the session, or ends the session with Config.Halt.
// It returns false if nothing was queued.
func (s *stream) tell(loss *oplog.Loss) bool { return s.tellAt(loss, loss.To) }

// tellAt is tell, with the place of the session after the loss.
func (s *stream) tellAt(loss *oplog.Loss, to change.Position) bool {
	namespaces, some := s.readable(loss.Namespaces)
	switch {
	case !some, !s.concerned(loss):
		return false
	case loss.Reason == gap.HistoryLost && s.beginsWith(loss):
		return false
	case s.hub.cfg.Halt && loss.Reason != gap.Poison && loss.Reason != gap.Renamed:
		s.Close(fault.Newf(fault.LogHistoryLost, "changes from %s to %s may have been lost (%s)", loss.From, loss.To, loss.Reason))
		s.loss(lossOf(loss), to) // never received, so no checkpoint passes it
		return false
	}
	for _, sub := range s.byKey {
		sub.losses++
		sub.forgetAhead()
	}
	told := lossOf(loss)
	told.Namespaces = namespaces
	if loss.Reason == gap.Renamed {
		s.replaced(loss.Namespaces[0])
	}
	if attached := s.attached.Load(); attached != nil && len(*attached) == 0 && !s.cfg.Owner {
		// The session misses nothing, but partitions attached to it do; they begin before the loss
		// then, or have had it.
		s.hub.remember(loss, s.loser(loss))
		return false
	}
	s.compensate(loss, s.promise) // before the subscriber hears of it: it may resume after the loss
	s.loss(told, to)
	if loss.Reason == gap.Unread {
		s.compensate(loss, s.beginSnapshot) // it concerns no other session
		return true
	}
	s.recover(loss)
	return true
}

// beginsWith reports whether the subscriber has asked for the beginning of the log, and had nothing
// before a loss. It is told of what the retained log may still have.
func (s *stream) beginsWith(loss *oplog.Loss) bool {
	switch {
	case loss.Unanswered:
		return false
	case s.seen != nil:
		return s.seen.beginWith(loss.To)
	}
	return s.began.Begins && !loss.From.After(s.began.From())
}

// recover begins the snapshots that compensate for a loss.
func (s *stream) recover(loss *oplog.Loss) {
	s.hub.remember(loss, s.loser(loss))
	s.compensate(loss, s.beginSnapshot)
}

// loser returns whose loss it is: "" for everybody's, else the subscriber or, without a name, its
// identity.
func (s *Session) loser(loss *oplog.Loss) string {
	if loss.Tail {
		return ""
	}
	return cmp.Or(s.cfg.Subscriber, "\x00"+s.cfg.Account)
}

const (
	// maxLosses bounds everybody's losses that are remembered for partitions that move, maxLost
	// those of each subscriber alone, maxLosers all of these; lossAge is for how long.
	maxLosses = 64
	maxLosers = 1024
	lossAge   = 10 * time.Minute
)

// Remember keeps a loss of late that this node has not met itself, for partitions that come from a
// session with another node: of a subscriber alone, or everybody's if the name is empty.
func (h *Hub) Remember(loss oplog.Loss, subscriber string) { h.remember(&loss, subscriber) }

// remember keeps a loss for partitions that come from a session with another node. Those of one
// subscriber push out none of others.
func (h *Hub) remember(loss *oplog.Loss, loser string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	its, others := 0, 0
	for _, l := range h.mu.losses {
		switch {
		case l.loser == loser && l.is(loss):
			return
		case l.loser == loser:
			its++
		case l.loser != "":
			others++
		}
	}
	h.mu.losses = append(h.mu.losses, rememberedLoss{loss, loser})
	oldest := func(is func(rememberedLoss) bool) {
		i := slices.IndexFunc(h.mu.losses, is)
		h.mu.losses = slices.Delete(h.mu.losses, i, i+1)
	}
	switch {
	case loser == "" && its >= maxLosses, loser != "" && its >= maxLost:
		oldest(func(l rememberedLoss) bool { return l.loser == loser })
	case loser != "" && its+others >= maxLosers:
		oldest(func(l rememberedLoss) bool { return l.loser != "" })
	}
}

// is reports whether a loss is the remembered one, which several sessions may meet.
func (l rememberedLoss) is(loss *oplog.Loss) bool {
	return l.To.Compare(loss.To) == 0 && l.Reason == loss.Reason && slices.Equal(l.Namespaces, loss.Namespaces)
}

// compensateAttached begins the snapshots that compensate for recent losses before the places of
// attached partitions: another node may have begun them, and its progress is unknown. Documents
// that were read before do not count for these partitions.
func (s *stream) compensateAttached(places map[change.Partition]Place) {
	s.hub.mu.Lock()
	losses := slices.Clone(s.hub.mu.losses)
	s.hub.mu.Unlock()
	for _, loss := range losses {
		if loss.loser != "" && loss.loser != s.loser(loss.Loss) {
			continue
		}
		past := false
		for _, place := range places {
			past = past || !loss.To.After(place.From())
		}
		if past && time.Since(loss.Found) < lossAge && s.concerned(loss.Loss) {
			s.compensate(loss.Loss, s.acceptMore)
		}
	}
}

// compensate begins the snapshots that compensate for a loss, as begin does.
func (s *stream) compensate(loss *oplog.Loss, begin func(*Subscription, snapshot.Reason, []change.Namespace)) {
	lost := func(ns change.Namespace) bool {
		return len(loss.Namespaces) == 0 || slices.Contains(loss.Namespaces, ns.String()) || slices.Contains(loss.Namespaces, ns.DB+".*")
	}
	for _, sub := range s.byKey {
		f := sub.Program.Filter()
		some := []change.Namespace(nil)
		all := len(loss.Namespaces) == 0
		add := func(ns change.Namespace) {
			if f.Includes(ns) && !slices.Contains(some, ns) {
				some = append(some, ns)
			}
		}
		for _, name := range loss.Namespaces {
			switch db, coll, _ := strings.Cut(name, "."); {
			case coll == "*":
				all = all || f.DB == "" || f.DB == db
			case sub.Recover:
				add(change.Namespace{DB: db, Coll: coll})
			}
		}
		for _, ns := range s.hub.cfg.Recover { // a subscription of one document keeps no copy
			if !sub.Recover && f.Document == "" && lost(ns) {
				add(ns)
			}
		}
		switch {
		case sub.Recover && all:
			begin(sub, snapshot.Loss, nil)
		case len(some) > 0:
			begin(sub, snapshot.Loss, some)
		}
	}
}

// concerned reports whether a loss may concern one of the session's subscriptions.
func (s *stream) concerned(loss *oplog.Loss) bool {
	ofCollections := slices.Contains([]gap.Reason{gap.Renamed, gap.Unread, gap.Forgotten, gap.Damaged}, loss.Reason) && len(loss.Namespaces) > 0
	switch {
	case !ofCollections:
		return true
	case (loss.Reason == gap.Unread || loss.Reason == gap.Damaged) && len(s.byKey) == 0: // they come later
		return true
	}
	for _, ns := range loss.Namespaces {
		db, coll, _ := strings.Cut(ns, ".")
		for _, sub := range s.byKey {
			f := sub.Program.Filter()
			of := change.Namespace{DB: db, Coll: coll}
			if coll == "*" { // all collections, also the filter's
				of.Coll = f.Coll
			}
			if f.Includes(of) {
				return true
			}
		}
	}
	return false
}

// Lapsed has a loss of the subscriber alone come before anything of the partitions that are
// attached next.
func (s *Session) Lapsed(loss oplog.Loss) { s.await(func(s *stream) { s.lapsed = &loss }) }

// tellLapse queues the loss of the subscriber alone, if there is one.
func (s *stream) tellLapse() {
	if s.lapsed != nil {
		s.tellAt(s.lapsed, s.position())
		s.lapsed = nil
	}
}

// loss queues a loss after the open batch.
func (s *stream) loss(l *Loss, to change.Position) {
	s.queue(s.position())
	s.open = &Batch{Loss: l}
	s.queue(to)
}

// lossOf converts a loss of the log.
func lossOf(l *oplog.Loss) *Loss {
	return &Loss{
		Kind: Resync, Reason: string(l.Reason), From: l.From, To: l.To, Namespaces: l.Namespaces, Found: l.Found, Advice: advice(l),
		Own: !l.Tail && l.Reason != gap.Renamed, // where nothing is missing
	}
}

// advice returns the recommended reaction to a loss of the log.
func advice(l *oplog.Loss) string {
	switch l.Reason {
	case gap.Poison:
		return "One change was too large for MongoDB to deliver: read the large documents of the namespaces again."
	case gap.Renamed:
		return "Another collection was renamed to this name: read its documents again."
	default:
		return "Changes may have been missed: read the documents of the namespaces again."
	}
}
