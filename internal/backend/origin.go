package backend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/mongodb/checkpoints"
)

// Describe returns where the configuration keeps checkpoints and, once connected, the identity of
// its etcd.
func (c *Conn) Describe() checkpoint.Backend {
	b := checkpoint.Backend{Store: c.Config.Reliability.Checkpoint.Backend}
	if c.etcd != nil {
		b = b.With(c.etcd.Backend())
	}
	return b
}

// VerifyOrigin reads the origin, with any number of partitions, and compares the configuration with
// it. The fault ClusterBackend says that the cluster keeps its checkpoints elsewhere, ClusterOrigin
// that its nodes use another etcd or another prefix. Without an origin it returns ErrNoOrigin,
// unless the other backend has one. It writes nothing.
func (c *Conn) VerifyOrigin(ctx context.Context) (checkpoint.Origin, error) {
	o, err := c.originStore().Origin(ctx)
	none := errors.Is(err, checkpoint.ErrNoOrigin)
	if err != nil && !none {
		return o, err
	}
	if none || o.Backend.Store == "" {
		there, err := c.otherOrigin(ctx)
		if none && err == nil && there.Backend.Store == c.Describe().Store { // perhaps another node has just written both
			if o, err = c.originStore().Origin(ctx); err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
				return o, err
			}
			none = err != nil
			err = nil
		}
		isSame := none || o.Cluster == there.Cluster
		switch {
		case err != nil && none:
			return o, err
		case err == nil && isSame && c.conflicts(o, there):
			return o, fault.Newf(fault.ClusterBackend, "the checkpoints of cluster %s are in %s, as far as its origin tells; reliability.checkpoint.backend is %s",
				c.Config.Cluster.ID, storeOr(there.Backend.Store, c.Describe().Store), c.Describe().Store)
		}
	}
	if none {
		return o, err
	}
	hasCopy := c.inMongo() && c.etcd != nil && o.Backend.ID != ""
	if err := c.checkBackend(o.Backend); err != nil || !hasCopy {
		return o, err
	}
	there, err := etcd.NewStore(c.etcd, 0).Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return o, errNoCopy(o.Backend)
	}
	if err != nil {
		return o, err
	}
	return o, otherEtcd(c.Config.Cluster.ID, o.Backend, checkpoint.Backend{ID: there.Backend.ID}.With(c.Describe()))
}

// errNoCopy says that this etcd has no copy of an origin that names its nodes' etcd.
func errNoCopy(b checkpoint.Backend) error {
	return fault.Newf(fault.ClusterOrigin, "the nodes of the cluster use etcd %s below %s; this etcd has no origin of them", etcdName(b), b.Prefix)
}

// conflicts reports whether the origin in the other backend contradicts the configuration's
// backend. If there is no origin here, any origin there does. Checkpoints in MongoDB whose nodes
// share partitions through etcd have an origin in both.
func (c *Conn) conflicts(here, there checkpoint.Origin) bool {
	mine := c.Describe().Store
	return here.Cluster == "" || there.Backend.Store != mine && (there.Backend.Store != "" || mine == checkpoint.BackendEtcd)
}

func storeOr(store, mine string) string {
	switch {
	case store != "":
		return store
	case mine == checkpoint.BackendEtcd:
		return checkpoint.BackendMongo
	}
	return checkpoint.BackendEtcd
}

// checkBackend returns a fault if this backend is not the origin's, as far as both are known.
func (c *Conn) checkBackend(stands checkpoint.Backend) error {
	mine := c.Describe()
	id := c.Config.Cluster.ID
	if stands.Store != "" && stands.Store != mine.Store {
		return fault.Newf(fault.ClusterBackend, "the checkpoints of cluster %s are in %s; reliability.checkpoint.backend is %s", id, stands.Store, mine.Store)
	}
	return otherEtcd(id, stands, mine)
}

// otherEtcd returns the fault ClusterOrigin if two backends name different etcds, as far as both
// are known.
func otherEtcd(cluster string, stands, found checkpoint.Backend) error {
	if found.With(stands) == stands.With(found) {
		return nil
	}
	return fault.Newf(fault.ClusterOrigin, "the nodes of cluster %s use etcd %s below %s; this is etcd %s below %s", cluster,
		etcdName(stands), stands.Prefix, etcdName(found), found.Prefix)
}

// etcdName names an etcd.
func etcdName(b checkpoint.Backend) string {
	if b.ID == "" {
		return b.Etcd
	}
	return b.Etcd + " (" + b.ID + ")"
}

// EnsureOrigin returns the origin of a node's cluster. If there is none, first makes it. An origin
// that was written by an earlier version, or by a node without etcd, may lack parts of its backend;
// the first node that finds it so completes them. The faults are those of VerifyOrigin, and
// CheckpointSource if the checkpoints belong to another deployment than source.
func (c *Conn) EnsureOrigin(
	ctx context.Context, source string, first func(context.Context) (checkpoint.Origin, error),
) (checkpoint.Origin, error) {
	o, err := c.VerifyOrigin(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNoOrigin):
		if o, err = first(ctx); err != nil {
			return o, err
		}
		o.Backend = c.InitialBackend()
		o, err = c.Store.Create(ctx, o)
	case err == nil && !o.Of(source):
		err = fault.Newf(fault.CheckpointSource, "the checkpoints of cluster %s are of %s, mongodb.uri leads to %s", c.Config.Cluster.ID, o.Source, source)
	case err == nil:
		o, err = c.Store.Origin(ctx) // with the configured number of partitions
	}
	if err == nil && o.Backend.Store == "" {
		o, err = c.Store.Complete(ctx, c.InitialBackend())
	}
	if err == nil {
		err = c.checkBackend(o.Backend)
	}
	if two, are := c.Store.(sharedStore); err == nil && are {
		o, err = two.agree(ctx, o, c.Describe())
	}
	if err == nil && c.etcd != nil {
		c.etcd.Belong(o.Cluster)
	}
	return o, err
}

// InitialBackend returns the backend of a new origin. For checkpoints in MongoDB it does not name
// the etcd through which nodes share the partitions, because that etcd must have a copy of the
// origin first.
func (c *Conn) InitialBackend() checkpoint.Backend {
	b := c.Describe()
	if b.Store == checkpoint.BackendMongo {
		return checkpoint.Backend{Store: b.Store}
	}
	b.ID = rand.Text()
	return b
}

// originStore returns the checkpoint store, for any number of partitions.
func (c *Conn) originStore() checkpoint.OriginKeeper {
	if cfg := c.Config; cfg.Reliability.Checkpoint.Backend == checkpoint.BackendMongo {
		return checkpoints.NewStore(c.mongo, cfg.Reliability.Checkpoint.Database, cfg.Cluster.ID, 0)
	}
	return etcd.NewStore(c.etcd, 0)
}

// An originAdopter is the checkpoint store of the other backend.
type originAdopter interface {
	checkpoint.OriginKeeper
	checkpoint.Adopter
}

// otherStore connects to the checkpoint store of the other backend. It returns nil if the
// configuration does not lead to one.
func (c *Conn) otherStore(ctx context.Context) (originAdopter, error) {
	cfg := c.Config
	if cfg.Reliability.Checkpoint.Backend == checkpoint.BackendEtcd {
		client, err := c.Mongo(ctx)
		if err != nil {
			return nil, err
		}
		return checkpoints.NewStore(client, cfg.Reliability.Checkpoint.Database, cfg.Cluster.ID, 0), nil
	}
	if c.etcd == nil {
		isUnset := slices.Equal(cfg.Etcd.Endpoints, []string{defaultEndpoint})
		if len(cfg.Etcd.Endpoints) == 0 || isUnset && !listening(ctx) {
			return nil, nil //nolint:nilnil // no etcd is configured
		}
	}
	client, err := c.Etcd(ctx)
	if err != nil {
		return nil, err
	}
	return etcd.NewStore(client, 0), nil
}

// defaultEndpoint is the default address of etcd.
const defaultEndpoint = "127.0.0.1:2379"

// listening reports whether a server listens at the default endpoint.
func listening(ctx context.Context) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", defaultEndpoint)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// otherOrigin returns the origin of the cluster in the other backend. It returns ErrNoOrigin if
// there is none, or if this user cannot have written one. If a configured etcd does not answer, it
// returns the fault ClusterBackend, because that etcd may have one.
func (c *Conn) otherOrigin(ctx context.Context) (checkpoint.Origin, error) {
	keeper, err := c.otherStore(ctx)
	if err == nil && keeper == nil {
		return checkpoint.Origin{}, checkpoint.ErrNoOrigin
	}
	var o checkpoint.Origin
	if err == nil {
		o, err = keeper.Origin(ctx)
	}
	switch fault.Of(err) {
	case fault.MongoUnauthorized, fault.MongoUnreachable:
		return o, checkpoint.ErrNoOrigin // a node that reads the oplog reaches MongoDB, and the same user would have written checkpoints there
	case fault.EtcdUnreachable, fault.EtcdRefused:
		return o, fault.Newf(fault.ClusterBackend, "whether the checkpoints of cluster %s are in etcd cannot be known: %w", c.Config.Cluster.ID, err)
	default:
		return o, err
	}
}

// CheckVacant returns a *cluster.HeldError if a node owns partitions of the cluster, whatever its
// backend.
func (c *Conn) CheckVacant(ctx context.Context) error {
	keeper, err := c.otherStore(ctx)
	hasNoOther := err == nil && keeper == nil && c.etcd == nil
	if fault.Of(err) == fault.EtcdUnreachable || hasNoOther {
		return nil // nodes that share partitions through an unreachable etcd soon lose them
	}
	if err != nil {
		return err
	}
	store, inMongo := keeper.(*checkpoints.Store)
	if !inMongo {
		return etcd.NewRegistry(c.etcd).MakeWay(ctx, cluster.Identity{}, false)
	}
	err = checkpoints.NewRegistry(store).Vacate(ctx)
	if fault.Of(err) == fault.MongoUnauthorized {
		return nil
	}
	return err
}

// RecordMove records that the cluster's checkpoints have moved to the configured backend. It also
// records this in the other backend's origin of the same cluster, so that no node starts there. It
// raises the incarnation if it changes anything.
func (c *Conn) RecordMove(ctx context.Context, by string) error {
	last, err := c.Store.Origin(ctx)
	if err != nil {
		return err
	}
	mine := c.InitialBackend()
	there, err := c.otherOrigin(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
		return err
	}
	copied := err == nil && there.Cluster == last.Cluster && there.Backend.Store != mine.Store
	if last.Backend.Store == mine.Store && !copied {
		return nil
	}
	next := last
	next.Incarnation = max(last.Incarnation, there.Incarnation) + 1
	next.At = time.Now().UTC()
	next.By = by
	next.Backend = mine
	if err := c.Store.Adopt(ctx, last, next); err != nil {
		return fmt.Errorf("take the checkpoints over: %w", err)
	}
	if _, both := c.Store.(sharedStore); both || !copied {
		return nil
	}
	keeper, err := c.otherStore(ctx)
	if err != nil {
		return err
	}
	next.Partitions = there.Partitions
	next.Backend = checkpoint.Backend{Store: mine.Store}
	if err := keeper.Adopt(ctx, there, next); err != nil {
		return fmt.Errorf("say in %s that the checkpoints are in %s: %w", storeOr("", mine.Store), mine.Store, err)
	}
	return nil
}

// A soleOwner claims all partitions in MongoDB, for a cluster of one node.
type soleOwner struct {
	*checkpoints.Registry

	conn *Conn
	// operator says that the claim is for an operator, not for a node: if nodes share the
	// partitions, it is enough that none of them is running.
	operator bool
}

// Claim implements cluster.Registry. If nodes share the partitions through etcd, it checks there
// whether they are still members: a takeover ends their memberships, and an operator's claim fails
// while they exist. The claim is written before the last check, because no member can join while a
// claim is valid.
func (s soleOwner) Claim(ctx context.Context, m cluster.Identity, n int, ttl time.Duration, takeOver bool) ([]change.Epoch, error) {
	shared, err := s.Shared(ctx)
	if err != nil {
		return nil, err
	}
	takesOver := shared && takeOver
	isOperators := s.operator && (shared || s.conn.etcd != nil)
	if !takesOver && !isOperators {
		return s.Registry.Claim(ctx, m, n, ttl, takeOver)
	}
	client, err := s.conn.Etcd(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for the nodes that share the partitions: %w", err)
	}
	if _, err := s.conn.VerifyOrigin(ctx); err != nil {
		return nil, err
	}
	members := etcd.NewRegistry(client)
	if !takeOver {
		if err := members.MakeWay(ctx, m, false); err != nil {
			return nil, err
		}
	}
	epochs, err := s.ClaimAnyway(ctx, m, n, ttl, takeOver)
	if err != nil {
		return nil, err
	}
	err = members.MakeWay(ctx, m, takeOver)
	if err == nil && takeOver {
		err = s.Unshare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Release(context.WithoutCancel(ctx)))
	}
	return epochs, nil
}
