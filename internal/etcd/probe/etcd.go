package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/internal/etcd"
)

// A Member is what one endpoint tells of itself.
type Member struct {
	Endpoint, Version string
	Leader            bool // it knows one
	Size, Quota       int64
	Revision          int64
	Err               error // it does not answer
}

// Members asks every endpoint.
func Members(ctx context.Context, c *etcd.Client) []Member {
	endpoints := c.Endpoints()
	members := make([]Member, len(endpoints))
	for i, endpoint := range endpoints {
		members[i].Endpoint = endpoint
		status, err := ask(ctx, c, endpoint)
		if err != nil {
			members[i].Err = err
			continue
		}
		members[i] = Member{
			Endpoint: endpoint, Version: status.Version, Leader: status.Leader != 0, Size: status.DbSize, Quota: status.DbSizeQuota,
			Revision: status.Header.Revision,
		}
	}
	return members
}

// patience is how long one endpoint may take: the client would try until its context ends.
const patience = 3 * time.Second

func ask(ctx context.Context, c *etcd.Client, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.Status(ctx, endpoint)
}

// Alarms returns the names of the alarms that are raised. A user without the right to ask gets none.
func Alarms(ctx context.Context, c *etcd.Client) (alarms []string, err error) {
	resp, err := c.Driver().AlarmList(ctx)
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask for alarms: %w", etcd.Named(err))
	}
	for _, alarm := range resp.Alarms {
		if alarm.Alarm != etcdserverpb.AlarmType_NONE {
			alarms = append(alarms, alarm.Alarm.String())
		}
	}
	return alarms, nil
}

// Keeps reports whether etcd still has a revision.
func Keeps(ctx context.Context, c *etcd.Client, revision int64) (bool, error) {
	_, err := c.Driver().Get(ctx, c.Keys().Origin(), clientv3.WithRev(revision), clientv3.WithKeysOnly())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read revision %d: %w", revision, etcd.Named(err))
	}
	return true, nil
}

// MayWrite finds out whether the user may write below the cluster's keys, by a transaction that writes only if what cannot be is.
func MayWrite(ctx context.Context, c *etcd.Client) error {
	key := c.Keys().Origin()
	err := etcd.Insist(ctx, func() error {
		_, err := c.Driver().Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "<", 0)).
			Then(clientv3.OpPut(key, "")).
			Commit()
		return err
	})
	if err != nil {
		return fmt.Errorf("try to write: %w", etcd.Named(err))
	}
	return nil
}
