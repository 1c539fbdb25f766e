package mark

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/internal/mongodb"
)

// historyField is the field of a mark's document with one entry of its history: a ring of places.
func historyField(slot int) string { return "history." + strconv.Itoa(slot) }

// withoutHistory leaves the history on the server.
func withoutHistory() bson.D { return bson.D{{Key: "history", Value: 0}} }

// History implements checkpoint.HistoryKeeper.
func (m *Store) History(ctx context.Context, p change.Partition) ([]checkpoint.Mark, error) {
	var d struct {
		History map[string]string `bson:"history"`
	}
	only := options.FindOne().SetProjection(bson.D{{Key: "history", Value: 1}})
	err := m.marks.FindOne(ctx, bson.D{{Key: "_id", Value: int32(p)}}, only).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read history of partition %d: %w", p, mongodb.AsFault(err))
	}
	entries := make(record.History, 0, len(d.History))
	var unread []error
	for slot, text := range d.History {
		mark, trail, err := record.DecodeEntry(m.key(p)+".history."+slot, p, m.partitions, []byte(text))
		if err != nil {
			unread = append(unread, err)
			continue
		}
		entries.Add(mark, trail)
	}
	return entries.Newest(), errors.Join(unread...)
}

// rewindAttempts bounds how often a rewind that saves get in the way of is tried.
const rewindAttempts = 20

// Rewind implements checkpoint.Rewinder. The document's epoch is raised by one revision, which no term has; claims go on above it.
func (m *Store) Rewind(ctx context.Context, p change.Partition, to change.Position, by, why string) (checkpoint.Mark, error) {
	for range rewindAttempts {
		mark, done, err := m.rewind(ctx, p, to, by, why)
		if err != nil {
			return checkpoint.Mark{}, fmt.Errorf("rewind: %w", err)
		}
		if done {
			return mark, nil
		}
	}
	return checkpoint.Mark{}, fmt.Errorf("rewind partition %d: %w", p, errContended)
}

// rewind makes one attempt; done is false where somebody else has written the document meanwhile.
func (m *Store) rewind(ctx context.Context, p change.Partition, to change.Position, by, why string) (next checkpoint.Mark, done bool, err error) {
	o, err := m.Origin(ctx)
	if err != nil {
		return next, false, err
	}
	d, err := m.document(ctx, p)
	if err != nil {
		return next, false, err
	}
	var stands *checkpoint.Mark
	var last seen
	if d != nil {
		mark, now, err := m.mark(d)
		if err == nil {
			stands, last = &mark, now
		} else if !errors.Is(err, checkpoint.ErrNoMark) {
			return next, false, err
		}
	}
	if next, err = o.Rewound(p, stands, to, by, why); err != nil {
		return next, false, err
	}
	set, now, err := m.put(next, last.trail)
	if err != nil {
		return next, false, err
	}
	if done, err = m.replace(ctx, p, d, o, set); err != nil {
		// The write may have arrived although its answer did not.
		if d, readErr := m.document(ctx, p); readErr != nil || d == nil || d.Mark != now.text {
			return next, false, mongodb.AsFault(err)
		}
		done = true
	}
	if done {
		m.see(p, now)
	}
	return next, done, nil
}

// replace writes the fields into the document as it was read, d, or makes it where there was none, and ends the term that owns it.
func (m *Store) replace(ctx context.Context, p change.Partition, d *markDocument, o checkpoint.Origin, set bson.D) (done bool, err error) {
	filter := bson.D{{Key: "_id", Value: int32(p)}}
	if d == nil {
		insert := bson.D{{Key: "$setOnInsert", Value: append(ofEpoch(change.Epoch{Incarnation: o.Incarnation}), set...)}}
		result, err := m.marks.UpdateOne(ctx, filter, insert, options.UpdateOne().SetUpsert(true))
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return err == nil && result.UpsertedCount == 1, err
	}
	epoch := change.Epoch{Incarnation: o.Incarnation}
	if stored := d.epoch(); stored.Incarnation >= o.Incarnation {
		epoch = change.Epoch{Incarnation: stored.Incarnation, Revision: stored.Revision + 1}
	}
	filter = append(append(filter, ofEpoch(d.epoch())...), bson.E{Key: "mark", Value: d.Mark})
	result, err := m.marks.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: append(ofEpoch(epoch), set...)}})
	return err == nil && result.MatchedCount == 1, err
}

// Highest returns the highest revision that marks of an incarnation carry; 0 where there are none.
func (m *Store) Highest(ctx context.Context, incarnation int64) (int64, error) {
	var d markDocument
	err := m.marks.FindOne(ctx, bson.D{{Key: "incarnation", Value: incarnation}},
		options.FindOne().SetSort(bson.D{{Key: "revision", Value: -1}}).SetProjection(withoutHistory())).Decode(&d)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return 0, fmt.Errorf("read epochs: %w", mongodb.AsFault(err))
	}
	return d.Revision, nil
}
