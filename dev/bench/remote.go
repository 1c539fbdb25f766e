package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

// serveRemote is a worker that writes to a MongoDB elsewhere.
func serveRemote(ctx context.Context, in io.Reader, out io.Writer) error {
	r := &remote{}
	defer func() {
		if r.driver != nil {
			_ = r.driver.Disconnect(context.WithoutCancel(ctx))
		}
	}()
	return serveRequests(ctx, in, out, handlers(func(_ context.Context, s serverConfig) (_ log, err error) {
		r.address = s.URI
		if r.driver, err = mongo.Connect(options.Client().ApplyURI(s.URI).SetAppName("streamer bench")); err != nil {
			return nil, fmt.Errorf("connect to MongoDB: %w", err)
		}
		return r, nil
	}))
}

type remote struct {
	address string
	driver  *mongo.Client
}

func (r *remote) uri() string           { return r.address }
func (r *remote) client() *mongo.Client { return r.driver }

// stats reads the server's own CPU time, which mongod reports on Linux. (MongoDB manual,
// serverStatus, extra_info.)
func (r *remote) stats(ctx context.Context) (serverStats, error) {
	var status struct {
		Extra struct {
			User   *int64 `bson:"user_time_us"`
			System *int64 `bson:"system_time_us"`
		} `bson:"extra_info"`
	}
	if err := r.driver.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
		return serverStats{}, fmt.Errorf("ask for the server's status: %w", err)
	}
	s := serverStats{CPU: -1, Examined: -1}
	if status.Extra.User != nil && status.Extra.System != nil {
		s.CPU = time.Duration(*status.Extra.User+*status.Extra.System) * time.Microsecond
	}
	return s, nil
}

const (
	writers  = 4                    // each has its own documents, so that their changes are in order
	maxBulk  = 1000                 // changes in one bulk
	interval = 2 * time.Millisecond // between two bulks of a paced writer
)

func (r *remote) generate(ctx context.Context, d load) error {
	g, ctx := errgroup.WithContext(ctx)
	begun := time.Now()
	for n := range writers {
		w := &backlogWriter{db: r.driver.Database(d.DB), data: d, number: n, payload: strings.Repeat("x", d.Payload), begun: begun}
		g.Go(func() error { return w.run(ctx) })
	}
	return g.Wait()
}

// A backlogWriter writes the changes of its own documents: change i changes document i modulo their
// number.
type backlogWriter struct {
	db      *mongo.Database
	data    load
	number  int
	payload string
	begun   time.Time
}

func (w *backlogWriter) run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var bulk []mongo.WriteModel
	flush := func() error {
		if len(bulk) == 0 {
			return nil
		}
		if _, err := w.db.Collection(cmp.Or(w.data.Collection, collection)).BulkWrite(ctx, bulk, options.BulkWrite().SetOrdered(true)); err != nil {
			return fmt.Errorf("write %d changes: %w", len(bulk), err)
		}
		bulk = bulk[:0]
		return nil
	}
	for i := range w.data.Events {
		if i%w.data.Documents%writers != w.number {
			continue
		}
		for w.early(i) {
			if err := flush(); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		bulk = append(bulk, w.change(i))
		if len(bulk) == maxBulk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// early reports whether change i is not due yet.
func (w *backlogWriter) early(i int) bool {
	return w.data.Rate > 0 && time.Since(w.begun).Seconds()*float64(w.data.Rate) < float64(i)
}

func (w *backlogWriter) change(i int) mongo.WriteModel {
	// Documents are numbered from 1, as the development MongoDB does.
	id := int64(i%w.data.Documents) + 1
	seq := int64(i/w.data.Documents) + 1
	fields := bson.D{{Key: "at", Value: time.Now().UnixNano()}, {Key: "payload", Value: w.payload}, {Key: "seq", Value: seq}}
	if seq == 1 {
		return mongo.NewInsertOneModel().SetDocument(append(bson.D{{Key: "_id", Value: id}}, fields...))
	}
	return mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id}}).SetUpdate(bson.D{{Key: "$set", Value: fields}})
}
