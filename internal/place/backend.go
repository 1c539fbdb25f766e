package place

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

// Backend says where the configuration keeps checkpoints and, once it is connected, which etcd it leads to.
func (p *Place) Backend() checkpoint.Backend {
	b := checkpoint.Backend{Store: p.Config.Reliability.Checkpoint.Backend}
	if p.etcd != nil {
		b = b.With(p.etcd.Backend())
	}
	return b
}

// Verify reads the origin, of whatever number of partitions, and holds the configuration against it: the fault ClusterBackend says that the
// cluster keeps its checkpoints elsewhere, ClusterOrigin that its nodes use another etcd, or another prefix there. Where there is no origin it is
// ErrNoOrigin, unless there is one where the other backend keeps checkpoints. It writes nothing.
func (p *Place) Verify(ctx context.Context) (checkpoint.Origin, error) {
	o, err := p.anyNumber().Origin(ctx)
	none := errors.Is(err, checkpoint.ErrNoOrigin)
	if err != nil && !none {
		return o, err
	}
	if none || o.Backend.Store == "" {
		there, err := p.elsewhere(ctx)
		if none && err == nil && there.Backend.Store == p.Backend().Store { // perhaps another node has just written both
			if o, err = p.anyNumber().Origin(ctx); err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
				return o, err
			}
			none, err = err != nil, nil
		}
		switch {
		case err != nil && none:
			return o, err
		case err == nil && (none || o.Cluster == there.Cluster) && p.contradicts(o, there):
			return o, fault.Newf(fault.ClusterBackend, "the checkpoints of cluster %s are in %s, as far as its origin tells; reliability.checkpoint.backend is %s",
				p.Config.Cluster.ID, orOther(there.Backend.Store, p.Backend().Store), p.Backend().Store)
		}
	}
	if none {
		return o, err
	}
	if err := p.differs(o.Backend); err != nil || !p.inMongo() || p.etcd == nil || o.Backend.ID == "" {
		return o, err
	}
	there, err := etcd.NewStore(p.etcd, 0).Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return o, noCopy(o.Backend)
	}
	if err != nil {
		return o, err
	}
	return o, otherEtcd(p.Config.Cluster.ID, o.Backend, checkpoint.Backend{ID: there.Backend.ID}.With(p.Backend()))
}

// noCopy says that an etcd has no copy of an origin that names the etcd of its nodes.
func noCopy(b checkpoint.Backend) error {
	return fault.Newf(fault.ClusterOrigin, "the nodes of the cluster use etcd %s below %s; this etcd has no origin of them", called(b), b.Prefix)
}

// contradicts reports whether an origin where the other backend keeps checkpoints says that they are not where the configuration has them: where
// there is none here, whatever it says. Marks in MongoDB that are shared through etcd have an origin in both.
func (p *Place) contradicts(here, there checkpoint.Origin) bool {
	mine := p.Backend().Store
	return here.Cluster == "" || there.Backend.Store != mine && (there.Backend.Store != "" || mine == checkpoint.BackendEtcd)
}

func orOther(store, mine string) string {
	switch {
	case store != "":
		return store
	case mine == checkpoint.BackendEtcd:
		return checkpoint.BackendMongo
	}
	return checkpoint.BackendEtcd
}

// differs returns the fault for which this place is not that of an origin, as far as both are known.
func (p *Place) differs(stands checkpoint.Backend) error {
	mine, id := p.Backend(), p.Config.Cluster.ID
	if stands.Store != "" && stands.Store != mine.Store {
		return fault.Newf(fault.ClusterBackend, "the checkpoints of cluster %s are in %s; reliability.checkpoint.backend is %s", id, stands.Store, mine.Store)
	}
	return otherEtcd(id, stands, mine)
}

// otherEtcd returns the fault ClusterOrigin where two backends name different etcds, as far as both are known.
func otherEtcd(cluster string, stands, found checkpoint.Backend) error {
	if found.With(stands) == stands.With(found) {
		return nil
	}
	return fault.Newf(fault.ClusterOrigin, "the nodes of cluster %s use etcd %s below %s; this is etcd %s below %s", cluster,
		called(stands), stands.Prefix, called(found), found.Prefix)
}

// called names an etcd.
func called(b checkpoint.Backend) string {
	if b.ID == "" {
		return b.Etcd
	}
	return b.Etcd + " (" + b.ID + ")"
}

// Settle returns the origin of a node's cluster. Where there is none, first makes it. What one does not say of its backend, because it was
// written by an earlier version or by a node without etcd, is completed by the first node that finds it so. Faults are those of Verify, and
// MarkSource where the checkpoints are of another deployment than source.
func (p *Place) Settle(
	ctx context.Context, source string, first func(context.Context) (checkpoint.Origin, error),
) (checkpoint.Origin, error) {
	o, err := p.Verify(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNoOrigin):
		if o, err = first(ctx); err != nil {
			return o, err
		}
		o.Backend = p.First()
		o, err = p.Store.Create(ctx, o)
	case err == nil && !o.Of(source):
		err = fault.Newf(fault.CheckpointSource, "the checkpoints of cluster %s are of %s, mongodb.uri leads to %s", p.Config.Cluster.ID, o.Source, source)
	case err == nil:
		o, err = p.Store.Origin(ctx) // of the number of partitions that is configured
	}
	if err == nil && o.Backend.Store == "" {
		o, err = p.Store.Complete(ctx, p.First())
	}
	if err == nil {
		err = p.differs(o.Backend)
	}
	if two, are := p.Store.(pair); err == nil && are {
		return two.agree(ctx, o, p.Backend())
	}
	return o, err
}

// First is the backend of an origin that is written here: which etcd shares the partitions of checkpoints in MongoDB is not said before that has a
// copy of the origin.
func (p *Place) First() checkpoint.Backend {
	b := p.Backend()
	if b.Store == checkpoint.BackendMongo {
		return checkpoint.Backend{Store: b.Store}
	}
	b.ID = rand.Text()
	return b
}

// anyNumber is where the checkpoints are, of whatever number of partitions.
func (p *Place) anyNumber() checkpoint.OriginKeeper {
	if cfg := p.Config; cfg.Reliability.Checkpoint.Backend == checkpoint.BackendMongo {
		return checkpoints.NewStore(p.mongo, cfg.Marks.Database, cfg.Cluster.ID, 0)
	}
	return etcd.NewStore(p.etcd, 0)
}

// An another is where the other backend keeps the checkpoints of a cluster.
type another interface {
	checkpoint.OriginKeeper
	checkpoint.Adopter
}

// other connects to where the other backend keeps checkpoints, and returns nil where there is none that this configuration knows of.
func (p *Place) other(ctx context.Context) (another, error) {
	cfg := p.Config
	if cfg.Reliability.Checkpoint.Backend == checkpoint.BackendEtcd {
		client, err := p.Mongo(ctx)
		if err != nil {
			return nil, err
		}
		return checkpoints.NewStore(client, cfg.Marks.Database, cfg.Cluster.ID, 0), nil
	}
	if p.etcd == nil && slices.Equal(cfg.Etcd.Endpoints, []string{byDefault}) && !listens(ctx) {
		return nil, nil //nolint:nilnil // nobody has configured an etcd
	}
	client, err := p.Etcd(ctx)
	if err != nil {
		return nil, err
	}
	return etcd.NewStore(client, 0), nil
}

// byDefault is where etcd is looked for unless the configuration says otherwise.
const byDefault = "127.0.0.1:2379"

// listens reports whether anybody listens there.
func listens(ctx context.Context) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", byDefault)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// elsewhere returns the origin of the cluster where the other backend keeps checkpoints. It is ErrNoOrigin where there is none, and where there can
// be none that this user has written. An etcd that is configured and does not answer is the fault ClusterBackend: it may have one.
func (p *Place) elsewhere(ctx context.Context) (checkpoint.Origin, error) {
	keeper, err := p.other(ctx)
	if err == nil && keeper == nil {
		return checkpoint.Origin{}, checkpoint.ErrNoOrigin
	}
	var o checkpoint.Origin
	if err == nil {
		o, err = keeper.Origin(ctx)
	}
	switch fault.Of(err) {
	case fault.MongoUnauthorized, fault.MongoUnreachable:
		return o, checkpoint.ErrNoOrigin // who reads MongoDB's log reaches it, and checkpoints there would have been written by the same user
	case fault.EtcdUnreachable, fault.EtcdRefused:
		return o, fault.Newf(fault.ClusterBackend, "whether the checkpoints of cluster %s are in etcd cannot be known: %w", p.Config.Cluster.ID, err)
	default:
		return o, err
	}
}

// Nobody returns a *cluster.HeldError where a node has partitions of the cluster, whatever backend it is configured for.
func (p *Place) Nobody(ctx context.Context) error {
	keeper, err := p.other(ctx)
	if fault.Of(err) == fault.EtcdUnreachable || err == nil && keeper == nil && p.etcd == nil {
		return nil // who shares partitions through an etcd that is away has none for long
	}
	if err != nil {
		return err
	}
	store, inMongo := keeper.(*checkpoints.Store)
	if !inMongo {
		return etcd.NewRegistry(p.etcd).MakeWay(ctx, cluster.Identity{}, false)
	}
	err = checkpoints.NewRegistry(store).Vacate(ctx)
	if fault.Of(err) == fault.MongoUnauthorized {
		return nil
	}
	return err
}

// Moved makes the place that the configuration names that of the cluster's checkpoints, which have been carried there: an origin of the same cluster
// where the other backend keeps checkpoints says so, too, so that no node begins there. It raises the incarnation where it changes anything.
func (p *Place) Moved(ctx context.Context, by string) error {
	last, err := p.Store.Origin(ctx)
	if err != nil {
		return err
	}
	mine := p.First()
	there, err := p.elsewhere(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrNoOrigin) {
		return err
	}
	copied := err == nil && there.Cluster == last.Cluster && there.Backend.Store != mine.Store
	if last.Backend.Store == mine.Store && !copied {
		return nil
	}
	next := last
	next.Incarnation, next.At, next.By = max(last.Incarnation, there.Incarnation)+1, time.Now().UTC(), by
	next.Backend = mine
	if err := p.Store.Adopt(ctx, last, next); err != nil {
		return fmt.Errorf("take the checkpoints over: %w", err)
	}
	if _, both := p.Store.(pair); both || !copied {
		return nil
	}
	keeper, err := p.other(ctx)
	if err != nil {
		return err
	}
	next.Partitions, next.Backend = there.Partitions, checkpoint.Backend{Store: mine.Store}
	if err := keeper.Adopt(ctx, there, next); err != nil {
		return fmt.Errorf("say in %s that the checkpoints are in %s: %w", orOther("", mine.Store), mine.Store, err)
	}
	return nil
}

// A sole claims all partitions in MongoDB, as a cluster of one does.
type sole struct {
	*checkpoints.Registry

	at *Place
	// operator says that it is not for a node: where nodes share the partitions it is enough that none of them is there.
	operator bool
}

// Claim implements cluster.Registry. Where nodes share the partitions through etcd, it is looked there whether they are members still: who
// takes over ends their memberships, and an operator's claim is refused beside them. Nobody joins beside a claim that stands, so that it is
// made before.
func (s sole) Claim(ctx context.Context, m cluster.Identity, n int, ttl time.Duration, takeOver bool) ([]change.Epoch, error) {
	shared, err := s.Shared(ctx)
	if err != nil {
		return nil, err
	}
	if !(shared && takeOver) && !(s.operator && (shared || s.at.etcd != nil)) {
		return s.Registry.Claim(ctx, m, n, ttl, takeOver)
	}
	client, err := s.at.Etcd(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for the nodes that share the partitions: %w", err)
	}
	if _, err := s.at.Verify(ctx); err != nil {
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
