package place

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
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/admin/move"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/checkpoints"
	"github.com/mongostream/streamer/internal/mongodb/stream"
	"github.com/mongostream/streamer/notice"
)

// A Store is all that anybody asks of where checkpoints are kept.
type Store interface {
	checkpoint.Store
	checkpoint.Claimer
	checkpoint.Rewinder
	checkpoint.OriginKeeper
	checkpoint.Adopter
	checkpoint.GapKeeper
	// Repartition puts next, which may be of another number of partitions, in the place of last, and takes the checkpoints of shared
	// subscribers away, so that each of their partitions begins at next's start. It returns the origin that stands then, whose incarnation may
	// be higher. It is done or not done, whenever it ends; a store that is two may be half-way, where no node starts, and is asked again. The
	// fault NodeRunning says that a node is there; checkpoint.ErrOriginMoved that last does not stand, or that a checkpoint has moved back
	// before next's start meanwhile.
	Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error)
}

// A Place is where the checkpoints of a cluster are, and the MongoDB that they are about.
type Place struct {
	Config config.Config
	// Store is where they are, Owner who claims all partitions, Roster what several nodes have in common, and is to be joined through Members;
	// nil where there is no etcd. All are nil until OpenStore.
	Store  Store
	Owner  cluster.Registry
	Roster cluster.Store

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

// OpenStore connects a node to the store of checkpoints: to MongoDB only where they are there, so that checkpoints in etcd can be looked at while MongoDB
// is away; to etcd where they are there, or where the configuration says that nodes share the partitions.
func (p *Place) OpenStore(ctx context.Context) error {
	return p.open(ctx, p.Config.Cluster.ExpectedNodes > 1)
}

// OpenForOperator connects an operator to the store of checkpoints. Whether nodes share the partitions is what they have said there, whatever the
// configuration says; an operator who must know of all nodes reaches their etcd, too. The faults are those of Verify, after which the place is
// open all the same.
func (p *Place) OpenForOperator(ctx context.Context, nodes bool) error {
	several := nodes && p.Config.Cluster.ExpectedNodes > 1
	if nodes && p.inMongo() {
		shared, err := p.shared(ctx)
		if err != nil {
			return err
		}
		several = several || shared
	}
	if err := p.open(ctx, several); err != nil {
		return err
	}
	if claims, alone := p.Owner.(sole); alone {
		claims.operator = true
		p.Owner = claims
	}
	_, err := p.Verify(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return nil // most commands say so themselves
	}
	return err
}

func (p *Place) inMongo() bool { return p.Config.Reliability.Checkpoint.Backend == config.BackendMongo }

// shared reports whether nodes share the partitions of checkpoints in MongoDB, by their own account.
func (p *Place) shared(ctx context.Context) (bool, error) {
	store, err := p.openMongo(ctx)
	if err != nil {
		return false, err
	}
	return checkpoints.NewRegistry(store).Shared(ctx)
}

// openMongo connects to the store of checkpoints in MongoDB.
func (p *Place) openMongo(ctx context.Context) (*checkpoints.Store, error) {
	client, err := p.Mongo(ctx)
	if err != nil {
		return nil, err
	}
	cfg := p.Config
	return checkpoints.NewStore(client, cfg.Marks.Database, cfg.Cluster.ID, cfg.Cluster.Partitions), nil
}

// open connects to the store of checkpoints, and to etcd where several nodes share the partitions.
func (p *Place) open(ctx context.Context, several bool) error {
	cfg := p.Config
	var kept *checkpoints.Store
	if p.inMongo() {
		var err error
		if kept, err = p.openMongo(ctx); err != nil {
			return err
		}
		p.Store = kept
		p.Owner = sole{Registry: checkpoints.NewRegistry(kept), at: p}
		if !several {
			return nil
		}
	}
	if _, err := p.OpenRoster(ctx); err != nil {
		return err
	}
	client := p.etcd
	store := etcd.NewStore(client, cfg.Cluster.Partitions)
	if kept == nil {
		p.Store, p.Owner = store, etcd.NewRegistry(client)
		return nil
	}
	p.Store = pair{
		Store: kept, etcd: store, roster: p.Roster, stands: etcd.NewStore(client, 0).Origin,
		create: func(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
			return etcd.NewStore(client, o.Partitions).Create(ctx, o)
		},
		owner: checkpoints.NewRegistry(kept),
	}
	return nil
}

// OpenAsFound opens the checkpoints again for as many partitions as they are of, which the configuration says from then on, whatever it has said.
// Where there are no checkpoints it is the fault ClusterUnknown. The place has been opened before.
func (p *Place) OpenAsFound(ctx context.Context) error {
	origin, err := admin.ReadOrigin(ctx, p.anyNumber())
	if err != nil || origin.Partitions == p.Config.Cluster.Partitions {
		return err
	}
	p.Config.Cluster.Partitions = origin.Partitions
	_, several := p.Store.(pair)
	return p.open(ctx, several)
}

// OpenRoster connects to etcd alone and returns what several nodes have in common.
func (p *Place) OpenRoster(ctx context.Context) (cluster.Store, error) {
	client, err := p.Etcd(ctx)
	if err != nil {
		return nil, err
	}
	p.Roster = etcd.NewClusterStore(client, etcd.ClusterConfig{Partitions: p.Config.Cluster.Partitions, ElectionTTL: p.Config.Cluster.LeaseTTL})
	return p.Roster, nil
}

// UseMongo gives the place a connection to MongoDB, which remains its owner's to close.
func (p *Place) UseMongo(client *mongodb.Client) { p.mongo, p.lent = client, true }

// Members returns the cluster's store for who joins it, nil where there is no etcd. OpenStore comes first.
func (p *Place) Members() cluster.Store {
	if two, are := p.Store.(pair); are {
		return members{p.Roster, checkpoints.NewRegistry(two.Store)}
	}
	return p.Roster
}

// Shared returns the cluster as operators who move partitions see it. Where one node has all partitions it is the fault CommandBadArgument.
// OpenForOperator comes first.
func (p *Place) Shared(ctx context.Context) (move.Cluster, error) {
	alone := fault.Newf(fault.CommandBadArgument, "no nodes share the partitions of cluster %s: a node that is alone has everything", p.Config.Cluster.ID)
	if p.inMongo() {
		if shared, err := p.shared(ctx); err != nil || !shared {
			return move.Cluster{}, cmp.Or(err, error(alone))
		}
	}
	if _, err := p.OpenRoster(ctx); err != nil {
		return move.Cluster{}, err
	}
	if _, err := p.Verify(ctx); err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
		return move.Cluster{}, err
	}
	view, err := p.Roster.View(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
		return move.Cluster{}, err
	}
	if owned := slices.ContainsFunc(view.Owners, func(o cluster.Owner) bool { return o != (cluster.Owner{}) }); owned && len(view.Members) == 0 {
		return move.Cluster{}, alone
	}
	council := p.Roster.(*etcd.ClusterStore)
	notices := etcd.NewNoticeStore(p.etcd, etcd.NoticeConfig{Process: "operator", Keep: p.Config.Notices.Keep})
	return move.Cluster{Roster: council, Wisher: council, History: notices}, nil
}

// Announce puts a notice into the cluster's history, from where its nodes take it. It is false where they keep none, because one node alone has
// checkpoints in MongoDB. OpenForOperator comes first.
func (p *Place) Announce(ctx context.Context, n notice.Notice) (announced bool, err error) {
	if p.inMongo() && p.Config.Cluster.ExpectedNodes <= 1 {
		if shared, err := p.shared(ctx); err != nil || !shared {
			return false, err
		}
	}
	client, err := p.Etcd(ctx)
	if err != nil {
		return false, err
	}
	n.ID = 1
	history := etcd.NewNoticeStore(client, etcd.NoticeConfig{Process: rand.Text(), Keep: p.Config.Notices.Keep, TTL: p.Config.Notices.TTL})
	err = history.Append(ctx, []notice.Notice{n})
	return err == nil, err
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
		LeaseTTL: p.Config.Cluster.LeaseTTL, Logger: p.logger,
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

// Watch says what of the deployment is read. Our own checkpoints are not.
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
