package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/cluster"
)

// A leaseRenewer renews one lease, over one stream as long as that holds: opening one costs etcd a
// check of the user, and its answers come in order.
type leaseRenewer struct {
	client *Client
	lease  clientv3.LeaseID
	turn   chan struct{} // held by who uses the others

	stream pb.Lease_LeaseKeepAliveClient // nil where there is none
	end    context.CancelFunc            // of the stream
}

// newLeaseRenewer makes a leaseRenewer.
func newLeaseRenewer(c *Client, id clientv3.LeaseID) *leaseRenewer {
	return &leaseRenewer{client: c, lease: id, turn: make(chan struct{}, 1)}
}

// Renew renews the lease and returns for how long it lives from the call on: from when the request
// was sent that has been answered. It asks another endpoint where one does not answer, until the
// context ends. That the lease is gone is rpctypes.ErrLeaseNotFound.
func (r *leaseRenewer) Renew(ctx context.Context) (life time.Duration, err error) {
	called := cluster.SinceBoot()
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-r.turn }()
	attempts := 0
	err = retryUncertain(ctx, func() error {
		sent := called
		if attempts++; attempts > 1 {
			sent = cluster.SinceBoot()
		}
		ttl, err := r.ask(ctx)
		life = sent - called + ttl
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = fmt.Errorf("renew lease %x: %w", int64(r.lease), withCode(err))
	}
	return life, err
}

// ask sends one request and receives its answer. A stream whose answer has not come is not used
// again: the next answer would be that one.
func (r *leaseRenewer) ask(ctx context.Context) (time.Duration, error) {
	if r.stream == nil {
		life, end := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, end)
		stream, err := r.client.keepAlive(life)
		if !stop() { // the stream ended with the context, which it did not know
			err = ctx.Err()
		}
		if err != nil {
			end()
			return 0, err
		}
		r.stream = stream
		r.end = end
	}
	stop := context.AfterFunc(ctx, r.end)
	var resp *pb.LeaseKeepAliveResponse
	err := r.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(r.lease)})
	if err == nil || errors.Is(err, io.EOF) { // receiving returns the reason
		resp, err = r.stream.Recv()
	}
	if !stop() || err != nil {
		r.drop()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil:
		return 0, rpctypes.Error(err)
	case resp.TTL <= 0:
		return 0, rpctypes.ErrLeaseNotFound
	}
	return time.Duration(resp.TTL) * time.Second, nil
}

func (r *leaseRenewer) drop() {
	if r.stream != nil {
		r.end()
		r.stream, r.end = nil, nil
	}
}

// Close ends the stream. Renewing again opens another.
func (r *leaseRenewer) Close() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.drop()
}
