package retention

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
)

// orders makes inserts of documents with texts, prices and random ids, as those of a shop, in 20
// collections.
func orders(b *testing.B, n int) (events []change.Event, bytes int) {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("red blue small large cotton shirt wool jacket winter summer paid sent open lost north south street square garden market lisbon oslo")
	for i := range n {
		e := changetest.Event{ID: r.Int64N(1_000_000), Time: change.Timestamp{T: 1000 + uint32(i/500), I: uint32(i%500) + 1}}
		note := ""
		for range r.IntN(12) {
			note += words[r.IntN(len(words))] + " "
		}
		id := change.AppendInt64(nil, "_id", e.ID)
		doc := change.AppendString(id, "customer", fmt.Sprintf("%016x", r.Uint64()))
		doc = change.AppendString(doc, "note", note)
		doc = change.AppendInt64(doc, "total", r.Int64N(100_000))
		raw := change.AppendDocument(nil, "_id", changetest.Token(e))
		raw = change.AppendString(raw, "operationType", "insert")
		raw = change.AppendTimestamp(raw, "clusterTime", e.Time.T, e.Time.I)
		raw = change.AppendDocument(raw, "fullDocument", change.WrapDocument(doc))
		ns := change.AppendString(change.AppendString(nil, "db", "shop"), "coll", fmt.Sprint("c", r.IntN(20)*r.IntN(2)))
		raw = change.AppendDocument(raw, "ns", change.WrapDocument(ns))
		raw = change.WrapDocument(change.AppendDocument(raw, "documentKey", change.WrapDocument(change.AppendInt64(nil, "_id", e.ID))))
		parsed, err := change.Parse(raw)
		if err != nil {
			b.Fatal(err)
		}
		events, bytes = append(events, parsed), bytes+len(raw)
	}
	return events, bytes
}

// BenchmarkDraft writes changes into a segment.
func BenchmarkDraft(b *testing.B) {
	events, bytes := orders(b, 20_000)
	encoder := newEncoder()
	stored := 0
	b.ReportAllocs()
	for b.Loop() {
		d := newDraft(encoder)
		for i := range events {
			d.add(&events[i])
		}
		segment, _, err := d.encode(Header{Number: 1, To: change.Timestamp{T: 2000}})
		if err != nil {
			b.Fatal(err)
		}
		stored = len(segment)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/change")
	b.ReportMetric(float64(stored)/float64(bytes), "stored/byte")
}
