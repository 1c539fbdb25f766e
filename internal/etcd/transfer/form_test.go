package transfer

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/handoff/ledger"
)

// FuzzRecord reads any bytes as a record: what is one comes back as it was.
func FuzzRecord(f *testing.F) {
	value, err := encodeRecord(ledger.Record{
		From: ledger.Party{Node: "node-a", Process: "a"}, To: ledger.Party{Node: "node-b", Process: "b"},
		Epoch: change.Epoch{Incarnation: 1, Revision: 2}, Cause: "drain", By: "operator", Started: time.Unix(1_700_000_000, 5).UTC(),
		Phase: ledger.Prepared,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(value))
	f.Add([]byte("not a record"))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := decodeRecord(p, &mvccpb.KeyValue{Key: []byte("handoff/00042"), Value: value, ModRevision: 9})
		if err != nil {
			return
		}
		again, err := encodeRecord(r)
		if err != nil {
			return // a year that cannot be written
		}
		same, err := decodeRecord(p, &mvccpb.KeyValue{Key: []byte("handoff/00042"), Value: []byte(again), ModRevision: 9})
		if err != nil || !same.Same(r) || same.Phase != r.Phase || same.Cause != r.Cause || same.By != r.By {
			t.Fatalf("%+v came back as %+v, %v", r, same, err)
		}
	})
}
