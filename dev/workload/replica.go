package workload

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A Replica is the documents of the workload as a subscriber knows them: by _id the number of the
// last change.
type Replica map[int64]int64

// AppendJSON appends the effect of an event to a journal of a replica. One write of the result is
// one event.
func AppendJSON(journal, event []byte) ([]byte, error) {
	id, f, err := parse(event)
	if err != nil {
		return journal, err
	}
	return fmt.Appendf(journal, "%d %d.\n", id, f.Seq), nil
}

// Replay returns the replica that a journal describes. It ignores lines of others, and of an event
// of which only a part was written.
func Replay(journal io.Reader) (Replica, error) {
	r := make(Replica)
	lines := bufio.NewScanner(journal)
	for lines.Scan() {
		var id, seq int64
		var end rune
		if n, err := fmt.Sscanf(lines.Text(), "%d %d%c", &id, &seq, &end); err != nil || n < 3 || end != '.' {
			continue
		}
		if r[id] = seq; seq == 0 {
			delete(r, id)
		}
	}
	return r, lines.Err()
}

// Differences are those between a replica and the collection.
type Differences struct {
	Missing     int `json:"missing"`     // documents that the replica does not have
	Stale       int `json:"stale"`       // documents of which it has another state
	Resurrected int `json:"resurrected"` // documents that it has although they were deleted
}

// Compare compares the replica with the collection, which nobody may write to meanwhile.
func (r Replica) Compare(ctx context.Context, cfg Config) (d Differences, err error) {
	cfg.DB, cfg.Coll = cmp.Or(cfg.DB, "demo"), cmp.Or(cfg.Coll, "orders")
	coll, disconnect, err := collection(ctx, cfg)
	if err != nil {
		return d, err
	}
	defer disconnect()
	cursor, err := coll.Find(ctx, bson.D{}, options.Find().SetProjection(bson.D{{Key: "seq", Value: 1}}).SetBatchSize(10_000))
	if err != nil {
		return d, fmt.Errorf("read the collection: %w", err)
	}
	found := 0
	for cursor.Next(ctx) {
		id, _ := cursor.Current.Lookup("_id").AsInt64OK()
		seq, _ := cursor.Current.Lookup("seq").AsInt64OK()
		switch has, known := r[id]; {
		case !known:
			d.Missing++
			continue
		case has != seq:
			d.Stale++
		}
		found++
	}
	d.Resurrected = len(r) - found
	return d, errors.Join(cursor.Err(), cursor.Close(ctx))
}
