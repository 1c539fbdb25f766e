package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/handoff/ledger"
	"github.com/mongostream/streamer/internal/devetcd/devetcdtest"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/council"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

const (
	n = checkpointtest.Partitions
	p = change.Partition(42)
)

func TestMain(m *testing.M) {
	// Taking a toxic away may leave goroutines of toxiproxy's own behind.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"))
}

// A place is a cluster in which node-a owns partition p, and node-b may get it.
type place struct {
	*testing.T

	cfg etcd.Config
	raw *clientv3.Client

	a, b  seat
	epoch change.Epoch
}

// A seat is a member with its own client.
type seat struct {
	party  ledger.Party
	member roster.Membership
	marks  *etcd.Store
	link   *etcdtest.Link
	keeper *Keeper
}

func newPlace(t *testing.T) *place {
	t.Helper()
	endpoints := devetcdtest.Endpoints(t)
	raw := devetcdtest.Client(t, endpoints)
	t.Cleanup(func() { _ = raw.Close() })
	c := &place{T: t, cfg: etcd.Config{Endpoints: endpoints, Prefix: devetcdtest.Prefix(t, endpoints), Cluster: "c1"}, raw: raw}
	value, err := record.EncodeOrigin(checkpointtest.Origin("c1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Put(t.Context(), c.key("origin"), string(value)); err != nil {
		t.Fatal(err)
	}
	c.a, c.b = c.join("a"), c.join("b")
	c.epoch = c.claim(c.a)
	return c
}

func (c *place) key(format string, args ...any) string {
	return c.cfg.Prefix + "/" + c.cfg.Cluster + "/" + fmt.Sprintf(format, args...)
}

func (c *place) join(name string) seat {
	c.Helper()
	link, endpoint := etcdtest.NewLink(c.T, strings.TrimPrefix(c.cfg.Endpoints[0], "http://"))
	cfg := c.cfg
	cfg.Endpoints = []string{endpoint}
	client, err := etcd.DialWith(c.Context(), cfg, link.Options()...)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = client.Close() })
	s := seat{party: ledger.Party{Node: "node-" + name, Process: name}, link: link, marks: etcd.NewStore(client, n)}
	s.keeper = New(client, n, s.marks)
	s.member, err = council.New(client, council.Config{Partitions: n}).
		Join(c.Context(), roster.Heartbeat{Node: s.party.Node, Process: s.party.Process}, time.Minute)
	if err != nil {
		c.Fatal(err)
	}
	return s
}

func (c *place) claim(s seat) change.Epoch {
	c.Helper()
	owners, err := s.member.Claim(c.Context(), []change.Partition{p})
	if err != nil || owners[0].Process != s.party.Process {
		c.Fatalf("%v, %v", owners, err)
	}
	return owners[0].Epoch
}

// order is a handoff from a to b that is asked for.
func (c *place) order() ledger.Record {
	return ledger.Record{
		Partition: p, From: c.a.party, To: c.b.party, Epoch: c.epoch, Cause: "test", By: "operator", Started: time.Now().UTC(),
		Phase: ledger.Prepared,
	}
}

// prepared is a handoff from a to b of which b has said that it is ready.
func (c *place) prepared() ledger.Sight {
	c.Helper()
	r, err := c.b.keeper.Prepare(c.Context(), c.order())
	if err != nil {
		c.Fatal(err)
	}
	if err := c.b.keeper.Answer(c.Context(), r, ""); err != nil {
		c.Fatal(err)
	}
	return c.look()
}

func (c *place) look() ledger.Sight {
	c.Helper()
	s, err := c.a.keeper.Look(c.Context(), p)
	if err != nil {
		c.Fatal(err)
	}
	return s
}

func (c *place) mark(e change.Epoch, at int) checkpoint.Mark {
	m := checkpointtest.MarkAt(change.Term{Partition: p, Epoch: e}, checkpointtest.Event(at))
	m.Reason = checkpoint.ReasonHandoff
	return m
}

func (c *place) save(s seat, e change.Epoch, at int) error {
	return s.marks.Save(c.Context(), []checkpoint.Mark{checkpointtest.MarkAt(change.Term{Partition: p, Epoch: e}, checkpointtest.Event(at))})[0]
}

// wantOwner holds the owner, the lease of its key and the mark against what they should be.
func (c *place) wantOwner(s seat, at int) ledger.Sight {
	c.Helper()
	sight := c.look()
	if sight.Owner.Process != s.party.Process || sight.Owner.Node != s.party.Node {
		c.Errorf("owned by %+v, want %s", sight.Owner, s.party.Node)
	}
	seatKey, ownerKey := c.kv("member/%s", s.party.Node), c.kv("owner/%05d", p)
	if ownerKey.Lease != seatKey.Lease {
		c.Errorf("the owner key stands under lease %x, the member under %x", ownerKey.Lease, seatKey.Lease)
	}
	mark, err := s.marks.Load(c.Context(), p)
	switch {
	case at == 0 && errors.Is(err, checkpoint.ErrNoMark):
	case err != nil || mark.Position.Compare(checkpointtest.Event(at)) != 0:
		c.Errorf("the mark stands at %s, %v, want event %d", mark.Position, err, at)
	}
	return sight
}

type keyValue struct{ Lease, Revision int64 }

func (c *place) kv(format string, args ...any) keyValue {
	c.Helper()
	resp, err := c.raw.Get(c.Context(), c.key(format, args...))
	if err != nil {
		c.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return keyValue{}
	}
	return keyValue{resp.Kvs[0].Lease, resp.Kvs[0].ModRevision}
}

// revoke ends the lease of a member.
func (c *place) revoke(s seat) {
	c.Helper()
	if err := s.member.Leave(c.Context()); err != nil {
		c.Fatal(err)
	}
}

func (c *place) wantStale(err error) {
	c.Helper()
	if !errors.Is(err, ledger.ErrStale) {
		c.Errorf("it gave %v, want %v", err, ledger.ErrStale)
	}
}

// second has meet stand in for the sending of the second transaction from now: the first of a switch reads.
func second(l *etcdtest.Link, arm func()) {
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		err := send(ctx)
		arm()
		return err
	})
}
