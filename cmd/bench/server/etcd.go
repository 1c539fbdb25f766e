package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/cmd/bench/part"
	"github.com/mongostream/streamer/internal/devetcd"
)

// ServeEtcd is a real etcd as a part, in a folder that goes with it.
func ServeEtcd(ctx context.Context, in io.Reader, out io.Writer) error {
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
	err = part.Serve(ctx, in, out, map[string]part.Handler{
		"start": part.Handle(func(context.Context, Start) (Address, error) { return Address{URI: server.Endpoints()[0]}, nil }),
	})
	stop()
	return errors.Join(err, g.Wait())
}
