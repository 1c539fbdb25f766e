package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	devetcd "github.com/mongostream/streamer/dev/etcd"
	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// parts are the embedded MongoDB and etcd.
type parts struct {
	mongo *devmongo.Server
	etcd  *devetcd.Server
	dir   string
}

// usualOplog is the size of the oplog in MiB.
const usualOplog = 256

// openParts starts MongoDB, of a release or the one by default, and etcd on the addresses; empty
// means any free port. Run must follow.
func openParts(mongoAddr, etcdAddr, release string, oplogMiB int) (*parts, error) {
	dir, err := os.MkdirTemp("", "streamer-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for etcd: %w", err)
	}
	mongo, err := devmongo.Listen(devmongo.Config{Addr: mongoAddr, Release: release, OplogBytes: int64(oplogMiB) << 20})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("start MongoDB: %w", err)
	}
	etcd, err := devetcd.Listen(devetcd.Config{Dir: filepath.Join(dir, "etcd"), Listen: etcdAddr})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	return &parts{mongo: mongo, etcd: etcd, dir: dir}, nil
}

// run serves until the context ends and then removes the written files.
func (p *parts) run(ctx context.Context) error {
	defer os.RemoveAll(p.dir) //nolint:errcheck // temporary
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.mongo.Run(ctx) })
	g.Go(func() error { return p.etcd.Run(ctx) })
	return g.Wait()
}

// partsCommand runs only the parts, for a streamer that is started by hand.
func partsCommand(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("demo parts", flag.ContinueOnError)
	mongoAddr := flags.String("mongodb", "127.0.0.1:27017", "address of the development MongoDB")
	etcdAddr := flags.String("etcd", "127.0.0.1:2379", "address of etcd")
	oplogMiB := flags.Int("oplog", usualOplog, "size of the oplog in MiB")
	release := flags.String("release", "", "release of MongoDB: 4.4, 6.0, 7.0 or 8.0; defaults to 4.4")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p, err := openParts(*mongoAddr, *etcdAddr, *release, *oplogMiB)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "MongoDB  %s\netcd     %s\n\nIn another terminal:\n  STREAMER_MONGODB_URI='%s' STREAMER_ETCD_ENDPOINTS='%s' go run ./cmd/streamer run\n",
		p.mongo.URI(), p.etcd.Endpoints()[0], p.mongo.URI(), p.etcd.Endpoints()[0])
	return p.run(ctx)
}
