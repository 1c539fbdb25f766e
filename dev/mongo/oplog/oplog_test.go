package oplog_test

import (
	"bytes"
	"encoding/gob"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
)

func testLog(bytes int64) (*oplog.Log, *oplog.Namespace, *time.Time) {
	now := time.Unix(1000, 0)
	l := oplog.New(oplog.Config{Release: oplog.R44, MaxBytes: bytes, Now: func() time.Time { return now }})
	return l, &oplog.Namespace{DB: "a", Coll: "x", UUID: &[16]byte{1}}, &now
}

func insertOp(ns *oplog.Namespace, id int) oplog.Op {
	v := bsoncore.Value{Type: bsoncore.TypeInt32, Data: bsoncore.AppendInt32(nil, int32(id))}
	return oplog.Op{Kind: oplog.Insert, NS: ns, ID: v, Doc: doc.New().Value("_id", v).Document()}
}

// read returns the cluster times from seq on.
func read(l *oplog.Log, seq uint64, all bool) (times []uint64, ok bool) {
	for {
		entries, ok := l.Read(seq, all)
		if !ok || len(entries) == 0 {
			return times, ok
		}
		for i := range entries {
			times = append(times, entries[i].TS)
		}
		seq += uint64(len(entries))
	}
}

func TestTimesNeverRepeat(t *testing.T) {
	l, ns, now := testLog(0)
	var last uint64
	for i, second := range []int64{1000, 1000, 1001, 990, 990, 1001, 1005} {
		*now = time.Unix(second, 0)
		ts := l.Append(insertOp(ns, i))
		if ts <= last {
			t.Errorf("step %d: %x after %x", i, ts, last)
		}
		last = ts
	}
	if last != 1005<<32|1 {
		t.Errorf("a new second begins at 1: %x", last)
	}
}

func TestLogIsBounded(t *testing.T) {
	l, ns, _ := testLog(20_000)
	for i := range 1000 {
		l.Append(insertOp(ns, i))
	}
	entries, bytes := l.Size()
	if bytes > 20_000 || entries < 20 {
		t.Errorf("%d entries, %d bytes", entries, bytes)
	}
	first, seq := l.First()
	if seq+uint64(entries) != l.Next() || first.TS != l.Applied()-uint64(entries)+1 {
		t.Errorf("first is %d at %x of %d", seq, first.TS, entries)
	}
	if _, ok := l.Read(seq-1, false); ok {
		t.Error("a lost entry is read")
	}
	times, ok := read(l, seq, false)
	if !ok || int64(len(times)) != entries {
		t.Errorf("read %d entries, %v", len(times), ok)
	}
	for i, ts := range times {
		if got := l.Seek(ts); got != seq+uint64(i) {
			t.Fatalf("seek %x: %d, want %d", ts, got, seq+uint64(i))
		}
	}
	if got := l.Seek(1); got != seq {
		t.Errorf("seek before the log: %d", got)
	}
	if got := l.Seek(l.Applied() + 5); got != l.Next() {
		t.Errorf("seek behind the log: %d", got)
	}
}

func TestTransactionsGoTogether(t *testing.T) {
	l, ns, _ := testLog(0)
	session := &oplog.Session{LSID: doc.New().Int32("id", 1).Document(), TxnNumber: 4}
	l.AppendTxn([]oplog.Op{insertOp(ns, 1), insertOp(ns, 2), insertOp(ns, 3)}, session)
	l.Append(insertOp(ns, 4))
	for keep := 3; keep >= 2; keep-- { // would cut the transaction
		l.Truncate(keep)
	}
	if first, _ := l.First(); first.Detail != nil && first.Detail.Txn != nil {
		t.Error("a transaction was cut")
	}
	ts := l.AppendTxn([]oplog.Op{insertOp(ns, 5), insertOp(ns, 6)}, session)
	seq := l.Seek(ts)
	docs, next, ok := l.Documents(seq + 1) // from its middle
	if !ok || len(docs) != 1 || next != seq+2 {
		t.Fatal(docs, next, ok)
	}
	ops, _ := doc.Path(docs[0], "o.applyOps")
	if doc.Len(ops.Data) != 2 {
		t.Error(docs[0])
	}
	if back, ok := l.Back(next); !ok || back != seq {
		t.Errorf("back to %d, want %d", back, seq)
	}
	if l.ClusterTime() != ts+1 {
		t.Error("a transaction takes a time for each operation")
	}
}

func TestHeldMajority(t *testing.T) {
	l, ns, _ := testLog(0)
	l.Append(insertOp(ns, 1))
	l.Hold(true)
	held := l.Append(insertOp(ns, 2))
	seq := l.Seek(held)
	if entries, _ := l.Read(seq, false); len(entries) != 0 || l.Committed() == held {
		t.Error("an uncommitted entry is read")
	}
	if entries, _ := l.Read(seq, true); len(entries) != 1 || l.Applied() != held {
		t.Error("it is there")
	}
	changed := l.Waiting(seq, false)
	select {
	case <-changed:
		t.Error("nothing is committed yet")
	default:
	}
	l.Hold(false)
	<-changed
	<-l.Waiting(seq, false) // what is there need not be waited for
}

func TestReadersAndWriters(t *testing.T) {
	l, ns, _ := testLog(64 << 10)
	var readers sync.WaitGroup
	const writes = 5000
	from := l.Next() // before the first write: a reader that starts after the last one would wait for ever
	for range 4 {
		readers.Go(func() {
			seq, last := from, uint64(0)
			for last < writes-1 {
				entries, ok := l.Read(seq, false)
				if !ok {
					_, seq = l.First()
					continue
				}
				if len(entries) == 0 {
					<-l.Waiting(seq, false)
					continue
				}
				for i := range entries {
					v, _ := doc.Path(entries[i].Event, "documentKey._id")
					if n := uint64(v.Int32()); n < last {
						t.Errorf("%d after %d", n, last)
					} else {
						last = n
					}
				}
				seq += uint64(len(entries))
			}
		})
	}
	for i := range writes {
		l.Append(insertOp(ns, i))
	}
	readers.Wait()
}

func TestDeltasOfLaterReleases(t *testing.T) {
	l := oplog.New(oplog.Config{Release: oplog.R70})
	ns := &oplog.Namespace{DB: "a", Coll: "x", UUID: &[16]byte{1}}
	op := insertOp(ns, 1)
	op.Kind, op.Doc = oplog.Update, nil
	op.Updated = doc.New().Int32("a", 1).Int32("n.b", 2).Int32("l.3", 4).Document()
	op.Removed = []string{"c", "n.d"}
	op.Truncated = doc.New().Open("0").String("field", "l").Int32("newSize", 2).Bytes()
	docs, _, _ := l.Documents(l.Seek(l.Append(op)))
	got, _ := doc.Path(docs[0], "o.diff")
	want := `{ d: { c: false }, u: { a: 1 }, sn: { d: { d: false }, u: { b: 2 } }, sl: { a: true, l: 2, u3: 4 } }`
	if doc.Text(got.Data) != want {
		t.Errorf("got  %s\nwant %s", doc.Text(got.Data), want)
	}
}

func TestSnapshotOfEntries(t *testing.T) {
	l, ns, _ := testLog(0)
	l.Append(insertOp(ns, 1))
	session := &oplog.Session{LSID: doc.New().Int32("id", 1).Document(), TxnNumber: 4}
	l.AppendTxn([]oplog.Op{insertOp(ns, 2), insertOp(ns, 3)}, session)
	l.Append(oplog.Op{Kind: oplog.Rename, NS: ns, To: &oplog.Namespace{DB: "a", Coll: "y", UUID: ns.UUID}, Object: doc.New().String("renameCollection", "a.x").Document()})
	var file bytes.Buffer
	encoder, decoder := gob.NewEncoder(&file), gob.NewDecoder(&file)
	var copied []oplog.Entry
	for _, e := range l.Entries() {
		var got oplog.Entry
		if err := errors.Join(encoder.Encode(&e), decoder.Decode(&got)); err != nil {
			t.Fatal(err)
		}
		copied = append(copied, got)
	}
	again, err := oplog.Restore(oplog.Config{Release: oplog.R44}, copied, l.ClusterTime())
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(0); seq < l.Next(); {
		want, next, _ := l.Documents(seq)
		got, _, _ := again.Documents(seq)
		if len(got) != len(want) || string(got[0]) != string(want[0]) {
			t.Errorf("entry %d: %s, want %s", seq, got, want)
		}
		seq = next
	}
	if again.ClusterTime() != l.ClusterTime() {
		t.Error("the clock is another")
	}
}

func BenchmarkAppend(b *testing.B) {
	b.ReportAllocs()
	l, ns, _ := testLog(0)
	op := insertOp(ns, 1)
	for b.Loop() {
		l.Append(op)
	}
}
