package admin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/streamer"
)

// A Subscriber is the public form of a subscriber, connected or not.
type Subscriber struct {
	Subscriber string `json:"subscriber"`
	Kind       Kind   `json:"kind"`
	// Position is its checkpoint's position, in the partition where it is earliest: later changes
	// are redelivered after a crash. It is nil if there is a session and no checkpoint yet.
	Position *Position `json:"position"`
	// Lag is how much log time there is between the subscriber and MongoDB's newest entry, and
	// Behind estimates how many entries of all collections: from where its session is, where that
	// is known for all its partitions, else from its checkpoint. Nil where it cannot be known, as
	// before the oplog.
	Lag    *float64 `json:"lag_seconds"`
	Behind *int64   `json:"entries_behind"`
	// HeadRoom is the log time until the checkpoint's position leaves the log, the oplog or the
	// retained one, at the present write rate; below zero it has left it. It is nil if the oplog's
	// oldest entry cannot be read, and while the oplog has not reached its size, because nothing
	// leaves it then.
	HeadRoom *float64 `json:"head_room_seconds"`
	// Generation counts the rewinds; of a shared subscriber it is the highest of its partitions.
	Generation uint64 `json:"generation"`
	// Claim says which process has an exclusive subscriber's name, and where it claimed it last.
	Claim *Claim `json:"claim,omitempty"`
	// Without is in how many partitions a shared subscriber has no checkpoint: it begins at the
	// origin's start there.
	Without int `json:"without_checkpoint"`
	// SavedAt is when the last checkpoint was saved, nil where there is none, SavedBy by which node
	// or operator, and why.
	SavedAt *time.Time        `json:"saved_at"`
	SavedBy string            `json:"saved_by,omitempty"`
	Reason  checkpoint.Reason `json:"reason,omitempty"`
	// Snapshots are those of an exclusive subscriber's subscriptions, by its checkpoint.
	Snapshots []Snapshot `json:"snapshots,omitempty"`
	// Losses are those of the subscriber alone, by its checkpoints, oldest first: it came back too
	// late for the oplog. Those of everybody are in the gap log.
	Losses []Gap `json:"losses,omitempty"`
	// Connected says whether the subscriber has a session; nil if unknown.
	Connected *bool `json:"connected"`
	// Session is that of the node that was asked, nil where it has none.
	Session *Session `json:"session,omitempty"`

	at   change.Position // by the checkpoint
	late *float64        // of a shared subscriber, in seconds, as the nodes report it
}

// A Session is the public form of a subscriber's session at a node.
type Session struct {
	Node string `json:"node"`
	// Live says that it is on the live path, otherwise it is catching up or has no credit.
	Live bool `json:"live"`
	// Position is where it has acknowledged everything, nil where that is nowhere yet; Partitions
	// is in how many the session serves it.
	Position   *Position `json:"position"`
	Partitions int       `json:"partitions"`
	Process    string    `json:"process,omitempty"`
	Identity   string    `json:"identity,omitempty"`
	Generation uint64    `json:"generation"`
	// Events and Bytes are queued or sent and not acknowledged, Losses are losses among them;
	// CreditEvents and CreditBytes may be queued or sent beyond.
	Events       int `json:"unacknowledged_events"`
	Bytes        int `json:"unacknowledged_bytes"`
	Losses       int `json:"unacknowledged_losses"`
	CreditEvents int `json:"credit_events"`
	CreditBytes  int `json:"credit_bytes"`
	// Owes is how long it has acknowledged none of its changes, in seconds; Overdue says that it
	// may soon be disconnected for that.
	Owes    float64 `json:"acknowledges_nothing_seconds,omitempty"`
	Overdue bool    `json:"overdue,omitempty"`
	// Acknowledged counts events since the session began.
	Acknowledged uint64 `json:"acknowledged_events"`
	// Snapshots are those of the session's subscriptions.
	Snapshots []Snapshot `json:"snapshots,omitempty"`
}

// A SubscriberList is all subscribers of a cluster that have a checkpoint, or a session at the node
// that was asked, by their names.
type SubscriberList struct {
	Origin Origin `json:"origin"`
	// Node is the node that has listed the connected subscribers, empty if none has.
	Node string `json:"node,omitempty"`
	// NewestEntry is the time of MongoDB's newest entry, and OplogBegins of the oldest one that can
	// be read; nil where they cannot be known.
	NewestEntry *time.Time `json:"newest_entry"`
	OplogBegins *time.Time `json:"oplog_begins"`
	// OplogOldest is the time of the oplog's own oldest entry, nil unless the retained log has
	// earlier ones.
	OplogOldest *time.Time   `json:"oplog_oldest,omitempty"`
	Subscribers []Subscriber `json:"subscribers"`
	// Error says why some checkpoints cannot be read, LogError why nothing is known of the oplog.
	Error    string `json:"error,omitempty"`
	LogError string `json:"log_error,omitempty"`
}

// A group is the checkpoints of a subscriber.
type group struct {
	key              checkpoint.Key // without a partition
	all              []checkpoint.Checkpoint
	without          int
	earliest, latest change.Position
}

// grouped puts the checkpoints of each subscriber together, in the order of their names. Where a
// shared one has none it is at the origin's start.
func grouped(all []checkpoint.Checkpoint, origin checkpoint.Origin) (groups []*group) {
	checkpoint.Sort(all)
	by := make(map[checkpoint.Key]*group) // partition 0 represents all
	for _, c := range all {
		of := checkpoint.Key{Subscriber: c.Subscriber, Shared: c.Shared}
		g := by[of]
		if g == nil {
			g = &group{key: of}
			by[of] = g
			groups = append(groups, g)
		}
		g.all = append(g.all, c)
		if at := c.Earliest(); g.earliest.IsZero() || g.earliest.After(at) {
			g.earliest = at
		}
		g.latest = change.Later(g.latest, c.Latest())
	}
	for _, g := range groups {
		if g.key.Shared && len(g.all) < origin.Partitions {
			g.without = origin.Partitions - len(g.all)
			if start := change.At(origin.Start); g.earliest.After(start) {
				g.earliest = start
			}
		}
	}
	return groups
}

// snapshots returns how many snapshots are under way.
func (g *group) snapshots() (n int) {
	for _, c := range g.all {
		for _, s := range c.Snapshots {
			if !s.Done {
				n++
			}
		}
	}
	return n
}

// row returns the public form of a subscriber.
func (g *group) row() Subscriber {
	position := ShowPosition(g.earliest)
	row := Subscriber{
		Subscriber: g.key.Subscriber, Kind: kindOf(g.key), Position: &position, Claim: showClaim(g.all[0]), Without: g.without, at: g.earliest,
	}
	if !g.key.Shared {
		row.Snapshots = showSnapshots(g.all[0].Snapshots)
	}
	for _, c := range g.all {
		row.Generation = max(row.Generation, c.Generation)
		for _, l := range ShowGaps(c.Losses) { // each partition of a shared subscriber has it
			if !slices.ContainsFunc(row.Losses, func(g Gap) bool { return g.ID == l.ID }) {
				row.Losses = append(row.Losses, l)
			}
		}
		if row.SavedAt == nil || c.At.After(*row.SavedAt) {
			row.SavedAt = &c.At
			row.SavedBy = c.By
			row.Reason = c.Reason
		}
	}
	return row
}

// Subscribers returns the subscribers from their checkpoints. If some checkpoints are unreadable it
// returns the others, with an error.
func Subscribers(ctx context.Context, s Store) (*SubscriberList, error) {
	origin, err := ReadOrigin(ctx, s)
	if err != nil {
		return nil, err
	}
	list := &SubscriberList{Origin: ShowOrigin(origin), Subscribers: []Subscriber{}}
	all, unread := s.List(ctx)
	if unread != nil {
		list.Error = unread.Error()
	}
	for _, g := range grouped(all, origin) {
		list.Subscribers = append(list.Subscribers, g.row())
	}
	return list, unread
}

// Join adds the sessions from a node's answer.
func (l *SubscriberList) Join(answer *SubscriberList) {
	l.Node = answer.Node
	for i := range l.Subscribers {
		// A process claims its name where it connects: where that is the node that was asked, it
		// would know of the session.
		if row := &l.Subscribers[i]; row.Claim != nil && row.Claim.Node == answer.Node {
			no := false
			row.Connected = &no
		}
	}
	for _, told := range answer.Subscribers {
		if told.Session == nil {
			continue
		}
		is := func(s Subscriber) bool { return s.Subscriber == told.Subscriber && s.Kind == told.Kind }
		i := slices.IndexFunc(l.Subscribers, is)
		if i < 0 {
			i = len(l.Subscribers)
			l.Subscribers = append(l.Subscribers, Subscriber{Subscriber: told.Subscriber, Kind: told.Kind, Generation: told.Session.Generation})
		}
		yes := true
		l.Subscribers[i].Connected = &yes
		l.Subscribers[i].Session = told.Session
	}
	slices.SortStableFunc(l.Subscribers, func(a, b Subscriber) int {
		return cmp.Or(cmp.Compare(a.Subscriber, b.Subscriber), cmp.Compare(a.Kind, b.Kind))
	})
}

// narrow removes everything that an identity must not know. If it may not read everything, only its
// own subscribers stay, and the cluster data that its clients get anyway.
func (l *SubscriberList) narrow(i *access.Identity) {
	if i.Operates() {
		return
	}
	l.Origin.Source = ""
	l.Origin.By = ""
	l.Origin.Backend = Backend{}
	own := func(s Subscriber) bool {
		return i != nil && (s.Claim != nil && s.Claim.Identity == i.Owner() || s.Session != nil && s.Session.Identity == i.Owner())
	}
	l.Subscribers = slices.DeleteFunc(l.Subscribers, func(s Subscriber) bool { return !own(s) })
	for n := range l.Subscribers {
		l.Subscribers[n].SavedBy = "" // an operator, perhaps
		if c := l.Subscribers[n].Claim; c != nil && c.Identity != i.Owner() {
			l.Subscribers[n].Claim = nil
		}
		if s := l.Subscribers[n].Session; s != nil && s.Identity != i.Owner() {
			l.Subscribers[n].Session = nil
		}
	}
}

// sessions returns the list of a node that only has sessions.
func sessions(node string, all []streamer.SubscriberStatus) *SubscriberList {
	list := &SubscriberList{Node: node}
	for _, s := range all {
		session := &Session{
			Node: node, Live: s.Live, Partitions: s.Partitions, Process: s.Process, Identity: s.By, Generation: s.Generation, Events: s.Unacknowledged,
			Bytes: s.Bytes, Losses: s.Losses, CreditEvents: s.CreditEvents, CreditBytes: s.CreditBytes, Acknowledged: s.Acknowledged,
			Owes: s.Owes.Seconds(), Overdue: s.Overdue,
			Snapshots: showSnapshots(s.Snapshots),
		}
		if !s.Position.IsZero() {
			at := ShowPosition(s.Position)
			session.Position = &at
		}
		list.Subscribers = append(list.Subscribers, Subscriber{Subscriber: s.Name, Kind: kindOf(checkpoint.Key{Shared: s.Shared}), Session: session})
	}
	return list
}

// current returns the time up to which the subscriber has everything. That of a shared one is what
// the nodes say of their sessions, where all do: what waits for nothing is not late, however old
// its checkpoint is.
func (s *Subscriber) current(partitions int, now change.Timestamp) change.Timestamp {
	at := s.at.Time
	if s.late != nil {
		if by := (change.Timestamp{T: now.T - min(now.T, uint32(*s.late)), I: now.I}); by.Compare(at) > 0 {
			at = by
		}
	}
	if session := s.Session; session != nil && session.Position != nil && session.Partitions == partitions {
		if acked := (change.Timestamp{T: session.Position.T, I: session.Position.I}); acked.Compare(at) > 0 {
			at = acked
		}
	}
	return at
}

// measureTimeout bounds how long MongoDB may take to report its oplog, and again to count the
// entries.
const measureTimeout = 5 * time.Second

// A LogSource is a deployment that also reports whether its oplog has reached its size.
type LogSource interface {
	Source
	// Growing reports whether nothing leaves the oplog because it has not reached its size.
	Growing(ctx context.Context) bool
}

// Measure fills in the lag of the subscribers, and their distance from the end of the oplog. It
// leaves out data that MongoDB does not report.
func (l *SubscriberList) Measure(ctx context.Context, source LogSource) {
	if err := l.measure(ctx, source, &entryCount{}); err != nil {
		l.LogError = err.Error()
	}
}

// measure is Measure, and returns why nothing is known of the oplog.
func (l *SubscriberList) measure(ctx context.Context, source LogSource, counted *entryCount) error {
	asking, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	now, err := source.Now(asking)
	if err != nil {
		return err
	}
	reach, known, unread := extent(asking, source, now)
	newest := now.Time()
	l.NewestEntry = &newest
	if known {
		begins := reach.Begins().Time()
		l.OplogBegins = &begins
		if oldest := reach.First.Time(); reach.Begins() != reach.First {
			l.OplogOldest = &oldest
		}
	}
	var earliest change.Timestamp
	for i := range l.Subscribers {
		row := &l.Subscribers[i]
		at := row.current(l.Origin.Partitions, now)
		if at.IsZero() {
			continue
		}
		lag := max(0, now.Time().Sub(at.Time())).Seconds()
		row.Lag = &lag
		if room, leaves := reach.HeadRoom(row.at); known && leaves {
			s := room.Seconds()
			row.HeadRoom = &s
		}
		if earliest.IsZero() || earliest.Compare(at) > 0 {
			earliest = at
		}
	}
	if earliest.IsZero() {
		return unread
	}
	if earliest.Compare(reach.First) < 0 {
		earliest = reach.First // before that there is nothing
	}
	if !counted.covers(earliest) {
		counting, cancel := context.WithTimeout(ctx, measureTimeout)
		defer cancel()
		n, known, err := source.CountEntries(counting, earliest, now)
		*counted = entryCount{from: earliest, to: now, entries: n, known: known && err == nil, at: time.Now()}
	}
	for i := range l.Subscribers {
		row := &l.Subscribers[i]
		if at := row.current(l.Origin.Partitions, now); row.Lag != nil && counted.known && countable(reach, at) {
			behind := counted.after(at)
			row.Behind = &behind
		}
	}
	return unread
}

// countable reports whether the entries after a time can be counted: only the oplog's can, and the
// log may begin before it.
func countable(r gap.Reach, at change.Timestamp) bool {
	return r.Begins() == r.First || at.Compare(r.First) >= 0
}

// An entryCount is how many entries there were in a span of the log.
type entryCount struct {
	from, to change.Timestamp
	entries  int64
	known    bool
	at       time.Time
}

// entryCountTTL is how long a count is believed: to count costs MongoDB a scan.
const entryCountTTL = 10 * time.Second

// covers reports whether the count is good for positions from a time on.
func (t *entryCount) covers(from change.Timestamp) bool {
	return !t.at.IsZero() && time.Since(t.at) < entryCountTTL && t.from.Compare(from) <= 0
}

// after returns the share of the entries after a time.
func (t *entryCount) after(at change.Timestamp) int64 {
	switch whole := t.to.Time().Sub(t.from.Time()); {
	case at.Compare(t.to) >= 0:
		return 0
	case at.Compare(t.from) <= 0 || whole <= 0:
		return t.entries
	default:
		return int64(float64(t.to.Time().Sub(at.Time()))/float64(whole)*float64(t.entries) + 0.5)
	}
}

// A Node lists its sessions.
type Node interface {
	Subscribers() []streamer.SubscriberStatus
	// SharedLag returns how late a shared subscriber is where it is latest, by what all nodes say;
	// known is false where some node does not.
	SharedLag(subscriber string) (seconds float64, known bool)
}

// A reading reads the subscribers for one request at a time.
type reading struct {
	store Store
	// silent is when the store has last been given up, why is what was said of it then.
	silent time.Time
	why    error
}

// read returns what is readable for a request of a time, and why not all of it. A request that was
// there while another one found the store silent does not wait for it once more.
func (s *reading) read(ctx context.Context, asked time.Time) (*SubscriberList, error) {
	nothing := &SubscriberList{Subscribers: []Subscriber{}}
	if asked.Before(s.silent) {
		return nothing, s.why
	}
	reads, cancel := context.WithTimeoutCause(ctx, readTimeout, silence())
	defer cancel()
	list, err := Subscribers(reads, s.store)
	late := err != nil && reads.Err() != nil && ctx.Err() == nil
	switch {
	case list != nil && late: // the store answers, and has much to read
		return list, fmt.Errorf("not everything was read within %s: %w", readTimeout, err)
	case list != nil:
		return list, reason(ctx, err)
	case late:
		s.silent = time.Now()
		s.why = reason(reads, err)
	}
	return nothing, reason(reads, err)
}

// ServeSubscribers answers GET requests with the subscribers of the cluster as JSON, including
// their sessions at the node of that name: 200 with the readable ones, 503 with code and remedy if
// none is readable, within answerTimeout. It answers one request at a time, of each identity in
// turn, and lets MongoDB count entries at most once per entryCountTTL. An identity that may not
// read everything gets only its own subscribers.
func ServeSubscribers(name string, node Node, s Store, source LogSource, logger *slog.Logger) http.Handler {
	line := newTurns()
	store := &reading{store: s}
	counted := &entryCount{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		i := access.From(ctx)
		done, ok := line.take(ctx, i.Owner())
		if !ok {
			refuse(w, r, fmt.Errorf("other requests for subscribers took longer than %s", answerTimeout), logger)
			return
		}
		defer done()
		list, err := store.read(ctx, asked)
		list.Error = shownError(i, err, logger)
		list.Join(sessions(name, node.Subscribers()))
		if err != nil && (len(list.Subscribers) == 0 || r.Context().Err() != nil) {
			refuse(w, r, err, logger)
			return
		}
		list.narrow(i)
		for j := range list.Subscribers {
			if row := &list.Subscribers[j]; row.Kind == Shared {
				if late, known := node.SharedLag(row.Subscriber); known {
					row.late = &late
				}
			}
		}
		list.LogError = shownError(i, list.measure(ctx, source, counted), logger)
		answer(w, http.StatusOK, list)
	})
}
