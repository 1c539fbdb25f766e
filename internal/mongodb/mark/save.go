package mark

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
)

// errContended says that a mark was not written because others wrote it all the time.
var errContended = errors.New("mark not written: it changed under our hands")

// saveAttempts bounds how often a save that somebody got in the way of is tried.
const saveAttempts = 10

// A pendingMark is a mark on its way into its document.
type pendingMark struct {
	checkpoint.Mark
	order string
	index int // in the results
	now   seen
}

// Save implements checkpoint.Store: one unordered bulk of fenced updates. Each takes the place of the mark that was last seen and
// stands before it; what did not match is read back.
func (m *Store) Save(ctx context.Context, marks []checkpoint.Mark) []error {
	results := make([]error, len(marks))
	pending := make([]pendingMark, 0, len(marks))
	for i, mark := range marks {
		mark = mark.Trimmed()
		if _, err := record.EncodeMark(mark, checkpoint.Trail{}, m.partitions); err != nil {
			results[i] = err
			continue
		}
		pending = append(pending, pendingMark{Mark: mark, order: order(mark.Position), index: i})
	}
	for range saveAttempts {
		if len(pending) == 0 {
			break
		}
		pending = m.save(ctx, pending, results)
	}
	for _, p := range pending {
		results[p.index] = fmt.Errorf("partition %d: %w", p.Partition, errContended)
	}
	return results
}

// save makes one attempt and returns the marks to try again, because what stands is not what was seen.
func (m *Store) save(ctx context.Context, pending []pendingMark, results []error) (again []pendingMark) {
	if err := m.look(ctx, pending); err != nil {
		for _, p := range pending {
			results[p.index] = err
		}
		return nil
	}
	writes := make([]pendingMark, 0, len(pending))
	updates := make([]mongo.WriteModel, 0, len(pending))
	for _, p := range pending {
		update, err := m.update(&p)
		if results[p.index] = err; err == nil {
			writes, updates = append(writes, p), append(updates, update)
		}
	}
	if len(writes) == 0 {
		return nil
	}
	written, err := m.write(ctx, updates)
	if err == nil && written.MatchedCount == int64(len(updates)) {
		for _, p := range writes {
			m.see(p.Partition, p.now)
		}
		return nil
	}
	documents, readErr := m.documents(ctx, bson.D{})
	for _, p := range writes {
		switch {
		case readErr != nil:
			results[p.index] = fmt.Errorf("save mark: %w", errors.Join(err, readErr))
		default:
			var done bool
			if done, results[p.index] = m.settled(p, documents[p.Partition]); !done {
				again = append(again, p)
			}
		}
	}
	return again
}

// update is the fenced update that puts a mark into the place of the last one seen. What is to be seen then is noted in p.
func (m *Store) update(p *pendingMark) (mongo.WriteModel, error) {
	last := m.lastSeen(p.Partition)
	if err := last.fences(p.Mark); err != nil {
		return nil, err
	}
	p.Generation = max(p.Generation, last.generation)
	set, now, err := m.put(p.Mark, last.trail)
	if err != nil {
		return nil, err
	}
	p.now = now
	filter := append(bson.D{{Key: "_id", Value: int32(p.Partition)}}, ofEpoch(p.Epoch)...)
	filter = append(filter, bson.E{Key: "mark", Value: last.text}, bson.E{Key: "order", Value: bson.D{{Key: "$lt", Value: p.order}}})
	return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(bson.D{{Key: "$set", Value: set}}), nil
}

// put returns the fields that write a mark which follows a trail, and what is to be seen then.
func (m *Store) put(mark checkpoint.Mark, t checkpoint.Trail) (set bson.D, now seen, err error) {
	next, entry := t.Next(mark)
	text, err := record.EncodeMark(mark, next, m.partitions)
	if err != nil {
		return nil, seen{}, err
	}
	set = bson.D{{Key: "order", Value: order(mark.Position)}, {Key: "mark", Value: string(text)}}
	if entry {
		set = append(set, bson.E{Key: historyField(next.Slot()), Value: string(text)})
	}
	return set, seen{text: string(text), generation: mark.Generation, trail: next}, nil
}

// settled looks at the document that stands after a save: done says that there is nothing to try again.
func (m *Store) settled(p pendingMark, d *markDocument) (done bool, err error) {
	if d == nil || d.epoch() != p.Epoch {
		return true, fmt.Errorf("partition %d, epoch %s: %w", p.Partition, p.Epoch, checkpoint.ErrFenced)
	}
	_, now, err := m.mark(d)
	if err != nil && !errors.Is(err, checkpoint.ErrNoMark) {
		return true, err
	}
	if err := now.fences(p.Mark); err != nil {
		return true, err
	}
	return d.Order >= p.order, nil
}

// look reads the marks that this store has not seen yet.
func (m *Store) look(ctx context.Context, pending []pendingMark) error {
	m.mu.Lock()
	unseen := slices.ContainsFunc(pending, func(p pendingMark) bool {
		_, ok := m.mu.seen[p.Partition]
		return !ok
	})
	m.mu.Unlock()
	if !unseen {
		return nil
	}
	_, err := m.documents(ctx, bson.D{})
	return err
}
