package snapshot

import (
	"bytes"

	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/change"
)

const (
	// maxReplay bounds the changes that are kept for a replay, in bytes: of the values that they
	// set, and changeBytes for each change.
	maxReplay   = 16 << 20
	changeBytes = 64
)

// A Replay brings documents to a known time that keep changing, so that they cannot be read as of
// one. It keeps their changes from before the read, and applies them again to the read documents,
// as MongoDB's initial sync does: whatever the time of the read, the result is the document after
// the last of these changes. It must not be used concurrently.
type Replay struct {
	stretch

	documents map[xxh3.Uint128]*replayed
	bytes     int
	read      bool
}

// A replayed is a document with its changes.
type replayed struct {
	read    []byte // nil: it was not there
	changes []replayable
}

// A replayable is the effect of a change on a document.
type replayable struct {
	op   change.Op
	time change.Timestamp
	data []byte // the document of an insert or a replacement, the description of an update; nil if the event has none
}

// NewReplay returns a Replay of documents of a collection that are read from now on.
func NewReplay(ns change.Namespace, ids []change.Value) *Replay {
	r := &Replay{stretch: stretch{db: ns.DB, coll: ns.Coll}, documents: make(map[xxh3.Uint128]*replayed, len(ids))}
	for _, id := range ids {
		r.documents[r.hash(id)] = &replayed{}
	}
	return r
}

// Note keeps an event of any collection, if it changes one of the documents.
func (r *Replay) Note(e *change.Event) {
	if !r.concerns(e) {
		return
	}
	d := r.documents[r.hash(e.ID())]
	if d == nil {
		return
	}
	var data []byte
	switch e.Op() {
	case change.OpInsert, change.OpReplace:
		data = e.Lookup("fullDocument").Document()
	case change.OpUpdate: // its looked-up document may be newer
		data = e.Lookup("updateDescription").Document()
	case change.OpDelete:
	case change.OpOther, change.OpSkipped, change.OpDrop, change.OpRename, change.OpDropDatabase, change.OpInvalidate, change.OpSnapshot:
		return
	}
	if r.bytes += len(data) + changeBytes; r.bytes > maxReplay {
		r.Spoil()
		return
	}
	d.changes = append(d.changes, replayable{op: e.Op(), time: e.Time(), data: bytes.Clone(data)})
}

// Read sets the documents that were read; it keeps them.
func (r *Replay) Read(documents [][]byte) {
	r.read = true
	for _, doc := range documents {
		if d := r.documents[r.hash(change.IDOf(doc))]; d != nil {
			d.read = doc
		}
	}
}

// IsReady reports whether the documents were read, and none of their changes is missing since.
func (r *Replay) IsReady() bool { return r.read && !r.spoiled }

// At returns the documents that exist at a time, up to which all their changes were noted. It
// returns false if a change does not contain its effect.
func (r *Replay) At(ids []change.Value, t change.Timestamp) (documents [][]byte, told bool) {
	for _, id := range ids {
		d := r.documents[r.hash(id)]
		if d == nil {
			return nil, false
		}
		doc, told := d.at(t)
		switch {
		case !told:
			return nil, false
		case doc != nil:
			documents = append(documents, doc)
		}
	}
	return documents, true
}

// at returns the document at a time, nil if there is none.
func (d *replayed) at(t change.Timestamp) (doc []byte, told bool) {
	doc = d.read
	for _, e := range d.changes {
		if e.time.Compare(t) > 0 {
			break
		}
		switch {
		case e.op == change.OpDelete:
			doc = nil
		case e.op != change.OpUpdate:
			if doc = e.data; doc == nil {
				return nil, false
			}
		case doc != nil: // otherwise it was deleted before it was read, and a later change says so
			if doc, told = change.Updated(doc, e.data); !told {
				return nil, false
			}
		}
		if doc != nil && change.IsAlike(doc, d.read) { // it had these changes, which may have put its fields in another order now
			doc = d.read
		}
	}
	return doc, true
}
