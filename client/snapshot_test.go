package client_test

import (
	"context"
	"testing"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
)

func document(to string, events ...string) *streampb.Batch {
	b := batch(to, events...)
	for _, e := range b.GetEvents() {
		e.Snapshot = true
	}
	return b
}

func (v *visit) mark(to string, state streampb.Snapshot_State, read uint64) uint64 {
	v.t.Helper()
	return v.sendBatch(&streampb.Batch{To: at(to), Snapshot: &streampb.Snapshot{Subscription: "s", State: state, Reason: "start", Read: read, Estimated: 3}})
}

// Marks come in their place, documents that share it come each, and a session that goes on says
// that it wants snapshots.
func TestDocumentsOfASnapshotComeBetweenItsMarks(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Start = client.StartSnapshot
	flags := make(chan bool, 10)
	start(t, cfg, func(ctx context.Context, c client.Change) error {
		flags <- c.Snapshot
		return j.handle(ctx, c)
	})
	v := n.welcomed(t, 2, "a")
	if v.hello.GetStart() != streampb.Start_START_SNAPSHOT {
		t.Errorf("%v", v.hello)
	}
	v.mark("b", streampb.Snapshot_STATE_BEGUN, 0)
	v.sendBatch(document("b", "0:b", "0:b", "1:b"))
	v.batch("c1", "0:c1")
	v.acked(v.mark("c1", streampb.Snapshot_STATE_DONE, 3))
	told(t, j, func(m client.SnapshotBegun) bool {
		return m.Subscription == "s" && m.Reason == "start" && m.Read == 0 && m.Estimated == 3
	})
	told(t, j, func(m client.SnapshotDone) bool { return m.Read == 3 })
	snapshots := 0
	for range 4 {
		if <-flags {
			snapshots++
		}
	}
	if snapshots != 3 {
		t.Errorf("%d documents", snapshots)
	}
	v.close(errBroken)
	if v = n.accept(t); v.hello.GetStart() != streampb.Start_START_SNAPSHOT || v.hello.GetPosition() == nil {
		t.Errorf("%v", v.hello)
	}
}

// A document that is older than what has been handled is not dropped as if it had been handled: the
// next session brings it again.
func TestOlderDocumentsEndTheirSession(t *testing.T) {
	n, j := newNode(t), newJournal()
	start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 1, "a")
	v.acked(v.batch("d1", "0:d1"))
	j.expect(t, "0:d1")
	v.close(errBroken)
	v = n.welcomed(t, 1, "b") // of which the other session knew more
	seq := v.sendBatch(document("c", "0:c"))
	next := n.welcomed(t, 1, "d1")
	if v.ack >= seq {
		t.Error("a document that nobody has had is acknowledged")
	}
	next.acked(next.sendBatch(document("e", "0:e")))
	j.expect(t, "0:d1", "0:e")
}
