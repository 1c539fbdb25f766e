package delivery

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/snapshot"
)

// ErrClosed says that the session has ended.
var ErrClosed = errors.New("session closed")

// A Subscription is a filter of a session.
type Subscription struct {
	ID      string
	Program *match.Program
	Form    Form
	// Snapshot begins with the current documents, unless the subscriber already has them.
	Snapshot bool
	// Recover sends the current documents again after a loss.
	Recover bool
	// Leaves also reports that a document stops matching: with an event of the operation type left,
	// with the key. This concerns a document that matched by its image before, otherwise one that
	// was sent; if both are unknown, any document.
	Leaves bool
	// Fresh says that the subscriber has no document of this subscription, so that the sent ones
	// are all that can leave.
	Fresh bool
	// Missing says, for people, that the namespace does not exist yet (Hub.Compile). The subscriber
	// gets it as a notice.
	Missing string

	session *Session
	stream  *stream // of session
	key     match.ID
	ids     []string    // ID alone
	group   *group      // of the subscriptions with an equal form
	failed  *errorLimit // reports failed evaluations
	traced  *trail      // of its snapshot, nil while none is recorded
	listing bool        // the collections of its snapshot are being listed
	losses  int         // that it has got
	ahead   aheads
	readers []*reader       // of its snapshot, while the session is live
	known   *knownDocuments // with Leaves
	hit     bool            // it matches the current event
}

// A group is the subscriptions of a session that have an equal form.
type group struct {
	form Form
	size int
	// ids are those of the subscriptions that match the current event; one is a subscription among
	// them.
	ids []string
	one *Subscription
}

// SessionConfig configures a Session.
type SessionConfig struct {
	// Subscriber is the name of the subscriber in logs and statistics; may be empty. Identity is
	// whose it is, for its share of the budget.
	Subscriber, Identity string
	// Account identifies the identity whose sessions share what their filters may cost. Empty means
	// no limit: the session is the node's own.
	Account string
	// Start is the subscriber's position: it has seen everything up to there.
	Start Place
	// Partitions are the partitions with another position.
	Partitions map[change.Partition]Place
	// Earliest says that Start was the beginning of the log at the request: changes that have left
	// the log since are not reported as a loss.
	Earliest bool
	// Snapshot begins every subscription with the current documents, unless the subscriber already
	// has them.
	Snapshot bool
	// Snapshots is the progress of the snapshots of its subscriptions. Unknown says that it could
	// not be loaded: then no subscription begins a snapshot, because it may have had it, nor
	// continues one.
	Snapshots []snapshot.Progress
	Unknown   bool
	// Generation is the checkpoint generation of the position.
	Generation uint64
	// Attached delivers only partitions that Attach names; otherwise the session has all
	// partitions.
	Attached bool
	// Owner delivers an attached partition only during its term, and an event without a document
	// only with partition 0, so that one of the nodes that serve a subscriber together delivers it.
	Owner bool
	// Detachable says that the subscriber handles Batch.Detached.
	Detachable bool
	// Lapsed is a loss of the subscriber alone, up to where it is, nil if there is none. It comes
	// first.
	Lapsed *oplog.Loss
	// Readable is that of the Request.
	Readable Readable
	// CreditEvents and CreditBytes bound the events that are queued or sent and not acknowledged.
	// Default to those of the Hub.
	CreditEvents, CreditBytes int
}

// A Session is a subscriber's stream. Its methods are safe for concurrent use. This half of it is
// for everybody; the other one is a stream.
type Session struct {
	hub      *Hub
	cfg      SessionConfig
	account  *fair.Account // nil: no limits
	part     *fair.Part    // of the memory of all sessions
	received chan struct{} // holds one signal: something may be ready for Receive
	stirred  chan struct{} // holds one signal for the session's own loop
	// filtersAsked holds one value during a request for the owner's subscriptions.
	filtersAsked chan struct{}
	done         chan struct{}

	// attached are the partitions of the session, nil for all. The owner replaces the map and never
	// modifies it.
	attached atomic.Pointer[map[change.Partition]change.Term]
	limited  atomic.Bool // some have a window
	reads    atomic.Bool // a snapshot is not complete

	mu struct {
		sync.Mutex
		outbox
		counts
		places

		mailbox []func(*stream) // for the owner; callers that add something wait for it, except for rewinds
		live    bool
		notices []Notice
		cause   error
	}
}

// A places is where a session is in the log, in its partitions and in its snapshots.
type places struct {
	considered change.Position // everything up to here was queued or considered; on the live path the Hub may be later
	follows    bool            // the Hub: the session has considered the Hub's events
	hold       *standstill
	reading    *reading            // the state of the subscriber where reading began
	snapshots  []snapshot.Progress // replaced, never modified
	stamp      uint32              // of snapshots
	joined     map[change.Partition]attachment
	cuts       map[change.Partition]cut // of partitions that leave
	windows    map[change.Partition]*window
	rewound    attachment // the last rewind, and its batch
}

// A stream is the half of a session that only its owner may touch: the Hub's loop while the session
// is on the live path, otherwise its own loop. Whoever has one is called by the owner; others ask
// for it with Session.do.
type stream struct {
	*Session

	loop          *loop // that of the Hub while the session is on the live path, nil off it
	subscriptions map[string]*Subscription
	byKey         map[match.ID]*Subscription
	leavers       leavers
	groups        map[string]*group
	seen          *seen           // nil if everything that follows is new
	reread        oplog.Reread    // zero once that is over, so on the live path; see Reread
	from          change.Position // on the live path: everything up to here was considered before; zero if the Hub is later
	lapsed        *oplog.Loss     // for delivery before the next attached partition; nil if none
	paused        bool            // reading has stopped
	expense       fair.Expense

	// The batch that is being filled.
	open       *Batch
	usual      usual           // typical size of a batch
	matched    []*Subscription // subscriptions that match the current event
	matching   []*group        // that match the current event
	without    []*Subscription // for which a document has stopped to match with the current event
	leftWriter Writer
	buf        []byte // for keys

	// Of documents.
	remembered    int                 // bytes that its subscriptions use to remember sent documents
	documentsFrom change.Timestamp    // earlier documents are not for it; see DocumentsFrom
	owed          []snapshot.Progress // see Owe
	standing      bool                // it waits at the time of its hold
}

// A reading is the subscriber's state at the start of reading or after a rewind: it had everything
// up to rest, or to the position in of for some partitions. Later acknowledgements belong to the
// generation.
type reading struct {
	rest       change.Position
	of         map[change.Partition]change.Position
	generation uint64
}

// reached returns the subscriber's position in a partition when everything up to acked has been
// acknowledged.
func (r *reading) reached(p change.Partition, acked change.Position) change.Position {
	had, elsewhere := r.of[p]
	if !elsewhere {
		had = r.rest
	}
	return change.Later(acked, had)
}

// newReading returns a reading for a subscriber at rest, and at other places in some partitions.
func newReading(rest Place, of map[change.Partition]Place, generation uint64) *reading {
	r := &reading{rest: rest.From(), of: make(map[change.Partition]change.Position, len(of)), generation: generation}
	for p, place := range of {
		r.of[p] = place.From()
	}
	return r
}

// An attachment is the position at which, and the batch after which, a partition was attached or
// all were rewound.
type attachment struct {
	at  change.Position
	seq uint64
}

// A cut is where a partition leaves: the last batch whose events are handed over, its end, and the
// progress of the snapshots after it.
type cut struct {
	attachment

	snapshots []snapshot.Progress
}

// A Notice is information about the service without a place in the log.
type Notice struct {
	Kind, Text, Subscription string
	Code                     fault.Code
	At                       time.Time
	// Partitions are the affected partitions; empty means all.
	Partitions []change.Partition
	// Namespaces are the namespaces that it concerns; empty means none in particular. It is only
	// for subscribers that may read one of them. Private says that it is only for those that may
	// read everything: it names other subscribers or members, or contains an error of a dependency.
	Namespaces []string
	Private    bool
}

// Prune removes events that may not be handed over: those whose term or window has ended, or that
// were queued before their partition was attached under its current term. The transport calls it
// right before it hands over a batch. The next owner, or later batches, deliver the removed events.
func (s *Session) Prune(b *Batch) {
	switch {
	case s.cfg.Owner:
		over := make(map[change.Partition]bool)
		b.prune(func(e *Event) bool {
			is, looked := over[e.Partition]
			if !looked {
				_, hands := s.Term(e.Partition, b.Seq)
				is, over[e.Partition] = !hands, !hands
			}
			return is
		})
	case s.limited.Load():
		over := s.closeWindows(b)
		b.prune(func(e *Event) bool { return over[e.Partition] && !e.Keyless })
	}
}

// Term returns the term under which events of a partition in a batch may be handed over, false if
// they may not.
func (s *Session) Term(p change.Partition, seq uint64) (change.Term, bool) {
	term, there := (*s.attached.Load())[p]
	if !there || term.Err() != nil {
		return term, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cut, leaves := s.mu.cuts[p]
	return term, seq > s.mu.joined[p].seq && (!leaves || seq <= cut.seq)
}

// Notify queues a notice, or drops it if too many are queued. It never blocks.
func (s *Session) Notify(n Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.notices) < maxNotices {
		s.mu.notices = append(s.mu.notices, n)
	}
	wake.Notify(s.received)
}

// maxNotices bounds the queued notices of a session.
const maxNotices = 100

// Close ends the session. Receive then returns cause, or ErrClosed if it is nil.
func (s *Session) Close(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cause == nil {
		s.mu.cause = cause
		close(s.done)
	}
}

// Outlives waits, and reports whether the session has not ended meanwhile.
func (s *Session) Outlives(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.done:
		return false
	}
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// do queues a function for the owner, which calls it between two replies. It returns at once.
func (s *Session) do(f func(*stream)) {
	s.mu.Lock()
	s.mu.mailbox = append(s.mu.mailbox, f)
	s.mu.Unlock()
	wake.Notify(s.stirred)
	s.hub.poke(s)
}

// await calls a function in the owner and waits for it. It returns false if the session ends first.
func (s *Session) await(f func(*stream)) bool {
	did := make(chan struct{})
	s.do(func(s *stream) { f(s); close(did) })
	select {
	case <-did:
		return true
	case <-s.done:
		return false
	}
}

// handle calls the functions in the mailbox while the caller owns the session.
func (s *stream) handle(live bool) {
	for {
		s.mu.Lock()
		if s.mu.live != live || len(s.mu.mailbox) == 0 {
			s.mu.Unlock()
			return
		}
		f := s.mu.mailbox[0]
		s.mu.mailbox = s.mu.mailbox[1:]
		s.mu.Unlock()
		f(s)
	}
}

// Subscribe adds subscriptions, or replaces those with the same IDs, and returns the position after
// which they apply.
func (s *Session) Subscribe(subscriptions []Subscription) (from change.Position) {
	s.await(func(s *stream) {
		s.add(subscriptions)
		from = s.at()
	})
	return from
}

// Unsubscribe removes subscriptions. Unknown IDs are ignored.
func (s *Session) Unsubscribe(ids []string) {
	s.await(func(s *stream) {
		for _, id := range ids {
			s.remove(id)
		}
	})
}

// add adds copies of the subscriptions: the caller may keep and use its own, even while this
// session ends.
func (s *stream) add(subscriptions []Subscription) {
	added := make([]*Subscription, 0, len(subscriptions))
	for _, subscription := range subscriptions {
		sub := &subscription
		s.remove(sub.ID)
		sub.Form = sub.Form.keyed()
		if sub.group = s.groups[sub.Form.key]; sub.group == nil {
			sub.group = &group{form: sub.Form}
			s.groups[sub.Form.key] = sub.group
		}
		sub.group.size++
		sub.session, sub.stream, sub.key, sub.ids = s.Session, s, match.ID(s.hub.lastKey.Add(1)), []string{sub.ID}
		sub.failed = newErrorLimit(func(text string, last error) {
			s.Notify(Notice{Kind: "filter_failed", Text: text, Subscription: sub.ID, Code: fault.Of(last), At: time.Now()})
		})
		s.subscriptions[sub.ID], s.byKey[sub.key] = sub, sub
		if warning := sub.Program.Warning(); warning != "" {
			s.Notify(Notice{Kind: "filter_doubtful", Text: warning, Subscription: sub.ID, Code: fault.FilterDoubtful, At: time.Now()})
		}
		if sub.Missing != "" {
			s.Notify(missingNotice(sub.ID, sub.Missing))
		}
		if sub.Leaves {
			s.leavers.add(sub)
			sub.known = &knownDocuments{whole: sub.Fresh && !s.cfg.Attached, of: make(map[string]knownDocument)}
		}
		if s.loop != nil {
			s.loop.include(sub)
		}
		added = append(added, sub)
	}
	s.resumeSnapshots(slices.DeleteFunc(added, func(sub *Subscription) bool { return s.subscriptions[sub.ID] != sub }))
}

// remove removes a subscription.
func (s *stream) remove(id string) {
	sub := s.subscriptions[id]
	if sub == nil {
		return
	}
	delete(s.subscriptions, id)
	delete(s.byKey, sub.key)
	if sub.known != nil {
		s.leavers.remove(sub)
		for key, doc := range sub.known.of {
			s.remembers(-doc.size(key))
		}
	}
	if sub.group.size--; sub.group.size == 0 {
		delete(s.groups, sub.Form.key)
	}
	if s.loop != nil {
		s.loop.exclude(sub)
	}
	sub.abandon()
	sub.endTrail()
	s.setProgress(id, nil)
}

// isLive reports whether the Hub's loop owns the session.
func (s *Session) isLive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.live
}

// at returns the position up to which the session has considered the log.
func (s *stream) at() change.Position {
	if s.loop != nil {
		return change.Later(s.loop.at, s.from)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.considered
}

// has reports whether the session delivers an event of a partition.
func (s *Session) has(p change.Partition, keyed bool) bool {
	attached := s.attached.Load()
	switch {
	case attached == nil:
		return true
	case !keyed && !s.cfg.Owner:
		return len(*attached) > 0
	case !keyed:
		p = 0
	}
	_, ok := (*attached)[p]
	return ok
}

// position returns the end of the last batch, or where the session began.
func (s *Session) position() change.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.considered
}

// A SessionState is the state of a session.
type SessionState struct {
	// At is the position up to which everything is acknowledged; zero for a session with attached
	// partitions.
	At change.Position
	// Partitions are the partitions that are acknowledged further than At or less, or all attached
	// ones.
	Partitions map[change.Partition]change.Position
	// Events, Bytes and Losses are queued or sent and not acknowledged. Live says that the session
	// is on the live path.
	Events, Bytes, Losses int
	Live                  bool
	// Owes returns the time since which the subscriber has acknowledged nothing although it got
	// events; zero if it owes nothing.
	Owes time.Time
	// Acked counts acknowledged events.
	Acked uint64
	// Lost are the losses of the subscriber alone that it has acknowledged in this session, oldest
	// first. Own counts those that it was sent.
	Lost []Loss
	Own  uint64
	// Snapshots is the progress of its snapshots, Leaving that of the partitions that leave:
	// documents that are read later are not delivered for them.
	Snapshots []snapshot.Progress
	Leaving   map[change.Partition][]snapshot.Progress
	// Generation is the checkpoint generation of the positions: a rewind raises it once all earlier
	// batches are acknowledged.
	Generation uint64
}

// State returns the state of the session.
func (s *Session) State() SessionState {
	attached, hub := s.attached.Load(), s.hub.Position()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := SessionState{Live: s.mu.live, Acked: s.mu.acked, Events: s.mu.events, Bytes: s.mu.bytes, Owes: s.mu.owes, Partitions: make(map[change.Partition]change.Position)}
	st.Lost, st.Own = slices.Clone(s.mu.lost), s.mu.losses
	for _, b := range s.mu.unacked {
		if b.loss != nil {
			st.Losses++
		}
	}
	acked, reading, oldest := s.mu.considered, s.mu.reading, s.mu.last+1
	st.Snapshots = s.mu.snapshots
	switch {
	case len(s.mu.unacked) > 0:
		first := s.mu.unacked[0]
		acked, reading, oldest, st.Snapshots = first.before, first.reading, first.seq, first.snapshots
	case s.mu.follows:
		acked = change.Later(hub, acked)
	}
	st.Generation = reading.generation
	if attached != nil {
		for p := range *attached {
			if a := s.mu.joined[p]; oldest <= a.seq {
				st.Partitions[p] = a.at
			} else {
				st.Partitions[p] = reading.reached(p, acked)
			}
			cut, leaves := s.mu.cuts[p]
			if leaves && st.Partitions[p].After(cut.at) {
				st.Partitions[p] = cut.at
			}
			if leaves && oldest > cut.seq {
				if st.Leaving == nil {
					st.Leaving = make(map[change.Partition][]snapshot.Progress)
				}
				st.Leaving[p] = cut.snapshots
			}
		}
		return st
	}
	st.At = change.Later(acked, reading.rest)
	for p := range reading.of {
		if at := reading.reached(p, acked); at.Compare(st.At) != 0 {
			st.Partitions[p] = at
		}
	}
	return st
}

// Cut ends the delivery of partitions with the last received batch, and returns its number. Neither
// their checkpoints nor the progress of snapshots in them pass it.
func (s *Session) Cut(partitions []change.Partition) (last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range partitions {
		s.cutAfter(p, s.mu.given)
	}
	return s.mu.given
}

// cutAfter ends the delivery of a partition with a batch. The caller holds the mutex.
func (s *Session) cutAfter(p change.Partition, last uint64) {
	end, reading, snapshots := s.mu.considered, s.mu.reading, s.mu.snapshots
	if i := slices.IndexFunc(s.mu.unacked, func(b unacked) bool { return b.seq > last }); i >= 0 {
		first := s.mu.unacked[i]
		end, reading, snapshots = first.before, first.reading, first.snapshots
	}
	at := reading.reached(p, end)
	// Batches from before the partition was attached, the last time, know another place of it.
	if a, has := s.mu.joined[p]; has && last <= a.seq {
		at = a.at
	}
	s.mu.cuts[p] = cut{attachment{at: at, seq: last}, snapshots}
}

// Attached reports whether the session has only partitions that were attached to it.
func (s *Session) Attached() bool { return s.attached.Load() != nil }

// Cause returns why the session has ended, nil while it has not.
func (s *Session) Cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.cause
}
