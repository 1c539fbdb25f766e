package oplog

import (
	"cmp"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// StreamEnv is what streams need of the server.
type StreamEnv struct {
	// StrictStart, SplitsEvents and SplitsVary are those of the server's profile.
	StrictStart, SplitsEvents, SplitsVary bool
	// TokensGoBack and ControlTokens are those of the server's profile.
	TokensGoBack  bool
	ControlTokens int
	// RefuseTokens is the code that refuses streams that begin after a token; 0: none is refused.
	RefuseTokens int32
	// TokenVersion is the version of the tokens. Zero is that of the log's release.
	TokenVersion int32

	Log *Log
	// Lookup returns the current document of a collection, nil when there is none.
	Lookup func(uuid *[16]byte, id bsoncore.Value) bsoncore.Document
	// Examined counts entries looked at, Sent events delivered, by all streams.
	Examined, Sent *atomic.Int64
	// Opening numbers the openings of streams.
	Opening int64
}

// Stream is one open change stream.
type Stream struct {
	env      StreamEnv
	scope    streamScope
	spec     *streamSpec
	pipeline *pipeline
	start    streamStart
	version  int32 // of the tokens
	plain    bool  // events go out as the log keeps them
	whole    int   // the largest event that is not split

	begun    bool
	seq      uint64 // the next entry to look at
	seenTS   uint64 // cluster time of the newest entry before seq
	resume   *Token
	fragment *Token // resume after a fragment of this event
	pending  []bsoncore.Document
	closing  bool // the scope is invalidated: the stream ends after pending
	closed   bool

	position  uint64            // cluster time that the token has reached
	token     bsoncore.Document // the post-batch token, unless last is set
	last      bsoncore.Document // the last event delivered, whose _id is the token
	ending    bsoncore.Document // the token of the invalidate event
	decisions decisions

	merge *merge // of a router's shards; nil for a single server
	held  bool   // the next event waits for a shard
}

// OpenStream parses a pipeline whose first stage is $changeStream and places a stream. It reads
// nothing yet.
func OpenStream(env StreamEnv, db, coll string, stages []bsoncore.Document) (*Stream, error) {
	_, arg, _ := doc.First(stages[0])
	sp, err := parseSpec(arg, env.Log.Release())
	if err != nil {
		return nil, err
	}
	if err := sp.check(db, coll, env.Log.Release()); err != nil {
		return nil, err
	}
	p, err := parsePipeline(stages[1:], env.SplitsEvents)
	if err != nil {
		return nil, err
	}
	version := cmp.Or(env.TokenVersion, env.Log.Release().tokenVersion())
	at, err := sp.begin(coll, env.Log, version)
	if err != nil {
		return nil, err
	}
	if env.RefuseTokens != 0 && (sp.resumeAfter != nil || sp.startAfter != nil) {
		return nil, wire.Errorf(wire.Code(env.RefuseTokens), "the resume token is refused, as every token")
	}
	s := &Stream{version: version, env: env, scope: streamScope{db: db, coll: coll}, spec: sp, pipeline: p, start: at, position: at.ts, token: at.token, resume: at.event, whole: maxWhole}
	if env.SplitsVary && env.Opening%2 == 0 {
		s.whole = lessWhole
	}
	if sp.cluster {
		s.scope = streamScope{}
	}
	if env.TokensGoBack && at.chosen {
		s.token = HighWatermark(at.ts-1<<32, version).Document()
	}
	if at.event != nil && at.event.isControl() && env.ControlTokens == int(wire.InvalidResumeToken) {
		return nil, wire.Errorf(wire.InvalidResumeToken, "the resume token is of a control event")
	}
	if at.event != nil && at.event.Fragment != NoFragment && p.split {
		s.fragment = at.event
	}
	if !at.chosen {
		s.seq = env.Log.Seek(at.ts)
	}
	s.merge = newMerge(env.Log, at.ts)
	s.plain = sp.full == imageDefault && sp.before == imageOff && !sp.expanded && len(p.rest) == 0 && !p.split && !s.renames()
	return s, nil
}

// Closed reports whether the stream has ended: its scope was invalidated and everything was
// delivered.
func (s *Stream) Closed() bool { return s.closed }

// Invalidated reports whether the reply has to say so, as servers since 5.0 do.
func (s *Stream) Invalidated() bool { return s.closed && s.env.Log.Release().Since(R60) }

// Waiting returns a channel that is closed when there may be more to read.
func (s *Stream) Waiting() <-chan struct{} {
	if s.merge != nil {
		return s.env.Log.Waiting(s.merge.looked, false)
	}
	return s.env.Log.Waiting(s.seq, false)
}

// Token is the post-batch token.
func (s *Stream) Token() bsoncore.Document {
	if s.Invalidated() {
		return s.ending
	}
	if s.last != nil {
		id, _ := doc.Field(s.last, "_id")
		s.token = doc.Clone(id.Data)
		s.last = nil
	}
	return s.token
}

// Fill reads entries of the log into the batch, until one of them ends. An error ends the stream.
func (s *Stream) Fill(b *wire.Batch) error {
	if err := s.begin(); err != nil {
		return err
	}
	if s.merge != nil {
		s.merge.hear(s, time.Now())
		s.held = false
	}
	before := b.Len()
	defer func() { s.env.Sent.Add(int64(b.Len() - before)) }()
	for {
		if !s.flush(b) || b.Full() {
			return nil
		}
		if s.closing {
			s.closed = true
			return nil
		}
		entries, ok := s.env.Log.Read(s.seq, false)
		if !ok {
			return s.lost()
		}
		if len(entries) == 0 {
			s.idle()
			return nil
		}
		n, err := s.read(entries, b)
		s.env.Examined.Add(int64(n))
		if err != nil {
			return err
		}
		if s.held {
			s.idle()
			return nil
		}
	}
}

// begin finds the place in the log when the stream first reads, and afterwards that the log still
// has it.
func (s *Stream) begin() error {
	if s.begun {
		if s.seq > 0 && !s.env.Log.Has(s.seq-1) {
			return s.lost()
		}
		return nil
	}
	s.begun = true
	if s.start.chosen {
		if s.resume == nil || s.env.Log.Release().Since(R60) {
			if err := s.reachable(); err != nil {
				return err
			}
		}
		s.seq = s.env.Log.Seek(s.start.ts)
	}
	e, ok := s.env.Log.before(s.seq)
	if s.seenTS = e.TS; !ok && s.seq > 0 && !s.start.chosen {
		return s.lost()
	}
	return nil
}

// reachable checks that the log goes back to the starting point. The log of a new replica set
// always does.
func (s *Stream) reachable() error {
	first, _ := s.env.Log.First()
	isThere := first.TS < s.start.ts || first.TS == s.start.ts && !s.env.StrictStart
	if isThere || first.initiation() {
		return nil
	}
	text := "Resume of change stream was not possible, as the resume point may no longer be in the oplog."
	if !s.env.Log.Release().Since(R60) {
		text += " " // as it is
	}
	return wire.Errorf(wire.ChangeStreamHistoryLost, "%s", text)
}

func (s *Stream) lost() error {
	text := "Error in $cursor stage :: caused by :: CollectionScan died due to failure to restore tailable cursor position. Last seen record id: RecordId(%d)"
	if s.env.Log.Release().Since(R60) {
		text = "PlanExecutor error during aggregation :: caused by :: CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId(%d)"
	}
	return wire.Errorf(wire.CappedPositionLost, text, s.seenTS)
}

// flush delivers what waits for a place; it reports false when the batch is full before that is
// done.
func (s *Stream) flush(b *wire.Batch) bool {
	for len(s.pending) > 0 {
		if !b.Add(s.pending[0]) {
			return false
		}
		s.last = s.pending[0]
		s.pending = s.pending[1:]
	}
	return true
}

// idle moves the token at the end of the log to the newest entry that was examined.
func (s *Stream) idle() {
	reached := s.seenTS
	if s.merge != nil {
		reached = s.merge.reached()
	}
	if reached > s.position {
		s.position = reached
		s.token = HighWatermark(reached, s.version).Document()
		s.last = nil
		if s.env.ControlTokens != 0 {
			s.token = controlToken(reached, s.version).Document()
		}
	}
}

// read looks at entries until the batch is full or something waits for a place in it; it returns
// how many it looked at.
func (s *Stream) read(entries []Entry, b *wire.Batch) (int, error) {
	for i := range entries {
		e := &entries[i]
		if e.TS >= s.start.ts && s.wanted(e) {
			if s.merge != nil && !s.merge.passes(e, s.seq) {
				s.held = true
				return i, nil
			}
			isPlain := s.plain && s.resume == nil && !s.scope.ends(e)
			if isPlain && len(e.Event) <= maxEvent {
				s.position = e.TS
				if b.Add(e.Event) {
					s.last = e.Event
				} else {
					s.pending = append(s.pending, e.Event)
				}
			} else if err := s.take(e); err != nil {
				return i + 1, err
			}
		}
		s.seq++
		s.seenTS = e.TS
		if len(s.pending) > 0 || s.closing || b.Full() {
			return i + 1, nil
		}
	}
	return len(entries), nil
}

// wanted reports whether an entry is in scope and passes the stages that need nothing but the log's
// event, or, during the search for a resume point on 4.4, is in scope.
func (s *Stream) wanted(e *Entry) bool {
	d := s.decisions.of(e, s.decide)
	if d == out {
		return false
	}
	isStaged := !s.beforeStages() && !s.scope.ends(e)
	if d == filtered && isStaged {
		return false
	}
	if d == unsure && isStaged && e.Event != nil {
		return s.pipeline.matchEarly(e.Event)
	}
	return true
}

// beforeStages reports whether the resume point is still looked for ahead of the user's stages.
func (s *Stream) beforeStages() bool { return s.resume != nil && !s.env.Log.Release().Since(R60) }

// take runs one entry through everything: it is in scope, and goes to pending when it passes.
func (s *Stream) take(e *Entry) error {
	if err := s.deliver(e, false); err != nil {
		return err
	}
	if s.scope.ends(e) {
		return s.deliver(e, true)
	}
	return nil
}

// deliver handles the event of an entry, or the invalidate event that follows it.
func (s *Stream) deliver(e *Entry, invalidate bool) error {
	if s.beforeStages() {
		if passed, err := s.seek(e, invalidate, NoFragment); !passed {
			return err
		}
	}
	event, err := s.render(e, invalidate)
	if err != nil {
		return err
	}
	var shown bsoncore.Document
	if s.pipeline.matchEarly(event) {
		shown = s.pipeline.run(event)
	}
	if shown != nil {
		if err := s.finish(e, invalidate, event, shown); err != nil {
			return err
		}
	} else if invalidate && s.matchesInvalidate(e) {
		s.resume = nil // startAfter an invalidate that the stages hide
		return nil
	}
	return s.conclude(e, invalidate, event)
}

// matchesInvalidate reports whether the stream was started after this very invalidate event.
func (s *Stream) matchesInvalidate(e *Entry) bool {
	return s.resume != nil && s.resume.FromInvalidate && s.compare(e, true, s.resume.Fragment) == found
}

// conclude ends the stream after an invalidate event, unless it is the one that the stream started
// after.
func (s *Stream) conclude(e *Entry, invalidate bool, event bsoncore.Document) error {
	t := s.start.event
	isStart := t != nil && t.FromInvalidate && t.TS == e.TS
	if invalidate && !isStart {
		id, _ := doc.Field(event, "_id")
		s.closing = true
		s.ending = doc.Clone(id.Data)
	}
	return nil
}

// streamScope is the scope of a stream: a collection, a database when Coll is empty, everything
// when DB is too.
type streamScope struct{ db, coll string }

// covers reports whether a namespace lies in the scope.
func (s streamScope) covers(ns *Namespace) bool {
	switch {
	case ns == nil:
		return false
	case s.coll != "":
		return ns.DB == s.db && ns.Coll == s.coll
	case s.db != "":
		return ns.DB == s.db && !ns.internal()
	default:
		return !ns.internal()
	}
}

// shows reports whether the scope shows an entry. A collection sees renames onto itself too, and
// never the end of its database: its own drop comes first.
func (s streamScope) shows(e *Entry) bool {
	switch e.Kind {
	case noop:
		return false
	case Rename:
		return s.covers(e.NS) || s.covers(e.to())
	case DropDatabase:
		return s.coll == "" && s.covers(e.NS)
	default:
		return s.covers(e.NS)
	}
}

// ends reports whether an entry that the scope shows invalidates its streams.
func (s streamScope) ends(e *Entry) bool {
	switch e.Kind {
	case Drop, Rename:
		return s.coll != ""
	case DropDatabase:
		return s.db != ""
	default:
		return false
	}
}

// decision is a stream's decision about all entries of one kind in one namespace.
type decision uint8

const (
	undecided decision = iota
	out                // not in scope
	filtered           // in scope, and the early stages refuse it
	passes             // in scope, and the early stages let it pass
	unsure             // in scope; the early stages read more than names
)

// decisions remembers them. Namespaces come and go, so it forgets everything now and then.
type decisions struct {
	last  key
	value decision
	known map[key]decision
}

type key struct {
	ns, to *Namespace
	kind   Kind
}

const maxDecisions = 4096

func (m *decisions) of(e *Entry, decide func(*Entry) decision) decision {
	k := key{ns: e.NS, kind: e.Kind}
	if e.Kind == Rename {
		k.to = e.to()
	}
	if m.value != undecided && k == m.last {
		return m.value
	}
	d := m.known[k]
	if d == undecided {
		if m.known == nil || len(m.known) >= maxDecisions {
			m.known = map[key]decision{}
		}
		d = decide(e)
		m.known[k] = d
	}
	m.last = k
	m.value = d
	return d
}

// decide works one out. The early stages see a document with nothing but names and the operation
// type.
func (s *Stream) decide(e *Entry) decision {
	switch {
	case !s.scope.shows(e) || !e.Kind.classic() && !s.spec.expanded:
		return out
	case !s.pipeline.cheap:
		return unsure
	case s.pipeline.matchEarly(names(e)):
		return passes
	default:
		return filtered
	}
}

func names(e *Entry) []byte {
	b := doc.New().String("operationType", e.Kind.String())
	namespace(b, "ns", e.NS)
	if to := e.to(); to != nil {
		namespace(b, "to", to)
	}
	return b.Bytes()
}

func namespace(b *doc.Builder, name string, ns *Namespace) {
	b.Open(name).String("db", ns.DB)
	if ns.Coll != "" {
		b.String("coll", ns.Coll)
	}
	b.End()
}

// status is the order of an event relative to the token that the stream resumes after.
type status uint8

const (
	earlier    status = iota
	found             // it is the token's event
	needsSplit        // the token names a fragment of this event
	surpassed         // it comes after the place where the token's event should have been
)

// seek compares an event with the resume point during the search for it, and reports whether the
// event may pass.
func (s *Stream) seek(e *Entry, invalidate bool, fragment int32) (bool, error) {
	if s.resume == nil {
		return true, nil
	}
	if e.TS == s.resume.TS && e.place() > s.resume.TxnOpIndex && !s.env.Log.Release().Since(R60) {
		return false, wire.Errorf(50792, "Invalid resumeToken: txnOpIndex was skipped")
	}
	switch s.compare(e, invalidate, fragment) {
	case found:
		s.resume = nil
	case surpassed:
		id := s.identity(e, invalidate, s.version)
		id.Fragment = fragment
		return false, wire.Errorf(wire.ChangeStreamFatalError, "cannot resume stream; the resume token was not found. %s", doc.Compact(id.Document()))
	case earlier, needsSplit:
		// The token's event, or another fragment, is still to come.
	}
	return false, nil
}

// compare orders an event and the client's token as the server does.
func (s *Stream) compare(e *Entry, invalidate bool, fragment int32) status {
	t := s.resume
	switch {
	case e.TS != t.TS || t.Type != TokenEvent || e.place() > t.TxnOpIndex:
		return surpassed
	case e.place() < t.TxnOpIndex:
		return earlier
	case invalidate != t.FromInvalidate:
		return sooner(!invalidate)
	}
	own := s.identity(e, invalidate, t.Version)
	if c := own.compareUUIDs(*t); c != 0 {
		return sooner(c < 0 && s.env.Log.Release().Since(R60))
	}
	if c := own.compareIdentifiers(*t); c != 0 {
		return sooner(c < 0)
	}
	switch {
	case fragment == NoFragment && t.Fragment != NoFragment:
		return needsSplit
	case fragment == t.Fragment:
		return found
	default:
		return sooner(fragment < t.Fragment)
	}
}

func sooner(yes bool) status {
	if yes {
		return earlier
	}
	return surpassed
}

// identity is the token of an entry's event, or of the invalidate event that follows it, in a
// version.
func (s *Stream) identity(e *Entry, invalidate bool, version int32) Token {
	t := Token{
		TS: e.TS, Version: version, Type: TokenEvent, TxnOpIndex: e.place(), FromInvalidate: invalidate, Fragment: NoFragment,
	}
	if e.Kind != DropDatabase {
		t.UUID = e.NS.UUID
	}
	key, crud := doc.Field(e.Event, "documentKey")
	switch {
	case version < 2 && crud:
		t.Identifier = key.Data
	case version >= 2:
		id, _ := doc.Field(key.Data, "_id")
		t.Identifier = identifier(e.Kind, id, description(e))
	}
	return t
}

func description(e *Entry) bsoncore.Document {
	if e.Detail == nil {
		return nil
	}
	return e.Detail.Description
}
