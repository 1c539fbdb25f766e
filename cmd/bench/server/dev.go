package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/cmd/bench/part"
	"github.com/mongostream/streamer/internal/devmongo"
)

// oplogBytes is room for the largest backlog.
const oplogBytes = 2 << 30

// ServeDev is a development MongoDB as a part. It serves from memory.
func ServeDev(ctx context.Context, in io.Reader, out io.Writer) error {
	server, err := devmongo.Listen(devmongo.Config{OplogBytes: oplogBytes})
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return server.Run(serving) })
	d := &dev{server: server}
	err = part.Serve(ctx, in, out, handlers(func(context.Context, Start) (log, error) { return d, d.connect() }))
	d.close() // while there is still a server to say goodbye to
	stop()
	return errors.Join(err, g.Wait())
}

type dev struct {
	server *devmongo.Server
	driver *mongo.Client // for what only commands do
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

func (d *dev) shift(by time.Duration) { d.server.SetClockOffset(by) }

func (d *dev) generate(ctx context.Context, data Data) error {
	n := data.Collections
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			return d.server.Generate(ctx, devmongo.Generate{
				DB: data.DB, Coll: Collection(i), Count: data.Events / n, Documents: data.Documents / n, Rate: data.Rate / n, Payload: data.Payload,
			})
		})
	}
	err := g.Wait()
	if data.Rate == 0 {
		runtime.GC() // what was left behind is not paid for by those who read
	}
	return err
}

func (d *dev) stats(context.Context) (Stats, error) {
	s := d.server.Stats()
	return Stats{Examined: s.EntriesExamined, Sent: s.EventsSent, CPU: -1}, nil
}
