package mark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/gaplog"
	"github.com/mongostream/streamer/internal/mongodb/row"
)

// codeDuplicateKey is the server's code of an insert whose _id is taken.
const codeDuplicateKey = 11000

// Store keeps the marks of one cluster in three collections of a database: <cluster>.marks has one document for each partition,
// with its history, <cluster>.cluster has the origin and the owner, <cluster>.gaps the gap log. The rows of gateways are in <cluster>.rows.
//
// The fence is in each mark's document: a claim writes its epoch there before it reads the position, and a save is an update of the
// document with that epoch and an earlier position. Reads and writes are with majority concern.
type Store struct {
	*row.Keeper
	*gaplog.Log

	partitions int
	marks      *mongo.Collection
	cluster    *mongo.Collection
	// write sends the updates of a save; tests stand in between.
	write func(context.Context, []mongo.WriteModel) (*mongo.BulkWriteResult, error)
	now   func(context.Context) (time.Time, error) // by the server's clock

	mu struct {
		sync.Mutex
		seen map[change.Partition]seen
	}
}

// A seen is what was last read or written as the mark of a partition.
type seen struct {
	text       string // empty where there was none
	generation uint64
	trail      checkpoint.Trail
}

// fences returns ErrFenced for a mark of an earlier generation.
func (s seen) fences(m checkpoint.Mark) error {
	if m.Generation == 0 || m.Generation >= s.generation {
		return nil
	}
	return fmt.Errorf("partition %d, generation %d of %d: %w", m.Partition, m.Generation, s.generation, checkpoint.ErrFenced)
}

var (
	_ checkpoint.Store         = (*Store)(nil)
	_ checkpoint.Claimer       = (*Store)(nil)
	_ checkpoint.OriginKeeper  = (*Store)(nil)
	_ checkpoint.HistoryKeeper = (*Store)(nil)
	_ checkpoint.GapKeeper     = (*Store)(nil)
	_ checkpoint.Rewinder      = (*Store)(nil)
	_ checkpoint.RowKeeper     = (*Store)(nil)
	_ checkpoint.Adopter       = (*Store)(nil)
)

// NewStore makes the store of a cluster of so many partitions.
func NewStore(c *mongodb.Client, database, cluster string, partitions int) *Store {
	db := c.Driver().Database(database)
	m := &Store{
		now: c.ServerTime, partitions: partitions, marks: db.Collection(cluster + ".marks"), cluster: db.Collection(cluster + ".cluster"),
		Log: gaplog.New(db.Collection(cluster+".gaps"), partitions), Keeper: row.NewKeeper(db.Collection(cluster+".rows"), c.ServerTime),
	}
	m.write = func(ctx context.Context, updates []mongo.WriteModel) (*mongo.BulkWriteResult, error) {
		return m.marks.BulkWrite(ctx, updates, options.BulkWrite().SetOrdered(false))
	}
	m.mu.seen = make(map[change.Partition]seen)
	return m
}

// A markDocument is a mark as it is stored. Order sorts as positions do; Mark is the whole mark in checkpoint's own form.
type markDocument struct {
	Partition   int32  `bson:"_id"`
	Incarnation int64  `bson:"incarnation"`
	Revision    int64  `bson:"revision"`
	Order       string `bson:"order"`
	Mark        string `bson:"mark"`
}

func (d *markDocument) epoch() change.Epoch {
	return change.Epoch{Incarnation: uint64(d.Incarnation), Revision: uint64(d.Revision)}
}

// key names the document in errors.
func (m *Store) key(p change.Partition) string {
	return m.marks.Database().Name() + "." + m.marks.Name() + "/" + strconv.Itoa(int(p))
}

// order returns a text that sorts as the position does among those of its partition.
func order(p change.Position) string {
	if p.Token == nil {
		return fmt.Sprintf("82%08X%08X", p.Time.T, p.Time.I) // the front of every token of this time
	}
	return string(change.Value{Type: byte(bson.TypeString), Data: bson.Raw(p.Token).Lookup("_data").Value}.Text())
}

func ofEpoch(e change.Epoch) bson.D {
	return bson.D{{Key: "incarnation", Value: int64(e.Incarnation)}, {Key: "revision", Value: int64(e.Revision)}}
}

// see notes what stands as the mark of a partition. What cannot be read is not noted: nothing may take its place.
func (m *Store) see(p change.Partition, now seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.seen[p] = now
}

func (m *Store) lastSeen(p change.Partition) seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.seen[p]
}

// documents reads mark documents by partition, without their histories.
func (m *Store) documents(ctx context.Context, filter bson.D) (map[change.Partition]*markDocument, error) {
	cursor, err := m.marks.Find(ctx, filter, options.Find().SetProjection(withoutHistory()))
	if err != nil {
		return nil, fmt.Errorf("read marks: %w", mongodb.AsFault(err))
	}
	var all []markDocument
	if err := cursor.All(ctx, &all); err != nil {
		return nil, fmt.Errorf("read marks: %w", mongodb.AsFault(err))
	}
	byPartition := make(map[change.Partition]*markDocument, len(all))
	for i := range all {
		d := &all[i]
		p := change.Partition(d.Partition)
		byPartition[p] = d
		if _, now, err := m.mark(d); err == nil || errors.Is(err, checkpoint.ErrNoMark) {
			m.see(p, now)
		}
	}
	return byPartition, nil
}

// mark decodes a document; ErrNoMark where it was claimed and never saved.
func (m *Store) mark(d *markDocument) (checkpoint.Mark, seen, error) {
	p := change.Partition(d.Partition)
	if d.Mark == "" {
		return checkpoint.Mark{}, seen{}, checkpoint.ErrNoMark
	}
	mark, trail, err := record.DecodeMark(m.key(p), p, m.partitions, []byte(d.Mark))
	if err != nil {
		return checkpoint.Mark{}, seen{}, err
	}
	return mark, seen{text: d.Mark, generation: mark.Generation, trail: trail}, nil
}

// Load implements checkpoint.Store.
func (m *Store) Load(ctx context.Context, p change.Partition) (checkpoint.Mark, error) {
	d, err := m.document(ctx, p)
	if err != nil || d == nil {
		return checkpoint.Mark{}, cmp.Or(err, checkpoint.ErrNoMark)
	}
	mark, _, err := m.mark(d)
	return mark, err
}

// document reads the document of a partition, without its history; nil where there is none.
func (m *Store) document(ctx context.Context, p change.Partition) (*markDocument, error) {
	var d markDocument
	err := m.marks.FindOne(ctx, bson.D{{Key: "_id", Value: int32(p)}}, options.FindOne().SetProjection(withoutHistory())).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil //nolint:nilnil // none is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read mark: %w", mongodb.AsFault(err))
	}
	return &d, nil
}

// List implements checkpoint.Store.
func (m *Store) List(ctx context.Context) ([]checkpoint.Mark, error) {
	documents, err := m.documents(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	var marks []checkpoint.Mark
	var damaged []error
	for p := range change.Partition(m.partitions) {
		d, ok := documents[p]
		if !ok {
			continue
		}
		mark, _, err := m.mark(d)
		switch {
		case errors.Is(err, checkpoint.ErrNoMark):
		case err != nil:
			damaged = append(damaged, err)
		default:
			marks = append(marks, mark)
		}
	}
	return marks, errors.Join(damaged...)
}

// Delete implements checkpoint.Store. The document stays where a term has claimed it, because it is the fence.
func (m *Store) Delete(ctx context.Context, p change.Partition) error {
	_, err := m.marks.UpdateOne(ctx, bson.D{{Key: "_id", Value: int32(p)}},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: "order", Value: ""}, {Key: "mark", Value: ""}}},
			{Key: "$unset", Value: bson.D{{Key: "history", Value: ""}}},
		})
	if err != nil {
		return fmt.Errorf("delete mark: %w", mongodb.AsFault(err))
	}
	return nil
}

// Claim implements checkpoint.Claimer: it writes the terms' epochs into the documents, making those that are missing, and then
// reads them.
func (m *Store) Claim(ctx context.Context, terms []change.Term) ([]checkpoint.Mark, error) {
	if len(terms) == 0 {
		return nil, nil
	}
	if err := m.ofThisLife(ctx, terms); err != nil {
		return nil, err
	}
	models := make([]mongo.WriteModel, len(terms))
	for i, term := range terms {
		epoch := ofEpoch(term.Epoch)
		filter := bson.D{
			{Key: "_id", Value: int32(term.Partition)},
			{Key: "$or", Value: bson.A{
				bson.D{{Key: "incarnation", Value: bson.D{{Key: "$lt", Value: epoch[0].Value}}}},
				bson.D{{Key: "incarnation", Value: epoch[0].Value}, {Key: "revision", Value: bson.D{{Key: "$lt", Value: epoch[1].Value}}}},
			}},
		}
		update := bson.D{
			{Key: "$set", Value: epoch},
			{Key: "$setOnInsert", Value: bson.D{{Key: "order", Value: ""}, {Key: "mark", Value: ""}}},
		}
		models[i] = mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(update).SetUpsert(true)
	}
	// A document of this epoch or a higher one does not match, and cannot be made a second time.
	_, err := m.marks.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if err != nil && !onlyDuplicates(err) {
		return nil, fmt.Errorf("claim marks: %w", mongodb.AsFault(err))
	}
	documents, err := m.documents(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	marks := make([]checkpoint.Mark, len(terms))
	for i, term := range terms {
		d, ok := documents[term.Partition]
		if !ok || d.epoch() != term.Epoch {
			return nil, fmt.Errorf("claim mark of partition %d for epoch %s: %w", term.Partition, term.Epoch, checkpoint.ErrFenced)
		}
		marks[i], _, err = m.mark(d)
		if err != nil && !errors.Is(err, checkpoint.ErrNoMark) {
			return nil, err
		}
		marks[i].Partition = term.Partition
	}
	return marks, nil
}

// onlyDuplicates reports whether all that failed of a bulk are inserts of documents that are there.
func onlyDuplicates(err error) bool {
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok || bulk.WriteConcernError != nil {
		return false
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != codeDuplicateKey {
			return false
		}
	}
	return true
}
