package etcd

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// The origin changes after a process has read it to join or to claim: the process says that its
// cluster is gone, or has changed. It does not go on under an origin that it has not read.
func TestOriginThatChangesWhileAProcessBegins(t *testing.T) {
	t.Parallel()
	me := cluster.Identity{Node: "a", Process: "1"}
	for begins, begin := range map[string]func(context.Context, *Client) error{
		"joins": func(ctx context.Context, c *Client) error {
			store := NewClusterStore(c, ClusterConfig{Partitions: n, ElectionTTL: time.Minute})
			_, err := store.Join(ctx, cluster.Heartbeat{Node: me.Node, Process: me.Process}, time.Minute)
			return err
		},
		"claims": func(ctx context.Context, c *Client) error {
			_, err := NewRegistry(c).Claim(ctx, me, n, time.Minute, false)
			return err
		},
	} {
		for changes, change := range map[string]struct {
			make func(p clusterPlace)
			want fault.Code
		}{
			"adopted": {func(p clusterPlace) { p.origin(2) }, fault.ClusterChanged},
			"deleted": {func(p clusterPlace) { p.delete(p.key("origin")) }, fault.ClusterReplaced},
		} {
			t.Run(begins+", "+changes, func(t *testing.T) {
				t.Parallel()
				p := newClusterPlace(t, etcdtest.Endpoints(t))
				var granted clientv3.LeaseID
				meanwhile := sync.OnceFunc(func() { change.make(p) })
				client, err := dialWith(t.Context(), p.cfg, grpc.WithChainUnaryInterceptor(func(
					ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
				) error {
					if strings.HasSuffix(method, "/LeaseGrant") { // the origin has been read
						meanwhile()
					}
					err := invoke(ctx, method, req, reply, conn, opts...)
					if r, ok := reply.(*etcdserverpb.LeaseGrantResponse); ok && err == nil {
						granted = clientv3.LeaseID(r.ID)
					}
					return err
				}))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = client.Close() })
				client.Belong("c1")
				if err := begin(t.Context(), client); fault.Of(err) != change.want {
					t.Error(err)
				}
				if granted == 0 {
					t.Fatal("no lease was granted")
				}
				if left, err := client.etcd.TimeToLive(t.Context(), granted); err != nil || left.TTL != -1 {
					t.Errorf("the lease is left: %v, %v", left, err)
				}
			})
		}
	}
}
