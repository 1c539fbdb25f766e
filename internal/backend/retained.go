package backend

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/s3"
	"github.com/mongostream/streamer/internal/s3/uri"
	"github.com/mongostream/streamer/retention"
)

// A Retained is a store of retained logs.
type Retained interface {
	retention.Store
	// Chains returns the folders of the chains in the store, for retention.ChainAt.
	Chains(ctx context.Context) ([]string, error)
	Close() error
}

// SharedStore reports whether the nodes of a cluster share the store of a URL.
func SharedStore(url string) bool { return strings.HasPrefix(url, "s3:") }

// RetainedByAll reports whether all nodes of a configuration have the same retained log: a folder
// is one node's alone.
func RetainedByAll(cfg config.Config) bool {
	return cfg.Retention.Store != "" && (SharedStore(cfg.Retention.Store) || cfg.Cluster.ExpectedNodes <= 1)
}

// A Log is the log of a deployment for an operator's command: MongoDB's, and before it the retained
// one where the command can read that.
type Log struct {
	*mongodb.Client

	extent retention.Extent
	limits config.Retention
}

var _ admin.Retainer = Log{}

// Extend implements admin.Retainer.
func (l Log) Extend(oplog gap.Reach) gap.Reach {
	return l.extent.Extend(oplog, l.limits.MaxAge, l.limits.MaxBytes)
}

// retainedTimeout bounds how long a store may take to tell how far its log goes.
const retainedTimeout = 10 * time.Second

// Log connects to MongoDB as Mongo does, and looks how far the retained log goes. The store must be
// open. A retained log that cannot be read here is a warning: the oplog alone counts then.
func (c *Conn) Log(ctx context.Context) (Log, error) {
	client, err := c.Mongo(ctx)
	if err != nil || !RetainedByAll(c.Config) {
		return Log{Client: client}, err
	}
	extent, err := c.retained(ctx)
	if err != nil {
		c.logger.Warn("the retained log cannot be read from here: only the oplog counts", "store", c.Config.Retention.Store, "error", err)
	}
	return Log{client, extent, c.Config.Retention}, nil
}

// retained returns how far the retained log of the cluster goes.
func (c *Conn) retained(ctx context.Context) (extent retention.Extent, err error) {
	ctx, cancel := context.WithTimeout(ctx, retainedTimeout)
	defer cancel()
	origin, err := c.Store.Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return extent, nil // nothing is retained before there is one
	}
	if err != nil {
		return extent, err
	}
	store, err := ReadRetained(c.Config.Retention.Store)
	if err != nil {
		return extent, err
	}
	defer store.Close() //nolint:errcheck // only read
	return Chain(store, origin).Extent(ctx)
}

// Chain returns the chain of a cluster's log. It is that of its MongoDB deployment, or of the
// cluster alone where only a name is known of the deployment: two that share a store may have the
// same one.
func Chain(store retention.Store, origin checkpoint.Origin) *retention.Chain {
	source := origin.Source
	if !mongodb.Identifies(source) {
		source += "/" + origin.Cluster
	}
	return retention.NewChain(store, source, origin.Incarnation)
}

// CheckRetained returns why a URL names no store.
func CheckRetained(url string) (err error) {
	if SharedStore(url) {
		_, err = uri.Parse(url)
	} else {
		_, err = retention.FolderOf(url)
	}
	return err
}

// OpenRetained returns the store of a URL. It asks nothing of the store yet.
func OpenRetained(url string) (Retained, error) {
	if SharedStore(url) {
		bucket, err := s3.Open(url)
		if err != nil {
			return nil, err
		}
		return bucket, nil
	}
	folder, err := retention.FolderOf(url)
	if err != nil {
		return nil, err
	}
	return retention.NewFiles(folder), nil
}

// ReadRetained returns the store of a URL for reading: a folder must exist, and is not changed.
func ReadRetained(url string) (Retained, error) {
	if SharedStore(url) {
		return OpenRetained(url)
	}
	folder, err := retention.FolderOf(url)
	if err != nil {
		return nil, err
	}
	files, err := retention.ReadFiles(folder)
	if err != nil {
		return nil, err
	}
	return files, nil
}
