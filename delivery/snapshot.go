package delivery

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/snapshot"
)

// Snapshot sends the current documents of subscriptions, each in its place among the changes. It
// restarts a snapshot that is in progress. Unknown IDs are ignored.
func (s *Session) Snapshot(ids []string, reason snapshot.Reason) {
	s.await(func(s *stream) {
		for _, id := range ids {
			if sub := s.subscriptions[id]; sub != nil {
				s.accept(sub, reason, nil)
			}
		}
	})
}

// An Operation is an operator's action on a snapshot.
type Operation string

// The operations.
const (
	BeginSnapshot  Operation = "begin"
	PauseSnapshot  Operation = "pause"
	ResumeSnapshot Operation = "resume"
	CancelSnapshot Operation = "cancel"
)

// Operate does something with the snapshots of a subscription, or of all if id is empty, for an
// operator. It returns how many it was done with, and false if the session has ended before that. A
// snapshot that begins reads a collection, or all of the subscription if ns is zero.
func (s *Session) Operate(do Operation, id string, ns change.Namespace) (done int, did bool) {
	some := 0
	did = s.await(func(s *stream) {
		for _, sub := range s.byKey {
			named := id == "" || sub.ID == id
			has := ns.DB == "" || sub.Program.Filter().Includes(ns)
			if !named || !has {
				continue
			}
			if do == BeginSnapshot {
				var of []change.Namespace
				if ns.DB != "" {
					of = append(of, ns)
				}
				s.accept(sub, snapshot.Operator, of)
				some++
			} else if s.operate(sub, do) {
				some++
			}
		}
	})
	if !did { // or it is being done, and the session ends
		return 0, false
	}
	return some, true
}

// operate pauses, resumes or cancels the snapshot of a subscription. It returns false if there is
// none for that.
func (s *stream) operate(sub *Subscription, do Operation) bool {
	p := sub.progress()
	if p == nil || p.Done {
		return false
	}
	if already := do == PauseSnapshot && p.Paused || do == ResumeSnapshot && !p.Paused; already {
		return false
	}
	next := *p
	sub.abandon()
	if do == CancelSnapshot {
		next.Done, next.Paused, next.Listed, next.Left = true, false, true, nil
		next.At = change.Later(s.at(), s.position()).Time
		s.mark(sub, SnapshotCancelled, next, next.Some)
		return true
	}
	next.Paused = do == PauseSnapshot
	next.Since = time.Time{}
	s.setProgress(sub.ID, &next)
	if s.loop != nil {
		s.loop.advance(sub)
	}
	return true
}

// Snapshots returns the progress of the session's snapshots.
func (s *Session) Snapshots() []snapshot.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.snapshots
}

// setProgress replaces the progress of a subscription's snapshot; nil removes it.
func (s *Session) setProgress(id string, p *snapshot.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepSnapshots(s.replacing(id, p))
}

// replacing returns the progress of all snapshots with that of one replaced, or removed if nil, and
// its stamp: only that of one is computed, because there may be thousands. The caller holds the
// mutex.
func (s *Session) replacing(id string, p *snapshot.Progress) (all []snapshot.Progress, stamp uint32) {
	stamp = s.mu.stamp
	for i := range s.mu.snapshots {
		if s.mu.snapshots[i].Subscription == id {
			stamp -= stampOf(s.mu.snapshots[i])
		}
	}
	if p != nil {
		stamp += stampOf(*p)
	}
	return replaced(s.mu.snapshots, id, p), stamp
}

// setSnapshots sets the progress of all snapshots. The caller holds the mutex.
func (s *Session) setSnapshots(all []snapshot.Progress) { s.keepSnapshots(all, Stamp(all)) }

func (s *Session) keepSnapshots(all []snapshot.Progress, stamp uint32) {
	s.mu.snapshots = all
	s.mu.stamp = stamp
	s.reads.Store(slices.ContainsFunc(all, func(p snapshot.Progress) bool { return !p.Done }))
}

// progress returns the progress of a subscription's snapshot, nil if there is none.
func (sub *Subscription) progress() *snapshot.Progress {
	all := sub.session.Snapshots()
	if i := slices.IndexFunc(all, func(p snapshot.Progress) bool { return p.Subscription == sub.ID }); i >= 0 {
		return &all[i]
	}
	return nil
}

// newProgress returns the progress of a snapshot of a subscription, of all collections or of some,
// that begins after another one, nil if there was none. The collections are added to a snapshot
// that is in progress.
func (sub *Subscription) newProgress(before *snapshot.Progress, reason snapshot.Reason, some []change.Namespace) snapshot.Progress {
	p := snapshot.Progress{Subscription: sub.ID, Filter: FilterHash(sub.Program), Reason: reason, Number: rand.Uint32(), Some: some, Listed: len(some) > 0}
	if len(some) > 0 && before != nil && !before.Done {
		number := p.Number
		p = *before
		p.Paused = false
		if reason == snapshot.Operator { // a session that resumes before a loss gets it again, but not an operator's request
			p.Number = number
		}
		if len(before.Some) > 0 {
			p.Some = slices.Clone(before.Some)
			for _, ns := range some {
				if !slices.Contains(p.Some, ns) {
					p.Some = append(p.Some, ns)
				}
			}
		}
	}
	if p.Listed {
		p.Left = slices.DeleteFunc(slices.Clone(p.Left), func(l snapshot.Left) bool { return slices.Contains(some, l.Namespace) })
		for _, ns := range some {
			p.Left = append(p.Left, snapshot.Left{Namespace: ns})
		}
	}
	return p
}

// beginSnapshot begins the snapshot of a subscription, of all collections or of some.
func (s *stream) beginSnapshot(sub *Subscription, reason snapshot.Reason, some []change.Namespace) {
	p := sub.newProgress(sub.progress(), reason, some)
	s.setProgress(sub.ID, &p)
	s.beginWith(sub, p, some)
}

// beginWith begins a snapshot with its progress.
func (s *stream) beginWith(sub *Subscription, p snapshot.Progress, some []change.Namespace) {
	if p.Read == 0 || sub.traced == nil {
		s.hub.traceSnapshot(sub, p)
	}
	if sub.known != nil {
		sub.known.reread(some)
	}
	if sub.abandon(); p.Listed {
		s.mark(sub, SnapshotBegun, p, some)
	}
	if s.loop != nil {
		s.loop.advance(sub)
	}
}

// accept begins a requested snapshot, whatever the subscriber has acknowledged.
func (s *stream) accept(sub *Subscription, reason snapshot.Reason, some []change.Namespace) {
	s.promise(sub, reason, some)
	s.beginSnapshot(sub, reason, some)
}

// promise makes a snapshot pending for the subscriber from now on, even if it reconnects without
// any acknowledgement.
func (s *stream) promise(sub *Subscription, reason snapshot.Reason, some []change.Namespace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owed := func(before []snapshot.Progress) []snapshot.Progress {
		var of *snapshot.Progress
		if at := slices.IndexFunc(before, func(p snapshot.Progress) bool { return p.Subscription == sub.ID }); at >= 0 {
			of = &before[at]
		}
		p := sub.newProgress(of, reason, some)
		return replaced(before, sub.ID, &p)
	}
	for i := range s.mu.unacked {
		s.mu.unacked[i].snapshots = owed(s.mu.unacked[i].snapshots)
	}
	s.setSnapshots(owed(s.mu.snapshots))
}

// acceptMore is accept for attached partitions: a snapshot of these collections that they have
// joined does not restart.
func (s *stream) acceptMore(sub *Subscription, reason snapshot.Reason, some []change.Namespace) {
	p := sub.progress()
	joined := p != nil && !p.Done && !slices.ContainsFunc(some, func(ns change.Namespace) bool { return len(p.Some) > 0 && !slices.Contains(p.Some, ns) })
	if joined && (len(some) > 0 || len(p.Some) == 0) {
		return
	}
	s.accept(sub, reason, some)
}

// DocumentsFrom makes the session refuse documents that were read at an earlier time. A subscriber
// that is served by several nodes needs this when it gets partitions: the former owner may have
// delivered any change up to the end of its term, and a document that is older than such a change
// must not follow it.
func (s *Session) DocumentsFrom(t change.Timestamp) {
	s.await(func(s *stream) {
		if t.Compare(s.documentsFrom) > 0 {
			s.documentsFrom = t
		}
	})
}

// resumeSnapshots resumes or begins the snapshots of new subscriptions. There may be thousands, so
// all that begin are noted at once, and left from now on wherever the subscriber is by its
// acknowledgements.
func (s *stream) resumeSnapshots(added []*Subscription) {
	if s.cfg.Unknown {
		return
	}
	s.mu.Lock()
	before, begun := make(map[string]snapshot.Progress, len(s.mu.snapshots)), make(map[string]snapshot.Progress)
	for _, p := range s.mu.snapshots {
		before[p.Subscription] = p
	}
	for _, sub := range added {
		switch p, has := before[sub.ID]; {
		case !has && (sub.Snapshot || s.cfg.Snapshot):
			begun[sub.ID] = sub.newProgress(nil, snapshot.Start, nil)
		case has && p.Filter != FilterHash(sub.Program):
			begun[sub.ID] = sub.newProgress(&p, p.Reason, nil)
		}
	}
	if len(begun) > 0 {
		for i := range s.mu.unacked {
			s.mu.unacked[i].snapshots = replacedAll(s.mu.unacked[i].snapshots, begun)
		}
		s.setSnapshots(replacedAll(s.mu.snapshots, begun))
	}
	s.mu.Unlock()
	for _, sub := range added {
		if p, begins := begun[sub.ID]; begins {
			s.beginWith(sub, p, nil)
		} else if p, has := before[sub.ID]; has && !p.Done {
			s.hub.traceSnapshot(sub, p)
		}
	}
}

// advance continues the snapshot of a live subscription.
func (l *loop) advance(sub *Subscription) {
	p := sub.progress()
	reads := p != nil && !p.Done && !p.Paused
	switch {
	case !reads || l.cfg.Snapshots == nil:
	case !p.Listed:
		l.list(sub)
	case len(p.Left) == 0:
		l.gone(sub)
		done := *p
		done.Done = true
		done.At = change.Later(sub.stream.at(), sub.session.position()).Time
		sub.stream.mark(sub, SnapshotDone, done, done.Some)
	default:
		for _, left := range p.Left {
			if !slices.ContainsFunc(sub.readers, func(r *reader) bool { return r.Left.Namespace == left.Namespace }) {
				r := &reader{Left: left, Who: sub, Identity: sub.session.cfg.Identity, Ended: sub.session.done}
				sub.readers = append(sub.readers, r)
				l.scanner.Offer(r)
			}
		}
	}
}

// mark queues a snapshot mark, which concerns some collections or, if there are none, all of the
// subscription, and then updates the progress.
func (s *stream) mark(sub *Subscription, state SnapshotState, p snapshot.Progress, some []change.Namespace) {
	s.queue(s.position())
	sub.forgetAhead()
	m := &SnapshotMark{Subscription: sub.ID, State: state, Reason: p.Reason, Read: p.Read, Estimated: p.Estimated}
	for _, ns := range some {
		m.Namespaces = append(m.Namespaces, ns.String())
	}
	s.mu.Lock()
	after, stamp := s.replacing(sub.ID, &p)
	s.mu.Unlock()
	s.open = &Batch{Snapshot: m, Stamp: stamp, Snapshots: after}
	s.queue(change.Later(s.at(), s.position()))
	s.setProgress(sub.ID, &p)
	sub.marked(state, p)
}

// relist is the wait after collections could not be listed.
const relist = time.Second

// list asks for the collections of a subscription's snapshot. Collections created later begin with
// changes. Snapshots of the same collections share a listing, and the next one begins when it has
// ended: one client must not keep all connections to MongoDB busy.
func (l *loop) list(sub *Subscription) {
	if sub.listing {
		return
	}
	sub.listing = true
	f := sub.Program.Filter()
	of := change.Namespace{DB: f.DB, Coll: f.Coll}
	waiting, isListed := l.unlisted[of]
	l.unlisted[of] = append(waiting, listing{sub: sub, losses: sub.losses})
	if !isListed {
		l.start(func(ctx context.Context) { l.listAll(ctx, of) })
	}
}

// listAll lists collections as long as snapshots wait for them.
func (l *loop) listAll(ctx context.Context, of change.Namespace) {
	for {
		var all []listing
		isRunning := l.do(ctx, func(l *loop) {
			if all = l.unlisted[of]; len(all) == 0 {
				delete(l.unlisted, of)
			} else {
				l.unlisted[of] = nil
			}
		})
		if !isRunning || len(all) == 0 {
			return
		}
		collections, at, err := l.cfg.Snapshots.Collections(ctx, of.DB, of.Coll)
		if err != nil {
			l.cfg.Logger.Warn("listing collections for a snapshot failed", "error", err)
			if retry.Sleep(ctx, relist) != nil {
				return
			}
		}
		l.do(ctx, func(l *loop) {
			for _, each := range all {
				if err == nil {
					each.collections = collections
					each.at = at
					l.listings = append(l.listings, each)
					continue
				}
				each.sub.listing = false
				if l.subscriptions[each.sub.key] == each.sub {
					l.advance(each.sub)
				}
			}
			l.beginListed()
		})
	}
}

// beginListed begins the snapshots whose collections are listed, if the Hub has reached the time
// of the listing: a collection that was dropped before it is still there for the session. One that
// has come meanwhile begins with changes, unless a loss says that there were none, or that another
// one was renamed to its name: then the collections are listed again.
func (l *loop) beginListed() {
	waiting := l.listings
	l.listings = nil
	for _, of := range waiting {
		if of.at.Compare(l.at.Time) > 0 {
			l.listings = append(l.listings, of)
			continue
		}
		of.sub.listing = false
		p := of.sub.progress()
		switch {
		case l.subscriptions[of.sub.key] != of.sub || p == nil || p.Listed:
			continue
		case of.losses == of.sub.losses:
			l.listed(of.sub, *p, of.collections)
		}
		l.advance(of.sub)
	}
}

// listed begins to read the listed collections. A snapshot that partitions have joined continues
// the present collection at its place.
func (l *loop) listed(sub *Subscription, p snapshot.Progress, collections []snapshot.Collection) {
	before := p.Left
	p.Listed, p.Left = true, nil
	for _, c := range collections {
		left := snapshot.Left{Namespace: c.Namespace}
		if i := slices.IndexFunc(before, func(l snapshot.Left) bool { return l.Namespace == c.Namespace }); i >= 0 {
			left = before[i]
		}
		p.Left = append(p.Left, left)
		p.Estimated += uint64(max(0, c.Documents))
	}
	sub.stream.mark(sub, SnapshotBegun, p, p.Some)
}

// abandon takes a subscription out of all scans. Called by the owner.
func (sub *Subscription) abandon() {
	if len(sub.readers) > 0 {
		for _, r := range sub.readers {
			r.Gone.Store(true)
		}
		sub.session.hub.retries.leave()
	}
	sub.readers = nil
	sub.forgetAhead()
}

// replaced restarts a collection that another one was renamed to, for the incomplete snapshots that
// have read a part of it.
func (s *stream) replaced(namespace string) {
	db, coll, _ := strings.Cut(namespace, ".")
	ns := change.Namespace{DB: db, Coll: coll}
	for _, sub := range s.byKey {
		p := sub.progress()
		reads := p != nil && !p.Done && p.Listed
		if !reads || !sub.Program.Filter().Includes(ns) {
			continue
		}
		fresh := snapshot.Left{Namespace: ns}
		i := slices.IndexFunc(p.Left, func(l snapshot.Left) bool { return l.Namespace == fresh.Namespace })
		next := *p
		next.Left = slices.Clone(p.Left)
		switch {
		case i >= 0:
			next.Left[i] = fresh
		case len(p.Some) == 0 || slices.Contains(p.Some, fresh.Namespace):
			next.Left = append(next.Left, fresh)
		default:
			continue
		}
		sub.abandon()
		s.setProgress(sub.ID, &next)
		if s.loop != nil {
			s.loop.advance(sub)
		}
	}
}

// gone reports to a subscription, at the end of a snapshot, the documents that it got before and
// that do not exist now.
func (l *loop) gone(sub *Subscription) {
	if sub.known == nil {
		return
	}
	partitioner := l.log.Partitioner()
	s := sub.stream
	place := change.Later(s.at(), s.position())
	for key, doc := range sub.known.of {
		if !doc.stale {
			continue
		}
		left, err := change.LeftAt(doc.ns, doc.id, l.at.Time)
		if err != nil {
			continue
		}
		p, _ := partitioner.Of(&left)
		s.leftWriter.Next(&left)
		if payload, err := s.leftWriter.Append(nil, sub.Form); err == nil && s.has(p, true) {
			s.openEvents(len(payload))
			b := s.open
			e := Event{Ref: place.Ref(), Partition: p, Format: sub.Form.Format, Subscriptions: sub.ids, Snapshot: true}
			b.add(e, append(b.payloads, payload...))
			if !b.grows() {
				s.queue(place)
			}
		}
		s.remembers(-doc.size(key))
		delete(sub.known.of, key)
	}
	s.queue(place)
}
