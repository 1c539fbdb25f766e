package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/cluster"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/notice"
)

// A cable carries connections to a gateway's node until it is cut: then they end as those of a
// process that is killed, and no others begin.
type cable struct {
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	open     []net.Conn
	over     bool
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{listener: listener}
	c.wg.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			if !c.keep(near, far) {
				return
			}
			c.wg.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
			c.wg.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
		}
	})
	t.Cleanup(c.cut)
	return c
}

// keep notes connections that are to be cut, or closes them if it has been.
func (c *cable) keep(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, conns...)
	if c.over {
		c.close()
	}
	return !c.over
}

func (c *cable) close() {
	for _, conn := range c.open {
		_ = conn.Close()
	}
}

func (c *cable) cut() {
	_ = c.listener.Close()
	c.mu.Lock()
	c.over = true
	c.close()
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *cable) address() string {
	_, port, _ := strings.Cut(c.listener.Addr().String(), ":")
	return "localhost:" + port
}

// postedOf describes the notices about a gateway, as each of the nodes has them.
func (n *live) postedOf(gateway string) (all []string) {
	notices, _ := n.service.Board().Since(0)
	for _, told := range notices {
		if told.Fields["member"] == gateway && told.Fields["member_kind"] == string(cluster.KindGateway) {
			if err := notice.Check(told); err != nil {
				n.Error(err)
			}
			all = append(all, fmt.Sprintf("%s %s %v", told.Kind, told.Level, told.Fields["failed_checks"]))
		}
	}
	return all
}

// Operators hear how gateways are: one that fails a check and passes it again, one that is cut off,
// and one that comes as another process; not of one that leaves.
func TestGatewaysAreMembers(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string][][]string{
		"of one node": {nil}, "of a cluster": {several("n1"), several("n2")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{}, "STREAMER_CLUSTER_HEARTBEAT_INTERVAL=500ms", "STREAMER_GRPC_HEARTBEAT_TIMEOUT=12s",
				"STREAMER_CLUSTER_RESYNC_DEBOUNCE=1s")
			var all []*live
			for _, settings := range nodes {
				all = append(all, r.begin(settings...))
			}
			served, last := all[0], all[len(all)-1] // which hears of it through the cluster's history if the other leads
			of := "orders"
			hears := func(kind, what string) {
				t.Helper()
				last.until(what, func() bool {
					return slices.ContainsFunc(last.postedOf(of), func(p string) bool { return strings.HasPrefix(p, kind) })
				})
			}
			everything := client.Subscription{ID: "all", DB: "shop"}
			var well atomic.Bool
			wire := newCable(t, served.service.Gateway())
			checks := func() []client.Check {
				return []client.Check{{Name: "cache", OK: well.Load()}, {Name: "disk", OK: true}}
			}
			served.connectTo(wire.address(), client.Config{Subscriber: "orders", Checks: checks}, everything).told(t, "connected", connected)
			hears("degraded info [cache]", "a check fails")
			well.Store(true)
			hears("recovered", "it passes again")
			wire.cut()
			hears("dead info", "it is cut off")

			again := newCable(t, served.service.Gateway())
			p := served.connectTo(again.address(), client.Config{Subscriber: "orders"}, everything)
			p.told(t, "connected", connected)
			hears("restarted", "it is another process")
			hears("resync_complete", "it has been sent the latest notices")
			p.stop()
			for len(p.notices) > 0 {
				if told := fmt.Sprint(<-p.notices); strings.Contains(told, "Gateway \"") {
					t.Errorf("gateways are told of gateways: %s", told)
				}
			}
			for _, n := range all {
				n.until("it has left", func() bool { peers, _ := n.service.Peers(); return len(peers) == 0 || peers[0].Left })
			}
			of = "stock"
			well.Store(false)
			served.connectTo(again.address(), client.Config{Subscriber: of, Checks: checks}, everything)
			hears("degraded info [cache]", "another fails a check")
			again.cut() // before this is known, it would be known of the one that left
			hears("dead info", "another is dead")
			if n := len(slices.DeleteFunc(last.postedOf("orders"), func(p string) bool { return !strings.HasPrefix(p, "dead") })); n != 1 {
				t.Errorf("%d deaths: %q", n, last.postedOf("orders"))
			}
		})
	}
}
