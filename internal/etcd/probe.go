package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An EndpointStatus is the status that one endpoint reports.
type EndpointStatus struct {
	Endpoint, Version string
	Leader            bool // it knows one
	Size, Quota       int64
	Revision          int64
	Err               error // it does not answer
}

// EndpointStatuses asks every endpoint.
func EndpointStatuses(ctx context.Context, c *Client) []EndpointStatus {
	endpoints := c.addresses()
	members := make([]EndpointStatus, len(endpoints))
	for i, endpoint := range endpoints {
		members[i].Endpoint = endpoint
		status, err := askStatus(ctx, c, endpoint)
		if err != nil {
			members[i].Err = err
			continue
		}
		members[i] = EndpointStatus{
			Endpoint: endpoint, Version: status.Version, Leader: status.Leader != 0, Size: status.DbSize, Quota: status.DbSizeQuota,
			Revision: status.Header.Revision,
		}
	}
	return members
}

// statusTimeout is how long one endpoint may take: the client would try until its context ends.
const statusTimeout = 3 * time.Second

func askStatus(ctx context.Context, c *Client, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return c.status(ctx, endpoint)
}

// Alarms returns the names of the alarms that are raised. A user without the right to ask gets
// none.
func Alarms(ctx context.Context, c *Client) (alarms []string, err error) {
	resp, err := c.etcd.AlarmList(ctx)
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask for alarms: %w", withCode(err))
	}
	for _, alarm := range resp.Alarms {
		if alarm.Alarm != etcdserverpb.AlarmType_NONE {
			alarms = append(alarms, alarm.Alarm.String())
		}
	}
	return alarms, nil
}

// HasRevision reports whether etcd still has a revision.
func HasRevision(ctx context.Context, c *Client, revision int64) (bool, error) {
	_, err := c.etcd.Get(ctx, c.keys.origin(), clientv3.WithRev(revision), clientv3.WithKeysOnly())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read revision %d: %w", revision, withCode(err))
	}
	return true, nil
}

// MayWrite checks whether the user may write below the cluster's keys, with a transaction whose
// condition is never true.
func MayWrite(ctx context.Context, c *Client) error {
	key := c.keys.origin()
	err := retryUncertain(ctx, func() error {
		_, err := c.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "<", 0)).
			Then(clientv3.OpPut(key, "")).
			Commit()
		return err
	})
	if err != nil {
		return fmt.Errorf("try to write: %w", withCode(err))
	}
	return nil
}
