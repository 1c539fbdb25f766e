package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	devetcd "github.com/mongostream/streamer/dev/etcd"
	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// load describes the changes to write.
type load struct {
	DB                string
	Collection        string // empty: collection
	Events, Documents int
	// Rate is in events a second; 0 is as fast as possible.
	Rate int
	// Payload is the length of a text in every change.
	Payload int
	// Rare are changes of the collection rare, which are written meanwhile.
	Rare int
}

// collection is the collection in each database, rare another one with few changes.
const collection, rare = "changes", "rare"

// loadResult describes the written changes.
type loadResult struct {
	// Start is a time in the log at or before the first change, in seconds since 1970.
	Start int64
	Took  time.Duration
}

// serverStats are statistics from a server.
type serverStats struct {
	// CPU is the server's CPU time, -1 if the server does not report it.
	CPU time.Duration
	// Examined is the number of entries that its change streams have looked at, -1 if unknown.
	Examined int64
}

// A serverConfig configures a server at its start.
type serverConfig struct {
	// URI is the MongoDB to write to; a worker that is a server itself ignores it.
	URI string
}

// A serverAddress is a server's address for clients.
type serverAddress struct {
	URI string
}

// A log is a MongoDB as the benchmark uses it.
type log interface {
	generate(ctx context.Context, d load) error
	stats(ctx context.Context) (serverStats, error)
	client() *mongo.Client
	uri() string
}

// handlers are the methods of a worker that is a log.
func handlers(open func(context.Context, serverConfig) (log, error)) map[string]handler {
	var l log
	return map[string]handler{
		"start": handle(func(ctx context.Context, s serverConfig) (a serverAddress, err error) {
			if l, err = open(ctx, s); err != nil {
				return a, err
			}
			return serverAddress{URI: l.uri()}, nil
		}),
		"generate": handle(func(ctx context.Context, d load) (loadResult, error) {
			start, err := operationTime(ctx, l.client())
			if err != nil {
				return loadResult{}, err
			}
			begun := time.Now()
			err = l.generate(ctx, d)
			return loadResult{Start: start, Took: time.Since(begun)}, err
		}),
		"stats": handle(func(ctx context.Context, _ none) (serverStats, error) { return l.stats(ctx) }),
		"drop": handle(func(ctx context.Context, d load) (none, error) {
			if err := l.client().Database(d.DB).Drop(ctx); err != nil {
				return none{}, fmt.Errorf("drop database %s: %w", d.DB, err)
			}
			return none{}, nil
		}),
	}
}

// operationTime returns the second of the log's end.
func operationTime(ctx context.Context, client *mongo.Client) (int64, error) {
	var hello struct {
		OperationTime bson.Timestamp `bson:"operationTime"`
	}
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Decode(&hello); err != nil {
		return 0, fmt.Errorf("read the operation time: %w", err)
	}
	return int64(hello.OperationTime.T), nil
}

const (
	// oplogBytes is room for the largest backlog.
	oplogBytes = 2 << 30
	// keptEntries are the newest entries, which stay when the oplog is truncated.
	keptEntries = 10
)

// serveDev is a development MongoDB as a worker. It serves from memory.
func serveDev(ctx context.Context, in io.Reader, out io.Writer) error {
	server, err := devmongo.Listen(devmongo.Config{OplogBytes: oplogBytes})
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return server.Run(serving) })
	d := &dev{server: server}
	methods := handlers(func(context.Context, serverConfig) (log, error) { return d, d.connect() })
	methods["truncate"] = handle(func(context.Context, none) (none, error) {
		server.TruncateOplog(keptEntries)
		return none{}, nil
	})
	err = serveRequests(ctx, in, out, methods)
	d.close() // while the server still runs
	stop()
	return errors.Join(err, g.Wait())
}

type dev struct {
	server *devmongo.Server
	driver *mongo.Client // for commands
}

func (d *dev) connect() (err error) {
	if d.driver, err = mongo.Connect(options.Client().ApplyURI(d.server.URI())); err != nil {
		return fmt.Errorf("connect to the development MongoDB: %w", err)
	}
	return nil
}

func (d *dev) close() {
	if d.driver != nil {
		_ = d.driver.Disconnect(context.Background())
	}
}

func (d *dev) uri() string           { return d.server.URI() }
func (d *dev) client() *mongo.Client { return d.driver }

func (d *dev) generate(ctx context.Context, data load) error {
	g, writing := errgroup.WithContext(ctx)
	write := func(coll string, events, rate int) {
		g.Go(func() error {
			return d.server.Generate(writing, devmongo.Generate{
				DB: data.DB, Coll: coll, Count: events, Documents: data.Documents, Rate: rate, Payload: data.Payload,
			})
		})
	}
	write(cmp.Or(data.Collection, collection), data.Events, data.Rate)
	if data.Rare > 0 { // as long as the others
		write(rare, data.Rare, data.Rate*data.Rare/data.Events)
	}
	err := g.Wait()
	if data.Rate == 0 {
		runtime.GC() // readers must not pay for garbage of the writers
	}
	return err
}

// stats returns no CPU time: the parent process measures it.
func (d *dev) stats(context.Context) (serverStats, error) {
	return serverStats{CPU: -1, Examined: d.server.Stats().EntriesExamined}, nil
}

// serveEtcd is a worker with a real etcd, in a temporary directory.
func serveEtcd(ctx context.Context, in io.Reader, out io.Writer) error {
	dir, err := os.MkdirTemp("", "streamer-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for etcd: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := devetcd.Listen(devetcd.Config{Dir: dir})
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return server.Run(serving) })
	err = serveRequests(ctx, in, out, map[string]handler{
		"start": handle(func(context.Context, serverConfig) (serverAddress, error) {
			return serverAddress{URI: server.Endpoints()[0]}, nil
		}),
	})
	stop()
	return errors.Join(err, g.Wait())
}
