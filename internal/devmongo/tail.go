package devmongo

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// tail reads the log in its order and makes the documents as they are wanted.
type tail struct {
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

// findOplog is a find on local.oplog.rs. It begins where the filter on ts can first match. Against the order of the log,
// and in any order but the log's, the documents are collected at once. A tailable one stays open at the end of the
// log, and waits there when it is to await.
func findOplog(log *oplog.Log, q store.Query, tailable, await bool) (cursorSource, error) {
	natural := q.Sort == nil || q.Sort.Natural != 0
	switch {
	case tailable && (!natural || q.Sort != nil && q.Sort.Natural < 0):
		return nil, wire.Errorf(wire.BadValue, "cannot use tailable option with a sort other than {$natural: 1}")
	case natural && (q.Sort == nil || q.Sort.Natural > 0):
		t := &tail{log: log, q: q, tailable: tailable, await: await}
		_, t.seq = log.First()
		if v, ok := q.Filter.Floor("ts"); ok && v.Type == bsoncore.TypeTimestamp {
			t.seq = log.Seek(query.Timestamp(v))
		}
		return t, nil
	case natural:
		return newListSource(backwards(log, q)), nil
	default:
		return newListSource(sortOplog(log, q)), nil
	}
}

// Fill adds the next matching entries.
func (t *tail) Fill(b *wire.Batch) error {
	if t.begun && t.seq > 0 && !t.log.Has(t.seq-1) && !t.ended {
		return wire.Errorf(wire.CappedPositionLost, "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId(%d)", t.seq)
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
func (t *tail) more() bool {
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
func (t *tail) Closed() bool { return t.ended && len(t.pending) == 0 }

// Waiting is for cursors that are to wait at the end of the log.
func (t *tail) Waiting() <-chan struct{} {
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

// sortOplog collects the matching documents in the order of the sort.
func sortOplog(log *oplog.Log, q store.Query) []bsoncore.Document {
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

var _ cursorSource = (*tail)(nil)
