package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
)

var (
	// ErrLeft reports that a membership has ended with its lease.
	ErrLeft = errors.New("the membership has ended")
	// ErrAbsent reports that a process is not a member.
	ErrAbsent = errors.New("no member")
	// ErrGone reports that the cluster's origin is missing: no member can own partitions, and no
	// node may create another cluster while a member is left.
	ErrGone = errors.New("the origin is gone")
	// ErrDeposed reports that a leadership is over: another node leads, or may lead.
	ErrDeposed = errors.New("deposed")
)

// A Store keeps the state of one cluster of N partitions. All methods may block on the network
// until the context ends.
type Store interface {
	// View reads everything at one revision. Unreadable heartbeats are Garbled; unreadable owners
	// and plans are errors.
	View(ctx context.Context) (View, error)
	// Hints returns a channel that holds one signal if something may have changed since the last
	// receive: after every observed change, and whenever the store may have missed changes. A
	// heartbeat that repeats its member's status is not worth a signal. The channel is closed after
	// the context has ended.
	Hints(ctx context.Context) <-chan struct{}
	// Join grants a lease of ttl and puts the member's first heartbeat under it. If another process
	// has the name, or owns everything as a single-node cluster, it returns a *cluster.HeldError.
	// Join first ends an earlier membership of the same process. An operator may end a membership
	// at any time.
	Join(ctx context.Context, first Heartbeat, ttl time.Duration) (Membership, error)
	// Campaign blocks until the node is elected, or fails; then call it again. Only members may
	// call it. The caller must resign the leadership, even after it was lost.
	Campaign(ctx context.Context, node string) (Leadership, error)
}

// A Membership is a member's place in the cluster, under a lease.
type Membership interface {
	// Renew extends the lease and returns its new duration, counted from the call. ErrLeft says
	// that the lease has ended for good; after any other error the outcome is unknown. Renew may
	// succeed although the membership was ended without its lease; Beat and Claim report this.
	Renew(ctx context.Context) (time.Duration, error)
	// Beat replaces the heartbeat. It returns ErrLeft if the lease has ended, another process has
	// the name, or the store's incarnation was raised.
	Beat(ctx context.Context, h Heartbeat) error
	// Claim takes partitions without an owner, each listed once, and returns the resulting owners
	// in order. Partitions whose Process is this member's are claimed, with new epochs unless it
	// owned them already under this lease; the others have other owners. ErrLeft is as for Beat.
	// After an error some may be claimed: claim again, or return those that the next view shows.
	Claim(ctx context.Context, partitions []change.Partition) ([]Owner, error)
	// Transfer makes another member the owner of partitions, each listed once, that this member
	// owns at the given epochs. The new owner gets them under its own lease and with new epochs.
	// Transfer returns the resulting owners in order: partitions whose Process is the other
	// member's are transferred. ErrLeft is as for Beat; ErrAbsent says that the other is not a
	// member. After an error some may be transferred; the next view shows which. The store passes
	// the span of ctx to the other member if it can.
	Transfer(ctx context.Context, to Member, partitions []change.Partition, epochs []change.Epoch) ([]Owner, error)
	// Return returns claimed partitions at the given epochs; it does not change others. It is
	// idempotent.
	Return(ctx context.Context, partitions []change.Partition, epochs []change.Epoch) error
	// Leave ends the lease, and with it the heartbeat and all claims. It is idempotent.
	Leave(ctx context.Context) error
}

// A Leadership is the result of a won election. Writes succeed only while it lasts; later ones
// return ErrDeposed.
type Leadership interface {
	// Lost is closed when the leadership is known to be over. It may be over before.
	Lost() <-chan struct{}
	// Publish replaces the plan whose version is one less. If the stored plan has another version,
	// it returns an error other than ErrDeposed; the next View shows that plan.
	Publish(ctx context.Context, p Plan) error
	// Evict takes a partition from an owner that still has it at the epoch; otherwise it does
	// nothing.
	Evict(ctx context.Context, p change.Partition, epoch change.Epoch) error
	// Resign ends the leadership, so that another is elected at once. It is idempotent.
	Resign(ctx context.Context) error
}
