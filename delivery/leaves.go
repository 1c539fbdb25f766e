package delivery

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// The cost of checking whether a document has left: with the sent documents, and with its image
// before.
const (
	sentUnits  = 10
	imageUnits = 200
)

// size returns an estimate of the memory that it takes under its key.
func (d knownDocument) size(key string) int { return 128 + len(key) + len(d.id.Data) }

// key identifies a document. It is no hash of it: documents of one hash, which a tenant can look
// for, would be taken for each other. It is valid until the next call.
func (d *knownDocuments) key(ns change.Namespace, id change.Value) []byte {
	d.buf = appendKey(d.buf[:0], ns, id)
	return d.buf
}

// know remembers that the subscriber has been sent a document. id is copied.
func (sub *Subscription) know(ns change.Namespace, id change.Value) {
	d := sub.known
	key := d.key(ns, id)
	if before, ok := d.of[string(key)]; ok {
		if before.stale {
			before.stale = false
			d.of[string(key)] = before
		}
		return
	}
	doc := knownDocument{ns: ns, id: change.Value{Type: id.Type, Data: slices.Clone(id.Data)}}
	name := string(key)
	if !sub.stream.remembers(doc.size(name)) {
		if d.whole {
			d.whole = false
			sub.session.Notify(Notice{
				Kind: "left_unknown", Subscription: sub.ID, At: time.Now(),
				Text: "The subscription has more documents than are remembered: from now on it hears of every change after which a document does not match.",
			})
		}
		return
	}
	d.of[name] = doc
}

// reread marks the documents of collections, or of all, as stale: a snapshot reads them again.
func (d *knownDocuments) reread(some []change.Namespace) {
	for key, doc := range d.of {
		if len(some) == 0 || slices.Contains(some, doc.ns) {
			doc.stale = true
			d.of[key] = doc
		}
	}
}

// forget removes a document whose deletion was sent to the subscriber.
func (sub *Subscription) forget(ns change.Namespace, id change.Value) {
	key := string(sub.known.key(ns, id))
	if doc, ok := sub.known.of[key]; ok {
		sub.stream.remembers(-doc.size(key))
		delete(sub.known.of, key)
	}
}

// knowEvent remembers the document of an event that the subscriber gets.
func (sub *Subscription) knowEvent(e *change.Event) {
	if e.Key() == nil {
		// The subscriber may keep the documents under their new name.
		sub.known.whole = sub.known.whole && e.Op() != change.OpRename
		return
	}
	if ns := e.Namespace(); e.Op() == change.OpDelete || string(e.OpName()) == change.LeftName {
		sub.forget(ns, e.ID())
	} else {
		sub.know(ns, e.ID())
	}
}

// hasLeft reports whether a document has, with an event that does not match, stopped to match: by
// its image before, otherwise by the sent documents. If these are unknown, it may have left. It
// also returns the cost of the check.
func (sub *Subscription) hasLeft(e *change.Event) (left bool, units int) {
	if !sub.Program.IsOf(e) { // it has never been there
		return false, sentUnits
	}
	if !sub.Program.Admits(e.Op()) && e.Op() != change.OpDelete {
		if holds, err := sub.Program.Holds(e); holds && err == nil { // the change is hidden, the document is there
			return false, imageUnits
		}
	}
	if sub.session.account == nil || sub.Program.IsDecided() { // the evaluation is unlimited, or cheap
		if before := e.Lookup("fullDocumentBeforeChange").Document(); before != nil {
			image, err := change.Snapshotted(e.Namespace(), before, e.Time())
			matched, failed := sub.Program.Match(&image)
			return err != nil || failed != nil || matched, imageUnits
		}
	}
	_, sent := sub.known.of[string(sub.known.key(e.Namespace(), e.ID()))]
	return sent || !sub.known.whole, sentUnits
}

// appendLeft sends subscriptions the event that a document has stopped matching. It charges the
// cost to the writer of the event.
func (s *stream) appendLeft(e *change.Event, ref change.Ref, p change.Partition, subscriptions []*Subscription, of *Writer) {
	if len(subscriptions) == 0 {
		return
	}
	left, err := change.Left(e)
	if err != nil {
		return // it has been parsed before
	}
	s.leftWriter.Next(&left)
	s.leftWriter.cost, s.leftWriter.copied = 0, 0
	s.leftWriter.came = of.came
	s.appendEvent(&left, ref, p, true, subscriptions, &s.leftWriter)
	s.noteWhole(e, subscriptions)
	of.cost += s.leftWriter.cost
	of.copied += s.leftWriter.copied
}
