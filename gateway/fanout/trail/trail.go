package trail

import (
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway/wire"
)

// A Trail is what a session knows of one partition.
type Trail struct {
	have  *Known          // what the subscriber had seen before the session, nil once the log is behind it
	at    wire.Place      // where the last batch ended
	acked change.Position // everything up to here has been acknowledged
	sent  []sent          // not acknowledged, in their order
	given int             // how many of them have been handed out
	due   int             // how many of them a stop waits for
	open  *wire.Batch     // the last one of the queue, which may still grow
	away  bool            // the session does not deliver the partition

	// shared says that the subscriber has other sessions as well, and may be further than this one.
	shared bool

	before wire.Place      // where it stood before it was moved back: late acknowledgements up to there mean what was sent then
	back   change.Position // where it was moved back to while it was away, zero if it was not
}

// New makes a Trail that begins at a position. One of a subscriber that has other sessions as well is shared: it is away before it is
// attached to.
func New(start change.Position, shared bool) *Trail {
	return &Trail{at: wire.PlaceOf(start), acked: start, away: shared, shared: shared}
}

// NewKnown makes a Trail that begins where its subscriber stands.
func NewKnown(have Known, shared bool) *Trail {
	return &Trail{have: &have, at: have.Place, acked: have.From(), away: shared, shared: shared}
}

// Away reports whether the session does not deliver the partition.
func (t *Trail) Away() bool { return t.away }

// Idle reports whether nothing is queued or sent and not acknowledged.
func (t *Trail) Idle() bool { return len(t.sent) == 0 }

// Seen reports whether the subscriber had seen the event before the session.
func (t *Trail) Seen(e *change.Event) bool {
	if t.have == nil {
		return false
	}
	p := e.Position()
	head := wire.HeadOf(p)
	if t.have.Has(head, p.Hash) || !p.After(t.have.Stood) {
		return true
	}
	if string(head[:]) > string(t.have.Head[:]) {
		t.have = nil
	}
	return false
}

// begin returns a new batch, which begins where the last one ended.
func (t *Trail) begin(p change.Partition, epoch change.Epoch) *wire.Batch {
	t.settle()
	b := &wire.Batch{Partition: p, Epoch: epoch, From: t.at, To: t.at}
	t.open, t.sent = b, append(t.sent, sent{to: t.at})
	return b
}

// put puts an event into the batch that is open.
func (t *Trail) put(position change.Position, e wire.Event) {
	b := t.open
	b.Events = append(b.Events, e)
	b.Bytes += len(e.Payload)
	t.end(b, position)
	last := &t.sent[len(t.sent)-1]
	last.events++
	last.bytes += len(e.Payload)
}

// end moves the end of the last batch.
func (t *Trail) end(b *wire.Batch, to change.Position) {
	place := wire.PlaceOf(to)
	last := &t.sent[len(t.sent)-1]
	last.to, last.end = place, to
	if place.Head == b.To.Head { // changes of different shards: all that was seen at this head
		for _, h := range b.To.Hashes {
			if !slices.Contains(place.Hashes, h) {
				place.Hashes = append(place.Hashes[:len(place.Hashes):len(place.Hashes)], h)
			}
		}
	}
	b.To, b.End, t.at = place, to, place
}

// reached moves the end of the open batch, if there is one, to where a reply ends.
func (t *Trail) reached(to change.Position) {
	if t.open != nil && !t.sent[len(t.sent)-1].end.After(to) {
		t.end(t.open, to)
	}
}

// settle ends the last batch where it stands. Its position is its own from then on, and the reply is let go of.
func (t *Trail) settle() {
	if t.open != nil {
		last := &t.sent[len(t.sent)-1]
		last.end = last.end.Clone()
		t.open.End, t.open = last.end, nil
	}
}

// give hands out what is queued. Only that can be acknowledged: a place that a gateway knows from elsewhere says nothing of what has yet to
// reach it.
func (t *Trail) give() {
	t.settle()
	t.given = len(t.sent)
}

// welcome closes the first batch where the subscriber stands, with what it may have missed before, if something was.
func (t *Trail) welcome(b *wire.Batch, lost *delivery.Notice) {
	if lost != nil {
		b.From, b.Loss = wire.Place{}, lost
	}
	last := &t.sent[len(t.sent)-1]
	b.End, last.end, last.unplaced = t.acked, t.acked, lost != nil
	t.open = nil
}

// lose closes a batch at the position, with what became of the stretch.
func (t *Trail) lose(b *wire.Batch, n *delivery.Notice, to change.Position) {
	b.Loss = n
	t.end(b, to)
	t.open, t.have = nil, nil
}

// note closes a batch of no length where the trail stands, with what the subscriber is to know before what follows.
func (t *Trail) note(b *wire.Batch, n *delivery.Notice) {
	end := t.acked
	if i := len(t.sent) - 2; i >= 0 {
		end = t.sent[i].end
	}
	b.Loss = n
	b.End, t.sent[len(t.sent)-1].end = end, end
	t.open = nil
}

// rewind moves the trail back. The batch that begins there tells of it by rewound.
func (t *Trail) rewind(to change.Position) {
	t.keepBefore()
	t.at = wire.PlaceOf(to)
}

// rewound closes the first batch after a rewind. What is before it is skipped, where the session has yet to read that for others.
func (t *Trail) rewound(b *wire.Batch, n *delivery.Notice, to change.Position) {
	t.lose(b, n, to)
	t.have = &Known{Place: t.at, Stood: to}
	t.sent[len(t.sent)-1].exact = true
}

// again says that the log is read again from an earlier position: what the trail has had is skipped.
func (t *Trail) again() {
	known := Known{Place: t.at}
	if t.have != nil {
		known.Stood = t.have.Stood
	}
	t.have = &known
}

// attach begins the trail anew where the subscriber stands. What it had on its way has been taken off by drop.
func (t *Trail) attach(have Known) {
	t.keepBefore()
	t.away, t.have, t.at, t.acked, t.back = false, &have, have.Place, have.From(), change.Position{}
}

// drop forgets what is on its way, and returns how much that was.
func (t *Trail) drop() (events, bytes int) {
	for _, b := range t.sent {
		events, bytes = events+b.events, bytes+b.bytes
	}
	t.sent, t.given, t.due, t.open = nil, 0, 0, nil
	return events, bytes
}

func (t *Trail) keepBefore() {
	if t.at.Compare(t.before) > 0 {
		t.before = t.at
	}
}
