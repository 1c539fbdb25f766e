package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/gaptest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/checkpoint/rewindtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/devetcd/devetcdtest"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

func TestMain(m *testing.M) {
	if devetcdtest.RunMember() {
		return
	}
	// Taking a toxic away may leave goroutines of toxiproxy's own behind.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"))
}

// A place is where the keys of one test stand.
type place struct {
	*testing.T

	cfg Config
	raw *clientv3.Client
}

func newPlace(t *testing.T, endpoints []string) place {
	t.Helper()
	raw := devetcdtest.Client(t, endpoints)
	t.Cleanup(func() { _ = raw.Close() })
	return place{t, Config{Endpoints: endpoints, Prefix: devetcdtest.Prefix(t, endpoints), Cluster: "c1"}, raw}
}

// dial connects a client that lives as long as the test, through a link if there is one.
func (p place) dial(l *etcdtest.Link, endpoint string) *Client {
	p.Helper()
	cfg := p.cfg
	var client *Client
	var err error
	if l == nil {
		client, err = Dial(p.Context(), cfg)
	} else {
		cfg.Endpoints = []string{endpoint}
		client, err = DialWith(p.Context(), cfg, l.Options()...)
	}
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := client.Close(); err != nil {
			p.Error(err)
		}
	})
	return client
}

// store connects a store, through a link if there is one.
func (p place) store(l *etcdtest.Link, endpoint string) *Store {
	p.Helper()
	return NewStore(p.dial(l, endpoint), checkpointtest.Partitions)
}

// linked connects a store through a link of its own.
func (p place) linked() (*Store, *etcdtest.Link) {
	p.Helper()
	l, endpoint := etcdtest.NewLink(p.T, strings.TrimPrefix(p.cfg.Endpoints[0], "http://"))
	return p.store(l, endpoint), l
}

func (p place) key(format string, args ...any) string {
	return p.cfg.Prefix + "/" + p.cfg.Cluster + "/" + fmt.Sprintf(format, args...)
}

func (p place) put(key string, value []byte) int64 {
	p.Helper()
	resp, err := p.raw.Put(p.Context(), key, string(value))
	if err != nil {
		p.Fatal(err)
	}
	return resp.Header.Revision
}

// found makes the origin of an incarnation.
func (p place) found(incarnation uint64) {
	p.Helper()
	origin := checkpointtest.Origin("c1")
	origin.Incarnation = incarnation
	value, err := record.EncodeOrigin(origin)
	if err != nil {
		p.Fatal(err)
	}
	p.put(p.key("origin"), value)
}

// begin writes owner keys as a claim does, without a lease.
func (p place) begin(incarnation uint64, partitions ...change.Partition) []change.Term {
	p.Helper()
	terms := make([]change.Term, len(partitions))
	for i, partition := range partitions {
		revision := p.put(p.key("owner/%05d", partition), []byte("{}"))
		terms[i] = change.Term{
			Partition: partition,
			Epoch:     change.Epoch{Incarnation: incarnation, Revision: uint64(revision)},
			Context:   p.Context(),
		}
	}
	return terms
}

func (p place) get(key string) []byte {
	p.Helper()
	resp, err := p.raw.Get(p.Context(), key)
	if err != nil {
		p.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0].Value
}

// opener opens stores for the suites, all on one etcd.
func opener(t *testing.T) func(t *testing.T) checkpointtest.Harness {
	return openerOn(devetcdtest.Endpoints(t))
}

// openerOn opens stores on an etcd whose first endpoint answers.
func openerOn(endpoints []string) func(t *testing.T) checkpointtest.Harness {
	return func(t *testing.T) checkpointtest.Harness {
		p := newPlace(t, endpoints[:1])
		p.cfg.Endpoints = endpoints
		store, l := p.linked()
		return checkpointtest.Harness{
			Store: store,
			Begin: func(partitions ...change.Partition) []change.Term {
				if p.get(p.key("origin")) == nil {
					p.found(1)
				}
				o, err := record.DecodeOrigin("origin", checkpointtest.Partitions, p.get(p.key("origin")))
				if err != nil {
					t.Fatal(err)
				}
				return p.begin(o.Incarnation, partitions...)
			},
			Reopen: func() checkpointtest.Store { return p.store(nil, "") },
			Damage: func(partition change.Partition, d checkpointtest.Damage) {
				p.put(p.key("mark/%05d", partition), d.JSON())
			},
			Raw:  func(partition change.Partition) []byte { return p.get(p.key("mark/%05d", partition)) },
			Link: l,
		}
	}
}

func TestStoreIsAStore(t *testing.T) { checkpointtest.TestStore(t, opener(t)) }
func TestStoreIsAStoreBesideAnIsolatedMember(t *testing.T) {
	checkpointtest.TestStore(t, openerOn(devetcdtest.Isolated(t)))
}
func TestStoreKeepsHistory(t *testing.T) { rewindtest.TestStore(t, opener(t)) }
func TestStoreCountsAnew(t *testing.T) {
	rewindtest.TestRepartition(t, opener(t), func(h checkpointtest.Harness) {
		c := h.Store.(*Store).client
		if _, err := c.etcd.Delete(t.Context(), c.keys.Owners(), clientv3.WithPrefix()); err != nil {
			t.Error(err)
		}
	})
}
func TestStoreKeepsTheGapLog(t *testing.T) { gaptest.TestKeeper(t, opener(t)) }

func allPartitions() []change.Partition {
	partitions := make([]change.Partition, checkpointtest.Partitions)
	for i := range partitions {
		partitions[i] = change.Partition(i)
	}
	return partitions
}

func TestSaveOfManyPartitionsTakesFewTransactions(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	p.found(1)
	store, l := p.linked()
	terms := p.begin(1, allPartitions()...)
	if _, err := store.Claim(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	save := func(store *Store, n int) {
		t.Helper()
		marks := make([]checkpoint.Mark, len(terms))
		for i, term := range terms {
			marks[i] = checkpointtest.MarkAt(term, checkpointtest.Event(n))
		}
		if err := errors.Join(store.Save(t.Context(), marks)...); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		before := l.Transactions.Load()
		save(store, 10+round)
		if got := l.Transactions.Load() - before; got != 3 {
			t.Errorf("round %d: %d transactions for %d partitions, want 3", round, got, len(terms))
		}
	}
	other := p.store(nil, "")
	save(other, 20)
	before := l.Transactions.Load()
	save(store, 15)
	if got := l.Transactions.Load() - before; got != 3 {
		t.Errorf("%d transactions for %d partitions that stand further on already, want 3", got, len(terms))
	}
	save(other, 30)
	before = l.Transactions.Load()
	save(store, 40)
	if got := l.Transactions.Load() - before; got != 5 { // 512 nested ones
		t.Errorf("%d transactions for %d partitions that somebody else has moved, want 5", got, len(terms))
	}
}

func TestEtcdTakesNoMoreThanSoManyNestedTransactions(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	p.found(1)
	store := p.store(nil, "")
	stands, err := store.readOrigin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var nested []clientv3.Op
	for i := range MaxNested + 1 {
		term := change.Term{Partition: change.Partition(i), Epoch: change.Epoch{Incarnation: 1, Revision: 1}}
		m := checkpointtest.MarkAt(term, checkpointtest.Event(1))
		m.Reason = checkpoint.ReasonFinal // an entry of the history too: two operations
		op, err := store.nested(&write{mark: m})
		if err != nil {
			t.Fatal(err)
		}
		nested = append(nested, op)
	}
	if _, err := store.client.Nest(t.Context(), stands, nested[:MaxNested]); err != nil {
		t.Errorf("%d: %v", MaxNested, err)
	}
	if _, err := store.client.Nest(t.Context(), stands, nested); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("%d: %v, so more would fit", len(nested), err)
	}
}

func TestRaisedIncarnationFencesEveryEpochBefore(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	p.found(1)
	store := p.store(nil, "")
	old := p.begin(1, 0, 1)
	if _, err := store.Claim(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	save := func(term change.Term, n int) error {
		return store.Save(t.Context(), []checkpoint.Mark{checkpointtest.MarkAt(term, checkpointtest.Event(n))})[0]
	}
	if err := save(old[0], 1); err != nil {
		t.Fatal(err)
	}
	p.found(2)
	if err := save(old[0], 2); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("save with the incarnation before: %v", err)
	}
	if _, err := store.Claim(t.Context(), old); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("claim with the incarnation before: %v", err)
	}
	young := p.begin(2, 0)
	marks, err := store.Claim(t.Context(), young)
	if err != nil || marks[0].Position.Compare(checkpointtest.Event(1)) != 0 {
		t.Fatalf("claim found %v, %v", marks, err)
	}
	results := store.Save(t.Context(), []checkpoint.Mark{
		checkpointtest.MarkAt(old[1], checkpointtest.Event(3)),
		checkpointtest.MarkAt(young[0], checkpointtest.Event(3)),
	})
	if !errors.Is(results[0], checkpoint.ErrFenced) || results[1] != nil {
		t.Errorf("both incarnations saved together: %v", results)
	}
	p.found(3)
	results = store.Save(t.Context(), []checkpoint.Mark{
		checkpointtest.MarkAt(p.begin(3, 1)[0], checkpointtest.Event(4)),
		checkpointtest.MarkAt(young[0], checkpointtest.Event(4)),
	})
	if results[0] != nil || !errors.Is(results[1], checkpoint.ErrFenced) {
		t.Errorf("both incarnations saved together: %v", results)
	}
}

// lost is what a request whose answer got lost with the connection ends with.
var lost = status.Error(codes.Unavailable, "error reading from server: EOF") //nolint:gochecknoglobals // a constant

func TestFencedIsFencedAlsoWhereTheOthersGetNoAnswer(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	p.found(1)
	store, l := p.linked()
	old := p.begin(1, 0)[0]
	p.found(2)
	young := p.begin(2, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	l.Next(func(context.Context, func(context.Context) error) error {
		cancel()
		return lost
	})
	results := store.Save(ctx, []checkpoint.Mark{
		checkpointtest.MarkAt(old, checkpointtest.Event(1)),
		checkpointtest.MarkAt(young, checkpointtest.Event(1)),
	})
	if !errors.Is(results[0], checkpoint.ErrFenced) || !errors.Is(results[1], context.Canceled) {
		t.Errorf("the results are %v", results)
	}
}

func TestWithoutAnOwnerOrAnOriginNothingIsSaved(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	store := p.store(nil, "")
	term := p.begin(1, 0)[0]
	mark := checkpointtest.MarkAt(term, checkpointtest.Event(1))
	if err := store.Save(t.Context(), []checkpoint.Mark{mark})[0]; !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("save without an origin: %v", err)
	}
	if _, err := store.Claim(t.Context(), []change.Term{term}); !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("claim without an origin: %v", err)
	}
	unclaimed := mark
	unclaimed.Partition, unclaimed.Epoch = 1, change.Epoch{}
	if err := store.Save(t.Context(), []checkpoint.Mark{unclaimed})[0]; !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("save with no epoch without an origin: %v", err)
	}
	p.found(1)
	unclaimed.Epoch.Incarnation = 1
	if err := store.Save(t.Context(), []checkpoint.Mark{unclaimed})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("save with the epoch of no claim: %v", err)
	}
	noClaim := []change.Term{{Partition: 1, Epoch: unclaimed.Epoch}}
	if _, err := store.Claim(t.Context(), noClaim); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("claim with the epoch of no claim: %v", err)
	}
	if _, err := p.raw.Delete(t.Context(), p.key("owner/00000")); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), []checkpoint.Mark{mark})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("save without an owner: %v", err)
	}
	if _, err := store.Claim(t.Context(), []change.Term{term}); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("claim without an owner: %v", err)
	}
	if _, err := p.raw.Delete(t.Context(), p.key("origin")); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), []checkpoint.Mark{mark})[0]; !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("save after the origin was deleted: %v", err)
	}
}

func TestOriginOfAnotherPartitionCountIsRefused(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	p.found(1)
	client := p.dial(nil, "")
	store := NewStore(client, 64)
	if _, err := store.Origin(t.Context()); fault.Of(err) != fault.CheckpointPartitions {
		t.Errorf("origin: %v", err)
	}
	origin := checkpointtest.Origin("c2")
	origin.Partitions = 64
	if _, err := store.Found(t.Context(), origin); fault.Of(err) != fault.CheckpointPartitions {
		t.Errorf("found: %v", err)
	}
	if o, err := NewStore(client, 0).Origin(t.Context()); err != nil || o.Partitions != checkpointtest.Partitions {
		t.Errorf("a reader of any number: %v, %v", o, err)
	}
}

func TestListNamesAKeyThatNamesNoPartition(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	p.found(1)
	store := p.store(nil, "")
	term := p.begin(1, 7)[0]
	if err := store.Save(t.Context(), []checkpoint.Mark{checkpointtest.MarkAt(term, checkpointtest.Event(1))})[0]; err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"7", "000007", "16384", "0000x", "00007/x"} {
		p.put(p.key("mark/%s", name), p.get(p.key("mark/00007")))
		marks, err := store.List(t.Context())
		if fault.Of(err) != fault.CheckpointCorrupt || !strings.Contains(err.Error(), "mark/"+name) || len(marks) != 1 {
			t.Errorf("%s: %v, %v", name, marks, err)
		}
		if _, err := p.raw.Delete(t.Context(), p.key("mark/%s", name)); err != nil {
			t.Fatal(err)
		}
	}
}

// What the network does to a Save: it fails in time, and a later one succeeds.
func TestSaveOverABadNetwork(t *testing.T) {
	endpoints := devetcdtest.Endpoints(t)
	for name, toxic := range map[string]string{
		"cut":             `{"name": "x", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`,
		"answers cut":     `{"name": "x", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`,
		"delayed":         `{"name": "x", "type": "latency", "stream": "upstream", "attributes": {"latency": 60000}}`,
		"answers delayed": `{"name": "x", "type": "latency", "stream": "downstream", "attributes": {"latency": 60000}}`,
		"reset":           `{"name": "x", "type": "reset_peer", "stream": "upstream", "attributes": {"timeout": 0}}`,
		"answers reset":   `{"name": "x", "type": "reset_peer", "stream": "downstream", "attributes": {"timeout": 0}}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, endpoints)
			p.found(1)
			store, l := p.linked()
			term := p.begin(1, 0)[0]
			save := func(ctx context.Context, n int) error {
				return store.Save(ctx, []checkpoint.Mark{checkpointtest.MarkAt(term, checkpointtest.Event(n))})[0]
			}
			if err := save(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			heal := l.Spoil(toxic)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := save(ctx, 2); err == nil || errors.Is(err, checkpoint.ErrFenced) {
				t.Errorf("save gave %v", err)
			}
			heal()
			for n := 2; ; n++ {
				// A connection that was reset fails what was sent on it, once.
				if err := save(t.Context(), n); err == nil {
					break
				} else if fault.Of(err) != fault.EtcdUnreachable {
					t.Fatalf("save %d: %v", n, err)
				}
			}
			if err := save(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
			if m, err := store.Load(t.Context(), 0); err != nil || m.Position.Compare(checkpointtest.Event(100)) != 0 {
				t.Errorf("the mark is %v, %v", m, err)
			}
		})
	}
}

func TestSaveGoesOnWhenEtcdIsBack(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	p.found(1)
	store, l := p.linked()
	term := p.begin(1, 0)[0]
	l.Proxy.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	mark := checkpointtest.MarkAt(term, checkpointtest.Event(1))
	if err := store.Save(ctx, []checkpoint.Mark{mark})[0]; err == nil {
		t.Error("saved without a server")
	}
	if err := l.Proxy.Start(); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), []checkpoint.Mark{mark})[0]; err != nil {
		t.Error(err)
	}
}

// FuzzPartitionOf reads any key.
func FuzzPartitionOf(f *testing.F) {
	k := newKeys("/streamer", "c1")
	f.Add(k.mark(0))
	f.Add(k.mark(change.MaxPartitions - 1))
	f.Add(k.marks() + "-0001")
	f.Fuzz(func(t *testing.T, key string) {
		if p, err := PartitionOf(k.marks(), k.marks()+key); err == nil && k.mark(p) != k.marks()+key {
			t.Fatalf("%q gave partition %d", key, p)
		}
	})
}
