package wiring

import (
	"cmp"
	"context"
	"log/slog"

	"mongostream/cluster"
	"mongostream/internal/admin"
	"mongostream/internal/config"
	"mongostream/internal/etcd"
	"mongostream/internal/etcd/owner"
	"mongostream/internal/mongodb"
	"mongostream/internal/mongodb/mark"
	"mongostream/internal/mongodb/stream"
)

// A Place is where the marks of a cluster are, and the MongoDB that they are about, for who looks after them without being a node.
type Place struct {
	Config config.Config
	// Marks is where they are, Owner who claims them. Both are nil until OpenMarks.
	Marks admin.Store
	Owner cluster.Registry

	logger *slog.Logger
	etcd   *etcd.Client
	mongo  *mongodb.Client
}

// NewPlace makes a Place that is connected to nothing yet. The logger may be nil.
func NewPlace(cfg config.Config, logger *slog.Logger) *Place {
	return &Place{Config: cfg, logger: cmp.Or(logger, slog.New(slog.DiscardHandler))}
}

// OpenMarks connects to the store of marks: to MongoDB only where they are there, so that marks in etcd can be looked at while MongoDB
// is away.
func (p *Place) OpenMarks(ctx context.Context) error {
	cfg := p.Config
	if cfg.Reliability.Checkpoint.Backend == config.BackendMongo {
		client, err := p.Mongo(ctx)
		if err != nil {
			return err
		}
		store := mark.NewStore(client, cfg.Marks.Database, cfg.Cluster.ID, cfg.Cluster.Partitions)
		p.Marks, p.Owner = store, mark.NewOwner(client, store)
		return nil
	}
	client, err := p.Etcd(ctx)
	if err != nil {
		return err
	}
	p.Marks, p.Owner = etcd.NewStore(client, cfg.Cluster.Partitions), owner.NewRegistry(client)
	return nil
}

// Mongo returns the connection to MongoDB, which is made when it is first asked for.
func (p *Place) Mongo(ctx context.Context) (*mongodb.Client, error) {
	if p.mongo != nil {
		return p.mongo, nil
	}
	cfg := p.Config
	client, err := mongodb.Dial(ctx, mongodb.Config{
		URI: string(cfg.MongoDB.URI), Application: "streamer " + cfg.Cluster.ID + "/operator",
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
	node := Service{opts: Options{Config: p.Config}}
	source, err := stream.NewSource(stream.SourceConfig{Watch: node.watch(), MaxStreams: p.Config.MongoDB.MaxStreams}, client)
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
	if p.mongo != nil {
		p.mongo.Close()
	}
}

// FirstOf returns the first of joined errors, with the number of the others: one is enough to act upon.
func FirstOf(err error) error { return firstOf(err) }
