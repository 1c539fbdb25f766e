package moves

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// documents are so few that each is written every few hundredths of a second, so that one that stands still is noticed.
	documents = 256
	// pace is how often changes are written.
	pace = 5 * time.Millisecond
	// most bounds the changes of one writing, where MongoDB was slow. An update tells only fields whose values are others: a document that
	// came twice at one time would not tell the time again.
	most = documents
)

// A writer changes documents in rotation, at a rate.
type writer struct {
	uri, db string
	rate    int

	mu      sync.Mutex
	numbers []int64 // by document, the number of its last change
	total   int
}

func newWriter(uri, db string, rate int) *writer {
	return &writer{uri: uri, db: db, rate: rate, numbers: make([]int64, documents+1)}
}

// run writes until the context ends, which is no error. What was begun is carried through.
func (w *writer) run(ctx context.Context) error {
	client, err := mongo.Connect(options.Client().ApplyURI(w.uri).SetAppName("bench writer"))
	if err != nil {
		return fmt.Errorf("connect the writer: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	coll := client.Database(w.db).Collection("moves")
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for begun, done := time.Now(), 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		due := min(int(time.Since(begun).Seconds()*float64(w.rate))-done, most)
		if due <= 0 {
			continue
		}
		if err := w.write(context.WithoutCancel(ctx), coll, done, due); err != nil {
			return err
		}
		done += due
	}
}

// write writes the n changes behind the first ones.
func (w *writer) write(ctx context.Context, coll *mongo.Collection, first, n int) error {
	models, now := make([]mongo.WriteModel, n), time.Now().UnixNano()
	for i := range models {
		id, seq := int64((first+i)%documents+1), int64((first+i)/documents+1)
		fields := bson.D{{Key: "seq", Value: seq}, {Key: "at", Value: now}}
		models[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id}}).SetUpdate(bson.D{{Key: "$set", Value: fields}}).SetUpsert(seq == 1)
	}
	if _, err := coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true)); err != nil {
		return fmt.Errorf("write %d changes: %w", n, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		w.numbers[(first+i)%documents+1]++
	}
	w.total += n
	return nil
}

// written returns the number of the last change of each document, and how many there were.
func (w *writer) written() (numbers []int64, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(numbers, w.numbers...), w.total
}
