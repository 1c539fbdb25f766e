package workload

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"golang.org/x/sync/errgroup"
)

// Config configures a Writer.
type Config struct {
	// URI is MongoDB's connection string. Required.
	URI string
	// DB and Coll name the collection. Default to demo and orders.
	DB, Coll string
	// Rate is the number of changes a second over all workers. Defaults to 3000.
	Rate int
	// Workers write in parallel, each its own documents. Defaults to 4.
	Workers int
	// Live is the number of documents that a worker has at a time. Defaults to 50.
	Live int
	// Pad is the size of each document's text in bytes. Defaults to 100.
	Pad int
}

// A Writer writes a workload.
type Writer struct {
	cfg    Config
	ledger *Ledger
	loaded int
}

// NewWriter makes a Writer that notes its acknowledged changes in the ledger.
func NewWriter(cfg Config, ledger *Ledger) *Writer {
	cfg.DB, cfg.Coll = cmp.Or(cfg.DB, "demo"), cmp.Or(cfg.Coll, "orders")
	cfg.Rate, cfg.Workers = cmp.Or(cfg.Rate, 3000), cmp.Or(cfg.Workers, 4)
	cfg.Live, cfg.Pad = cmp.Or(cfg.Live, 50), cmp.Or(cfg.Pad, 100)
	return &Writer{cfg: cfg, ledger: ledger}
}

// Load inserts so many documents, which Run then changes. It is called once, before Run.
func (w *Writer) Load(ctx context.Context, documents int) error {
	coll, disconnect, err := collection(ctx, w.cfg)
	if err != nil {
		return err
	}
	defer disconnect()
	wk := &worker{cfg: w.cfg, ledger: w.ledger, coll: coll, pad: strings.Repeat("x", w.cfg.Pad)}
	wk.cfg.Workers, wk.cfg.Live = 1, documents
	for w.loaded < documents {
		n := min(1000, documents-w.loaded)
		if err := wk.write(ctx, n); err != nil {
			return err
		}
		w.loaded += n
	}
	return nil
}

// Run writes until the context ends, which is no error.
func (w *Writer) Run(ctx context.Context) error {
	coll, disconnect, err := collection(ctx, w.cfg)
	if err != nil {
		return err
	}
	defer disconnect()
	g, working := errgroup.WithContext(ctx)
	for n := range w.cfg.Workers {
		wk := &worker{cfg: w.cfg, ledger: w.ledger, coll: coll, next: int64(n), pad: strings.Repeat("x", w.cfg.Pad)}
		for ; wk.next < int64(w.loaded); wk.next += int64(w.cfg.Workers) {
			wk.live = append(wk.live, document{id: wk.next, seq: 1})
		}
		wk.cfg.Live = max(wk.cfg.Live, len(wk.live))
		g.Go(func() error { return wk.run(working) })
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// collection connects to the workload's collection.
func collection(ctx context.Context, cfg Config) (coll *mongo.Collection, disconnect func(), err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(cfg.URI).SetAppName("workload").SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the workload's collection: %w", err)
	}
	return client.Database(cfg.DB).Collection(cfg.Coll), func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }, nil
}

// tick is how often a worker writes.
const tick = 5 * time.Millisecond

// A worker writes its own documents, one bulk after the other, so that the changes of a document
// are in order.
type worker struct {
	cfg    Config
	ledger *Ledger
	coll   *mongo.Collection
	pad    string
	next   int64 // the next document's _id; workers count in steps of their number
	live   []document
}

// A document as its worker knows it.
type document struct {
	id  int64
	seq int64 // number of its last change
}

// A written change of a bulk that is not acknowledged yet.
type written struct {
	id, seq int64
	deleted bool
}

func (w *worker) run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	begun, done := time.Now(), 0
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		due := int(time.Since(begun).Seconds()*float64(w.cfg.Rate)/float64(w.cfg.Workers)) - done
		if due <= 0 {
			continue
		}
		due = min(due, 500)
		// A bulk that was begun is carried through, so that its outcome is known.
		if err := w.write(context.WithoutCancel(ctx), due); err != nil {
			return err
		}
		done += due
	}
}

// write writes so many changes in one ordered bulk and notes them.
func (w *worker) write(ctx context.Context, changes int) error {
	models := make([]mongo.WriteModel, 0, changes)
	notes := make([]written, 0, changes)
	for range changes {
		model, note := w.change()
		models, notes = append(models, model), append(notes, note)
	}
	for _, n := range notes {
		w.ledger.begin(n)
	}
	if _, err := w.coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true)); err != nil {
		return fmt.Errorf("write %d changes: %w", changes, err)
	}
	w.ledger.acknowledge(notes)
	return nil
}

// change makes the next change: a new document while there are few, otherwise one of an existing
// document, of which every tenth is its last.
func (w *worker) change() (mongo.WriteModel, written) {
	now := time.Now().UnixNano()
	if len(w.live) < w.cfg.Live {
		d := document{id: w.next, seq: 1}
		w.next += int64(w.cfg.Workers)
		w.live = append(w.live, d)
		return mongo.NewInsertOneModel().SetDocument(w.body(d, now)), written{id: d.id, seq: d.seq}
	}
	i := rand.IntN(len(w.live))
	d := &w.live[i]
	d.seq++
	filter := bson.D{{Key: "_id", Value: d.id}}
	note := written{id: d.id, seq: d.seq}
	switch rand.IntN(10) {
	case 0:
		note.deleted = true
		w.live[i] = w.live[len(w.live)-1]
		w.live = w.live[:len(w.live)-1]
		return mongo.NewDeleteOneModel().SetFilter(filter), note
	case 1:
		return mongo.NewReplaceOneModel().SetFilter(filter).SetReplacement(w.body(*d, now)), note
	}
	update := bson.D{{Key: "$set", Value: bson.D{{Key: "seq", Value: d.seq}, {Key: "at", Value: now}}}}
	return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(update), note
}

func (w *worker) body(d document, now int64) bson.D {
	return bson.D{{Key: "_id", Value: d.id}, {Key: "seq", Value: d.seq}, {Key: "at", Value: now}, {Key: "pad", Value: w.pad}}
}
