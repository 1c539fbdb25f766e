package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Document is a document in relaxed Extended JSON; its numbers are json.Number. It must not be
// modified.
type Document = map[string]any

// A LiveQuery is the documents that match a subscription, kept up to date. Its methods are safe for
// concurrent use.
//
// It is whole while its documents are known to be all matching ones, each in MongoDB's state. A
// possible gap makes it not whole, for the collections that it concerns: a loss, a replaced
// collection, an update that does not say which fields it means. The documents are read again, and
// the query is whole again. A query that is whole stays so while the client is not connected, and
// its documents stay as they were: Disconnected and Connected notices tell of that.
type LiveQuery struct {
	client *Client
	sub    Subscription // as requested: the ID has no suffix
	on     LiveCallbacks

	calls sync.Mutex // held during callbacks, which are in the order of the changes of a document
	mu    struct {
		sync.Mutex
		id       string // of the current subscription
		docs     map[string]*liveDocument
		missing  map[string]place // namespaces with possibly missing or deleted documents, and the place since then; "" is all of them
		doubtful map[string]bool  // documents that are not known to be as MongoDB has them, by key; "" is all of them
		waiting  bool             // the documents will be read again
		begun    time.Time        // when they were last read again
		took     time.Duration    // how long that took
	}
}

// LiveCallbacks are called one at a time when a LiveQuery has changed. A nil callback is not
// called.
type LiveCallbacks struct {
	Added   func(Document)
	Changed func(before, after Document)
	Removed func(Document)
	// Whole is called when the LiveQuery has all documents: after the beginning, and after a loss
	// has been made up for.
	Whole func()
}

type liveDocument struct {
	ns    string
	doc   Document
	stale bool // it is from before a loss: a snapshot brings it again, or it is gone
}

// The least and the longest wait before documents are read again. A doubt often ends with the next
// change of the document.
const (
	firstDoubt = 100 * time.Millisecond
	longDoubt  = time.Minute
)

// Live subscribes to the documents that match a subscription. Config.Start must be StartSnapshot.
// The ID gets a suffix, so that each run of the program begins with the documents; Format, Leaves
// and OnLoss are set. Without mongodb.full_document, changes are applied to the documents as
// MongoDB describes them. MongoDB 5.0 and 6.0 do not say whether a path with dots is the name of a
// field: there the documents are read again after each update of a field in a document, unless
// mongodb.full_document is updateLookup.
func (c *Client) Live(sub Subscription, on LiveCallbacks) (*LiveQuery, error) {
	if c.cfg.Start != StartSnapshot {
		return nil, errors.New("live query: Config.Start must be StartSnapshot")
	}
	if sub.ID == "" || len(sub.Ops) > 0 {
		return nil, errors.New("live query: ID is required, and Ops must be empty")
	}
	sub.Format = JSON
	sub.Leaves = true
	sub.OnLoss = LossSnapshot
	sub.Fields = slices.Clone(sub.Fields)
	q := &LiveQuery{client: c, sub: sub, on: on}
	q.mu.docs, q.mu.missing, q.mu.doubtful = make(map[string]*liveDocument), make(map[string]place), make(map[string]bool)
	return q, q.read()
}

// Documents returns the documents, and whether the query is whole.
func (q *LiveQuery) Documents() (all []Document, whole bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range q.mu.docs {
		all = append(all, d.doc)
	}
	return all, q.whole()
}

// whole is for callers that hold the mutex.
func (q *LiveQuery) whole() bool { return len(q.mu.missing) == 0 && len(q.mu.doubtful) == 0 }

// read makes a new subscription, which begins with the documents. Events of the former one are
// ignored from here on.
func (q *LiveQuery) read() error {
	sub := q.sub
	sub.ID += "~" + rand.Text()
	q.calls.Lock() // so that no change of before is being applied
	q.mu.Lock()
	before := q.mu.id
	q.mu.id = sub.ID
	q.mu.waiting = false
	q.mu.begun = time.Now()
	clear(q.mu.missing)
	clear(q.mu.doubtful)
	q.lose("", place{})
	q.mu.Unlock()
	q.calls.Unlock()
	if before != "" {
		q.client.live.Delete(before)
		q.client.Unsubscribe(before)
	}
	q.client.live.Store(sub.ID, q)
	handler := func(_ context.Context, c Change) error { return q.handle(sub.ID, c) }
	err := q.client.subscribe(&subscribed{Subscription: sub, handler: handler, isNew: true})
	if err != nil {
		q.client.live.Delete(sub.ID)
	}
	return err
}

// doubt notes that a document may not be as MongoDB has it. Unless that is known soon, the
// documents are read again, after as long as they took to read the last time. The caller holds the
// mutex.
func (q *LiveQuery) doubt(key string) {
	q.mu.doubtful[key] = true
	q.resolve()
}

func (q *LiveQuery) resolve() {
	if _, all := q.mu.missing[""]; all || q.mu.waiting || len(q.mu.doubtful) == 0 {
		return
	}
	q.mu.waiting = true
	time.AfterFunc(min(max(firstDoubt, q.mu.took), longDoubt), func() {
		q.mu.Lock()
		q.mu.waiting = false
		again := len(q.mu.doubtful) > 0
		q.mu.Unlock()
		if again {
			_ = q.read() // its ID is new
		}
	})
}

// lose notes that documents of a namespace may be missing or gone since a place; "" is all of them.
// The caller holds the mutex.
func (q *LiveQuery) lose(ns string, at place) {
	if since, ok := q.mu.missing[ns]; !ok || since.compare(&at) < 0 {
		q.mu.missing[ns] = at
	}
	for _, d := range q.mu.docs {
		d.stale = d.stale || ns == "" || d.ns == ns
	}
}

// A liveEvent is a change event in relaxed Extended JSON.
type liveEvent struct {
	Op     string                     `json:"operationType"`
	NS     liveNamespace              `json:"ns"`
	To     liveNamespace              `json:"to"`
	Key    string                     `json:"key"` // nodes of earlier versions send none
	IDs    map[string]json.RawMessage `json:"documentKey"`
	Full   Document                   `json:"fullDocument"`
	Update *liveUpdate                `json:"updateDescription"`
}

type liveNamespace struct{ DB, Coll string }

func (n liveNamespace) String() string { return n.DB + "." + n.Coll }

// handle applies a change of the subscription with an ID.
func (q *LiveQuery) handle(id string, c Change) error {
	var e liveEvent
	decoder := json.NewDecoder(strings.NewReader(string(c.Data)))
	decoder.UseNumber()
	if err := decoder.Decode(&e); err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.doubt("") // the program may skip it
		return fmt.Errorf("live query: read change: %w", err)
	}
	q.calls.Lock()
	defer q.calls.Unlock()
	q.mu.Lock()
	current := q.mu.id == id
	q.mu.Unlock()
	if !current {
		return nil
	}
	switch key := e.NS.String() + "\x00" + cmp.Or(e.Key, string(e.IDs["_id"])); {
	case c.AllPartitions:
		q.replaced(&e)
	case e.Op == "delete", e.Op == "left":
		q.remove(key)
	default:
		q.change(key, &e)
	}
	return nil
}

// replaced applies a change of collections. The documents of a renamed collection come with a
// snapshot, after a loss.
func (q *LiveQuery) replaced(e *liveEvent) {
	switch e.Op {
	case "drop":
		q.removeAll(func(d *liveDocument) bool { return d.ns == e.NS.String() })
	case "rename":
		q.removeAll(func(d *liveDocument) bool { return d.ns == e.NS.String() || d.ns == e.To.String() })
	case "dropDatabase":
		q.removeAll(func(d *liveDocument) bool { return strings.HasPrefix(d.ns, e.NS.DB+".") })
	}
}

// change applies the change of a document, or a document of a snapshot.
func (q *LiveQuery) change(key string, e *liveEvent) {
	ns := e.NS.String()
	q.mu.Lock()
	was := q.whole()
	before := q.mu.docs[key]
	after := &liveDocument{ns: ns, doc: e.Full}
	switch _, isMissing := q.mu.missing[ns]; {
	case e.Full != nil:
		delete(q.mu.doubtful, key)
	case before == nil:
		if _, all := q.mu.missing[""]; !all && !isMissing { // else a snapshot brings it
			q.doubt(key)
		}
		q.mu.Unlock()
		return
	default:
		var sure bool
		after.stale = before.stale
		if after.doc, sure = e.applied(before.doc, q.sub.Fields); !sure && !before.stale {
			q.doubt(key)
		}
	}
	q.mu.docs[key] = after
	became := !was && q.whole()
	q.mu.Unlock()
	switch {
	case before == nil && q.on.Added != nil:
		q.on.Added(after.doc)
	case before != nil && q.on.Changed != nil:
		q.on.Changed(before.doc, after.doc)
	}
	q.tell(became)
}

// applied returns the document after an update that does not carry it, and whether it is known to
// be so.
func (e *liveEvent) applied(doc Document, fields []string) (after Document, sure bool) {
	if e.Op != "update" || e.Update == nil { // an event without what was too large
		return doc, false
	}
	return e.Update.apply(doc, fields)
}

// remove removes a document, and removeAll all of some kind. The caller holds calls.
func (q *LiveQuery) remove(key string) {
	q.mu.Lock()
	was := q.whole()
	d := q.mu.docs[key]
	delete(q.mu.docs, key)
	delete(q.mu.doubtful, key)
	became := !was && q.whole()
	q.mu.Unlock()
	if d != nil && q.on.Removed != nil {
		q.on.Removed(d.doc)
	}
	q.tell(became)
}

func (q *LiveQuery) removeAll(which func(*liveDocument) bool) {
	var keys []string
	q.mu.Lock()
	for key, d := range q.mu.docs {
		if which(d) {
			keys = append(keys, key)
		}
	}
	q.mu.Unlock()
	for _, key := range keys {
		q.remove(key)
	}
}

// tell reports that the query has become whole. The caller holds calls.
func (q *LiveQuery) tell(became bool) {
	if became && q.on.Whole != nil {
		q.on.Whole()
	}
}

// done applies the end of a snapshot at a place: of namespaces, or of all if there are none. What
// was lost before has come again, or is gone.
func (q *LiveQuery) done(namespaces []string, at *place) {
	q.calls.Lock()
	defer q.calls.Unlock()
	q.mu.Lock()
	was := q.whole()
	read := make(map[string]bool)
	for ns, since := range q.mu.missing {
		if since.compare(at) <= 0 && (len(namespaces) == 0 || slices.Contains(namespaces, ns)) {
			read[ns] = true
		}
	}
	q.mu.Unlock()
	q.removeAll(func(d *liveDocument) bool { return d.stale && (read[""] || read[d.ns]) })
	q.mu.Lock()
	for ns := range read {
		delete(q.mu.missing, ns)
	}
	if read[""] {
		q.mu.took = time.Since(q.mu.begun)
	}
	q.resolve()
	became := !was && q.whole()
	q.mu.Unlock()
	q.tell(became)
}

// lost notes a loss at a place: of namespaces, db.coll or db.*, or of everything.
func (q *LiveQuery) lost(namespaces []string, at place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(namespaces) == 0 {
		q.lose("", at)
	}
	for _, name := range namespaces {
		db, coll, _ := strings.Cut(name, ".")
		switch {
		case q.sub.DB != "" && q.sub.DB != db, q.sub.Coll != "" && coll != "*" && q.sub.Coll != coll:
		case coll == "*":
			q.lose("", at)
		default:
			q.lose(name, at)
		}
	}
}

// told passes a notice, with its place, to the live queries that it concerns.
func (c *Client) told(n Notice, at place) {
	switch n := n.(type) {
	case SnapshotDone:
		if of, ok := c.live.Load(n.Subscription); ok {
			q, _ := of.(*LiveQuery)
			q.done(n.Namespaces, &at)
		}
	case Resync:
		c.eachLive(func(q *LiveQuery) { q.lost(n.Namespaces, at) })
	case Rewound:
		c.readLive()
	}
}

// readLive makes all live queries read their documents again, because older changes will be
// delivered, which would revert documents.
func (c *Client) readLive() {
	c.eachLive(func(q *LiveQuery) { _ = q.read() }) // its ID is new
}

func (c *Client) eachLive(f func(*LiveQuery)) {
	var all []*LiveQuery // f may change the map
	c.live.Range(func(_, of any) bool {
		q, _ := of.(*LiveQuery)
		all = append(all, q)
		return true
	})
	for _, q := range all {
		f(q)
	}
}
