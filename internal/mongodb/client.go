package mongodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb/uri"
	"github.com/mongostream/streamer/internal/retry"
)

// Config configures the connection to a deployment.
type Config struct {
	// URI is MongoDB's connection string. Required.
	URI string
	// Application is shown by the server in currentOp and in its log, for connections and streams.
	// Defaults to streamer.
	Application string
	// SelectionTimeout bounds the search for a server that can answer. Defaults to 30 s.
	SelectionTimeout time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
}

// A Client is a connection to a MongoDB deployment. Only this package and those below it use the
// driver.
type Client struct {
	cfg     Config
	logger  *slog.Logger
	host    string      // the single member that it is connected to, empty if it is connected to the deployment
	sharded bool        // reached through mongos
	atTime  bool        // the server can read documents as of a time
	blind   atomic.Bool // the oplog cannot be read: through mongos, or because the user lacks the right

	topology atomic.Pointer[topologyState] // as the first pool sees it
	growth   atomic.Pointer[growth]        // nil before it was asked

	mu struct {
		sync.Mutex
		uri     uri.URI
		hosts   []string // of a replica set, as its members report them; of a sharded cluster, the routers of the URI
		pools   []*Pool  // the first serves all requests without a pool of their own
		members map[string]*Client
	}
}

// Dial connects and detects the kind of the deployment. It returns a fault.Error if the deployment
// cannot be reached, refuses the user, or is neither a replica set nor a sharded cluster.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	cfg.Application = cmp.Or(cfg.Application, "streamer")
	cfg.SelectionTimeout = cmp.Or(cfg.SelectionTimeout, 30*time.Second)
	c := &Client{cfg: cfg, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))}
	read, err := uri.Parse(cfg.URI)
	if err != nil {
		return nil, fault.Newf(fault.ConfigBadValue, "mongodb.uri: %w", err)
	}
	c.mu.uri = read
	if err := c.first(ctx); err != nil {
		return nil, err
	}
	if err := c.inspect(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// first makes the first pool. While the name server does not know the hosts of the connection
// string, it waits, for as long as for a server.
func (c *Client) first(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SelectionTimeout)
	defer cancel()
	backoff := retry.Backoff{First: 200 * time.Millisecond, Longest: 5 * time.Second}
	for failures := 1; ; failures++ {
		_, err := c.Pool(func(o *options.ClientOptions) { c.observe(o.SetWriteConcern(writeconcern.Majority())) })
		if fault.Of(err) != fault.MongoUnreachable || backoff.Wait(ctx, failures) != nil {
			return err
		}
	}
}

// Driver returns the pool for all requests without a pool of their own.
func (c *Client) Driver() *mongo.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.pools[0].Driver()
}

// Direct reports whether the connection string asks for a direct connection to one server, whatever
// its role.
func (c *Client) Direct() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.uri.Direct()
}

// Application returns the name under which the server shows this client.
func (c *Client) Application() string { return c.cfg.Application }

// Logger returns the client's logger.
func (c *Client) Logger() *slog.Logger { return c.logger }

// Blind reports whether the oplog cannot be read, through mongos or because the user lacks the
// right. Then only opening a stream at a time shows whether the oplog still reaches back to it.
func (c *Client) Blind() bool { return c.blind.Load() }

// wireOf50 is the version of the wire protocol of MongoDB 5.0.
const wireOf50 = 13

// inspect detects the kind of the server.
func (c *Client) inspect(ctx context.Context) error {
	hello, err := c.meet(ctx)
	if err != nil {
		return fmt.Errorf("reach MongoDB: %w", AsFault(err))
	}
	c.sharded = hello.router()
	c.atTime = hello.Wire >= wireOf50
	if !c.sharded && hello.SetName == "" {
		return fault.Newf(fault.MongoStandalone, "%s is a standalone server", cmp.Or(hello.Me, "the server"))
	}
	if _, _, err := c.FirstEntry(ctx); err != nil {
		return fmt.Errorf("inspect MongoDB: %w", AsFault(err))
	}
	return nil
}

// A hello is a server's description of itself.
type hello struct {
	Message string `bson:"msg"`
	Wire    int    `bson:"maxWireVersion"`
	SetName string `bson:"setName"`
	// Uninitiated reports that the server waits for the initiation of its replica set.
	Uninitiated bool      `bson:"isreplicaset"`
	Me          string    `bson:"me"`
	Hosts       []string  `bson:"hosts"`
	Passives    []string  `bson:"passives"` // members with data that are never elected
	LocalTime   time.Time `bson:"localTime"`
	LastWrite   struct {
		Last     opTime `bson:"opTime"`
		Majority opTime `bson:"majorityOpTime"`
	} `bson:"lastWrite"`
}

// An opTime is the place of an operation in the oplog.
type opTime struct {
	TS bson.Timestamp `bson:"ts"`
}

func (c *Client) hello(ctx context.Context) (hello, error) {
	h, err := helloOf(ctx, c.Driver())
	if err != nil {
		return h, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.hosts = slices.Concat(h.Hosts, h.Passives); h.router() {
		c.mu.hosts = c.mu.uri.Hosts()
	}
	return h, nil
}

func helloOf(ctx context.Context, driver *mongo.Client) (h hello, err error) {
	admin := driver.Database("admin")
	err = admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	if server, ok := err.(mongo.ServerError); ok && server.HasErrorCode(59) { //nolint:errorlint // the driver returns it bare; servers before 4.4.2 know isMaster only
		err = admin.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&h)
	}
	if err != nil {
		return h, fmt.Errorf("hello: %w", err)
	}
	return h, nil
}

// ServerTime returns the clock of the server that answers.
func (c *Client) ServerTime(ctx context.Context) (time.Time, error) {
	h, err := c.hello(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the server's clock: %w", AsFault(err))
	}
	return h.LocalTime, nil
}

// Now returns the deployment's current operation time: every later operation has a later time.
func (c *Client) Now(ctx context.Context) (change.Timestamp, error) {
	var t change.Timestamp
	err := c.Driver().UseSession(ctx, func(ctx context.Context) error {
		if err := c.Driver().Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err(); err != nil {
			return fmt.Errorf("ping: %w", err)
		}
		now := mongo.SessionFromContext(ctx).OperationTime()
		if now == nil {
			return fault.Newf(fault.MongoRefused, "the server tells no operation time")
		}
		t = change.Timestamp{T: now.T, I: now.I}
		return nil
	})
	if err != nil {
		return t, fmt.Errorf("read the operation time: %w", AsFault(err))
	}
	return t, nil
}

// Identity returns a permanent name of the deployment: for a replica set its name and the id from
// its initiation, for a sharded cluster its id. If the user may not read the id, it is the name
// alone.
func (c *Client) Identity(ctx context.Context) (string, error) {
	if c.sharded {
		var version struct {
			ClusterID bson.ObjectID `bson:"clusterId"`
		}
		err := c.Driver().Database("config").Collection("version").FindOne(ctx, bson.D{}).Decode(&version)
		switch {
		case Denied(err), errors.Is(err, mongo.ErrNoDocuments): // not every user may read config
			return "sharded", nil
		case err != nil:
			return "", fmt.Errorf("identify MongoDB: %w", AsFault(err))
		}
		return "sharded/" + version.ClusterID.Hex(), nil
	}
	h, err := c.hello(ctx)
	if err != nil {
		return "", fmt.Errorf("identify MongoDB: %w", AsFault(err))
	}
	var config struct {
		Settings struct {
			ID bson.ObjectID `bson:"replicaSetId"`
		} `bson:"settings"`
	}
	err = c.Driver().Database("local").Collection("system.replset").FindOne(ctx, bson.D{}).Decode(&config)
	if err != nil && !Denied(err) && !errors.Is(err, mongo.ErrNoDocuments) {
		return "", fmt.Errorf("identify MongoDB: %w", AsFault(err))
	}
	if config.Settings.ID.IsZero() { // not every user may read local
		return "replicaset/" + h.SetName, nil
	}
	return "replicaset/" + h.SetName + "/" + config.Settings.ID.Hex(), nil
}

// Identifies reports whether an identity has the deployment's id, and not only a name that others
// may have, too.
func Identifies(identity string) bool {
	name, id := path.Split(identity)
	_, err := bson.ObjectIDFromHex(id)
	return err == nil && (name == "sharded/" || strings.Count(name, "/") > 1)
}

// FirstEntry returns the time of the oldest entry of the oplog: the log reaches back to that time.
// Through mongos, and without the right to read local, it is unknown: ok is false. From then on the
// client is blind, until it has the right.
func (c *Client) FirstEntry(ctx context.Context) (t change.Timestamp, ok bool, err error) {
	if c.sharded {
		c.blind.Store(true)
		return t, false, nil
	}
	var entry struct {
		TS bson.Timestamp `bson:"ts"`
	}
	oplog := c.Driver().Database("local").Collection("oplog.rs", options.Collection().SetReadConcern(readconcern.Local()))
	err = oplog.FindOne(ctx, bson.D{}, options.FindOne().SetSort(bson.D{{Key: "$natural", Value: 1}}).SetProjection(bson.D{{Key: "ts", Value: 1}})).Decode(&entry)
	if server, isServer := err.(mongo.ServerError); isServer && server.HasErrorCode(codeUnauthorized) { //nolint:errorlint // the driver returns it bare
		if !c.blind.Swap(true) {
			c.logger.Warn("the oplog cannot be looked at; positions are proven by opening streams at their time", "code", fault.LogHidden)
		}
		return t, false, nil
	}
	if err != nil {
		return t, false, fmt.Errorf("read the oplog's first entry: %w", AsFault(err))
	}
	c.blind.Store(false)
	return change.Timestamp{T: entry.TS.T, I: entry.TS.I}, true, nil
}

// A Reach is the range of the deployment's oplog.
type Reach struct {
	// First is the time of the oldest entry, zero if it is unknown (see FirstEntry).
	First change.Timestamp
	// Last is the deployment's operation time; Majority is the time of the last operation that a
	// majority of the members has, zero through mongos.
	Last, Majority change.Timestamp
	// Slack is how much earlier Last may be than the times that streams have reported.
	Slack time.Duration
}

// shardSlack is how much earlier the operation time of one mongos may be than that of another:
// shards without writes contribute to it only every 10 s (periodicNoopIntervalSecs).
const shardSlack = 15 * time.Second

// Reach returns the present range of the oplog.
func (c *Client) Reach(ctx context.Context) (r Reach, err error) {
	if r.First, _, err = c.FirstEntry(ctx); err != nil {
		return r, err
	}
	if r.Last, err = c.Now(ctx); err != nil {
		return r, err
	}
	if c.sharded {
		r.Slack = shardSlack
		return r, nil
	}
	h, err := c.hello(ctx)
	if err != nil {
		return r, AsFault(err)
	}
	r.Majority = change.Timestamp{T: h.LastWrite.Majority.TS.T, I: h.LastWrite.Majority.TS.I}
	if last := (change.Timestamp{T: h.LastWrite.Last.TS.T, I: h.LastWrite.Last.TS.I}); last.Compare(r.Last) > 0 {
		r.Last = last
	}
	return r, nil
}

// Behind reports whether the deployment has not reached the time yet, so that a position of that
// time does not belong to its oplog. Only the seconds count, because the server may report the next
// operation's time before the operation happens.
func (r Reach) Behind(t change.Timestamp) bool {
	return t.Time().Sub(r.Last.Time()) > r.Slack
}

// CloseTimeout bounds how long closing waits for the server.
const CloseTimeout = 5 * time.Second

// Close disconnects.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.mu.members {
		m.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), CloseTimeout)
	defer cancel()
	for _, pool := range c.mu.pools {
		if err := pool.Driver().Disconnect(ctx); err != nil {
			c.logger.Warn("disconnect from MongoDB", "error", err)
		}
	}
}
