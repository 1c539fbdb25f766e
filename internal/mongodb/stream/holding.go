package stream

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/oplog"
)

// A holding measures how long MongoDB holds changes back before change streams show them, for
// instance until its journal is written. It never compares the clocks of two machines: a change is
// visible at once unless MongoDB holds it, so the changes of a reply were written while no request
// waited, or they were held. How far they are apart is known from their wall times, and how long no
// request waited from the node's own clock. A stall of the node or of the network right before a
// reply counts as held, too.
type holding struct {
	drained  bool          // the reply before had everything that was visible
	answered time.Time     // when that arrived
	asked    time.Time     // when the request after it was sent
	quickest time.Duration // the shortest request: about what the network takes, both ways
}

// ask records that a request is sent.
func (h *holding) ask(now time.Time) { h.asked = now }

// answer records that its reply has arrived, and returns how long no request waited: from when
// MongoDB made the reply before, at the earliest, until the request came to it.
func (h *holding) answer(now time.Time) (absent time.Duration) {
	took := now.Sub(h.asked)
	if h.quickest == 0 || took < h.quickest {
		h.quickest = took
	}
	absent = h.asked.Sub(h.answered) + h.quickest
	h.answered = now
	return absent
}

// noteHeld observes about how long MongoDB has held the first change of a reply.
func (st *stream) noteHeld(reply *oplog.Reply) {
	h := &st.gate.holding
	known := h.drained && !st.source.client.Sharded() && len(reply.Events) > 0
	h.drained = reply.Drained
	if !known {
		return
	}
	first, ok := wallTime(reply.Events[0])
	if !ok {
		return
	}
	last, ok := wallTime(reply.Events[len(reply.Events)-1])
	if !ok {
		return
	}
	st.source.metrics.held.Observe(max(0, last.Sub(first)-st.gate.absent).Seconds())
}

// wallTime returns the wall time of a change. Servers before 6.0 do not say it.
func wallTime(event bson.Raw) (at time.Time, ok bool) {
	v, err := event.LookupErr("wallTime")
	if err != nil {
		return at, false
	}
	return v.TimeOK()
}
