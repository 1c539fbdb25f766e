package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Document is a document in relaxed Extended JSON; its numbers are json.Number. It must not be modified.
type Document = map[string]any

// A LiveQuery is the documents that match a subscription, kept up to date. Its methods are safe for concurrent use.
type LiveQuery struct {
	on LiveCallbacks

	calls sync.Mutex // held during callbacks, which are in the order of the changes of a document
	mu    struct {
		sync.Mutex
		docs  map[string]*liveDocument
		whole bool
	}
}

// LiveCallbacks are called one at a time when a LiveQuery has changed. A nil callback is not called.
type LiveCallbacks struct {
	Added   func(Document)
	Changed func(before, after Document)
	Removed func(Document)
	// Whole is called when the LiveQuery has all documents: after the beginning, and after a loss has been made up for.
	Whole func()
}

type liveDocument struct {
	ns    string
	doc   Document
	stale bool // not seen since the snapshot has begun
}

// Live subscribes to the documents that match a subscription. Config.Start must be StartSnapshot. The ID gets a suffix, so that each run of the
// program begins with the documents; Format, Leaves and OnLoss are set. Without mongodb.full_document, changes are applied to the documents as
// MongoDB describes them.
func (c *Client) Live(sub Subscription, on LiveCallbacks) (*LiveQuery, error) {
	if c.cfg.Start != StartSnapshot {
		return nil, errors.New("live query: Config.Start must be StartSnapshot")
	}
	if sub.ID == "" || len(sub.Ops) > 0 {
		return nil, errors.New("live query: ID is required, and Ops must be empty")
	}
	q := &LiveQuery{on: on}
	q.mu.docs = make(map[string]*liveDocument)
	sub.ID, sub.Format, sub.Leaves, sub.OnLoss = sub.ID+"~"+rand.Text(), JSON, true, LossSnapshot
	c.live.Store(sub.ID, q)
	if err := c.Subscribe(sub, q.handle); err != nil {
		c.live.Delete(sub.ID)
		return nil, err
	}
	return q, nil
}

// Documents returns the documents, and whether these are all: before the first snapshot is complete, and after a loss, some may be missing.
func (q *LiveQuery) Documents() (all []Document, whole bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range q.mu.docs {
		all = append(all, d.doc)
	}
	return all, q.mu.whole
}

// A liveEvent is a change event in relaxed Extended JSON.
type liveEvent struct {
	Op   string                     `json:"operationType"`
	NS   struct{ DB, Coll string }  `json:"ns"`
	Key  map[string]json.RawMessage `json:"documentKey"`
	Full Document                   `json:"fullDocument"`

	Update struct {
		Updated   map[string]any `json:"updatedFields"`
		Removed   []string       `json:"removedFields"`
		Truncated []struct {
			Field string      `json:"field"`
			Size  json.Number `json:"newSize"`
		} `json:"truncatedArrays"`
		Paths map[string][]any `json:"disambiguatedPaths"`
	} `json:"updateDescription"`
}

// handle applies a change.
func (q *LiveQuery) handle(_ context.Context, c Change) error {
	var e liveEvent
	decoder := json.NewDecoder(strings.NewReader(string(c.Data)))
	decoder.UseNumber()
	if err := decoder.Decode(&e); err != nil {
		return fmt.Errorf("live query: read change: %w", err)
	}
	q.calls.Lock()
	defer q.calls.Unlock()
	ns := e.NS.DB + "." + e.NS.Coll
	if c.AllPartitions {
		switch e.Op {
		case "drop", "rename":
			q.removeAll(func(d *liveDocument) bool { return d.ns == ns })
		case "dropDatabase":
			q.removeAll(func(d *liveDocument) bool { return strings.HasPrefix(d.ns, e.NS.DB+".") })
		}
		return nil
	}
	key := ns + " " + string(e.Key["_id"])
	if e.Op == "delete" || e.Op == "left" {
		q.remove(key)
		return nil
	}
	q.mu.Lock()
	before := q.mu.docs[key]
	after := &liveDocument{ns: ns, doc: e.Full}
	if after.doc == nil {
		if before == nil { // a snapshot brings it
			q.mu.Unlock()
			return nil
		}
		after.doc = e.applied(before.doc)
	}
	q.mu.docs[key] = after
	q.mu.Unlock()
	switch {
	case before == nil && q.on.Added != nil:
		q.on.Added(after.doc)
	case before != nil && q.on.Changed != nil:
		q.on.Changed(before.doc, after.doc)
	}
	return nil
}

// remove removes a document, and removeAll all of some kind. The caller holds calls.
func (q *LiveQuery) remove(key string) {
	q.mu.Lock()
	d := q.mu.docs[key]
	delete(q.mu.docs, key)
	q.mu.Unlock()
	if d != nil && q.on.Removed != nil {
		q.on.Removed(d.doc)
	}
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

// begun and done apply the marks of the query's snapshots: what is not seen between them is gone.
func (q *LiveQuery) begun() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.whole = false
	for _, d := range q.mu.docs {
		d.stale = true
	}
}

func (q *LiveQuery) done() {
	q.calls.Lock()
	defer q.calls.Unlock()
	q.removeAll(func(d *liveDocument) bool { return d.stale })
	q.mu.Lock()
	q.mu.whole = true
	q.mu.Unlock()
	if q.on.Whole != nil {
		q.on.Whole()
	}
}

// told passes a notice to the live query that it is about.
func (c *Client) told(n Notice) {
	switch n := n.(type) {
	case SnapshotBegun:
		c.liveQuery(n.Subscription, (*LiveQuery).begun)
	case SnapshotDone:
		c.liveQuery(n.Subscription, (*LiveQuery).done)
	case Resync:
		c.live.Range(func(_, of any) bool {
			q, _ := of.(*LiveQuery)
			q.mu.Lock()
			q.mu.whole = false
			q.mu.Unlock()
			return true
		})
	}
}

func (c *Client) liveQuery(subscription string, f func(*LiveQuery)) {
	if of, ok := c.live.Load(subscription); ok {
		q, _ := of.(*LiveQuery)
		f(q)
	}
}

// applied returns a document after the update. Containers on the way to what changes are copied.
func (e *liveEvent) applied(doc Document) Document {
	var after any = doc
	for _, t := range e.Update.Truncated {
		if n, err := strconv.Atoi(t.Size.String()); err == nil {
			after = changed(after, e.path(t.Field), func(v any) (any, bool) {
				list, _ := v.([]any)
				return slices.Clone(list[:min(n, len(list))]), true
			})
		}
	}
	for field, v := range e.Update.Updated {
		after = changed(after, e.path(field), func(any) (any, bool) { return v, true })
	}
	for _, field := range e.Update.Removed {
		after = changed(after, e.path(field), func(any) (any, bool) { return nil, false })
	}
	result, _ := after.(Document)
	return result
}

// path returns the steps of a field: by disambiguatedPaths where the event has it, otherwise between dots.
func (e *liveEvent) path(field string) (steps []string) {
	for _, step := range e.Update.Paths[field] {
		steps = append(steps, fmt.Sprint(step))
	}
	if len(steps) > 0 {
		return steps
	}
	return strings.Split(field, ".")
}

// changed returns a container with what is at the path changed. Missing documents on the way are made.
func changed(in any, path []string, change func(any) (v any, keep bool)) any {
	if list, ok := in.([]any); ok {
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 {
			return in
		}
		list = slices.Clone(list)
		for len(list) <= i && i < maxElements {
			list = append(list, nil)
		}
		if i >= len(list) {
			return in
		}
		if len(path) > 1 {
			list[i] = changed(list[i], path[1:], change)
		} else {
			list[i], _ = change(list[i])
		}
		return list
	}
	doc, _ := in.(Document)
	if doc = maps.Clone(doc); doc == nil {
		doc = make(Document)
	}
	if len(path) > 1 {
		doc[path[0]] = changed(doc[path[0]], path[1:], change)
		return doc
	}
	if v, keep := change(doc[path[0]]); keep {
		doc[path[0]] = v
	} else {
		delete(doc, path[0])
	}
	return doc
}

// maxElements bounds an array that an update makes longer: MongoDB allows no document that has more.
const maxElements = 1_500_000
