package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// grantLease grants a lease and returns the time after which it expires unless renewed: the ttl
// rounded up to seconds, or etcd's minimum if that is longer. A request whose reply is lost leaves
// an unused lease.
func grantLease(ctx context.Context, c *Client, ttl time.Duration) (clientv3.LeaseID, time.Duration, error) {
	var granted *clientv3.LeaseGrantResponse
	err := retryUncertain(ctx, func() (err error) {
		granted, err = c.etcd.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
		return err
	})
	if err != nil {
		return clientv3.NoLease, 0, fmt.Errorf("grant lease: %w", withCode(err))
	}
	return granted.ID, time.Duration(granted.TTL) * time.Second, nil
}

// revokeLease ends a lease with all its keys; that it has ended is no error.
func revokeLease(ctx context.Context, c *Client, id clientv3.LeaseID) error {
	if _, err := c.etcd.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("end lease %x: %w", int64(id), withCode(err))
	}
	return nil
}
