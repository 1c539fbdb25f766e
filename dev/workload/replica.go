package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A Replica is the orders of the shop as a subscriber knows them: by _id the number of the
// last change, or hasLeft.
type Replica map[int64]int64

// hasLeft represents a document that has stopped matching the subscriber's filter.
const hasLeft = -1

// left is the operation of an event that says so.
const left = "left"

// Anew is the line of a journal with which a subscriber begins without anything.
const Anew = "anew.\n"

// A Selection is the part of the workload that a subscriber subscribes to.
type Selection struct {
	// Filter is an expression, and Matches the same for a document; empty and nil for all.
	Filter  string
	Matches func(id, seq int64) bool
	// Ops are the operations, none for all. They go with filters whose answers never change for a
	// document, and contain insert.
	Ops []string
	// Leaves is set if the subscriber gets events for documents that stop matching.
	Leaves bool
}

// selects reports whether the subscriber gets changes of an operation.
func (s Selection) selects(op string) bool { return len(s.Ops) == 0 || slices.Contains(s.Ops, op) }

// AppendJSON appends the effect of an event to a journal of a replica. One write of the result is
// one event.
func AppendJSON(journal, event []byte) ([]byte, error) {
	e, f, err := parse(event)
	if err != nil {
		return journal, err
	}
	seq := f.Seq
	switch {
	case e.Op == left:
		seq = hasLeft
	case e.Full.Seq > 0: // the looked-up document may be later than the change
		seq = e.Full.Seq
	}
	return fmt.Appendf(journal, "%d %d.\n", e.Key.ID, seq), nil
}

// Apply applies the whole lines of a journal, and returns their length. It ignores lines of others,
// and a partly written event.
func (r Replica) Apply(journal []byte) (applied int) {
	for {
		n := bytes.IndexByte(journal[applied:], '\n')
		if n < 0 {
			return applied
		}
		line := journal[applied : applied+n+1]
		applied += n + 1
		if string(line) == Anew {
			clear(r)
			continue
		}
		key, rest, _ := bytes.Cut(line, []byte(" "))
		number, whole := bytes.CutSuffix(rest, []byte(".\n"))
		id, bad := strconv.ParseInt(string(key), 10, 64)
		seq, worse := strconv.ParseInt(string(number), 10, 64)
		if !whole || bad != nil || worse != nil {
			continue
		}
		if r[id] = seq; seq == 0 {
			delete(r, id)
		}
	}
}

// Differences are those between a replica and the collection.
type Differences struct {
	Missing     int `json:"missing"`      // documents that the replica does not have
	Stale       int `json:"stale"`        // documents of which it has another state
	Resurrected int `json:"resurrected"`  // documents that it has although they were deleted
	LeftWrongly int `json:"left_wrongly"` // documents that have left although they match, or have not although they do not
}

// Load returns the documents of the collection by _id, with the number of the last change.
func Load(ctx context.Context, cfg Config) (Replica, error) {
	cfg = cfg.named()
	db, disconnect, err := database(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer disconnect()
	cursor, err := db.Collection(cfg.Coll).Find(ctx, bson.D{}, options.Find().SetProjection(bson.D{{Key: "rev", Value: 1}}).SetBatchSize(10_000))
	if err != nil {
		return nil, fmt.Errorf("read the collection: %w", err)
	}
	all := make(Replica)
	for cursor.Next(ctx) {
		id, _ := cursor.Current.Lookup("_id").AsInt64OK()
		all[id], _ = cursor.Current.Lookup("rev").AsInt64OK()
	}
	return all, errors.Join(cursor.Err(), cursor.Close(ctx))
}

// Compare compares a subscriber's documents of a selection with the documents of the collection. It
// ignores states and deletions from operations that the subscriber does not get.
func (r Replica) Compare(documents Replica, s Selection) (d Differences) {
	updates := s.selects("update") && s.selects("replace")
	for id, seq := range documents {
		has, known := r[id]
		gone := known && has == hasLeft
		stays := known && !gone
		switch matches := s.Matches == nil || s.Matches(id, seq); {
		case matches && gone, !matches && stays && s.Leaves:
			d.LeftWrongly++
		case matches && !known:
			d.Missing++
		case matches && has != seq && updates:
			d.Stale++
		}
	}
	for id, has := range r {
		if _, exists := documents[id]; !exists && has != hasLeft && s.selects("delete") {
			d.Resurrected++
		}
	}
	return d
}

// Add adds the differences of another replica.
func (d *Differences) Add(other Differences) {
	d.Missing += other.Missing
	d.Stale += other.Stale
	d.Resurrected += other.Resurrected
	d.LeftWrongly += other.LeftWrongly
}
