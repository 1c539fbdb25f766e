package mongodb

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/snapshot"
)

// Documents reads the documents of collections, page by page, for snapshots.
type Documents struct {
	client *Client
	covers func(change.Namespace) bool
}

var _ snapshot.Source = (*Documents)(nil)

// NewDocuments returns a reader of the collections for which covers returns true, because the node
// reads no changes of the others; nil covers all.
func NewDocuments(client *Client, covers func(change.Namespace) bool) *Documents {
	if covers == nil {
		covers = func(change.Namespace) bool { return true }
	}
	return &Documents{client: client, covers: covers}
}

// Collections implements snapshot.Source.
func (d *Documents) Collections(ctx context.Context, db, coll string) (all []snapshot.Collection, at change.Timestamp, err error) {
	err = d.client.Driver().UseSession(ctx, func(ctx context.Context) (err error) {
		if all, err = d.collections(ctx, db, coll); err != nil {
			return err
		}
		if t := mongo.SessionFromContext(ctx).OperationTime(); t != nil {
			at = change.Timestamp{T: t.T, I: t.I}
		}
		for i := range all {
			if all[i].Documents, err = d.count(ctx, all[i].Namespace); err != nil {
				return err
			}
		}
		return d.advanceConfig(ctx, at)
	})
	return all, at, err
}

func (d *Documents) collections(ctx context.Context, db, coll string) (all []snapshot.Collection, err error) {
	databases := []string{db}
	if db == "" {
		own := bson.D{{Key: "name", Value: bson.D{{Key: "$nin", Value: bson.A{"admin", "config", "local"}}}}}
		if databases, err = d.client.Driver().ListDatabaseNames(ctx, own); err != nil {
			return nil, fmt.Errorf("list databases: %w", AsFault(err))
		}
	}
	filter := bson.D{{Key: "type", Value: "collection"}}
	if coll != "" {
		filter = append(filter, bson.E{Key: "name", Value: coll})
	}
	for _, db := range databases {
		names, err := d.client.Driver().Database(db).ListCollectionNames(ctx, filter)
		if err != nil {
			return nil, fmt.Errorf("list the collections of %s: %w", db, AsFault(err))
		}
		for _, name := range names {
			if ns := (change.Namespace{DB: db, Coll: name}); !strings.HasPrefix(name, "system.") && d.covers(ns) {
				all = append(all, snapshot.Collection{Namespace: ns})
			}
		}
	}
	return all, nil
}

// count returns the approximate number of documents in a collection. It also advances the
// collection's shards to the time that the session of ctx has read: streams reach a time when all
// shards and the config servers are past it, and a shard without writes advances only every 10 s. A
// server that gets a read after a time that it has not reached writes a no-op
// (read_concern_mongod.cpp).
func (d *Documents) count(ctx context.Context, ns change.Namespace) (int64, error) {
	comment := options.EstimatedDocumentCount().SetComment(d.client.Application())
	n, err := d.client.Driver().Database(ns.DB).Collection(ns.Coll).EstimatedDocumentCount(ctx, comment)
	if err != nil {
		return 0, fmt.Errorf("count the documents of %s: %w", ns, AsFault(err))
	}
	return n, nil
}

// advanceConfig advances the config servers of a sharded cluster to a time. If mongos refuses, they
// reach it by themselves within a second.
func (d *Documents) advanceConfig(ctx context.Context, to change.Timestamp) error {
	if !d.client.Sharded() {
		return nil
	}
	err := d.client.AdvanceConfig(ctx, ClusterTime{Timestamp: to})
	if _, refused := errors.AsType[mongo.ServerError](err); refused {
		return nil
	}
	return err
}

// Read implements snapshot.Source. It reads in the order of the index on _id, whose bounds hold for
// _ids of different types. Since MongoDB 5.0 it reads the documents as of q.After, before that a
// majority-committed state that is not older.
func (d *Documents) Read(ctx context.Context, q snapshot.Query) (p snapshot.Page, err error) {
	if d.client.atTime {
		at := options.Session().SetSnapshot(true).SetSnapshotTime(bson.Timestamp{T: q.After.T, I: q.After.I})
		err = d.client.Driver().UseSessionWithOptions(ctx, at, func(ctx context.Context) error { return d.read(ctx, q, &p, nil) })
		p.To = q.After
	}
	if server, ok := errors.AsType[mongo.ServerError](err); !d.client.atTime || ok && slices.ContainsFunc(noSnapshotCodes, server.HasErrorCode) {
		p = snapshot.Page{}
		err = d.client.Driver().UseSession(ctx, func(ctx context.Context) error {
			session := mongo.SessionFromContext(ctx)
			if err := session.AdvanceOperationTime(&bson.Timestamp{T: q.After.T, I: q.After.I}); err != nil { // this sets afterClusterTime
				return err
			}
			if err := d.read(ctx, q, &p, readconcern.Majority()); err != nil {
				return err
			}
			at := session.OperationTime() // of the last reply: no document that was read is newer
			if at == nil {
				return fault.Newf(fault.MongoRefused, "the server tells no operation time")
			}
			p.To = change.Timestamp{T: at.T, I: at.I}
			if !d.client.Sharded() {
				return nil
			}
			if _, err := d.count(ctx, q.Namespace); err != nil {
				return err
			}
			return d.advanceConfig(ctx, p.To)
		})
	}
	if err != nil {
		return snapshot.Page{}, fmt.Errorf("read documents of %s: %w", q.Namespace, AsFault(err))
	}
	return p, nil
}

// read reads a page in the context's session.
func (d *Documents) read(ctx context.Context, q snapshot.Query, p *snapshot.Page, concern *readconcern.ReadConcern) error {
	if q.FromHash != nil {
		var err error
		if q.From, err = d.locate(ctx, q, concern); err != nil {
			return err
		}
	}
	ordered := bson.D{{Key: "_id", Value: 1}}
	filter := bson.D{}
	opts := options.Find().SetSort(ordered).SetComment(d.client.Application())
	if len(q.IDs) > 0 {
		ids := make(bson.A, len(q.IDs))
		for i, id := range q.IDs {
			ids[i] = rawValue(id)
		}
		filter = bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	} else {
		limit := q.Documents + 1                                                                    // one more: the next page begins there
		opts.SetHint(ordered).SetLimit(int64(limit)).SetBatchSize(int32(min(limit, math.MaxInt32))) // all in one reply, if it fits
		if !q.From.IsZero() {
			opts.SetMin(bson.D{{Key: "_id", Value: rawValue(q.From)}})
		}
		if !q.Until.IsZero() {
			opts.SetMax(bson.D{{Key: "_id", Value: rawValue(q.Until)}})
		}
	}
	of := options.Collection().SetReadConcern(cmp.Or(concern, &readconcern.ReadConcern{}))
	cursor, err := d.client.Driver().Database(q.Namespace.DB).Collection(q.Namespace.Coll, of).Find(ctx, filter, opts)
	if err != nil {
		return err
	}
	defer func() { _ = cursor.Close(ctx) }()
	p.Documents = make([][]byte, 0, cursor.RemainingBatchLength())
	for size := 0; cursor.Next(ctx); {
		if size, err = addDocuments(p, q, size, takeReply(cursor)); err != nil || !p.Next.IsZero() {
			return err
		}
	}
	return cursor.Err()
}

// takeReply returns the documents of a cursor's reply as an array. The cursor is at the first of
// them, and afterwards at the end of the reply. Taking one after the other would allocate memory
// for each. The driver does not use a reply again.
func takeReply(cursor *mongo.Cursor) []byte {
	batch := mongo.BatchCursorFromCursor(cursor).Batch() //nolint:staticcheck // it may go, and nothing else shows the reply
	reply := batch.List
	*batch = bsoncore.Iterator{}
	return reply
}

// addDocuments adds the documents of a reply to a page that has some of so many bytes, and returns
// how many it has then. It sets Next where the page is full.
func addDocuments(p *snapshot.Page, q snapshot.Query, size int, reply []byte) (int, error) {
	for at := 4; ; {
		name, v, next, err := change.Element(reply, at)
		switch {
		case err != nil:
			return size, fmt.Errorf("read reply: %w", err)
		case name == nil:
			return size, nil
		}
		doc := v.Document()
		n := len(p.Documents)
		isFull := n > 0 && (n == q.Documents || size >= q.Bytes)
		if isFull && len(q.IDs) == 0 {
			id := change.IDOf(doc)
			p.Next = change.Value{Type: id.Type, Data: bytes.Clone(id.Data)}
			if len(reply)-at >= size { // the page would keep a reply that is far larger
				p.Documents = joined(p.Documents, size)
			}
			return size, nil
		}
		p.Documents = append(p.Documents, slices.Clip(doc))
		size += len(doc)
		at = next
	}
}

// joined returns copies of documents in memory of their own.
func joined(documents [][]byte, size int) [][]byte {
	memory := make([]byte, 0, size)
	for i, doc := range documents {
		from := len(memory)
		memory = append(memory, doc...)
		documents[i] = memory[from:len(memory):len(memory)]
	}
	return documents
}

// locate returns the first _id at or after q.From that has the hash of the query. It reads keys
// only, from the index, and at most snapshot.LocatedKeys of them, because a client may have
// invented the hash.
func (d *Documents) locate(ctx context.Context, q snapshot.Query, concern *readconcern.ReadConcern) (id change.Value, err error) {
	ordered := bson.D{{Key: "_id", Value: 1}}
	opts := options.Find().SetSort(ordered).SetHint(ordered).SetProjection(ordered).SetComment(d.client.Application()).SetMin(bson.D{{Key: "_id", Value: rawValue(q.From)}})
	opts.SetLimit(snapshot.LocatedKeys).SetBatchSize(snapshot.LocatedKeys)
	of := options.Collection().SetReadConcern(cmp.Or(concern, &readconcern.ReadConcern{}))
	cursor, err := d.client.Driver().Database(q.Namespace.DB).Collection(q.Namespace.Coll, of).Find(ctx, bson.D{}, opts)
	if err != nil {
		return id, err
	}
	defer func() { _ = cursor.Close(ctx) }()
	keys := 0
	for ; cursor.Next(ctx); keys++ {
		key := change.IDOf(cursor.Current)
		id = change.Value{Type: key.Type, Data: append(id.Data[:0], key.Data...)}
		if bytes.Equal(change.KeyHash(id), q.FromHash) {
			return id, nil
		}
	}
	switch err := cursor.Err(); {
	case err != nil:
		return id, err
	case keys == snapshot.LocatedKeys:
		return id, &snapshot.FurtherError{From: id}
	}
	return id, snapshot.ErrPlaceGone
}

func rawValue(v change.Value) bson.RawValue {
	return bson.RawValue{Type: bson.Type(v.Type), Value: v.Data}
}
