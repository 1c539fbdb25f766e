package document

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/mongodb"
)

// A Reader reads documents of collections, page by page.
type Reader struct {
	client *mongodb.Client
}

// NewReader makes a reader.
func NewReader(client *mongodb.Client) *Reader { return &Reader{client: client} }

// A Query says which documents to read.
type Query struct {
	Namespace change.Namespace
	// UpdatedAt is the field that Since is about; empty reads everything.
	UpdatedAt string
	Since     time.Time
	// After is the last _id read before, as a document {_id: …}; nil for the first page.
	After []byte
	Limit int
}

// Page reads the next documents in the order of their _ids, with majority concern, and returns the operation time of the reading: they
// are as they were then. last is the last one's _id as a document, nil where there is none.
func (d *Reader) Page(ctx context.Context, q Query) (documents [][]byte, at change.Timestamp, last []byte, err error) {
	filter := bson.D{}
	if q.After != nil {
		after, err := bson.Raw(q.After).LookupErr("_id")
		if err != nil {
			return nil, at, nil, fmt.Errorf("go on reading %s: %w", q.Namespace, err)
		}
		filter = append(filter, bson.E{Key: "_id", Value: bson.D{{Key: "$gt", Value: after}}})
	}
	if q.UpdatedAt != "" {
		filter = append(filter, bson.E{Key: q.UpdatedAt, Value: bson.D{{Key: "$gte", Value: q.Since}}})
	}
	coll := d.client.Driver().Database(q.Namespace.DB).Collection(q.Namespace.Coll)
	opts := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(q.Limit)).SetComment(d.client.Application())
	err = d.client.Driver().UseSession(ctx, func(ctx context.Context) error {
		cursor, err := coll.Find(ctx, filter, opts)
		if err != nil {
			return err
		}
		// The time of the first reply: what the later ones bring may be younger, but not older.
		if now := mongo.SessionFromContext(ctx).OperationTime(); now != nil {
			at = change.Timestamp{T: now.T, I: now.I}
		}
		var raws []bson.Raw
		if err := cursor.All(ctx, &raws); err != nil {
			return err
		}
		for _, raw := range raws {
			documents = append(documents, raw)
		}
		return nil
	})
	if err != nil {
		return nil, at, nil, fmt.Errorf("read documents of %s: %w", q.Namespace, mongodb.AsFault(err))
	}
	if n := len(documents); n > 0 {
		id := bson.Raw(documents[n-1]).Lookup("_id")
		if last, err = bson.Marshal(bson.D{{Key: "_id", Value: id}}); err != nil {
			return nil, at, nil, fmt.Errorf("note where %s was read to: %w", q.Namespace, err)
		}
	}
	return documents, at, last, nil
}
