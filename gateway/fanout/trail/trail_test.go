package trail

import (
	"bytes"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gateway/wire"
)

// A batch that is handed out, or full, must hold nothing of the reply that its last event came in: a reply has up to 16 MiB.
func TestEndOfABatchHoldsNoReply(t *testing.T) {
	reply := changetest.Event{ID: 1, Time: change.Timestamp{T: 9, I: 1}}.Position()
	want := bytes.Clone(reply.Token)
	trail := New(change.Position{}, false)
	b := trail.begin(0, change.Epoch{})
	trail.end(b, reply)
	trail.give()
	clear(reply.Token)
	if !bytes.Equal(b.End.Token, want) || !bytes.Equal(trail.sent[0].end.Token, want) {
		t.Error("the end of the batch lies in the reply")
	}
	if trail.open != nil || trail.given != 1 {
		t.Errorf("open %v, given %d", trail.open, trail.given)
	}
}

// What is told of a partition that is away is not taken back by an acknowledgement of what was sent before.
func TestAcknowledgementTakesBackNothingThatWasTold(t *testing.T) {
	begin, later := change.At(change.Timestamp{T: 9, I: 1}), change.At(change.Timestamp{T: 12, I: 1})
	trail := New(begin, true)
	trail.welcome(trail.begin(0, change.Epoch{}), nil)
	for _, at := range []change.Position{later, begin} {
		if _, _, _, ok := trail.ack(wire.PlaceOf(at)); !ok {
			t.Errorf("%s is refused", at)
		}
		trail.give()
	}
	if at, same, ok := trail.standing(); at.Compare(later) != 0 || same || !ok || !trail.Idle() {
		t.Errorf("stands at %s, %t, %t", at, same, ok)
	}
}
