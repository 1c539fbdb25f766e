package trail

import (
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/wire"
)

// ack acknowledges everything up to a place and returns of how much; it is false where the place is beyond what was sent, unless another
// session may have brought it. A trail that is away takes the subscriber's word.
func (t *Trail) ack(to wire.Place) (events, bytes, batches int, ok bool) {
	if !t.shared && to.Compare(t.at) > 0 && to.Compare(t.before) > 0 {
		return 0, 0, 0, false
	}
	n := 0
	for n < t.given && t.sent[n].reachedBy(to) {
		n++
	}
	for _, b := range t.sent[:n] {
		events, bytes = events+b.events, bytes+b.bytes
		if !t.away || b.end.After(t.acked) { // away, it may have been told more
			t.acked = b.end
		}
	}
	t.sent, t.given, t.due = slices.Delete(t.sent, 0, n), t.given-n, max(t.due-n, 0)
	if stands := change.At(to.Time()); t.away && (stands.After(t.acked) || n == 0 && t.goesBack(stands)) {
		t.acked = stands
	}
	return events, bytes, n, true
}

// goesBack reports whether a subscriber that is less far than it said has gone back to where the trail was rewound to while it was away: it
// may have heard of that only now, from whoever delivers the partition.
func (t *Trail) goesBack(to change.Position) bool {
	return !t.back.IsZero() && to.Time.Compare(t.back.Time) >= 0 && to.Time.Compare(t.acked.Time) < 0
}

// Held returns the position up to which everything has been acknowledged, for who reads on behind it.
func (t *Trail) Held() change.Position {
	held := t.acked
	for _, b := range t.sent {
		if !b.exact {
			continue
		}
		if before := change.At(b.end.Time.Prev()); held.After(before) {
			held = before
		}
	}
	return held
}

// standing returns where the subscriber stands; same says that this is wherever the session is, as nothing is on its way. It is false while
// the subscriber has yet to acknowledge a loss that no position would tell again.
func (t *Trail) standing() (at change.Position, same, ok bool) {
	switch {
	case t.Idle():
		return t.acked, !t.away, true
	default:
		return t.Held(), false, !t.sent[0].unplaced
	}
}
