package mongodb

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb/uri"
)

// A Pool is a separate set of connections. Its methods are safe for concurrent use.
type Pool struct {
	adjust func(*options.ClientOptions)
	now    atomic.Pointer[mongo.Client]
}

// Driver returns the current connections. Renew closes them, so callers must not keep them.
func (p *Pool) Driver() *mongo.Client { return p.now.Load() }

// Pool opens a separate pool of connections, which closes with the client. It reads with majority
// concern, and from the primary, because only the member that a stream reads knows whether its
// oplog has the stream's position.
func (c *Client) Pool(adjust func(*options.ClientOptions)) (*Pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	driver, err := c.connect(c.mu.uri, adjust)
	if err != nil {
		return nil, err
	}
	pool := &Pool{adjust: adjust}
	pool.now.Store(driver)
	c.mu.pools = append(c.mu.pools, pool)
	return pool, nil
}

// connect makes a driver client, which connects at its first use.
func (c *Client) connect(read uri.URI, adjust func(*options.ClientOptions)) (*mongo.Client, error) {
	o, err := read.Options()
	if err != nil {
		return nil, asOptionsFault(err)
	}
	if c.host != "" {
		o = direct(o, c.host)
	}
	o.SetAppName(c.cfg.Application).SetServerSelectionTimeout(c.cfg.SelectionTimeout).
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary())
	adjust(o)
	driver, err := mongo.Connect(o)
	if err != nil {
		return nil, asOptionsFault(err)
	}
	return driver, nil
}

// asOptionsFault returns the fault of a connection string that the driver does not take. That the
// name server does not know its hosts may pass.
func asOptionsFault(err error) error {
	if _, is := errors.AsType[*net.DNSError](err); is {
		return fault.Newf(fault.MongoUnreachable, "find the servers of mongodb+srv://: %w", err)
	}
	return fault.Newf(fault.ConfigBadValue, "mongodb.uri: %w", err)
}

// Renew reconnects with a connection string that has changed, or whose files have, and closes the
// old connections. The new string must lead to the same deployment: the same identity, and at least
// one common host. If it does not, or the deployment does not answer, Renew keeps the old
// connections and returns the reason. Open streams break and continue from their positions.
func (c *Client) Renew(ctx context.Context, text string, ours func(identity string) bool) error {
	cfg := c.cfg
	cfg.URI = text
	trial, err := Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer trial.Close()
	identity, err := trial.Identity(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	hosts := c.mu.hosts
	c.mu.Unlock()
	if !ours(identity) || !slices.ContainsFunc(hosts, func(host string) bool { return slices.Contains(trial.mu.hosts, host) }) {
		return fault.Newf(fault.CheckpointSource, "the new connection string leads to another deployment: %s at %s", identity, strings.Join(trial.mu.hosts, ", "))
	}
	old, err := c.replace(ctx, trial.mu.uri)
	for _, driver := range old {
		disconnect(ctx, driver)
	}
	return err
}

// replace reconnects all pools, or none, and returns the old connections.
func (c *Client) replace(ctx context.Context, read uri.URI) (old []*mongo.Client, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := make([]*mongo.Client, len(c.mu.pools))
	for i, pool := range c.mu.pools {
		if made[i], err = c.connect(read, pool.adjust); err != nil {
			for _, driver := range made[:i] {
				disconnect(ctx, driver)
			}
			return nil, err
		}
	}
	c.mu.uri = read
	for i, pool := range c.mu.pools {
		old = append(old, pool.now.Swap(made[i]))
	}
	for _, member := range c.mu.members {
		others, err := member.replace(ctx, read)
		if err != nil {
			return old, err
		}
		old = append(old, others...)
	}
	return old, nil
}

// disconnect closes connections; those in use get a short time to finish.
func disconnect(ctx context.Context, driver *mongo.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
	defer cancel()
	_ = driver.Disconnect(ctx) // the server ends the rest by itself
}
