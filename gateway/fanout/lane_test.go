package fanout

import (
	"bytes"
	"testing"

	"mongostream/change"
	"mongostream/change/changetest"
	"mongostream/gateway/wire"
)

// A batch that is handed out, or full, must hold nothing of the reply that its last event came in: a reply has up to 16 MiB.
func TestEndOfABatchHoldsNoReply(t *testing.T) {
	reply := changetest.Event{ID: 1, Time: change.Timestamp{T: 9, I: 1}}.Position()
	want := bytes.Clone(reply.Token)
	b := &wire.Batch{}
	l := &lane{open: b, sent: []wire.Sent{{}}}
	l.end(b, reply)
	l.give()
	clear(reply.Token)
	if !bytes.Equal(b.End.Token, want) || !bytes.Equal(l.sent[0].End.Token, want) {
		t.Error("the end of the batch lies in the reply")
	}
	if l.open != nil || l.given != 1 {
		t.Errorf("open %v, given %d", l.open, l.given)
	}
}
