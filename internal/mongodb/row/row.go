package row

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/internal/mongodb"
)

// A document is a gateway's row as it is stored: Row is the whole row in record's form.
type document struct {
	Gateway string    `bson:"_id"`
	Seen    time.Time `bson:"seen"`
	Row     string    `bson:"row"`
}

// A Keeper keeps rows in one collection. Reads and writes are with majority concern, as its database's.
type Keeper struct {
	rows *mongo.Collection
}

var _ checkpoint.RowKeeper = (*Keeper)(nil)

// NewKeeper makes the keeper of a collection's rows.
func NewKeeper(rows *mongo.Collection) *Keeper { return &Keeper{rows: rows} }

// key names the document of a gateway in errors.
func (k *Keeper) key(gateway string) string {
	return fmt.Sprintf("%s.%s/%s", k.rows.Database().Name(), k.rows.Name(), gateway)
}

// SaveRow implements checkpoint.RowKeeper.
func (k *Keeper) SaveRow(ctx context.Context, r checkpoint.Row) error {
	text, err := record.EncodeRow(r)
	for saved := false; err == nil && !saved; {
		stands, last, failed := k.find(ctx, r.Gateway)
		if err = cmp.Or(failed, r.Over(stands, time.Now())); err == nil {
			saved, err = k.replace(ctx, document{r.Gateway, r.SeenAt, string(text)}, last)
		}
	}
	if err != nil {
		return fmt.Errorf("save row of gateway %q: %w", r.Gateway, err)
	}
	return nil
}

// find reads the row of a gateway, and its text, which is empty where there is none.
func (k *Keeper) find(ctx context.Context, gateway string) (row checkpoint.Row, text string, err error) {
	d, err := k.rows.FindOne(ctx, bson.D{{Key: "_id", Value: gateway}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return row, "", nil
	}
	if err != nil {
		return row, "", mongodb.AsFault(err)
	}
	return k.decode(d)
}

// decode looks at no more of a document than it needs, whose fields may be of any type.
func (k *Keeper) decode(d bson.Raw) (row checkpoint.Row, text string, err error) {
	gateway, ok := d.Lookup("_id").StringValueOK()
	if !ok {
		gateway = d.Lookup("_id").String()
	}
	text, _ = d.Lookup("row").StringValueOK()
	row, err = record.DecodeRow(k.key(gateway), []byte(text), k.key)
	return row, text, err
}

// replace puts a row into the place of the one with the text last; saved is false where that one does not stand any longer.
func (k *Keeper) replace(ctx context.Context, d document, last string) (saved bool, err error) {
	if last != "" {
		set := bson.D{{Key: "$set", Value: bson.D{{Key: "seen", Value: d.Seen}, {Key: "row", Value: d.Row}}}}
		result, err := k.rows.UpdateOne(ctx, bson.D{{Key: "_id", Value: d.Gateway}, {Key: "row", Value: last}}, set)
		return err == nil && result.MatchedCount == 1, mongodb.AsFault(err)
	}
	if _, err := k.rows.InsertOne(ctx, d); err != nil {
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return false, mongodb.AsFault(err)
	}
	// The server knows about how many there are without looking; after a crash of its own it may be wrong until rows are listed.
	if count, err := k.rows.EstimatedDocumentCount(ctx); err != nil || count <= checkpoint.MaxRows {
		return true, mongodb.AsFault(err)
	}
	return true, k.drop(ctx)
}

// drop deletes those that were seen longest ago as far as there are too many: what stands behind the youngest that are kept, so that who
// else drops at the same time drops nothing more.
func (k *Keeper) drop(ctx context.Context) error {
	behind := options.Find().SetSort(bson.D{{Key: "seen", Value: -1}, {Key: "_id", Value: -1}}).SetSkip(checkpoint.MaxRows)
	cursor, err := k.rows.Find(ctx, bson.D{}, behind.SetProjection(bson.D{{Key: "seen", Value: 1}}))
	var found []bson.Raw
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	if err == nil {
		err = k.deleteUnchanged(ctx, found)
	}
	return mongodb.AsFault(err)
}

// deleteUnchanged deletes the documents, given by _id and seen, whose gateways have not been seen again since.
func (k *Keeper) deleteUnchanged(ctx context.Context, found []bson.Raw) error {
	for _, d := range found {
		if _, err := k.rows.DeleteOne(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// Row implements checkpoint.RowKeeper.
func (k *Keeper) Row(ctx context.Context, gateway string) (row checkpoint.Row, ok bool, err error) {
	row, _, err = k.find(ctx, gateway)
	if err != nil {
		return row, false, fmt.Errorf("read row of gateway %q: %w", gateway, err)
	}
	return row, !row.Expired(time.Now()), nil
}

// Rows implements checkpoint.RowKeeper.
func (k *Keeper) Rows(ctx context.Context) (rows []checkpoint.Row, err error) {
	expired := bson.D{{Key: "seen", Value: bson.D{{Key: "$lt", Value: time.Now().Add(-checkpoint.RowLife)}}}}
	if _, err := k.rows.DeleteMany(ctx, expired); err != nil {
		return nil, fmt.Errorf("drop rows of gateways: %w", mongodb.AsFault(err))
	}
	if err := k.drop(ctx); err != nil {
		return nil, fmt.Errorf("drop rows of gateways: %w", err)
	}
	cursor, err := k.rows.Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("read rows of gateways: %w", mongodb.AsFault(err))
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	for cursor.Next(ctx) {
		r, _, unread := k.decode(cursor.Current)
		if unread != nil {
			err = errors.Join(err, unread)
			continue
		}
		rows = append(rows, r)
	}
	checkpoint.SortRows(rows)
	return rows, errors.Join(err, mongodb.AsFault(cursor.Err()))
}

// DeleteRow implements checkpoint.RowKeeper.
func (k *Keeper) DeleteRow(ctx context.Context, gateway string) error {
	if _, err := k.rows.DeleteOne(ctx, bson.D{{Key: "_id", Value: gateway}}); err != nil {
		return fmt.Errorf("delete row of gateway %q: %w", gateway, mongodb.AsFault(err))
	}
	return nil
}
