package row

import (
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

// A Keeper keeps rows in one collection: a document for each gateway, with the whole row in record's form (row) and when it was saved, by the
// server's clock (seen). Reads and writes are with majority concern, as its database's.
type Keeper struct {
	rows *mongo.Collection
	now  func(context.Context) (time.Time, error)
}

var _ checkpoint.RowKeeper = (*Keeper)(nil)

// NewKeeper makes the keeper of a collection's rows. now is the server's clock.
func NewKeeper(rows *mongo.Collection, now func(context.Context) (time.Time, error)) *Keeper {
	return &Keeper{rows: rows, now: now}
}

// key names the document of a gateway in errors.
func (k *Keeper) key(gateway string) string {
	return fmt.Sprintf("%s.%s/%s", k.rows.Database().Name(), k.rows.Name(), gateway)
}

// SaveRow implements checkpoint.RowKeeper.
func (k *Keeper) SaveRow(ctx context.Context, r checkpoint.Row) error {
	text, err := record.EncodeRow(r)
	for saved := false; err == nil && !saved; {
		d, failed := k.find(ctx, r.Gateway)
		if err = failed; err == nil {
			err = k.over(ctx, r, d)
		}
		if err == nil {
			saved, err = k.replace(ctx, r.Gateway, string(text), d.text)
		}
	}
	if err != nil {
		return fmt.Errorf("save row of gateway %q: %w", r.Gateway, err)
	}
	return nil
}

// over returns ErrRowSuperseded unless a row may take the place of what was found. The server's clock is asked only where it matters.
func (k *Keeper) over(ctx context.Context, r checkpoint.Row, d found) error {
	err := r.Over(d.row)
	if err == nil {
		return nil
	}
	age, failed := k.age(ctx, d)
	if failed != nil || age > checkpoint.RowLife {
		return failed
	}
	return err
}

// age returns how long ago a row was saved, by the server's clock.
func (k *Keeper) age(ctx context.Context, d found) (time.Duration, error) {
	now, err := k.now(ctx)
	if err != nil {
		return 0, err
	}
	return now.Sub(d.seen), nil
}

// A found is what stands for a gateway: the zero found where nothing does.
type found struct {
	row  checkpoint.Row
	text string
	seen time.Time
}

// find reads the row of a gateway.
func (k *Keeper) find(ctx context.Context, gateway string) (found, error) {
	d, err := k.rows.FindOne(ctx, bson.D{{Key: "_id", Value: gateway}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return found{}, nil
	}
	if err != nil {
		return found{}, mongodb.AsFault(err)
	}
	return k.decode(d)
}

// decode looks at no more of a document than it needs, whose fields may be of any type.
func (k *Keeper) decode(d bson.Raw) (f found, err error) {
	gateway, ok := d.Lookup("_id").StringValueOK()
	if !ok {
		gateway = d.Lookup("_id").String()
	}
	f.text, _ = d.Lookup("row").StringValueOK()
	f.seen, _ = d.Lookup("seen").TimeOK()
	f.row, err = record.DecodeRow(k.key(gateway), []byte(f.text), k.key)
	return f, err
}

// replace puts a row into the place of the one with the text last, seen now; saved is false where that one does not stand any longer.
func (k *Keeper) replace(ctx context.Context, gateway, text, last string) (saved bool, err error) {
	stamped := bson.D{
		{Key: "$set", Value: bson.D{{Key: "row", Value: text}}}, {Key: "$currentDate", Value: bson.D{{Key: "seen", Value: true}}},
	}
	if last != "" {
		result, err := k.rows.UpdateOne(ctx, bson.D{{Key: "_id", Value: gateway}, {Key: "row", Value: last}}, stamped)
		return err == nil && result.MatchedCount == 1, mongodb.AsFault(err)
	}
	absent := bson.D{{Key: "_id", Value: gateway}, {Key: "row", Value: bson.D{{Key: "$exists", Value: false}}}}
	if _, err := k.rows.UpdateOne(ctx, absent, stamped, options.UpdateOne().SetUpsert(true)); err != nil {
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
	d, err := k.find(ctx, gateway)
	var age time.Duration
	if err == nil && d.text != "" {
		age, err = k.age(ctx, d)
	}
	if err != nil {
		return row, false, fmt.Errorf("read row of gateway %q: %w", gateway, err)
	}
	return d.row, d.text != "" && age <= checkpoint.RowLife, nil
}

// Rows implements checkpoint.RowKeeper.
func (k *Keeper) Rows(ctx context.Context) (rows []checkpoint.Row, err error) {
	now, err := k.now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read rows of gateways: %w", err)
	}
	expired := bson.D{{Key: "seen", Value: bson.D{{Key: "$lt", Value: now.Add(-checkpoint.RowLife)}}}}
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
		d, unread := k.decode(cursor.Current)
		if unread != nil {
			err = errors.Join(err, unread)
			continue
		}
		d.row.Age = max(now.Sub(d.seen), 0)
		rows = append(rows, d.row)
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
