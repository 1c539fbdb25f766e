package node

import (
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
)

// setting returns the value of a setting of the rig's nodes.
func (r *rig) setting(name string) string {
	for _, s := range slices.Backward(r.settings) {
		if value, is := strings.CutPrefix(s, name+"="); is {
			return value
		}
	}
	return ""
}

// has reports whether the node has a problem of a subject with a code, and says what to do.
func (n *live) has(subject string, code fault.Code) bool {
	return slices.ContainsFunc(n.service.Health().Problems, func(p health.Problem) bool {
		return p.Subject == subject && p.Code == code && p.Remedy != ""
	})
}

// The origin is deleted, and later replaced, under running nodes: they own nothing any more and say
// why, no node founds another cluster beside them, and they join again when their origin is back.
func TestOriginThatIsDeletedOrReplacedUnderRunningNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{}, "STREAMER_CLUSTER_HEARTBEAT_INTERVAL=200ms")
	raw, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(r.setting("STREAMER_ETCD_ENDPOINTS"), ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	nodes := []*live{r.begin(several("a")...), r.begin(several("b")...)}
	all := func(what string, holds func(n *live) bool) {
		t.Helper()
		for _, n := range nodes {
			n.until(what, func() bool { return holds(n) })
		}
	}
	all("a node is a member", func(n *live) bool { m := n.service.Health().Membership; return m != nil && !m.Detached })
	nodes[0].until("everything is owned", func() bool { return nodes[0].owned()+nodes[1].owned() == partitions })
	key := strings.TrimSuffix(r.setting("STREAMER_ETCD_PREFIX"), "/") + "/c/origin"
	saved, err := raw.Get(t.Context(), key)
	if err != nil || len(saved.Kvs) != 1 {
		t.Fatal(saved, err)
	}
	origin := string(saved.Kvs[0].Value)
	id := nodes[0].service.Origin().Cluster
	apart := func(n *live) bool {
		return n.has("membership", fault.ClusterReplaced) && n.service.Health().Membership.Detached
	}
	for what, change := range map[string]func() error{
		"deleted": func() error { _, err := raw.Delete(t.Context(), key); return err },
		"another": func() error {
			_, err := raw.Put(t.Context(), key, strings.Replace(origin, id, strings.Repeat("A", len(id)), 1))
			return err
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		all("a node says that its cluster is gone, "+what, apart)
		if what == "deleted" {
			if _, err := r.assemble(several("c")...); fault.Of(err) != fault.ClusterReplaced {
				t.Errorf("another node starts: %v", err)
			}
		}
		if _, err := raw.Put(t.Context(), key, origin); err != nil {
			t.Fatal(err)
		}
		nodes[0].until("everything is owned again", func() bool { return nodes[0].owned()+nodes[1].owned() == partitions })
		all("nothing fails any more", func(n *live) bool { return !n.has("membership", fault.ClusterReplaced) })
	}
}
