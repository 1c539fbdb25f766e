package backend

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/checkpoints"
	"github.com/mongostream/streamer/internal/mongodb/stream"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/supervisor"
)

// A Store is the complete interface of a checkpoint store.
type Store interface {
	checkpoint.Store
	checkpoint.Claimer
	checkpoint.Rewinder
	checkpoint.OriginKeeper
	checkpoint.Adopter
	checkpoint.GapKeeper
	// Repartition replaces the origin last with next, which may have another number of partitions,
	// and removes the checkpoints of shared subscribers, so that each of their partitions begins at
	// next's start. It returns the new origin, whose incarnation may be higher. It is atomic. A
	// store that consists of two may end half-way; then no node starts until Repartition is called
	// again. The fault NodeRunning reports a running node; checkpoint.ErrOriginMoved reports that
	// the origin is not last, or that a checkpoint has moved back before next's start meanwhile.
	Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error)
}

// A Conn connects to a cluster's checkpoint store and to its MongoDB deployment.
type Conn struct {
	Config config.Config
	// Store holds the checkpoints. Owner claims all partitions for a single node. Roster is the
	// state that several nodes share, which a node joins through Members; it is nil without etcd.
	// All are nil until OpenStore.
	Store  Store
	Owner  cluster.Registry
	Roster cluster.Store

	application   string
	logger        *slog.Logger
	etcd          *etcd.Client
	mongo         *mongodb.Client
	borrowedMongo bool // the caller of UseMongo closes the connection to MongoDB
}

// New makes a Conn without any connection yet. MongoDB's log names the application. The logger may
// be nil.
func New(cfg config.Config, application string, logger *slog.Logger) *Conn {
	return &Conn{Config: cfg, application: application, logger: cmp.Or(logger, slog.New(slog.DiscardHandler))}
}

// OpenStore connects a node to the checkpoint store. It connects to MongoDB only if the checkpoints
// are there, so that checkpoints in etcd are readable while MongoDB is unreachable. It connects to
// etcd if the checkpoints are there, or if the configuration says that nodes share the partitions.
func (c *Conn) OpenStore(ctx context.Context) error {
	return c.open(ctx, c.Config.Cluster.ExpectedNodes > 1)
}

// OpenForOperator connects an operator to the checkpoint store. The store, not the configuration,
// decides whether nodes share the partitions. With nodes set, it also connects to their etcd. The
// faults are those of VerifyOrigin; after one of them the Conn is open nevertheless.
func (c *Conn) OpenForOperator(ctx context.Context, nodes bool) error {
	several := nodes && c.Config.Cluster.ExpectedNodes > 1
	if nodes && c.inMongo() {
		shared, err := c.shared(ctx)
		if err != nil {
			return err
		}
		several = several || shared
	}
	if err := c.open(ctx, several); err != nil {
		return err
	}
	if claims, alone := c.Owner.(soleOwner); alone {
		claims.operator = true
		c.Owner = claims
	}
	_, err := c.VerifyOrigin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return nil // most commands report this themselves
	}
	return err
}

func (c *Conn) inMongo() bool { return c.Config.Reliability.Checkpoint.Backend == config.BackendMongo }

// shared reports whether nodes have recorded in MongoDB that they share the partitions.
func (c *Conn) shared(ctx context.Context) (bool, error) {
	store, err := c.openMongo(ctx)
	if err != nil {
		return false, err
	}
	return checkpoints.NewRegistry(store).Shared(ctx)
}

// openMongo connects to the checkpoint store in MongoDB.
func (c *Conn) openMongo(ctx context.Context) (*checkpoints.Store, error) {
	client, err := c.Mongo(ctx)
	if err != nil {
		return nil, err
	}
	cfg := c.Config
	return checkpoints.NewStore(client, cfg.Reliability.Checkpoint.Database, cfg.Cluster.ID, cfg.Cluster.Partitions), nil
}

// open connects to the checkpoint store, and to etcd if several nodes share the partitions.
func (c *Conn) open(ctx context.Context, several bool) error {
	cfg := c.Config
	var kept *checkpoints.Store
	if c.inMongo() {
		var err error
		if kept, err = c.openMongo(ctx); err != nil {
			return err
		}
		c.Store = kept
		c.Owner = soleOwner{Registry: checkpoints.NewRegistry(kept), conn: c}
		if !several {
			return nil
		}
	}
	if _, err := c.OpenRoster(ctx); err != nil {
		return err
	}
	client := c.etcd
	store := etcd.NewStore(client, cfg.Cluster.Partitions)
	if kept == nil {
		c.Store = store
		c.Owner = etcd.NewRegistry(client)
		return nil
	}
	c.Store = sharedStore{
		Store: kept, etcd: store, roster: c.Roster, stored: etcd.NewStore(client, 0).Origin,
		create: func(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
			return etcd.NewStore(client, o.Partitions).Create(ctx, o)
		},
		owner: checkpoints.NewRegistry(kept),
	}
	return nil
}

// OpenAsStored reopens an open Conn with the stored number of partitions, and sets it in Config. It
// returns the fault ClusterUnknown if there are no checkpoints.
func (c *Conn) OpenAsStored(ctx context.Context) error {
	origin, err := admin.ReadOrigin(ctx, c.originStore())
	if err != nil || origin.Partitions == c.Config.Cluster.Partitions {
		return err
	}
	c.Config.Cluster.Partitions = origin.Partitions
	_, several := c.Store.(sharedStore)
	return c.open(ctx, several)
}

// OpenRoster connects to etcd alone and returns the state that several nodes share.
func (c *Conn) OpenRoster(ctx context.Context) (cluster.Store, error) {
	client, err := c.Etcd(ctx)
	if err != nil {
		return nil, err
	}
	c.Roster = etcd.NewClusterStore(client, etcd.ClusterConfig{Partitions: c.Config.Cluster.Partitions, ElectionTTL: c.Config.Cluster.LeaseTTL})
	return c.Roster, nil
}

// UseMongo lends a connection to MongoDB to the Conn. The caller closes it.
func (c *Conn) UseMongo(client *mongodb.Client) { c.mongo, c.borrowedMongo = client, true }

// Members returns the roster for a node that joins it, nil without etcd. Call OpenStore first.
func (c *Conn) Members() cluster.Store {
	if two, are := c.Store.(sharedStore); are {
		return sharedRoster{c.Roster, checkpoints.NewRegistry(two.Store)}
	}
	return c.Roster
}

// OpenCluster returns the cluster for operators who move partitions. It returns the fault
// CommandBadArgument if one node owns all partitions. Call OpenForOperator first.
func (c *Conn) OpenCluster(ctx context.Context) (handoff.Cluster, error) {
	alone := fault.Newf(fault.CommandBadArgument, "the nodes of cluster %s do not share partitions: a single node owns all of them", c.Config.Cluster.ID)
	if c.inMongo() {
		if shared, err := c.shared(ctx); err != nil || !shared {
			return handoff.Cluster{}, cmp.Or(err, error(alone))
		}
	}
	if _, err := c.OpenRoster(ctx); err != nil {
		return handoff.Cluster{}, err
	}
	if _, err := c.VerifyOrigin(ctx); err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
		return handoff.Cluster{}, err
	}
	view, err := c.Roster.View(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
		return handoff.Cluster{}, err
	}
	if owned := slices.ContainsFunc(view.Owners, func(o cluster.Owner) bool { return o != (cluster.Owner{}) }); owned && len(view.Members) == 0 {
		return handoff.Cluster{}, alone
	}
	council := c.Roster.(*etcd.ClusterStore)
	notices := etcd.NewNoticeStore(c.etcd, etcd.NoticeConfig{Process: "operator", Keep: c.Config.Notices.Keep})
	return handoff.Cluster{View: council, Directives: council, Notices: notices, HeartbeatInterval: c.Config.Cluster.HeartbeatInterval}, nil
}

// Announce adds a notice to the cluster's history, from which its nodes read it. announced is false
// if there is no history, because a single node has its checkpoints in MongoDB. Call
// OpenForOperator first.
func (c *Conn) Announce(ctx context.Context, n notice.Notice) (announced bool, err error) {
	if c.inMongo() && c.Config.Cluster.ExpectedNodes <= 1 {
		if shared, err := c.shared(ctx); err != nil || !shared {
			return false, err
		}
	}
	client, err := c.Etcd(ctx)
	if err != nil {
		return false, err
	}
	n.ID = 1
	history := etcd.NewNoticeStore(client, etcd.NoticeConfig{Process: rand.Text(), Keep: c.Config.Notices.Keep, TTL: c.Config.Notices.TTL})
	err = history.Append(ctx, []notice.Notice{n})
	return err == nil, err
}

// Supervision returns the supervisor's store in etcd. It returns the fault CommandBadArgument if a
// single node has its checkpoints in MongoDB. Call OpenForOperator first.
func (c *Conn) Supervision(ctx context.Context) (supervisor.Store, error) {
	if c.inMongo() {
		if shared, err := c.shared(ctx); err != nil || !shared {
			return nil, cmp.Or(err, error(fault.Newf(fault.CommandBadArgument,
				"the node of cluster %s is alone and has no etcd: it keeps its reports to itself, at /v1/reports", c.Config.Cluster.ID)))
		}
	}
	client, err := c.Etcd(ctx)
	if err != nil {
		return nil, err
	}
	cfg := c.Config.Supervisor
	return etcd.NewSupervisionStore(client, etcd.SupervisionConfig{Window: cfg.RestartWindow, Retention: cfg.ReportRetention}), nil
}

// Mongo returns the connection to MongoDB. The first call connects.
func (c *Conn) Mongo(ctx context.Context) (*mongodb.Client, error) {
	if c.mongo != nil {
		return c.mongo, nil
	}
	cfg := c.Config
	client, err := mongodb.Dial(ctx, mongodb.Config{
		URI: string(cfg.MongoDB.URI), Application: "streamer " + cfg.Cluster.ID + "/" + c.application,
		SelectionTimeout: cfg.MongoDB.ServerSelectionTimeout, Logger: c.logger,
	})
	if err != nil {
		return nil, err
	}
	c.mongo = client
	return client, nil
}

// Alarms returns the names of the alarms that etcd has raised; none without etcd.
func (c *Conn) Alarms(ctx context.Context) ([]string, error) {
	if c.etcd == nil {
		return nil, nil
	}
	return etcd.Alarms(ctx, c.etcd)
}

// Etcd returns the connection to etcd. The first call connects.
func (c *Conn) Etcd(ctx context.Context) (*etcd.Client, error) {
	if c.etcd != nil {
		return c.etcd, nil
	}
	cfg := c.Config.Etcd
	client, err := etcd.Dial(ctx, etcd.Config{
		Endpoints: cfg.Endpoints, Prefix: cfg.Prefix, Cluster: c.Config.Cluster.ID, Username: cfg.Username, Password: string(cfg.Password),
		CAFile: cfg.TLS.CAFile, CertFile: cfg.TLS.CertFile, KeyFile: cfg.TLS.KeyFile, DialTimeout: cfg.DialTimeout,
		LeaseTTL: c.Config.Cluster.LeaseTTL, Logger: c.logger,
	})
	if err != nil {
		return nil, err
	}
	c.etcd = client
	return client, nil
}

// Probe opens and closes a change stream as a node does when it starts.
func (c *Conn) Probe(ctx context.Context) error {
	client, err := c.Mongo(ctx)
	if err != nil {
		return err
	}
	source, err := stream.NewSource(stream.SourceConfig{Watch: Watch(c.Config), MaxStreams: c.Config.MongoDB.MaxStreams}, client)
	if err != nil {
		return err
	}
	return source.Probe(ctx)
}

// Close ends the connections.
func (c *Conn) Close() {
	if c.etcd != nil {
		if err := c.etcd.Close(); err != nil {
			c.logger.Warn("etcd connection not closed", "error", err)
		}
	}
	if c.mongo != nil && !c.borrowedMongo {
		c.mongo.Close()
	}
}

// Watch returns the changes of the deployment that nodes read, without our own checkpoints.
func Watch(cfg config.Config) stream.Watch {
	m := cfg.MongoDB
	w := stream.Watch{Namespaces: m.Watch, Operations: m.Operations, Exclude: cfg.Reliability.Checkpoint.Database}
	if m.FullDocument != "default" {
		w.FullDocument = m.FullDocument
	}
	if m.FullDocumentBeforeChange != "off" {
		w.BeforeChange = m.FullDocumentBeforeChange
	}
	return w
}

// FirstError returns the first of joined errors, with the number of the others: one is enough to
// act upon.
func FirstError(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) < 2 {
		return err
	}
	return fmt.Errorf("%w (and %d more like it)", joined.Unwrap()[0], len(joined.Unwrap())-1)
}
