package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
)

var (
	// ErrLeft says that a membership is gone: its lease has ended.
	ErrLeft = errors.New("the membership has ended")
	// ErrAbsent says that a process is no member.
	ErrAbsent = errors.New("no member")
	// ErrGone says that the cluster's origin is gone: nothing can be owned, and nobody may found
	// another cluster while a member is left.
	ErrGone = errors.New("the origin is gone")
	// ErrDeposed says that a leadership is over: somebody else leads, or may.
	ErrDeposed = errors.New("deposed")
)

// A Store keeps the state of one cluster of N partitions. All methods may block on the network
// until the context ends.
type Store interface {
	// View reads everything at one revision. Heartbeats that cannot be read are Garbled; owners and
	// plans that cannot are errors.
	View(ctx context.Context) (View, error)
	// Hints returns a channel that holds one signal when something may have changed since it was
	// last received from: after every change that is seen, and whenever changes may have gone
	// unseen. A heartbeat that repeats its member's status is no change worth a signal. It is
	// closed after the context has ended.
	Hints(ctx context.Context) <-chan struct{}
	// Join grants a lease of ttl and puts the member's first heartbeat under it. Where another
	// process has the name, or everything as a cluster of one, it returns a *cluster.HeldError. An
	// earlier membership of the same process is ended first. An operator may end it at any time.
	Join(ctx context.Context, first Heartbeat, ttl time.Duration) (Membership, error)
	// Campaign blocks until the node is elected, or fails; then it is to be called again. It is to
	// be called by members only, and what it returns is to be resigned, also when it is lost.
	Campaign(ctx context.Context, node string) (Leadership, error)
}

// A Membership is a member's place in the cluster, under a lease.
type Membership interface {
	// Renew prolongs the lease and returns for how long, counted from when it was called. ErrLeft
	// says that it is gone for good, any other error that it is unknown. It may not tell of a
	// membership that was ended without its lease: Beat and Claim do.
	Renew(ctx context.Context) (time.Duration, error)
	// Beat replaces the heartbeat. ErrLeft where the lease is gone, somebody else has the name, or
	// the store's incarnation was raised.
	Beat(ctx context.Context, h Heartbeat) error
	// Claim takes partitions, each named once, that nobody owns, and returns in order their owners
	// as they stand then: those whose Process is this member's are claimed, with new epochs unless
	// they were its already under this lease; the others are held elsewhere. ErrLeft as with Beat.
	// After an error some may be claimed: claim again, or give back what the next view shows.
	Claim(ctx context.Context, partitions []change.Partition) ([]Owner, error)
	// Transfer makes another process of a node the owner of partitions, each named once, that are
	// this member's at the epochs, under its lease and with new epochs, and returns in order their
	// owners as they stand then: those whose Process is the other's are handed over. ErrLeft as
	// with Beat, ErrAbsent where the other is no member. After an error some may be handed over:
	// the next view shows. The other learns the span of ctx, if the store can carry it.
	Transfer(ctx context.Context, to Member, partitions []change.Partition, epochs []change.Epoch) ([]Owner, error)
	// Return gives claimed partitions back, those of the epochs only; others are left as they are.
	// It is idempotent.
	Return(ctx context.Context, partitions []change.Partition, epochs []change.Epoch) error
	// Leave ends the lease, and with it the heartbeat and all claims. It is idempotent.
	Leave(ctx context.Context) error
}

// A Leadership is an election won. Every write holds only while it lasts, else it is ErrDeposed.
type Leadership interface {
	// Lost is closed when the leadership is known to be over. It may be over before.
	Lost() <-chan struct{}
	// Publish replaces the plan whose version is one less. Where another one stands, it is an error
	// that is not ErrDeposed: the next View tells which.
	Publish(ctx context.Context, p Plan) error
	// Evict takes a partition from an owner that still has it at the epoch; otherwise it does
	// nothing.
	Evict(ctx context.Context, p change.Partition, epoch change.Epoch) error
	// Resign ends the leadership, so that another is elected at once. It is idempotent.
	Resign(ctx context.Context) error
}
