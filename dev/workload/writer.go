package workload

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"golang.org/x/sync/errgroup"
)

// Config configures a Writer.
type Config struct {
	// URI is MongoDB's connection string. Required.
	URI string
	// DB and Coll name the collection of the orders. Default to shop and orders.
	DB, Coll string
	// Customers are written, too, into the collection customers beside the orders.
	Customers bool
	// Rate is the number of changes a second over all workers. Defaults to 3000.
	Rate int
	// Workers write in parallel, each its own documents. Defaults to 4.
	Workers int
	// Live is the number of orders that a worker has at a time. Defaults to 50.
	Live int
}

// A Writer writes a workload.
type Writer struct {
	cfg    Config
	ledger *Ledger
	loaded int
}

// NewWriter makes a Writer that notes its acknowledged changes in the ledger.
func NewWriter(cfg Config, ledger *Ledger) *Writer {
	cfg = cfg.named()
	cfg.Rate = cmp.Or(cfg.Rate, 3000)
	cfg.Workers = cmp.Or(cfg.Workers, 4)
	cfg.Live = cmp.Or(cfg.Live, 50)
	return &Writer{cfg: cfg, ledger: ledger}
}

// named returns the configuration with the names of the database and the collection.
func (cfg Config) named() Config {
	cfg.DB = cmp.Or(cfg.DB, "shop")
	cfg.Coll = cmp.Or(cfg.Coll, "orders")
	return cfg
}

// Load inserts n orders, which Run then changes. It is called once, before Run.
func (w *Writer) Load(ctx context.Context, documents int) error {
	db, disconnect, err := database(ctx, w.cfg)
	if err != nil {
		return err
	}
	defer disconnect()
	wk := newWorker(w, db, 0)
	wk.cfg.Workers = 1
	for w.loaded < documents {
		n := min(1000, documents-w.loaded)
		if err := wk.write(ctx, n, wk.place); err != nil {
			return err
		}
		w.loaded += n
	}
	return nil
}

// Run writes until the context ends, which is no error.
func (w *Writer) Run(ctx context.Context) error {
	db, disconnect, err := database(ctx, w.cfg)
	if err != nil {
		return err
	}
	defer disconnect()
	g, working := errgroup.WithContext(ctx)
	for n := range w.cfg.Workers {
		wk := newWorker(w, db, n)
		for ; wk.nextOrder < firstOrder+int64(w.loaded); wk.nextOrder += int64(w.cfg.Workers) {
			wk.orders = append(wk.orders, document{key: key{w.cfg.Coll, wk.nextOrder}, seq: 1})
		}
		wk.cfg.Live = max(wk.cfg.Live, len(wk.orders))
		g.Go(func() error { return wk.run(working) })
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// database connects to the workload's database.
func database(ctx context.Context, cfg Config) (db *mongo.Database, disconnect func(), err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(cfg.URI).SetAppName("workload").SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the workload's database: %w", err)
	}
	return client.Database(cfg.DB), func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }, nil
}

// tick is how often a worker writes.
const tick = 5 * time.Millisecond

// A worker writes its own documents, one bulk after the other, so that the changes of a document
// are in order.
type worker struct {
	cfg    Config
	ledger *Ledger
	db     *mongo.Database

	nextOrder, nextCustomer int64 // their numbers; workers count in steps of their number
	orders, customers       []document
}

func newWorker(w *Writer, db *mongo.Database, n int) *worker {
	return &worker{cfg: w.cfg, ledger: w.ledger, db: db, nextOrder: firstOrder + int64(n), nextCustomer: 1 + int64(n)}
}

// A written is a change of a bulk that is not acknowledged yet.
type written struct {
	key

	seq     int64
	deleted bool
}

func (w *worker) run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	begun := time.Now()
	done := 0
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
		if err := w.write(context.WithoutCancel(ctx), due, w.change); err != nil {
			return err
		}
		done += due
	}
}

// write makes n changes and writes them in an ordered bulk for each collection.
func (w *worker) write(ctx context.Context, changes int, next func() (mongo.WriteModel, written)) error {
	models := make(map[string][]mongo.WriteModel, 2)
	notes := make(map[string][]written, 2)
	for range changes {
		model, note := next()
		models[note.coll], notes[note.coll] = append(models[note.coll], model), append(notes[note.coll], note)
	}
	for coll, bulk := range models {
		now := time.Now()
		for _, n := range notes[coll] {
			w.ledger.begin(n, now)
		}
		if _, err := w.db.Collection(coll).BulkWrite(ctx, bulk, options.BulkWrite().SetOrdered(true)); err != nil {
			return fmt.Errorf("write %d changes: %w", len(bulk), err)
		}
		w.ledger.acknowledge(notes[coll])
	}
	return nil
}
