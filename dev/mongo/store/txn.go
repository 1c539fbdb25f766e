package store

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Txn is a transaction in progress. It is guarded by the store's lock.
type Txn struct {
	session  *oplog.Session
	snapshot uint64 // cluster time when it began
	began    time.Time
	ended    chan struct{}
	over     bool
	overlays map[*collection]*overlay
	pending  map[Name]*collection // collections to create
	ops      []oplog.Op
}

// Busy says that a document is locked by a transaction.
type Busy struct{ Txn *Txn }

func (b *Busy) Error() string { return "document is locked by a transaction" }

// Ended is closed when the transaction has ended.
func (b *Busy) Ended() <-chan struct{} { return b.Txn.ended }

// Age is how long the transaction has been going.
func (b *Busy) Age() time.Duration { return time.Since(b.Txn.began) }

// begin starts a transaction.
func (s *Store) begin(session *oplog.Session) *Txn {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &Txn{
		session: session, snapshot: s.log.ClusterTime(), began: time.Now(), ended: make(chan struct{}),
		overlays: map[*collection]*overlay{}, pending: map[Name]*collection{},
	}
}

func (t *Txn) overlayOf(c *collection) overlay {
	if t == nil || t.overlays[c] == nil {
		return overlay{}
	}
	return *t.overlays[c]
}

// write buffers one change and locks its document; d is nil for a deletion.
func (t *Txn) write(c *collection, key string, d bsoncore.Document, op oplog.Op) {
	o := t.overlays[c]
	if o == nil {
		o = &overlay{}
		t.overlays[c] = o
	}
	o.Write(key, d)
	c.locks[key] = t
	t.ops = append(t.ops, op)
}

// free reports whether a document may be written: a transaction gets WriteConflict where it meets
// another, or a change since it began; a write outside gets Busy.
func (c *collection) free(key string, t *Txn) error {
	holder := c.locks[key]
	if t == nil {
		if holder != nil {
			return &Busy{Txn: holder}
		}
		return nil
	}
	if t.over {
		return wire.Errorf(wire.NoSuchTransaction, "Transaction %d has been aborted.", t.session.TxnNumber)
	}
	r := c.docs[key]
	isHeld := holder != nil && holder != t
	isChanged := holder == nil && r != nil && r.changed > t.snapshot
	if isHeld || isChanged {
		return wire.Errorf(wire.WriteConflict, "WriteConflict error: this operation conflicted with another operation. Please retry your operation or multi-document transaction.")
	}
	return nil
}

func (c *collection) freeAll(rows []foundRow, t *Txn) error {
	for _, row := range rows {
		if err := c.free(row.key, t); err != nil {
			return err
		}
	}
	return nil
}

// commit applies a transaction and logs it as one. It returns the cluster time of the commit, or 0
// for a transaction that changed nothing.
func (s *Store) commit(t *Txn) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.over {
		return 0, wire.Errorf(wire.NoSuchTransaction, "Transaction %d has been aborted.", t.session.TxnNumber)
	}
	for n, c := range t.pending {
		if s.find(n) != nil {
			s.end(t)
			return 0, wire.Errorf(wire.WriteConflict, "WriteConflict error: collection %s was created by another operation", n)
		}
		if t.overlays[c] != nil {
			s.register(c)
		}
	}
	var ts uint64
	if len(t.ops) > 0 {
		ts = s.log.AppendTxn(t.ops, t.session)
	}
	for c, o := range t.overlays {
		for _, key := range o.written {
			s.remember(c, key, ts)
		}
		c.apply(*o, ts)
	}
	s.end(t)
	return ts, nil
}

// Abort ends a transaction without a trace. It may be called twice.
func (s *Store) Abort(t *Txn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(t)
}

func (s *Store) end(t *Txn) {
	if t.over {
		return
	}
	t.over = true
	for c, o := range t.overlays {
		for _, key := range o.written {
			delete(c.locks, key)
		}
	}
	close(t.ended)
}

// past is a document as it was before a change.
type past struct {
	c   *collection
	key string
	doc bsoncore.Document // nil where there was none
	ts  uint64            // cluster time of the change
}

// maxPast and maxPastBytes bound the changes that are remembered for reads at a cluster time.
const maxPast, maxPastBytes = 1 << 16, 64 << 20

// remember keeps the version that a change at ts is about to replace, for reads of the committed
// state and, since 5.0, for reads at a cluster time. The caller holds mu for writing. If the log
// commits at once, reads of the committed state need no old versions.
func (s *Store) remember(c *collection, key string, ts uint64) {
	committed := s.log.Committed()
	keep := 0
	switch {
	case s.log.Release().Since(oplog.R60):
		isTooMuch := func() bool { return len(s.past)-keep >= maxPast || s.pastBytes > maxPastBytes }
		for keep < len(s.past) && s.past[keep].ts <= committed && isTooMuch() {
			s.pastBytes -= len(s.past[keep].doc)
			keep++
		}
	case !s.log.Lags():
		s.past = nil
		return
	default:
		for keep < len(s.past) && s.past[keep].ts <= committed {
			keep++
		}
	}
	if keep > 0 {
		s.forgotten = s.past[keep-1].ts
	}
	p := past{c: c, key: key, ts: ts}
	if r := c.docs[key]; r != nil {
		p.doc = r.doc
	}
	s.pastBytes += len(p.doc)
	s.past = append(s.past[keep:], p)
}

// Remembers reports whether the documents of a collection can be read as they were at a cluster
// time, and otherwise whether it was created, dropped or renamed since.
func (s *Store) Remembers(n Name, ts uint64) (remembers, catalog bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	catalog = s.defined[n] > ts
	return ts >= s.forgotten && !catalog, catalog
}

// asOf returns the overlay that restores a collection's state at a remembered cluster time; the
// caller holds mu.
func (s *Store) asOf(c *collection, ts uint64) (was overlay) {
	for i := len(s.past) - 1; i >= 0 && s.past[i].ts > ts; i-- {
		if p := s.past[i]; p.c == c {
			was.Write(p.key, p.doc)
		}
	}
	return was
}
