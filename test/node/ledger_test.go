package node

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
)

// everywhere is the partition of a change that concerns all of them.
const everywhere = -1

// An entry is one thing that a subscriber has received.
type entry struct {
	partition int // everywhere for a change of no document
	op, id    string
	at        change.Timestamp
	event     bson.Raw

	loss  *loss                                 // in the place of a change
	again bool                                  // in the place of a change: what follows may have been received before
	floor map[change.Partition]change.Timestamp // with again, if there is one: nothing comes again that is not later
}

// A loss is a loss, or a rewind, as a subscriber is told of it.
type loss struct {
	kind, reason, advice string
	namespaces           []string
	from, to             change.Timestamp
}

// seconds says that a transport tells times in whole seconds.
func (l *loss) bounds(at change.Timestamp, seconds bool) bool {
	if seconds {
		return l.from.T <= at.T && (at.T < l.to.T || at.T == l.to.T && at.I == 0)
	}
	return l.from.Compare(at) <= 0 && at.Compare(l.to) <= 0
}

// entryOfJSON makes an entry of a change event as Extended JSON.
func entryOfJSON(partition int, text []byte) entry {
	var event bson.Raw
	if err := bson.UnmarshalExtJSON(text, false, &event); err != nil {
		return entry{partition: partition, op: fmt.Sprintf("%v in %.200s", err, text)}
	}
	return entryOf(partition, event)
}

// entryOf makes an entry of a change event.
func entryOf(partition int, event bson.Raw) entry {
	e := entry{partition: partition, event: event}
	e.op, _ = event.Lookup("operationType").StringValueOK()
	e.at.T, e.at.I, _ = event.Lookup("clusterTime").TimestampOK()
	e.id = idOf(event)
	return e
}

// idOf returns the text or number of an event's _id.
func idOf(event bson.Raw) string {
	id, err := event.LookupErr("documentKey", "_id")
	if err != nil {
		op, _ := event.Lookup("operationType").StringValueOK()
		return op
	}
	if text, ok := id.StringValueOK(); ok {
		return text
	}
	if number, ok := id.AsInt64OK(); ok {
		return fmt.Sprint(number)
	}
	return id.String()
}

// A ledger is what a subscriber has received, in order.
type ledger struct {
	mu      sync.Mutex
	entries []entry
	changed chan struct{} // closed when there is more
	gate    chan struct{} // the subscriber deals with nothing more until it is closed; nil: it does
	err     error         // why it has ended, if it has
	deaf    bool          // it acknowledges nothing from the next loss on
}

// add writes down what has come.
func (l *ledger) add(entries ...entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entries...)
	l.wake()
}

// end writes down why nothing more comes.
func (l *ledger) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.wake()
}

func (l *ledger) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// more returns a channel that is closed when there is more.
func (l *ledger) more() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// hold has the subscriber deal with nothing more; goOn with everything again.
func (l *ledger) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

func (l *ledger) goOn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = false
	if l.gate != nil {
		close(l.gate)
		l.gate = nil
	}
}

// held waits while the subscriber is held, or until it is over.
func (l *ledger) held(over <-chan struct{}) error {
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-over:
		return errOver
	}
}

var errOver = fmt.Errorf("over")

// all returns what has come.
func (l *ledger) all() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// failure returns why the subscriber has ended, or could not go on.
func (l *ledger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// changes returns the changes.
func (l *ledger) changes() []entry {
	return slices.DeleteFunc(l.all(), func(e entry) bool { return e.loss != nil || e.again })
}

// losses returns the losses and rewinds.
func (l *ledger) losses() (losses []*loss) {
	for _, e := range l.all() {
		if e.loss != nil {
			losses = append(losses, e.loss)
		}
	}
	return losses
}

// ids returns the _ids of the documents that were told of; of a change of no document its
// operation.
func (l *ledger) ids() (ids []string) {
	for _, e := range l.changes() {
		ids = append(ids, e.id)
	}
	return ids
}

// count returns how many changes there are of an operation.
func (l *ledger) count(op string) (n int) {
	for _, e := range l.changes() {
		if e.op == op {
			n++
		}
	}
	return n
}

// String shows what has come.
func (l *ledger) String() string {
	var b strings.Builder
	for _, e := range l.all() {
		switch {
		case e.loss != nil:
			fmt.Fprintf(&b, "[%s %s %v %s–%s] ", e.loss.kind, e.loss.reason, e.loss.namespaces, e.loss.from, e.loss.to)
		case e.again:
			b.WriteString("[again] ")
		default:
			fmt.Fprintf(&b, "%d:%.20s ", e.partition, e.id)
		}
	}
	return b.String()
}

// once fails the test where one of the documents was told of more than once, or not at all.
func (l *ledger) once(t *testing.T, ids ...string) {
	t.Helper()
	l.times(t, 1, ids...)
}

// times fails the test where one of the documents was not told of so many times.
func (l *ledger) times(t *testing.T, n int, ids ...string) {
	t.Helper()
	counts := map[string]int{}
	for _, id := range l.ids() {
		counts[id]++
	}
	var wrong []string
	for _, id := range ids {
		if counts[id] != n {
			wrong = append(wrong, fmt.Sprintf("%s %d times", id, counts[id]))
		}
	}
	if len(wrong) > 0 {
		t.Errorf("told of %v; received %s", wrong, l)
	}
}

// inOrder fails the test where something came out of its place: the changes of a partition come in
// the order of the log, those of all partitions and losses between what is before and what is after
// them. After a rewind, and where what follows may have been received before, it begins anew, but
// not before the floor.
func (l *ledger) inOrder(t *testing.T) {
	t.Helper()
	last := map[int]change.Timestamp{}
	var lost change.Timestamp
	for i, e := range l.all() {
		switch {
		case e.again, e.loss != nil && e.loss.kind == "rewound":
			clear(last)
			lost = change.Timestamp{}
			for p, at := range e.floor {
				last[int(p)] = at
			}
			continue
		case e.loss != nil:
			for p, at := range last {
				if e.loss.reason == "history_lost" && at.T > e.loss.from.T+1 { // of one that is told in seconds too
					t.Errorf("entry %d: a loss from %s on comes after a change at %s in partition %d", i, e.loss.from, at, p)
				}
			}
			if e.loss.reason == "history_lost" {
				lost = change.Timestamp{T: e.loss.to.T - 1}
			}
			continue
		case e.op == change.SnapshotName: // as it was when it was read, at the earliest
			continue
		case e.at.Compare(lost) < 0:
			t.Errorf("entry %d: a change at %s comes after a loss to %s", i, e.at, lost)
		}
		before := last[e.partition]
		if e.partition == everywhere {
			for _, at := range last {
				if at.Compare(before) > 0 {
					before = at
				}
			}
		} else if at := last[everywhere]; at.Compare(before) > 0 {
			before = at
		}
		if c := e.at.Compare(before); c < 0 || c == 0 && e.partition != everywhere { // an invalidate has the time of what it comes with
			t.Errorf("entry %d: %s of partition %d at %s comes after %s; received %s", i, e.id, e.partition, e.at, before, l)
			return
		}
		last[e.partition] = e.at
	}
}
