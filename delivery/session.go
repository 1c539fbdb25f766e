package delivery

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
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

// A trail is the span of a subscription's snapshot, from its beginning to its end. It belongs to
// the owner of the session.
type trail struct {
	span  trace.Span
	pages int // that were read
}

// A reader is a subscription that reads a collection.
type reader = snapshot.Reader[*Subscription]

// aheads are the documents that updates have brought whole since a snapshot began. MongoDB looks
// such a document up when the change is read, so that it may be newer than the time of a page that
// follows, and the page must not bring an older one. Whenever that was, it is no older than the
// page: nothing has changed the document between its last change and the page, or that would be its
// last change. It belongs to the owner of the session.
type aheads map[string]struct{}

// knownDocuments records the documents sent to a subscription with Leaves: those that match its
// filter, as far as its subscriber knows. It belongs to the owner of the session.
type knownDocuments struct {
	whole bool                     // it has all of them
	of    map[string]knownDocument // by key
	buf   []byte
}

// A knownDocument is one of them.
type knownDocument struct {
	ns    change.Namespace
	id    change.Value
	stale bool // it was not sent since its snapshot has begun
}

// leavers are the subscriptions with Leaves by the namespaces that their filters select; an empty
// name is every one.
type leavers map[change.Namespace]map[*Subscription]struct{}

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

// Readable returns the part of a list of namespaces (db.coll, or db.*; empty means everything) that
// a subscriber may know of, and whether that is anything.
type Readable func(namespaces []string) (readable []string, some bool)

// A Session is a subscriber's stream. Its methods are safe for concurrent use. A stream is its
// other half.
type Session struct {
	hub      *Hub
	cfg      SessionConfig
	account  *fair.Account // nil: no limits
	part     *fair.Part    // of the memory of all sessions
	received chan struct{} // holds one signal: something may be ready for Receive
	stirred  chan struct{} // holds one signal for a catch-up that waits
	turns    atomic.Uint64 // of the session's own loop that were requested; 0 while none runs
	run      func()        // runs the loop
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

// An outbox has the batches that a session has queued, and its subscriber has not acknowledged.
type outbox struct {
	queue     []*Batch
	spare     *Batch    // see Recycle; nil if there is none
	fills     bool      // more is being queued, and goes out together
	unacked   []unacked // queued or sent and not acknowledged, in order
	last      uint64    // the last Seq
	given     uint64    // the last Seq that was received
	delivered uint64    // the last Seq that was written to a subscriber that acknowledges
}

// A counts has the numbers and sizes of queued and acknowledged events.
type counts struct {
	events, bytes int       // of unacked
	attached      int       // partitions in unacknowledged batches that attach them
	held          int       // bytes of memory that count against the budget
	released      bool      // nothing counts from now on
	owes          time.Time // since when the subscriber has acknowledged none of its batches; zero if it owes nothing
	acked         uint64    // events
	lost          []Loss    // of the subscriber alone, acknowledged, at most maxLost
	losses        uint64    // of the subscriber alone, queued or acknowledged
}

// A stream is the half of a session that only its owner may touch: the Hub's loop while the session
// is on the live path, otherwise its own loop. Functions that have a stream are called by the
// owner; others go through Session.do.
type stream struct {
	*Session
	streamDocuments

	loop          *loop // that of the Hub while the session is on the live path, nil off it
	subscriptions map[string]*Subscription
	byKey         map[match.ID]*Subscription
	leavers       leavers
	groups        map[string]*group
	seen          *seen           // nil if everything that follows is new
	began         Place           // where reading has begun; Begins if all partitions begin with the log
	reread        oplog.Reread    // zero once that is over, so on the live path; see Reread
	announced     oplog.Reread    // that begins when partitions are attached; zero if none does
	kept          *oplog.Cursor   // of the last catch-up, if the next one may continue with its stream
	from          change.Position // on the live path: everything up to here was considered before; zero if the Hub is later
	lapsed        *oplog.Loss     // for delivery before the next attached partition; nil if none
	paused        bool            // reading has stopped
	expense       fair.Expense
	unwatch       func() bool // ends the watch of the context

	// The batch that is being filled.
	open       *Batch
	usual      usual           // typical size of a batch
	matched    []*Subscription // subscriptions that match the current event
	matching   []*group        // that match the current event
	without    []*Subscription // for which a document has stopped to match with the current event
	leftWriter Writer
	buf        []byte // for keys
}

// streamDocuments is the knowledge of a stream about documents.
type streamDocuments struct {
	remembered    int                 // bytes that its subscriptions use to remember sent ones
	documentsFrom change.Timestamp    // earlier ones are not for it; see DocumentsFrom
	owed          []snapshot.Progress // see Owe
	standing      bool                // it waits at the time of its hold
}

// A usual is the size of the previous batch, which is preallocated for the next one.
type usual struct{ events, bytes int }

// An unacked is an unacknowledged batch.
type unacked struct {
	seq           uint64
	before        change.Position // end of the previous batch
	to            change.Position
	events, bytes int
	attached      int // partitions
	held          int // bytes that count against the budget
	loss          *Loss
	reading       *reading
	snapshots     []snapshot.Progress // before it
	lease         *fair.Lease
	queued        time.Time
	written       time.Time // zero until then, and of transports that acknowledge by themselves
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

// A window is the time in which a session continues to deliver an attached partition that has moved
// to another node.
type window struct {
	term    change.Term
	joined  uint64 // the batch that attaches the partition
	removed bool   // the session reads nothing more of the partition
	told    uint64 // the last batch that says that the session does not have the partition, 0 for none
	until   uint64 // the last batch before it was attached again
}

// A standstill is a pause of a session for pages: the session considers everything up to at, takes
// the pages there, and continues. So a page, which is read at this time, is exact, whatever the
// session's place and filter and however often the documents change. The mutex of the session
// guards it.
type standstill struct {
	at    change.Timestamp
	takes []taking // that the session has not taken yet, in the order of their pages
	last  bool     // no page comes after these
}

// A taking is a subscription's part of a page.
type taking struct {
	reader *reader
	page   *page
	left   snapshot.Left // after it
	passes bool          // left has moved on
	done   bool
	read   int
}

// A page is a page of documents, encoded for its readers, which share it. It is not changed once
// they have it.
type page struct {
	namespace   change.Namespace
	documents   []document
	of          map[*reader][]pageHit
	payloads    *pagePayloads
	lease       *fair.Lease
	begun, over time.Time                  // when it was read
	costly      map[*Session]*Subscription // whose filters cost too much on it
}

// pagePayloads are the encoded documents of a page. They are not changed before the last of their
// holders has given them up: those that take the page, and batches with its documents.
type pagePayloads struct {
	holders atomic.Int32
	bytes   []byte
}

type document struct {
	id        change.Value
	partition change.Partition
	out       bool // it is not in the page, because changes during the read hide its state
}

// A pageHit is a document that a reader receives.
type pageHit struct {
	document int32
	from, to int32 // in the page's payloads
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
		s.stir()
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

// Attached reports whether the session has only partitions that were attached to it.
func (s *Session) Attached() bool { return s.attached.Load() != nil }

// Cause returns why the session has ended, nil while it has not.
func (s *Session) Cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.cause
}

// Ended reports whether the session has ended.
func (s *Session) Ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
