package oplog

import (
	"cmp"
	"errors"
	"hash/fnv"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
)

// Config configures a log.
type Config struct {
	Release Release
	// MaxBytes bounds the log. Defaults to 64 MiB.
	MaxBytes int64
	// Lags says that entries are committed by Flush, as a journal that is written now and then
	// commits them. By default each is committed when it is written.
	Lags bool
	// Shards is how many shards' logs this is, beside the config servers'. Defaults to none: it is
	// one server's log.
	Shards int
	// RenamesMove is that of the server's profile.
	RenamesMove bool
	// Now is the wall clock. Defaults to time.Now.
	Now func() time.Time
}

// Log is the bounded log. It is safe for concurrent use.
type Log struct {
	config  Config
	clock   clock
	writer  sync.Mutex // serializes writers: the clock and the encoder are theirs
	encoder encoder
	arena   arena

	mu       sync.RWMutex
	segments []*segment
	next     uint64 // number of the next entry
	first    uint64 // number of the oldest entry
	bytes    int64
	held     bool
	onShard  []uint64 // cluster time of the newest entry of each shard, and of the config servers

	committed   atomic.Uint64 // entries below this number are majority-committed
	committedTS atomic.Uint64
	appliedTS   atomic.Uint64
	written     atomic.Uint64 // next, for those who wait

	wait struct {
		sync.Mutex
		changed chan struct{} // closed at the next change; nil while no reader waits
	}
}

// segment is a stretch of entries. Entries are appended in place up to the capacity, so that a
// reader's slice of it stays as it is.
type segment struct {
	base    uint64
	entries []Entry
	bytes   int64
}

const (
	segmentEntries = 256
	defaultBytes   = 64 << 20
)

// New makes a log that holds the initiation of its replica set.
func New(c Config) *Log {
	l := empty(c)
	for shard := range c.Shards + 1 { // and the config servers' log
		l.Append(Op{Kind: noop, Object: doc.New().String("msg", initiation).Document(), shard: uint8(shard)})
	}
	l.Flush()
	return l
}

func empty(c Config) *Log {
	if c.MaxBytes <= 0 {
		c.MaxBytes = defaultBytes
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	l := &Log{config: c, encoder: encoder{release: c.Release}}
	if c.Shards > 0 {
		l.onShard = make([]uint64, c.Shards+1)
	}
	l.clock.now = c.Now
	return l
}

// Entries copies the whole log, oldest entry first.
func (l *Log) Entries() []Entry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]Entry, 0, l.next-l.first)
	for seq := l.first; seq < l.next; seq++ {
		out = append(out, *l.at(seq))
	}
	return out
}

// Restore makes a log of entries that another log had, whose newest cluster time was clusterTime.
// Entries that were decoded have namespaces and transactions of their own: Restore makes them share
// these again.
func Restore(c Config, entries []Entry, clusterTime uint64) (*Log, error) {
	if len(entries) == 0 {
		return nil, errors.New("oplog without entries")
	}
	known := map[string]*Namespace{}
	for i := range entries {
		e := &entries[i]
		lacksNamespace := e.Kind != noop && e.NS == nil
		lacksEvent := e.Kind.classic() && e.Event == nil
		if e.Kind > Modify || lacksNamespace || lacksEvent {
			return nil, errors.New("malformed oplog entry in the snapshot")
		}
		e.NS = shared(known, e.NS)
		if e.Detail == nil {
			continue
		}
		e.Detail.To = shared(known, e.Detail.To)
		if e.continues() && i > 0 && entries[i-1].Detail != nil {
			e.Detail.Txn, e.Detail.Session = entries[i-1].Detail.Txn, entries[i-1].Detail.Session
		}
	}
	l := empty(c)
	l.clock.last.Store(max(clusterTime, entries[len(entries)-1].TS))
	l.push(entries...)
	l.Flush()
	return l, nil
}

func shared(known map[string]*Namespace, n *Namespace) *Namespace {
	if n == nil {
		return nil
	}
	name := n.String()
	if n.UUID != nil {
		name += "\x00" + string(n.UUID[:])
	}
	if known[name] == nil {
		known[name] = n
	}
	return known[name]
}

// Append writes one entry and returns its cluster time.
func (l *Log) Append(op Op) uint64 {
	l.writer.Lock()
	defer l.writer.Unlock()
	wall := l.clock.wall()
	e := Entry{TS: l.clock.reserve(1, wall), Wall: wall.UnixMilli(), Kind: op.Kind, Shard: op.shard, NS: op.NS, Detail: op.detail()}
	l.encode(&e, &op)
	l.push(e)
	return e.TS
}

// AppendTxn writes the operations of one transaction, which share one cluster time: that of the
// commit. It takes as many times as there are operations, as the server does, and returns the
// commit's.
func (l *Log) AppendTxn(ops []Op, session *Session) uint64 {
	l.writer.Lock()
	defer l.writer.Unlock()
	wall := l.clock.wall()
	txn := &Txn{Count: int32(len(ops)), Parts: parts(ops)}
	first := l.clock.reserve(max(len(ops), len(txn.Parts)), wall)
	for i := range txn.Parts {
		txn.Parts[i].TS = first + uint64(i)
	}
	commit := first + uint64(len(txn.Parts)) - 1
	entries := make([]Entry, len(ops))
	for i := range ops {
		d := ops[i].detail()
		if d == nil {
			d = &Detail{}
		}
		d.Session = session
		d.Txn = txn
		d.Index = int32(i)
		d.Place = int32(i)
		entries[i] = Entry{TS: commit, Wall: wall.UnixMilli(), Kind: ops[i].Kind, NS: ops[i].NS, Detail: d}
		l.encode(&entries[i], &ops[i])
	}
	if l.onShard != nil {
		l.divide(entries, ops)
	}
	l.push(entries...)
	return commit
}

// divide gives the entries of a transaction their places on their shards, and puts them into the
// order in which a router returns them: by place, collection and document. Events of different
// shards can have tokens with equal heads.
func (l *Log) divide(entries []Entry, ops []Op) {
	places := make([]int32, len(l.onShard))
	for i := range entries {
		shard := l.shardOf(&entries[i])
		entries[i].Detail.Place = places[shard]
		places[shard]++
		l.encode(&entries[i], &ops[i])
	}
	token := func(e *Entry) string {
		id, _ := doc.Field(e.Event, "_id")
		data, _ := doc.Field(id.Data, "_data")
		text, _ := data.StringValueOK() // an entry may have no event
		return text
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(token(&a), token(&b)) })
	for i := range entries {
		entries[i].Detail.Index = int32(i)
	}
}

// parts cuts a transaction into oplog documents of at most 16 MiB.
func parts(ops []Op) []Part {
	const limit = 16 << 20
	var out []Part
	size := 0
	for i := range ops {
		n := 512 + len(ops[i].Doc) + len(ops[i].Updated) + len(ops[i].ID.Data)
		if size > 0 && size+n > limit {
			out = append(out, Part{End: int32(i)})
			size = 0
		}
		size += n
	}
	return append(out, Part{End: int32(len(ops))})
}

func (l *Log) encode(e *Entry, op *Op) {
	if e.Kind.classic() {
		e.Event = l.arena.copy(l.encoder.event(e, op))
	}
}

// Sample encodes the event of an operation at cluster time 0, without writing it. A generator makes
// its events from it.
func (l *Log) Sample(op Op) bsoncore.Document {
	x := encoder{release: l.config.Release}
	return x.event(&Entry{Kind: op.Kind, NS: op.NS}, &op)
}

// Raw is an entry whose event its writer encodes.
type Raw struct {
	Kind   Kind
	NS     *Namespace
	Encode func(i int, ts uint64, wall time.Time, dst []byte) []byte
}

// AppendRaw writes n entries. Encode is called for each with its cluster time and wall time, and
// appends the event to dst. For generators, which cannot afford Append.
func (l *Log) AppendRaw(n int, raw Raw) {
	l.writer.Lock()
	defer l.writer.Unlock()
	var batch [32]Entry
	for i := 0; i < n; {
		m := min(len(batch), n-i)
		for j := range m {
			wall := l.clock.wall()
			ts := l.clock.reserve(1, wall)
			l.encoder.buf = raw.Encode(i+j, ts, wall, l.encoder.buf[:0])
			batch[j] = Entry{TS: ts, Wall: wall.UnixMilli(), Kind: raw.Kind, NS: raw.NS, Event: l.arena.copy(l.encoder.buf)}
		}
		l.push(batch[:m]...)
		i += m
	}
}

// push adds entries, drops those that no longer fit, and wakes waiting readers.
func (l *Log) push(entries ...Entry) {
	l.mu.Lock()
	for _, e := range entries {
		if l.onShard != nil {
			e.Shard = l.shardOf(&e)
			l.onShard[e.Shard] = e.TS
		}
		l.add(e)
	}
	l.trim()
	applied := entries[len(entries)-1].TS
	l.appliedTS.Store(applied)
	l.written.Store(l.next)
	if !l.held && !l.config.Lags {
		l.commit()
	}
	l.mu.Unlock()
	l.wake()
}

// Flush commits the written entries, unless the majority point is held.
func (l *Log) Flush() {
	if l.committed.Load() == l.written.Load() {
		return
	}
	l.mu.Lock()
	if !l.held {
		l.commit()
	}
	l.mu.Unlock()
	l.wake()
}

// Lags reports whether entries may be written and not committed yet without anybody holding the
// majority point.
func (l *Log) Lags() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.config.Lags && !l.held
}

func (l *Log) add(e Entry) {
	s := l.tail(e.size())
	s.entries = append(s.entries, e)
	s.bytes += e.size()
	l.bytes += e.size()
	l.next++
}

// tail is the segment that takes the next entry. Segments are short in bytes too, since they go as
// a whole.
func (l *Log) tail(size int64) *segment {
	limit := max(64<<10, l.config.MaxBytes/32)
	if n := len(l.segments); n > 0 {
		s := l.segments[n-1]
		if len(s.entries) < cap(s.entries) && s.bytes+size <= limit {
			return s
		}
	}
	s := &segment{base: l.next, entries: make([]Entry, 0, segmentEntries)}
	l.segments = append(l.segments, s)
	return s
}

// commit moves the majority point to the end; the caller holds mu.
func (l *Log) commit() {
	l.committedTS.Store(l.appliedTS.Load())
	l.committed.Store(l.next)
}

// trim drops the oldest entries while the log is larger than its bound.
func (l *Log) trim() {
	for l.bytes > l.config.MaxBytes && l.next-l.first > 1 {
		l.dropFirst()
		for l.next-l.first > 1 && l.at(l.first).continues() {
			l.dropFirst()
		}
	}
}

func (l *Log) dropFirst() {
	l.bytes -= l.at(l.first).size()
	l.first++
	if s := l.segments[0]; l.first >= s.base+uint64(len(s.entries)) && len(l.segments) > 1 {
		l.segments[0] = nil
		l.segments = l.segments[1:]
	}
}

// at is an entry that is in the log; the caller holds mu.
func (l *Log) at(seq uint64) *Entry {
	s := l.segments[l.segmentOf(seq)]
	return &s.entries[seq-s.base]
}

func (l *Log) segmentOf(seq uint64) int {
	return sort.Search(len(l.segments), func(i int) bool { return l.segments[i].base > seq }) - 1
}

// Truncate drops all entries but the newest keep of them; to keep none, it writes a no-op that
// stays.
func (l *Log) Truncate(keep int) {
	if keep <= 0 {
		l.Noop("truncated")
		keep = 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.next-l.first > uint64(keep) {
		l.dropFirst()
	}
	for l.next-l.first > 1 && l.at(l.first).continues() {
		l.dropFirst()
	}
}

// TruncateOldest drops n of the oldest entries; the newest one stays.
func (l *Log) TruncateOldest(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 0; l.next-l.first > 1 && (i < n || l.at(l.first).continues()); i++ {
		l.dropFirst()
	}
}

// TruncateBefore drops the entries before a cluster time; the newest one stays.
func (l *Log) TruncateBefore(ts uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.next-l.first > 1 && l.at(l.first).TS < ts {
		l.dropFirst()
	}
}

// NoteOn writes an entry that changes nothing to the log of one shard, unless that is at the time
// already; a time of 0 writes it in any case. It reports whether it did.
func (l *Log) NoteOn(shard int, o bsoncore.Document, until uint64) bool {
	l.mu.RLock()
	at := l.onShard[shard]
	l.mu.RUnlock()
	if until > 0 && at >= until {
		return false
	}
	l.Append(Op{Kind: noop, Object: doc.Clone(o), shard: uint8(shard)})
	return true
}

// Note writes an entry that changes nothing and has the object.
func (l *Log) Note(o bsoncore.Document) uint64 { return l.Append(Op{Kind: noop, Object: doc.Clone(o)}) }

// Noop writes an entry that changes nothing, as an idle primary does periodically.
func (l *Log) Noop(msg string) uint64 {
	return l.Append(Op{Kind: noop, Object: doc.New().String("msg", msg).Document()})
}

// Hold holds the majority point where it is, or lets it go to the end again.
func (l *Log) Hold(on bool) {
	l.mu.Lock()
	l.held = on
	if !on {
		l.commit()
	}
	l.mu.Unlock()
	l.wake()
}

// SetOffset moves the wall clock of the log.
func (l *Log) SetOffset(d time.Duration) { l.clock.offset.Store(int64(d)) }

// Now is the wall clock of the log.
func (l *Log) Now() time.Time { return l.clock.wall() }

// arena keeps small events together, so that the log is few objects to the garbage collector.
type arena struct{ free []byte }

const (
	arenaBlock = 128 << 10
	arenaLarge = 16 << 10
)

func (a *arena) copy(b []byte) []byte {
	if len(b) > arenaLarge {
		return append(make([]byte, 0, len(b)), b...)
	}
	if cap(a.free)-len(a.free) < len(b) {
		a.free = make([]byte, 0, arenaBlock)
	}
	at := len(a.free)
	a.free = append(a.free, b...)
	return a.free[at:len(a.free):len(a.free)]
}

// Read returns entries from seq on: at least one, as many as lie together, at most some hundred. It
// returns none at the end, and ok false when seq is no longer in the log. Only committed entries
// are returned, unless all is set. The entries stay valid for ever.
func (l *Log) Read(seq uint64, all bool) (entries []Entry, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if seq < l.first {
		return nil, false
	}
	end := l.committed.Load()
	if all {
		end = l.next
	}
	if seq >= end {
		return nil, true
	}
	s := l.segments[l.segmentOf(seq)]
	return s.entries[seq-s.base : min(uint64(len(s.entries)), end-s.base)], true
}

// Seek returns the number of the first entry at or after the cluster time; for one beyond the end
// the number of the next entry to come.
func (l *Log) Seek(ts uint64) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i := sort.Search(len(l.segments), func(i int) bool {
		s := l.segments[i]
		return s.entries[len(s.entries)-1].TS >= ts
	})
	if i == len(l.segments) {
		return l.next
	}
	s := l.segments[i]
	j := sort.Search(len(s.entries), func(j int) bool { return s.entries[j].TS >= ts })
	return max(l.first, s.base+uint64(j))
}

// First is the oldest entry and its number.
func (l *Log) First() (Entry, uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return *l.at(l.first), l.first
}

// before is the number of the newest entry before seq, and that entry when the log still has it.
func (l *Log) before(seq uint64) (Entry, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if seq == 0 || seq-1 < l.first || seq > l.next {
		return Entry{}, false
	}
	return *l.at(seq - 1), true
}

// Has reports whether the entry is still in the log, or not written yet.
func (l *Log) Has(seq uint64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return seq >= l.first
}

// Next is the number that the next entry will get.
func (l *Log) Next() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.next
}

// Size is the number of entries and their bytes.
func (l *Log) Size() (entries, bytes int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int64(l.next - l.first), l.bytes
}

// MaxBytes is the bound of the log.
func (l *Log) MaxBytes() int64 { return l.config.MaxBytes }

// Release is the release of the log.
func (l *Log) Release() Release { return l.config.Release }

// Applied is the cluster time of the newest entry, Committed that of the newest majority-committed
// one.
func (l *Log) Applied() uint64 { return l.appliedTS.Load() }

// Committed is the cluster time of the newest majority-committed entry.
func (l *Log) Committed() uint64 { return l.committedTS.Load() }

// ClusterTime is the newest cluster time handed out.
func (l *Log) ClusterTime() uint64 { return l.clock.last.Load() }

// Waiting returns a channel that is closed once an entry numbered seq or later may be read, or when
// the majority point moves. It may close early; the caller looks again.
func (l *Log) Waiting(seq uint64, all bool) <-chan struct{} {
	l.wait.Lock()
	defer l.wait.Unlock()
	end := l.committed.Load()
	if all {
		end = l.written.Load()
	}
	if end > seq {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if l.wait.changed == nil {
		l.wait.changed = make(chan struct{})
	}
	return l.wait.changed
}

func (l *Log) wake() {
	l.wait.Lock()
	defer l.wait.Unlock()
	if l.wait.changed != nil {
		close(l.wait.changed)
		l.wait.changed = nil
	}
}

// clock hands out cluster times: seconds in the high half, a counter from 1 in the low half.
type clock struct {
	now    func() time.Time
	offset atomic.Int64  // nanoseconds added to the wall clock
	last   atomic.Uint64 // the newest time handed out
}

func (c *clock) wall() time.Time { return c.now().Add(time.Duration(c.offset.Load())) }

// reserve hands out n times in a row and returns the first. Only one caller at a time.
func (c *clock) reserve(n int, wall time.Time) uint64 {
	last := c.last.Load()
	first := last + 1
	if second := uint64(max(wall.Unix(), 1)); second > last>>32 {
		first = second<<32 | 1
	}
	c.last.Store(first + uint64(n) - 1)
	return first
}

// Shards is how many shards' logs this is; 0 where it is one server's.
func (l *Log) Shards() int { return l.config.Shards }

// shardOf is the shard whose log an entry belongs to: by the number in the document's _id, where it
// has one, else by the _id's hash. Entries of commands belong to the first shard.
func (l *Log) shardOf(e *Entry) uint8 {
	switch {
	case e.Kind == noop:
		return e.Shard
	case e.NS != nil && e.NS.DB == "config":
		return uint8(l.config.Shards)
	case !e.Kind.crud():
		return 0
	}
	key, _ := doc.Field(e.Event, "documentKey")
	id, _ := doc.Field(key.Data, "_id")
	n, ok := doc.Int(id)
	if !ok {
		h := fnv.New32a()
		_, _ = h.Write(id.Data)
		n = int64(h.Sum32())
	}
	if l.config.RenamesMove {
		n += int64(len(e.NS.Coll))
	}
	shards := int64(l.config.Shards)
	return uint8((n%shards + shards) % shards)
}

// AppliedOn is the cluster time of the newest entry of a shard's log.
func (l *Log) AppliedOn(shard int) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.onShard[shard]
}

// committedOn is the cluster time up to which a majority has a shard's log.
func (l *Log) committedOn(shard int) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return min(l.onShard[shard], l.committedTS.Load())
}
