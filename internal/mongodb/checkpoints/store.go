package checkpoints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb"
)

// A Store keeps the checkpoints of one cluster in three collections of a database.
type Store struct {
	client      *mongodb.Client
	partitions  int
	checkpoints *mongo.Collection
	cluster     *mongo.Collection
	gaps        *mongo.Collection
	// write sends the updates of checkpoints; tests replace it.
	write func(context.Context, []mongo.WriteModel) (*mongo.BulkWriteResult, error)
}

var (
	_ checkpoint.Store        = (*Store)(nil)
	_ checkpoint.Claimer      = (*Store)(nil)
	_ checkpoint.Rewinder     = (*Store)(nil)
	_ checkpoint.OriginKeeper = (*Store)(nil)
	_ checkpoint.Adopter      = (*Store)(nil)
	_ checkpoint.GapKeeper    = (*Store)(nil)
)

// NewStore makes the store of a cluster with the given number of partitions. 0 accepts any number;
// such a store is for reading only.
func NewStore(c *mongodb.Client, database, cluster string, partitions int) *Store {
	db := c.Driver().Database(database)
	s := &Store{
		client: c, partitions: partitions,
		checkpoints: db.Collection(cluster + ".checkpoints"), cluster: db.Collection(cluster + ".cluster"), gaps: db.Collection(cluster + ".gaps"),
	}
	s.write = func(ctx context.Context, updates []mongo.WriteModel) (*mongo.BulkWriteResult, error) {
		return s.checkpoints.BulkWrite(ctx, updates, options.BulkWrite().SetOrdered(false))
	}
	return s
}

// inSession calls f with a context whose reads see its own earlier writes.
func (s *Store) inSession(ctx context.Context, f func(context.Context) error) error {
	if mongo.SessionFromContext(ctx) != nil {
		return f(ctx)
	}
	return s.client.Driver().UseSession(ctx, f)
}

// The prefixes of _ids. All documents of a shared subscriber are adjacent.
const (
	exclusive = "exclusive/"
	shared    = "shared/"
)

// idOf returns the _id of a checkpoint's document.
func idOf(k checkpoint.Key) string {
	if k.Shared {
		return fmt.Sprintf("%s%s/%05d", shared, k.Subscriber, k.Partition)
	}
	return exclusive + k.Subscriber
}

// keyOf returns the key whose document has an _id.
func keyOf(id string) (k checkpoint.Key, ok bool) {
	if name, is := strings.CutPrefix(id, exclusive); is {
		return checkpoint.Key{Subscriber: name}, name != ""
	}
	rest, is := strings.CutPrefix(id, shared)
	at := strings.LastIndexByte(rest, '/')
	if !is || at < 1 {
		return k, false
	}
	p, err := strconv.ParseUint(rest[at+1:], 10, 16)
	k = checkpoint.Key{Subscriber: rest[:at], Shared: true, Partition: change.Partition(p)}
	return k, err == nil && idOf(k) == id
}

// A document is the stored state of a key.
type document struct {
	id      string
	key     checkpoint.Key
	version bson.RawValue // of the last write; the zero value if there is no document
	epoch   change.Epoch  // the epoch that may save it, for a shared subscriber

	checkpoint *checkpoint.Checkpoint // nil where there is none
	trail      checkpoint.Trail
}

// The fields of a document, without its _id.
const (
	versionField    = "version"
	epochField      = "epoch"      // {incarnation, revision}, of a shared subscriber
	checkpointField = "checkpoint" // encoded by checkpoint.Encode; missing if there is none
	historyField    = "history"    // by slot, encoded by checkpoint.Encode
	savedField      = "saved"      // time of the write, by the server's clock
)

// name names a document in errors.
func (s *Store) name(id string) string {
	return s.checkpoints.Database().Name() + "." + s.checkpoints.Name() + "/" + id
}

// decode reads a document, whose fields may have any type. With an error it returns everything
// except the checkpoint.
func (s *Store) decode(raw bson.Raw) (d document, err error) {
	var ok bool
	if d.id, ok = raw.Lookup("_id").StringValueOK(); ok {
		d.key, ok = keyOf(d.id)
	}
	if !ok {
		return d, fault.Newf(fault.CheckpointCorrupt, "%s names no subscriber", s.name(raw.Lookup("_id").String()))
	}
	d.version = raw.Lookup(versionField)
	incarnation, _ := raw.Lookup(epochField, "incarnation").AsInt64OK()
	revision, _ := raw.Lookup(epochField, "revision").AsInt64OK()
	d.epoch = change.Epoch{Incarnation: uint64(incarnation), Revision: uint64(revision)}
	stored, err := raw.LookupErr(checkpointField)
	if err != nil {
		return d, nil //nolint:nilerr // none is stored
	}
	text, _ := stored.StringValueOK()
	nameOf := func(k checkpoint.Key) string { return s.name(idOf(k)) }
	c, trail, err := checkpoint.Decode(s.name(d.id), nameOf, s.partitions, []byte(text))
	if err == nil {
		d.checkpoint = &c
		d.trail = trail
	}
	return d, err
}

// find calls f with each document that matches a filter, without its history, in the server's
// order. For an unreadable document it calls f with an error, and continues.
func (s *Store) find(ctx context.Context, filter bson.D, f func(document, error)) error {
	cursor, err := s.checkpoints.Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: historyField, Value: 0}}))
	if err != nil {
		return fmt.Errorf("read checkpoints: %w", mongodb.AsFault(err))
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	for cursor.Next(ctx) {
		f(s.decode(cursor.Current))
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read checkpoints: %w", mongodb.AsFault(err))
	}
	return nil
}

// Load implements checkpoint.Store.
func (s *Store) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	return s.list(ctx, ofSubscriber(subscriber), func(k checkpoint.Key) bool { return k.Subscriber == subscriber })
}

// List implements checkpoint.Store.
func (s *Store) List(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	return s.list(ctx, bson.D{}, func(checkpoint.Key) bool { return true })
}

// ofSubscriber matches the documents of a subscriber. It may also match those of shared subscribers
// whose names begin with its name and a slash.
func ofSubscriber(subscriber string) bson.D {
	from := shared + subscriber
	return bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "_id", Value: exclusive + subscriber}},
		bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: from + "/"}, {Key: "$lt", Value: from + "0"}}}}, // 0 follows the slash
	}}}
}

func (s *Store) list(ctx context.Context, filter bson.D, wanted func(checkpoint.Key) bool) (all []checkpoint.Checkpoint, err error) {
	var unread []error
	err = s.find(ctx, filter, func(d document, err error) {
		switch {
		case err != nil && (d.key == checkpoint.Key{} || wanted(d.key)):
			unread = append(unread, err)
		case err == nil && d.checkpoint != nil && wanted(d.key):
			all = append(all, *d.checkpoint)
		}
	})
	if err != nil {
		return nil, err
	}
	checkpoint.Sort(all)
	return all, errors.Join(unread...)
}

// History implements checkpoint.Store.
func (s *Store) History(ctx context.Context, k checkpoint.Key) ([]checkpoint.Checkpoint, error) {
	entries, err := s.history(ctx, k)
	return entries.Newest(), err
}

// lastEntry returns the newest readable entry of a history.
func (s *Store) lastEntry(ctx context.Context, k checkpoint.Key) (c checkpoint.Checkpoint, trail checkpoint.Trail, there bool, err error) {
	entries, err := s.history(ctx, k)
	if c, trail, there = entries.Last(); there {
		err = nil
	}
	return c, trail, there, err
}

func (s *Store) history(ctx context.Context, k checkpoint.Key) (entries checkpoint.History, err error) {
	id := idOf(k)
	only := options.FindOne().SetProjection(bson.D{{Key: historyField, Value: 1}})
	raw, err := s.checkpoints.FindOne(ctx, bson.D{{Key: "_id", Value: id}}, only).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", k, mongodb.AsFault(err))
	}
	slots, _ := raw.Lookup(historyField).DocumentOK()
	elements, err := slots.Elements()
	if err != nil {
		return nil, fault.Newf(fault.CheckpointCorrupt, "%s: %w", s.name(id)+"."+historyField, err)
	}
	var unread []error
	for _, e := range elements {
		text, _ := e.Value().StringValueOK()
		c, trail, err := checkpoint.DecodeEntry(s.name(id)+"."+historyField+"."+e.Key(), k, []byte(text))
		if err != nil {
			unread = append(unread, err)
			continue
		}
		entries.Add(c, trail)
	}
	return entries, errors.Join(unread...)
}

// Delete implements checkpoint.Store. The documents of a shared subscriber stay, because they are
// the fence.
func (s *Store) Delete(ctx context.Context, subscriber string) error {
	err := s.inSession(ctx, func(ctx context.Context) error {
		if _, err := s.checkpoints.DeleteOne(ctx, bson.D{{Key: "_id", Value: exclusive + subscriber}}); err != nil {
			return err
		}
		var ids bson.A
		err := s.find(ctx, ofSubscriber(subscriber), func(d document, _ error) {
			if d.key.Shared && d.key.Subscriber == subscriber {
				ids = append(ids, d.id)
			}
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		_, err = s.checkpoints.UpdateMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, bson.D{
			{Key: "$set", Value: bson.D{{Key: versionField, Value: bson.NewObjectID()}}},
			{Key: "$unset", Value: bson.D{{Key: checkpointField, Value: ""}, {Key: historyField, Value: ""}}},
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("delete the checkpoints of subscriber %q: %w", subscriber, mongodb.AsFault(err))
	}
	return nil
}

// errContended reports that a checkpoint was not written because other processes kept writing it.
var errContended = errors.New("it is written by others all the time")

// attempts bounds the tries of a write that conflicts with others. Each conflict means that another
// write has succeeded.
const attempts = 100

// A write is a change of a document.
type write struct {
	checkpoint *checkpoint.Checkpoint // nil keeps the stored one
	unnoted    bool                   // the checkpoint does not enter the history
	trail      *checkpoint.Trail      // of the previous checkpoint, if that one is unreadable
	epoch      *change.Epoch          // nil keeps the stored one
}

// change writes the documents of keys as decide returns them, and calls decide again for each
// document that another process has written meanwhile. decide returns nil to keep a document; its
// error becomes the result of that key. With together, one such error prevents all writes. A result
// that is neither nil nor an error of decide means that the outcome of the write is unknown.
func (s *Store) change(ctx context.Context, keys []checkpoint.Key, together bool, decide func(i int, d document, unread error) (*write, error)) []error {
	results := make([]error, len(keys))
	if len(keys) == 0 {
		return results
	}
	pending := make([]int, len(keys))
	for i := range pending {
		pending[i] = i
	}
	err := s.inSession(ctx, func(ctx context.Context) error {
		for attempt := 0; len(pending) > 0; attempt++ {
			if attempt == attempts {
				return errContended
			}
			var err error
			if pending, err = s.attempt(ctx, keys, pending, together, decide, results); err != nil {
				return mongodb.AsFault(err)
			}
		}
		return nil
	})
	for _, i := range pending {
		if err != nil && results[i] == nil {
			results[i] = fmt.Errorf("write checkpoint of %s: %w", keys[i], err)
		}
	}
	return results
}

// attempt makes one attempt to write the documents of the pending keys, and returns the keys to try
// again. With an error it returns the keys whose outcome is unknown.
func (s *Store) attempt(
	ctx context.Context, keys []checkpoint.Key, pending []int, together bool, decide func(int, document, error) (*write, error), results []error,
) (again []int, err error) {
	found, unread, err := s.read(ctx, keys, pending)
	if err != nil {
		return pending, err
	}
	version := bson.NewObjectID() // of all documents that this attempt writes
	written := make([]int, 0, len(pending))
	updates := make([]mongo.WriteModel, 0, len(pending))
	refused := false
	for _, i := range pending {
		d := found[keys[i]]
		w, err := decide(i, d, unread[keys[i]])
		if err == nil && w != nil {
			var update mongo.WriteModel
			if update, err = s.update(keys[i], d, *w, version); err == nil {
				written, updates = append(written, i), append(updates, update)
			}
		}
		results[i] = err
		refused = refused || err != nil
	}
	if len(written) == 0 || together && refused {
		return nil, nil
	}
	result, err := s.write(ctx, updates)
	switch {
	case err == nil && result.MatchedCount+result.UpsertedCount == int64(len(updates)):
		return nil, nil
	case err != nil && onlyDuplicates(err):
		err = nil
	case err != nil && ctx.Err() != nil:
		return written, err
	}
	// The stored versions show which documents were written, even if the reply was lost.
	stands, unknown := s.versions(ctx, keys, written)
	if unknown != nil {
		return written, errors.Join(err, unknown)
	}
	for _, i := range written {
		if stands[keys[i]] != version {
			again = append(again, i)
		}
	}
	return again, err
}

// read reads the documents of the pending keys.
func (s *Store) read(ctx context.Context, keys []checkpoint.Key, pending []int) (found map[checkpoint.Key]document, unread map[checkpoint.Key]error, err error) {
	found, unread = make(map[checkpoint.Key]document, len(pending)), make(map[checkpoint.Key]error)
	err = s.find(ctx, withIDs(keys, pending), func(d document, err error) {
		found[d.key] = d
		if err != nil {
			unread[d.key] = err
		}
	})
	return found, unread, err
}

// versions reads the versions of the pending keys' documents.
func (s *Store) versions(ctx context.Context, keys []checkpoint.Key, pending []int) (map[checkpoint.Key]bson.ObjectID, error) {
	cursor, err := s.checkpoints.Find(ctx, withIDs(keys, pending), options.Find().SetProjection(bson.D{{Key: versionField, Value: 1}}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	stand := make(map[checkpoint.Key]bson.ObjectID, len(pending))
	for cursor.Next(ctx) {
		if k, ok := keyOf(cursor.Current.Lookup("_id").StringValue()); ok {
			stand[k], _ = cursor.Current.Lookup(versionField).ObjectIDOK()
		}
	}
	return stand, cursor.Err()
}

func withIDs(keys []checkpoint.Key, pending []int) bson.D {
	ids := make(bson.A, len(pending))
	for n, i := range pending {
		ids[n] = idOf(keys[i])
	}
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
}

// update returns the update of a document that has not changed since it was read, or the insert of
// a new one.
func (s *Store) update(k checkpoint.Key, d document, w write, version bson.ObjectID) (mongo.WriteModel, error) {
	set := bson.D{{Key: versionField, Value: version}}
	if w.checkpoint != nil {
		trail := d.trail
		entry := false
		if w.trail != nil {
			trail = *w.trail
		}
		if !w.unnoted {
			trail, entry = trail.Next(*w.checkpoint)
		}
		text, err := checkpoint.Encode(*w.checkpoint, trail)
		if err != nil {
			return nil, err
		}
		set = append(set, bson.E{Key: checkpointField, Value: string(text)})
		if entry {
			if text, err = checkpoint.Encode(w.checkpoint.Entry(), trail); err != nil {
				return nil, err
			}
			set = append(set, bson.E{Key: historyField + "." + strconv.Itoa(trail.Slot()), Value: string(text)})
		}
	}
	if w.epoch != nil {
		set = append(set, bson.E{Key: epochField, Value: epochValue(*w.epoch)})
	}
	is := bson.E{Key: versionField, Value: d.version}
	if d.version.IsZero() {
		is.Value = bson.D{{Key: "$exists", Value: false}}
	}
	return mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: idOf(k)}, is}).SetUpsert(d.version.IsZero()).SetUpdate(bson.D{
		{Key: "$set", Value: set},
		{Key: "$currentDate", Value: bson.D{{Key: savedField, Value: bson.D{{Key: "$type", Value: "timestamp"}}}}}, // orders all documents
	}), nil
}

func epochValue(e change.Epoch) bson.D {
	return bson.D{{Key: "incarnation", Value: int64(e.Incarnation)}, {Key: "revision", Value: int64(e.Revision)}}
}

// codeDuplicateKey is the server's error code for an insert with an existing _id.
const codeDuplicateKey = 11000

// onlyDuplicates reports whether the only failures of a bulk write are inserts of existing
// documents.
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

// Save implements checkpoint.Store: one read and one unordered bulk write, more if other processes
// save the same checkpoints.
func (s *Store) Save(ctx context.Context, checkpoints []checkpoint.Checkpoint) []error {
	results := make([]error, len(checkpoints))
	kept := make([]checkpoint.Checkpoint, 0, len(checkpoints))
	keys := make([]checkpoint.Key, 0, len(checkpoints))
	index := make([]int, 0, len(checkpoints))
	for i, c := range checkpoints {
		c, err := c.Trimmed()
		if err == nil && c.Shared && c.Partitions != s.partitions {
			err = fmt.Errorf("%s: a checkpoint of %d partitions among those of %d: %w", c.Key, c.Partitions, s.partitions, checkpoint.ErrUnsavable)
		}
		if results[i] = err; err == nil {
			kept, keys, index = append(kept, c), append(keys, c.Key), append(index, i)
		}
	}
	saved := s.change(ctx, keys, false, func(i int, d document, unread error) (*write, error) { return save(kept[i], d, unread) })
	for i, err := range saved {
		results[index[i]] = err
	}
	return results
}

// save returns the write that saves a checkpoint over a document.
func save(c checkpoint.Checkpoint, d document, unread error) (*write, error) {
	switch {
	case c.Shared && d.epoch != c.Epoch:
		return nil, fmt.Errorf("%s, epoch %s, owner %s: %w", c.Key, c.Epoch, d.epoch, checkpoint.ErrFenced)
	case unread != nil:
		return nil, unread
	case !c.Shared && d.checkpoint == nil:
		return nil, fmt.Errorf("%s has not been claimed: %w", c.Key, checkpoint.ErrFenced)
	}
	merged, changed, err := checkpoint.Merge(d.checkpoint, c)
	if err != nil || !changed {
		return nil, err
	}
	return &write{checkpoint: &merged}, nil
}

// dropSubscribers deletes the exclusive subscribers without an identity beyond MaxSubscribers.
func (s *Store) dropSubscribers(ctx context.Context) error {
	all := bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: exclusive}, {Key: "$lt", Value: "exclusive0"}}}}
	cursor, err := s.checkpoints.Find(ctx, all, options.Find().SetProjection(bson.D{{Key: savedField, Value: 1}}))
	if err != nil {
		return err
	}
	type row struct {
		ID    string         `bson:"_id"`
		Saved bson.Timestamp `bson:"saved"`
	}
	var rows []row
	if err := cursor.All(ctx, &rows); err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return checkpoint.Owner(strings.TrimPrefix(r.ID, exclusive)) != "" })
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(a.Saved.Compare(b.Saved), cmp.Compare(a.ID, b.ID)) })
	rows = rows[:max(len(rows)-checkpoint.MaxSubscribers, 0)]
	if len(rows) == 0 {
		return nil
	}
	deletes := make([]mongo.WriteModel, len(rows))
	for i, r := range rows {
		deletes[i] = mongo.NewDeleteOneModel().SetFilter(bson.D{{Key: "_id", Value: r.ID}, {Key: savedField, Value: r.Saved}})
	}
	_, err = s.checkpoints.BulkWrite(ctx, deletes, options.BulkWrite().SetOrdered(false))
	return err
}

// drop keeps the newest documents of a filter, by a field, and deletes the others unless they are
// written meanwhile. Concurrent calls delete nothing more.
func drop(ctx context.Context, c *mongo.Collection, filter bson.D, field string, keep int) error {
	same := bson.D{{Key: field, Value: 1}}
	cursor, err := c.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: filter}},
		{{Key: "$project", Value: same}}, // before the sort, whose memory is bounded
		{{Key: "$sort", Value: bson.D{{Key: field, Value: -1}, {Key: "_id", Value: -1}}}},
		{{Key: "$skip", Value: keep}},
	})
	if err != nil {
		return err
	}
	var beyond []bson.Raw
	if err := cursor.All(ctx, &beyond); err != nil || len(beyond) == 0 {
		return err
	}
	deletes := make([]mongo.WriteModel, len(beyond))
	for i, d := range beyond {
		deletes[i] = mongo.NewDeleteOneModel().SetFilter(d)
	}
	_, err = c.BulkWrite(ctx, deletes, options.BulkWrite().SetOrdered(false))
	return err
}

// hasRoom returns an error if an exclusive subscriber is new and its identity has too many.
func (s *Store) hasRoom(ctx context.Context, k checkpoint.Key) error {
	owner := checkpoint.Owner(k.Subscriber)
	if owner == "" {
		return nil
	}
	from := exclusive + owner
	ids := func(filter any) (int64, error) {
		return s.checkpoints.CountDocuments(ctx, bson.D{{Key: "_id", Value: filter}})
	}
	n, err := ids(bson.D{{Key: "$gt", Value: from}, {Key: "$lt", Value: strings.TrimSuffix(from, "/") + "0"}}) // 0 follows the slash
	if err == nil && checkpoint.HasRoom(k.Subscriber, int(n)) != nil {
		var there int64
		if there, err = ids(idOf(k)); err == nil && there == 0 {
			return checkpoint.HasRoom(k.Subscriber, int(n))
		}
	}
	if err != nil {
		return fmt.Errorf("count the subscribers of an identity: %w", mongodb.AsFault(err))
	}
	return nil
}

// makeRoom deletes the exclusive subscribers without an identity beyond MaxSubscribers, oldest
// first. If that fails, the next new subscriber tries again. The server estimates the number of
// documents without counting them.
func (s *Store) makeRoom(ctx context.Context) {
	n, err := s.checkpoints.EstimatedDocumentCount(ctx)
	if err == nil && n > checkpoint.MaxSubscribers {
		err = s.dropSubscribers(ctx)
	}
	if err != nil {
		s.client.Logger().Warn("subscribers without a session are not forgotten", "error", err)
	}
}
