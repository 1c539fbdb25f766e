package etcd

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// The origin changes after a process has read it to join or to claim: the process begins again with
// the new one, and says that its cluster is gone where there is none.
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
			epochs, err := NewRegistry(c).Claim(ctx, me, n, time.Minute, false)
			if err == nil && epochs[0].Incarnation != 2 {
				t.Errorf("claimed under incarnation %d", epochs[0].Incarnation)
			}
			return err
		},
	} {
		for changes, change := range map[string]struct {
			make func(p clusterPlace)
			want fault.Code
		}{
			"adopted": {func(p clusterPlace) { p.origin(2) }, ""},
			"deleted": {func(p clusterPlace) { p.delete(p.key("origin")) }, fault.ClusterReplaced},
		} {
			t.Run(begins+", "+changes, func(t *testing.T) {
				t.Parallel()
				p := newClusterPlace(t, etcdtest.Endpoints(t))
				meanwhile := sync.OnceFunc(func() { change.make(p) })
				client, err := dialWith(t.Context(), p.cfg, grpc.WithChainUnaryInterceptor(func(
					ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
				) error {
					if strings.HasSuffix(method, "/LeaseGrant") { // the origin has been read
						meanwhile()
					}
					return invoke(ctx, method, req, reply, conn, opts...)
				}))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = client.Close() })
				client.Belong("c1")
				if err := begin(t.Context(), client); fault.Of(err) != change.want || change.want == "" && err != nil {
					t.Error(err)
				}
			})
		}
	}
}
