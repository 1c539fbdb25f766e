package place

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/mongodb/mark"
)

// A pair is marks in MongoDB whose nodes share the partitions through etcd. What is claimed in etcd holds under the origin that stands
// there, so that the origin stands in both; MongoDB's is the one that counts.
type pair struct {
	*mark.Store

	etcd   *etcd.Store                                                         // has the origin and no marks
	found  func(context.Context, checkpoint.Origin) (checkpoint.Origin, error) // there, of any number of partitions
	stands func(context.Context) (checkpoint.Origin, error)                    // likewise
	roster roster.Store
}

// members is a roster whose members share marks in MongoDB.
type members struct {
	roster.Store

	owner *mark.Owner
}

// Join implements roster.Store. Who has everything as a cluster of one is to be found in MongoDB.
func (m members) Join(ctx context.Context, first roster.Heartbeat, ttl time.Duration) (roster.Membership, error) {
	if err := m.owner.Share(ctx, cluster.Member{Node: first.Node, Process: first.Process}); err != nil {
		return nil, err
	}
	return m.Store.Join(ctx, first, ttl)
}

// Found implements checkpoint.OriginKeeper.
func (s pair) Found(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
	stands, err := s.Store.Found(ctx, o)
	if err != nil {
		return stands, err
	}
	return stands, s.Agree(ctx, stands)
}

// Agree copies the origin to etcd where there is none, and returns the fault ClusterOrigin where another one stands, or where epochs that
// are given out there would be lower than those that marks have.
func (s pair) Agree(ctx context.Context, o checkpoint.Origin) error {
	there, err := s.etcd.Found(ctx, o)
	if err != nil {
		return err
	}
	if there.Cluster != o.Cluster || there.Incarnation != o.Incarnation || there.Source != o.Source {
		return fault.Newf(fault.ClusterOrigin, "etcd has incarnation %d of %s, of %s; MongoDB has incarnation %d of %s, of %s",
			there.Incarnation, there.Cluster, there.Source, o.Incarnation, o.Cluster, o.Source)
	}
	view, err := s.roster.View(ctx)
	if err != nil {
		return err
	}
	highest, err := s.Highest(ctx, int64(o.Incarnation))
	if err != nil {
		return err
	}
	if highest > view.Revision {
		return fault.Newf(fault.ClusterOrigin, "marks are at epoch %d.%d, and etcd is at revision %d only", o.Incarnation, highest, view.Revision)
	}
	return nil
}

// Adopt implements checkpoint.Adopter: in MongoDB and then in etcd, for an incarnation that is new to both. Where it ends half-way no node
// starts, and adopting again does the rest.
func (s pair) Adopt(ctx context.Context, last, next checkpoint.Origin) error {
	there, err := s.etcd.Origin(ctx)
	none := errors.Is(err, checkpoint.ErrNoOrigin)
	if err != nil && !none {
		return err
	}
	next.Incarnation = max(next.Incarnation, there.Incarnation+1)
	if err := s.Store.Adopt(ctx, last, next); err != nil {
		return err
	}
	if none {
		_, err = s.etcd.Found(ctx, next)
	} else {
		err = s.etcd.Adopt(ctx, there, next)
	}
	if err != nil {
		return fmt.Errorf("MongoDB is at incarnation %d, etcd is not: adopt once more: %w", next.Incarnation, err)
	}
	return nil
}

// Repartition implements admin.Repartitioner: in etcd, where nodes would be, and then in MongoDB, whose origin counts. Where it ends half-way
// no node starts, whatever it is configured for, and repartitioning again does the rest.
func (s pair) Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error) {
	there, err := s.stands(ctx)
	none := errors.Is(err, checkpoint.ErrNoOrigin)
	if err != nil && !none {
		return checkpoint.Origin{}, err
	}
	next.Incarnation = max(next.Incarnation, there.Incarnation+1)
	if none {
		_, err = s.found(ctx, next)
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
