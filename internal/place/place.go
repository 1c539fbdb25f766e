package place

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/admin/move"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/bulletin"
	"github.com/mongostream/streamer/internal/etcd/council"
	etcdkeys "github.com/mongostream/streamer/internal/etcd/keyring"
	"github.com/mongostream/streamer/internal/etcd/owner"
	"github.com/mongostream/streamer/internal/etcd/transfer"
	"github.com/mongostream/streamer/internal/mongodb"
	mongokeys "github.com/mongostream/streamer/internal/mongodb/keyring"
	"github.com/mongostream/streamer/internal/mongodb/mark"
	"github.com/mongostream/streamer/internal/mongodb/stream"
)

// A Store is all that anybody asks of where marks are kept.
type Store interface {
	admin.Store
	admin.Repartitioner
}

// A Place is where the marks of a cluster are, and the MongoDB that they are about.
type Place struct {
	Config config.Config
	// Marks is where they are, Keys where the keys of cursors are, Owner who claims all partitions, Roster what several nodes have in
	// common, and is to be joined through Members; nil where there is no etcd. All are nil until OpenMarks.
	Marks  Store
	Keys   checkpoint.KeyKeeper
	Owner  cluster.Registry
	Roster roster.Store

	application string
	logger      *slog.Logger
	etcd        *etcd.Client
	mongo       *mongodb.Client
	lent        bool // the connection to MongoDB is somebody else's
}

// New makes a Place that is connected to nothing yet, for who calls himself that in MongoDB's log. The logger may be nil.
func New(cfg config.Config, application string, logger *slog.Logger) *Place {
	return &Place{Config: cfg, application: application, logger: cmp.Or(logger, slog.New(slog.DiscardHandler))}
}

// OpenMarks connects to the store of marks: to MongoDB only where they are there, so that marks in etcd can be looked at while MongoDB
// is away; to etcd where they are there, or where nodes share the partitions.
func (p *Place) OpenMarks(ctx context.Context) error {
	cfg := p.Config
	inMongo := cfg.Reliability.Checkpoint.Backend == config.BackendMongo
	if inMongo {
		client, err := p.Mongo(ctx)
		if err != nil {
			return err
		}
		store := mark.NewStore(client, cfg.Marks.Database, cfg.Cluster.ID, cfg.Cluster.Partitions)
		p.Marks, p.Keys, p.Owner = store, mongokeys.New(client, cfg.Marks.Database, cfg.Cluster.ID), mark.NewOwner(client, store)
	}
	if inMongo && cfg.Cluster.ExpectedNodes < 2 {
		return nil
	}
	if _, err := p.OpenRoster(ctx); err != nil {
		return err
	}
	client := p.etcd
	store := etcd.NewStore(client, cfg.Cluster.Partitions)
	p.Owner = owner.NewRegistry(client)
	if marks, there := p.Marks.(*mark.Store); there {
		p.Marks = pair{
			Store: marks, etcd: store, roster: p.Roster, stands: etcd.NewStore(client, 0).Origin,
			found: func(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
				return etcd.NewStore(client, o.Partitions).Found(ctx, o)
			},
		}
	} else {
		p.Marks, p.Keys = store, etcdkeys.New(client)
	}
	return nil
}

// OpenAsFound opens the marks again for as many partitions as they are of, which the configuration says from then on, whatever it has said.
// Where there are no marks it is the fault ClusterUnknown. OpenMarks comes first.
func (p *Place) OpenAsFound(ctx context.Context) error {
	var keeper checkpoint.OriginKeeper
	if cfg := p.Config; cfg.Reliability.Checkpoint.Backend == config.BackendMongo {
		keeper = mark.NewStore(p.mongo, cfg.Marks.Database, cfg.Cluster.ID, 0)
	} else {
		keeper = etcd.NewStore(p.etcd, 0)
	}
	origin, err := admin.ReadOrigin(ctx, keeper)
	if err != nil || origin.Partitions == p.Config.Cluster.Partitions {
		return err
	}
	p.Config.Cluster.Partitions = origin.Partitions
	return p.OpenMarks(ctx)
}

// OpenRoster connects to etcd alone and returns what several nodes have in common.
func (p *Place) OpenRoster(ctx context.Context) (roster.Store, error) {
	client, err := p.Etcd(ctx)
	if err != nil {
		return nil, err
	}
	p.Roster = council.New(client, council.Config{Partitions: p.Config.Cluster.Partitions, ElectionTTL: p.Config.Cluster.LeaseTTL})
	return p.Roster, nil
}

// Agree makes sure that wherever the origin stands it is this one: where marks in MongoDB are shared through etcd it is there too, and is
// written there where it is missing. The fault ClusterOrigin says that it is another.
func (p *Place) Agree(ctx context.Context, o checkpoint.Origin) error {
	if two, are := p.Marks.(pair); are {
		return two.Agree(ctx, o)
	}
	return nil
}

// UseMongo gives the place a connection to MongoDB, which remains its owner's to close.
func (p *Place) UseMongo(client *mongodb.Client) { p.mongo, p.lent = client, true }

// Members returns the roster for who joins it, nil where there is no etcd. OpenMarks comes first.
func (p *Place) Members() roster.Store {
	if two, are := p.Marks.(pair); are {
		return members{p.Roster, mark.NewOwner(p.mongo, two.Store)}
	}
	return p.Roster
}

// Ledger returns where handoffs are written down, nil where there is no etcd. OpenMarks comes first.
func (p *Place) Ledger() *transfer.Keeper {
	if p.Roster == nil {
		return nil
	}
	return transfer.New(p.etcd, p.Config.Cluster.Partitions, p.Marks)
}

// Shared returns the cluster as operators who move partitions see it. Where nodes share nothing it is the fault CommandBadArgument. OpenMarks
// comes first.
func (p *Place) Shared() (move.Cluster, error) {
	council, shared := p.Roster.(*council.Store)
	if !shared || p.Config.Cluster.ExpectedNodes < 2 {
		return move.Cluster{}, fault.Newf(fault.CommandBadArgument, "cluster.expected_nodes is 1: a node that is alone has everything")
	}
	notices := bulletin.New(p.etcd, bulletin.Config{Process: "operator", Keep: p.Config.Notices.Keep})
	return move.Cluster{Roster: council, Wisher: council, Ledger: p.Ledger(), History: notices}, nil
}

// Mongo returns the connection to MongoDB, which is made when it is first asked for.
func (p *Place) Mongo(ctx context.Context) (*mongodb.Client, error) {
	if p.mongo != nil {
		return p.mongo, nil
	}
	cfg := p.Config
	client, err := mongodb.Dial(ctx, mongodb.Config{
		URI: string(cfg.MongoDB.URI), Application: "streamer " + cfg.Cluster.ID + "/" + p.application,
		SelectionTimeout: cfg.MongoDB.ServerSelectionTimeout, Logger: p.logger,
	})
	if err != nil {
		return nil, err
	}
	p.mongo = client
	return client, nil
}

// Etcd returns the connection to etcd, which is made when it is first asked for.
func (p *Place) Etcd(ctx context.Context) (*etcd.Client, error) {
	if p.etcd != nil {
		return p.etcd, nil
	}
	cfg := p.Config.Etcd
	client, err := etcd.Dial(ctx, etcd.Config{
		Endpoints: cfg.Endpoints, Prefix: cfg.Prefix, Cluster: p.Config.Cluster.ID, Username: cfg.Username, Password: string(cfg.Password),
		CAFile: cfg.TLS.CAFile, CertFile: cfg.TLS.CertFile, KeyFile: cfg.TLS.KeyFile, DialTimeout: cfg.DialTimeout,
	})
	if err != nil {
		return nil, err
	}
	p.etcd = client
	return client, nil
}

// Probe opens and closes a change stream as a node does when it starts.
func (p *Place) Probe(ctx context.Context) error {
	client, err := p.Mongo(ctx)
	if err != nil {
		return err
	}
	source, err := stream.NewSource(stream.SourceConfig{Watch: Watch(p.Config), MaxStreams: p.Config.MongoDB.MaxStreams}, client)
	if err != nil {
		return err
	}
	return source.Probe(ctx)
}

// Close ends the connections.
func (p *Place) Close() {
	if p.etcd != nil {
		if err := p.etcd.Close(); err != nil {
			p.logger.Warn("disconnect from etcd", "error", err)
		}
	}
	if p.mongo != nil && !p.lent {
		p.mongo.Close()
	}
}

// Watch says what of the deployment is read. Our own marks are not.
func Watch(cfg config.Config) stream.Watch {
	m := cfg.MongoDB
	w := stream.Watch{Namespaces: m.Watch, Operations: m.Operations, Exclude: cfg.Marks.Database}
	if m.FullDocument != "default" {
		w.FullDocument = m.FullDocument
	}
	if m.FullDocumentBeforeChange != "off" {
		w.BeforeChange = m.FullDocumentBeforeChange
	}
	return w
}

// FirstOf returns the first of joined errors, with the number of the others: one is enough to act upon.
func FirstOf(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) < 2 {
		return err
	}
	return fmt.Errorf("%w (and %d more like it)", joined.Unwrap()[0], len(joined.Unwrap())-1)
}
