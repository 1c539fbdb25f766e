package clustertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// A membership is a place in a Memory.
type membership struct {
	view

	member, process string
	lease           *lease
	ttl             time.Duration
}

var _ cluster.Membership = (*membership)(nil)

// do runs a call while the lease exists.
func (m *membership) do(ctx context.Context, what func() error) error {
	return m.call(ctx, m.of, func() error {
		if m.lease.over {
			return cluster.ErrLeft
		}
		return what()
	})
}

// Renew implements [cluster.Membership].
func (m *membership) Renew(ctx context.Context) (time.Duration, error) {
	err := m.do(ctx, func() error {
		m.lease.until = m.clock() + m.ttl
		return nil
	})
	if err != nil {
		return 0, err
	}
	return m.ttl, nil
}

// Beat implements [cluster.Membership].
func (m *membership) Beat(ctx context.Context, h cluster.Heartbeat) error {
	return m.do(ctx, func() error {
		s := m.mu.seats[m.member]
		s.Heartbeat = cloned(h)
		s.Garbled = nil
		s.Beat = m.wrote()
		return nil
	})
}

// Claim implements [cluster.Membership].
func (m *membership) Claim(ctx context.Context, partitions []change.Partition) (owners []cluster.Owner, err error) {
	err = m.do(ctx, func() error {
		if i := slices.IndexFunc(partitions, func(p change.Partition) bool { return int(p) >= m.partitions }); i >= 0 {
			return fmt.Errorf("claim partition %d of %d", partitions[i], m.partitions)
		}
		if why := m.mu.unclaimable[m.member]; why != nil {
			return why
		}
		free := func(p change.Partition) bool { return !m.owned(p) }
		if slices.ContainsFunc(partitions, free) {
			epoch := change.Epoch{Incarnation: 1, Revision: uint64(m.wrote())}
			for _, p := range partitions {
				if free(p) {
					m.mu.owners[p] = owner{cluster.Owner{Node: m.member, Process: m.process, Epoch: epoch}, m.lease}
				}
			}
		}
		for _, p := range partitions {
			owners = append(owners, m.mu.owners[p].Owner)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return owners, nil
}

// Transfer implements [cluster.Membership].
func (m *membership) Transfer(ctx context.Context, to cluster.Member, partitions []change.Partition,
	epochs []change.Epoch) (owners []cluster.Owner, err error) {
	err = m.do(ctx, func() error {
		other, there := m.mu.seats[to.Node]
		if !there || other.Process != to.Process {
			return cluster.ErrAbsent
		}
		var epoch change.Epoch
		for i, p := range partitions {
			if o := m.mu.owners[p]; o.lease == m.lease && o.Epoch == epochs[i] {
				if epoch == (change.Epoch{}) {
					epoch = change.Epoch{Incarnation: 1, Revision: uint64(m.wrote())}
				}
				m.mu.owners[p] = owner{cluster.Owner{Node: to.Node, Process: to.Process, Epoch: epoch}, other.lease}
			}
			owners = append(owners, m.mu.owners[p].Owner)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return owners, nil
}

// Return implements [cluster.Membership].
func (m *membership) Return(ctx context.Context, partitions []change.Partition, epochs []change.Epoch) error {
	return m.call(ctx, m.of, func() error {
		given := false
		for i, p := range partitions {
			if int(p) < m.partitions && m.mu.owners[p].lease == m.lease && m.mu.owners[p].Epoch == epochs[i] {
				m.mu.owners[p] = owner{}
				given = true
			}
		}
		if given {
			m.wrote()
		}
		return nil
	})
}

// Leave implements [cluster.Membership].
func (m *membership) Leave(ctx context.Context) error {
	return m.call(ctx, m.of, func() error {
		m.end(m.lease)
		return nil
	})
}
