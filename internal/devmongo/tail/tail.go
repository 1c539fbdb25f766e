package tail

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/cursor"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/store"
)

// Tail reads the log in its order and makes the documents as they are wanted.
type Tail struct {
	log      *oplog.Log
	q        store.Query
	tailable bool
	await    bool
	begun    bool
	seq      uint64
	taken    int64
	ended    bool
	pending  []bsoncore.Document
}

// Find is a find on local.oplog.rs. It begins where the filter on ts can first match. Against the order of the log,
// and in any order but the log's, the documents are collected at once. A tailable one stays open at the end of the
// log, and waits there when it is to await.
func Find(log *oplog.Log, q store.Query, tailable, await bool) (cursor.Source, error) {
	natural := q.Sort == nil || q.Sort.Natural != 0
	switch {
	case tailable && (!natural || q.Sort != nil && q.Sort.Natural < 0):
		return nil, fault.New(fault.BadValue, "cannot use tailable option with a sort other than {$natural: 1}")
	case natural && (q.Sort == nil || q.Sort.Natural > 0):
		t := &Tail{log: log, q: q, tailable: tailable, await: await}
		_, t.seq = log.First()
		if v, ok := q.Filter.Floor("ts"); ok && v.Type == bsoncore.TypeTimestamp {
			t.seq = log.Seek(query.Timestamp(v))
		}
		return t, nil
	case natural:
		return cursor.NewList(backwards(log, q)), nil
	default:
		return cursor.NewList(Sorted(log, q)), nil
	}
}

// Fill adds the next matching entries.
func (t *Tail) Fill(b *cursor.Batch) error {
	if t.begun && t.seq > 0 && !t.log.Has(t.seq-1) && !t.ended {
		return fault.New(fault.CappedPositionLost, "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId(%d)", t.seq)
	}
	t.begun = true
	for !t.ended && !b.Full() {
		if len(t.pending) == 0 && !t.more() {
			return nil
		}
		for len(t.pending) > 0 {
			if !b.Add(t.pending[0]) {
				return nil
			}
			t.pending = t.pending[1:]
			if t.taken++; t.q.Limit > 0 && t.taken >= t.q.Limit {
				t.ended = true
				return nil
			}
		}
	}
	return nil
}

// more makes the documents of the next entries that match; it reports false at the end of the log.
func (t *Tail) more() bool {
	for {
		docs, next, ok := t.log.Documents(t.seq)
		if !ok {
			_, t.seq = t.log.First()
			continue
		}
		if len(docs) == 0 {
			t.ended = !t.tailable
			return false
		}
		t.seq = next
		for _, d := range docs {
			if !t.q.Filter.Match(d) {
				continue
			}
			if t.q.Skip > 0 {
				t.q.Skip--
				continue
			}
			t.pending = append(t.pending, t.q.Projection.Apply(d))
		}
		if len(t.pending) > 0 {
			return true
		}
	}
}

// Closed reports whether there is nothing more to come.
func (t *Tail) Closed() bool { return t.ended && len(t.pending) == 0 }

// Waiting is for cursors that are to wait at the end of the log.
func (t *Tail) Waiting() <-chan struct{} {
	if !t.tailable || !t.await {
		return nil
	}
	return t.log.Waiting(t.seq, true)
}

// backwards collects the matching documents from the newest on.
func backwards(log *oplog.Log, q store.Query) []bsoncore.Document {
	var out []bsoncore.Document
	for seq, ok := log.Back(log.Next()); ok; seq, ok = log.Back(seq) {
		docs, _, _ := log.Documents(seq)
		for _, d := range slices.Backward(docs) {
			if !q.Filter.Match(d) {
				continue
			}
			if q.Skip > 0 {
				q.Skip--
				continue
			}
			out = append(out, q.Projection.Apply(d))
			if q.Limit > 0 && int64(len(out)) >= q.Limit {
				return out
			}
		}
		if seq == 0 {
			break
		}
	}
	return out
}

// Sorted collects the matching documents in the order of the sort.
func Sorted(log *oplog.Log, q store.Query) []bsoncore.Document {
	all := backwards(log, store.Query{Filter: q.Filter})
	slices.Reverse(all)
	q.Sort.Apply(all)
	all = all[min(q.Skip, int64(len(all))):]
	if q.Limit > 0 {
		all = all[:min(q.Limit, int64(len(all)))]
	}
	for i := range all {
		all[i] = q.Projection.Apply(all[i])
	}
	return all
}

var _ cursor.Source = (*Tail)(nil)
