package backend

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/mongodb/checkpoints"
)

// A sharedStore keeps checkpoints in MongoDB for nodes that share the partitions through etcd.
// Claims in etcd are valid under the origin there, so both have the origin; MongoDB's is
// authoritative.
type sharedStore struct {
	*checkpoints.Store

	etcd   *etcd.Store                                                         // has the origin and no checkpoints
	create func(context.Context, checkpoint.Origin) (checkpoint.Origin, error) // there, of any number of partitions
	stored func(context.Context) (checkpoint.Origin, error)                    // likewise
	roster cluster.Store
	owner  *checkpoints.Registry
}

// sharedRoster is a roster whose members keep their checkpoints in MongoDB.
type sharedRoster struct {
	cluster.Store

	owner *checkpoints.Registry
}

// Join implements cluster.Store. MongoDB records whether a single node owns everything.
func (m sharedRoster) Join(ctx context.Context, first cluster.Heartbeat, ttl time.Duration) (cluster.Membership, error) {
	who := cluster.Identity{Node: first.Node, Process: first.Process}
	if err := m.owner.Share(ctx, who); err != nil {
		return nil, err
	}
	membership, err := m.Store.Join(ctx, first, ttl)
	if err != nil {
		return nil, err
	}
	// A takeover claims in MongoDB and then ends the memberships in etcd, so a member that joins in
	// between sees the claim.
	if err := m.owner.MayShare(ctx, who); err != nil {
		return nil, errors.Join(err, membership.Leave(context.WithoutCancel(ctx)))
	}
	return membership, nil
}

// agree makes sure that etcd has a copy of the origin, and returns the valid origin. If the nodes
// have not agreed on an etcd yet, they use this one, mine, from then on. The fault ClusterOrigin
// says that they use another etcd, that the origins differ, or that new epochs there would be lower
// than those of the checkpoints; ClusterBackend says that the checkpoints are in etcd.
func (s sharedStore) agree(ctx context.Context, o checkpoint.Origin, mine checkpoint.Backend) (checkpoint.Origin, error) {
	there, err := s.copied(ctx, o, mine)
	if err != nil {
		return o, err
	}
	if there.Cluster != o.Cluster || there.Incarnation != o.Incarnation || there.Source != o.Source {
		return o, fault.Newf(fault.ClusterOrigin, "etcd has incarnation %d of %s, of %s; MongoDB has incarnation %d of %s, of %s",
			there.Incarnation, there.Cluster, there.Source, o.Incarnation, o.Cluster, o.Source)
	}
	if there.Backend.Store == checkpoint.BackendEtcd {
		return o, fault.Newf(fault.ClusterBackend, "the origin in etcd says that the checkpoints are there; reliability.checkpoint.backend is %s", mine.Store)
	}
	view, err := s.roster.View(ctx)
	if err != nil {
		return o, err
	}
	highest, err := s.Highest(ctx, int64(o.Incarnation))
	if err != nil {
		return o, err
	}
	if highest > view.Revision {
		return o, fault.Newf(fault.ClusterOrigin, "checkpoints are at epoch %d.%d, and etcd is at revision %d only", o.Incarnation, highest, view.Revision)
	}
	if there.Backend.ID == "" {
		if there, err = s.etcd.Complete(ctx, identified(mine)); err != nil {
			return o, err
		}
	}
	if o.Backend.ID == "" { // of nodes with two etcds, one is the first
		if o, err = s.Store.Complete(ctx, there.Backend); err != nil {
			return o, err
		}
	}
	return o, cmp.Or(otherEtcd(o.Cluster, o.Backend, there.Backend), otherEtcd(o.Cluster, o.Backend, mine))
}

// copied returns the copy of the origin in etcd. It makes the copy only while the nodes have not
// agreed on an etcd.
func (s sharedStore) copied(ctx context.Context, o checkpoint.Origin, mine checkpoint.Backend) (checkpoint.Origin, error) {
	if o.Backend.ID == "" {
		o.Backend = identified(mine)
		return s.etcd.Create(ctx, o)
	}
	there, err := s.etcd.Origin(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNoOrigin):
		err = errNoCopy(o.Backend)
	case fault.Of(err) == fault.CheckpointPartitions:
		if older, readErr := s.stored(ctx); readErr == nil && older.Incarnation < o.Incarnation {
			err = fault.Newf(fault.ClusterOrigin, "etcd has incarnation %d, of %d partitions; MongoDB has incarnation %d, of %d", older.Incarnation,
				older.Partitions, o.Incarnation, o.Partitions)
		}
	}
	return there, err
}

// identified returns the backend with an id of its own.
func identified(b checkpoint.Backend) checkpoint.Backend {
	b.ID = rand.Text()
	return b
}

// Adopt implements checkpoint.Adopter: first in MongoDB and then in etcd, with an incarnation that
// is new to both. If it ends half-way, no node starts until a second adoption completes it.
func (s sharedStore) Adopt(ctx context.Context, last, next checkpoint.Origin) error {
	there, err := s.stored(ctx)
	none := errors.Is(err, checkpoint.ErrNoOrigin)
	if err != nil && !none {
		return err
	}
	next.Incarnation = max(next.Incarnation, there.Incarnation+1)
	if err := s.Store.Adopt(ctx, last, next); err != nil {
		return err
	}
	next.Backend = next.Backend.With(last.Backend)
	switch {
	case none:
		_, err = s.etcd.Create(ctx, next)
	case there.Partitions != next.Partitions: // a single node has changed their number
		_, err = s.etcd.Repartition(ctx, there, next)
	default:
		err = s.etcd.Adopt(ctx, there, next)
	}
	if err != nil {
		return fmt.Errorf("MongoDB is at incarnation %d, etcd is not: adopt once more: %w", next.Incarnation, err)
	}
	return nil
}

// Repartition implements admin.Repartitioner: first in etcd, where nodes would be, and then in
// MongoDB, whose origin is authoritative. If it ends half-way, no node starts, whatever its
// configuration, until a second repartition completes it.
func (s sharedStore) Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error) {
	if err := s.owner.Vacate(ctx); err != nil { // a single node, which etcd does not know
		if held, is := errors.AsType[*cluster.HeldError](err); is {
			err = fault.New(fault.NodeRunning, held)
		}
		return checkpoint.Origin{}, err
	}
	there, err := s.stored(ctx)
	none := errors.Is(err, checkpoint.ErrNoOrigin)
	if err != nil && !none {
		return checkpoint.Origin{}, err
	}
	next.Incarnation = max(next.Incarnation, there.Incarnation+1)
	if none {
		_, err = s.create(ctx, next)
	} else {
		_, err = s.etcd.Repartition(ctx, there, next)
	}
	if err != nil {
		return checkpoint.Origin{}, err
	}
	stands, err := s.Store.Repartition(ctx, last, next)
	if err != nil {
		return checkpoint.Origin{}, fmt.Errorf("etcd has %d partitions by now, MongoDB has not: repartition once more: %w", next.Partitions, err)
	}
	return stands, nil
}
