package etcd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) {
	if etcdtest.RunMember() {
		return
	}
	_ = flag.Set("test.parallel", "4") // most of what the tests do is to wait; -parallel still decides
	// Taking a toxic away may leave goroutines of toxiproxy's own behind.
	leaktest.Main(m,
		"github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run",
		"github.com/Shopify/toxiproxy/v2.(*ToxicLink).read")
}

// A place is where the keys of one test stand.
type place struct {
	*testing.T

	cfg Config
	raw *clientv3.Client
}

func newPlace(t *testing.T, endpoints []string) place {
	t.Helper()
	raw := etcdtest.Client(t, endpoints)
	t.Cleanup(func() { _ = raw.Close() })
	return place{t, Config{Endpoints: endpoints, Prefix: etcdtest.Prefix(t, endpoints), Cluster: "c1", DialTimeout: time.Minute}, raw}
}

// link makes a link to the place.
func (p place) link() *etcdtest.Link {
	p.Helper()
	l, _ := etcdtest.NewLink(p.T, strings.TrimPrefix(p.cfg.Endpoints[0], "http://"))
	return l
}

// dial connects a client that lives as long as the test, through a link if there is one.
func (p place) dial(l *etcdtest.Link) *Client {
	p.Helper()
	cfg := p.cfg
	var client *Client
	var err error
	if l == nil {
		client, err = Dial(p.Context(), cfg)
	} else {
		cfg.Endpoints = []string{l.Proxy.Listen}
		client, err = dialWith(p.Context(), cfg, l.Options()...)
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
func (p place) store(l *etcdtest.Link) *Store {
	p.Helper()
	return NewStore(p.dial(l), checkpointtest.Partitions)
}

// linked connects a store through a link of its own.
func (p place) linked() (*Store, *etcdtest.Link) {
	p.Helper()
	l := p.link()
	return p.store(l), l
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

// origin makes the origin of an incarnation.
func (p place) origin(incarnation uint64) {
	p.Helper()
	origin := checkpointtest.Origin("c1")
	origin.Incarnation = incarnation
	value, err := checkpoint.EncodeOrigin(origin)
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
	return openerOn(etcdtest.Endpoints(t))
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
					p.origin(1)
				}
				o, err := checkpoint.DecodeOrigin("origin", checkpointtest.Partitions, p.get(p.key("origin")))
				if err != nil {
					t.Fatal(err)
				}
				return p.begin(o.Incarnation, partitions...)
			},
			Reopen: func() checkpointtest.Store { return p.store(nil) },
			Put:    func(k checkpoint.Key, stored []byte) { p.put(p.checkpoint(k), stored) },
			PutGap: func(id string, stored []byte) { p.put(p.key("gap/%s", id), stored) },
			Raw:    func(k checkpoint.Key) []byte { return p.get(p.checkpoint(k)) },
			Fill:   p.fill,
			Link:   l,
		}
	}
}

// checkpoint is the key of a checkpoint.
func (p place) checkpoint(k checkpoint.Key) string {
	return newKeys(p.cfg.Prefix, p.cfg.Cluster).checkpoint(k)
}

// fill puts many checkpoints.
func (p place) fill(all []checkpoint.Checkpoint) {
	p.Helper()
	for chunk := range slices.Chunk(all, maxNested) {
		var puts []clientv3.Op
		for _, c := range chunk {
			value, err := checkpoint.Encode(c, checkpoint.Trail{})
			if err != nil {
				p.Fatal(err)
			}
			puts = append(puts, clientv3.OpPut(p.checkpoint(c.Key), string(value)))
		}
		if _, err := p.raw.Txn(p.Context()).Then(puts...).Commit(); err != nil {
			p.Fatal(err)
		}
	}
}

func TestStoreIsAStore(t *testing.T) {
	t.Parallel()
	checkpointtest.TestStore(t, opener(t))
}

func TestStoreIsAStoreBesideAnIsolatedMember(t *testing.T) {
	t.Parallel()
	checkpointtest.TestStore(t, openerOn(etcdtest.Isolated(t)))
}

func TestStoreCountsAnew(t *testing.T) {
	t.Parallel()
	checkpointtest.TestRepartition(t, opener(t), func(h checkpointtest.Harness) {
		c := h.Store.(*Store).client
		if _, err := c.etcd.Delete(t.Context(), c.keys.owners(), clientv3.WithPrefix()); err != nil {
			t.Error(err)
		}
	})
}

func allPartitions() []change.Partition {
	partitions := make([]change.Partition, checkpointtest.Partitions)
	for i := range partitions {
		partitions[i] = change.Partition(i)
	}
	return partitions
}

func TestSaveOfManyPartitionsTakesFewTransactions(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	store, l := p.linked()
	terms := p.begin(1, allPartitions()...)
	if _, err := store.ClaimTerms(t.Context(), checkpointtest.Subscriber, terms); err != nil {
		t.Fatal(err)
	}
	save := func(store *Store, n int) {
		t.Helper()
		saved := make([]checkpoint.Checkpoint, len(terms))
		for i, term := range terms {
			saved[i] = checkpointtest.Shared(term, checkpointtest.Event(n))
		}
		if err := errors.Join(store.Save(t.Context(), saved)...); err != nil {
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
	other := p.store(nil)
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
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	store := p.store(nil)
	stands, err := store.readOrigin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var nested []clientv3.Op
	for i := range maxNested + 1 {
		term := change.Term{Partition: change.Partition(i), Epoch: change.Epoch{Incarnation: 1, Revision: 1}}
		c := checkpointtest.Shared(term, checkpointtest.Event(1))
		c.Reason = checkpoint.ReasonFinal // an entry of the history too: two operations
		op, _, err := store.nested(&write{checkpoint: c})
		if err != nil {
			t.Fatal(err)
		}
		nested = append(nested, op)
	}
	if _, err := store.client.nest(t.Context(), stands, nested[:maxNested]); err != nil {
		t.Errorf("%d: %v", maxNested, err)
	}
	if _, err := store.client.nest(t.Context(), stands, nested); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("%d: %v, so more would fit", len(nested), err)
	}
}

func TestRaisedIncarnationFencesEveryEpochBefore(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	store := p.store(nil)
	old := p.begin(1, 0, 1)
	if _, err := store.ClaimTerms(t.Context(), checkpointtest.Subscriber, old); err != nil {
		t.Fatal(err)
	}
	save := func(term change.Term, n int) error {
		return store.Save(t.Context(), []checkpoint.Checkpoint{checkpointtest.Shared(term, checkpointtest.Event(n))})[0]
	}
	if err := save(old[0], 1); err != nil {
		t.Fatal(err)
	}
	p.origin(2)
	if err := save(old[0], 2); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("save with the incarnation before: %v", err)
	}
	if _, err := store.ClaimTerms(t.Context(), checkpointtest.Subscriber, old); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("claim with the incarnation before: %v", err)
	}
	young := p.begin(2, 0)
	claimed, err := store.ClaimTerms(t.Context(), checkpointtest.Subscriber, young)
	if err != nil || claimed[0].Position.Compare(checkpointtest.Event(1)) != 0 {
		t.Fatalf("claim found %v, %v", claimed, err)
	}
	results := store.Save(t.Context(), []checkpoint.Checkpoint{
		checkpointtest.Shared(old[1], checkpointtest.Event(3)),
		checkpointtest.Shared(young[0], checkpointtest.Event(3)),
	})
	if !errors.Is(results[0], checkpoint.ErrFenced) || results[1] != nil {
		t.Errorf("both incarnations saved together: %v", results)
	}
	p.origin(3)
	results = store.Save(t.Context(), []checkpoint.Checkpoint{
		checkpointtest.Shared(p.begin(3, 1)[0], checkpointtest.Event(4)),
		checkpointtest.Shared(young[0], checkpointtest.Event(4)),
	})
	if results[0] != nil || !errors.Is(results[1], checkpoint.ErrFenced) {
		t.Errorf("both incarnations saved together: %v", results)
	}
}

// lost is what a request whose answer got lost with the connection ends with.
var lost = status.Error(codes.Unavailable, "error reading from server: EOF") //nolint:gochecknoglobals // a constant

func TestFencedIsFencedAlsoWhereTheOthersGetNoAnswer(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	store, l := p.linked()
	old := p.begin(1, 0)[0]
	p.origin(2)
	young := p.begin(2, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	l.Next(func(context.Context, func(context.Context) error) error {
		cancel()
		return lost
	})
	results := store.Save(ctx, []checkpoint.Checkpoint{
		checkpointtest.Shared(old, checkpointtest.Event(1)),
		checkpointtest.Shared(young, checkpointtest.Event(1)),
	})
	if !errors.Is(results[0], checkpoint.ErrFenced) || !errors.Is(results[1], context.Canceled) {
		t.Errorf("the results are %v", results)
	}
}

func TestWithoutAnOwnerOrAnOriginNothingIsSaved(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	store := p.store(nil)
	term := p.begin(1, 0)[0]
	c := checkpointtest.Shared(term, checkpointtest.Event(1))
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{c})[0]; !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("save without an origin: %v", err)
	}
	if _, err := store.ClaimTerms(t.Context(), checkpointtest.Subscriber, []change.Term{term}); !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("claim without an origin: %v", err)
	}
	unclaimed := c
	unclaimed.Partition, unclaimed.Epoch = 1, change.Epoch{}
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{unclaimed})[0]; !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("save with no epoch without an origin: %v", err)
	}
	p.origin(1)
	unclaimed.Epoch.Incarnation = 1
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{unclaimed})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("save with the epoch of no claim: %v", err)
	}
	noClaim := []change.Term{{Partition: 1, Epoch: unclaimed.Epoch}}
	if _, err := store.ClaimTerms(t.Context(), checkpointtest.Subscriber, noClaim); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("claim with the epoch of no claim: %v", err)
	}
	if _, err := p.raw.Delete(t.Context(), p.key("owner/00000")); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{c})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("save without an owner: %v", err)
	}
	if _, err := store.ClaimTerms(t.Context(), checkpointtest.Subscriber, []change.Term{term}); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("claim without an owner: %v", err)
	}
	if _, err := p.raw.Delete(t.Context(), p.key("origin")); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{c})[0]; !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("save after the origin was deleted: %v", err)
	}
}

func TestOriginOfAnotherPartitionCountIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	client := p.dial(nil)
	store := NewStore(client, 64)
	if _, err := store.Origin(t.Context()); fault.Of(err) != fault.CheckpointPartitions {
		t.Errorf("origin: %v", err)
	}
	origin := checkpointtest.Origin("c2")
	origin.Partitions = 64
	if _, err := store.Create(t.Context(), origin); fault.Of(err) != fault.CheckpointPartitions {
		t.Errorf("create: %v", err)
	}
	if o, err := NewStore(client, 0).Origin(t.Context()); err != nil || o.Partitions != checkpointtest.Partitions {
		t.Errorf("a reader of any number: %v, %v", o, err)
	}
}

func TestListNamesAKeyOfNoCheckpoint(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	store := p.store(nil)
	term := p.begin(1, 7)[0]
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{checkpointtest.Shared(term, checkpointtest.Event(1))})[0]; err != nil {
		t.Fatal(err)
	}
	whole := p.get(p.key("checkpoint/shared/stdout/00007"))
	if whole == nil {
		t.Fatal("the checkpoint is elsewhere")
	}
	for _, name := range []string{
		"shared/stdout/7", "shared/stdout/000007", "shared/stdout/16384", "shared/stdout/0000x", "shared/stdout/00007/x", "shared/stdout2/00007",
		"exclusive/stdout", "stdout",
	} {
		p.put(p.key("checkpoint/%s", name), whole)
		listed, err := store.List(t.Context())
		if fault.Of(err) != fault.CheckpointCorrupt || !strings.Contains(err.Error(), name) || len(listed) != 1 {
			t.Errorf("%s: %v, %v", name, listed, err)
		}
		if _, err := p.raw.Delete(t.Context(), p.key("checkpoint/%s", name)); err != nil {
			t.Fatal(err)
		}
	}
}

// What is stored of a subscriber is read page by page.
func TestListReadsManyPages(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	store := p.store(nil)
	var all []checkpoint.Checkpoint
	for n := range 4*pageLength + 7 {
		all = append(all, checkpointtest.Exclusive(fmt.Sprintf("gw-%04d", n), checkpoint.Claim{Number: 1}, checkpointtest.Event(n+1)))
	}
	p.fill(all)
	p.put(p.key("checkpoint/exclusive/gw-0150x"), []byte("{}"))
	listed, err := store.List(t.Context())
	if len(listed) != len(all) || fault.Of(err) != fault.CheckpointCorrupt {
		t.Fatalf("%d checkpoints, %v", len(listed), err)
	}
	for i, c := range listed {
		if c.Subscriber != all[i].Subscriber || c.Position.Compare(all[i].Position) != 0 {
			t.Fatalf("checkpoint %d is %+v", i, c)
		}
	}
}

// A save that meets what somebody else has written meanwhile is merged with that, or refused.
func TestSaveThatMeetsAnotherOneIsMerged(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	store, l := p.linked()
	other := p.store(nil)
	claim := func(s *Store, process string, started time.Time) checkpoint.Claim {
		t.Helper()
		c, err := s.ClaimName(t.Context(), checkpoint.Claim{Process: process, Started: started}, checkpointtest.Exclusive("gw/1", checkpoint.Claim{}, checkpointtest.Event(1)))
		if err != nil {
			t.Fatal(err)
		}
		return c.Claim
	}
	started := time.Now().Add(-time.Hour)
	mine := claim(store, "mine", started)
	at := func(partition change.Partition, n int) checkpoint.Checkpoint {
		c := checkpointtest.Exclusive("gw/1", mine, change.Position{})
		c.Positions = map[change.Partition]change.Position{partition: checkpointtest.Event(n)}
		return c
	}
	between := func(do func(ctx context.Context)) {
		l.Next(func(ctx context.Context, send func(context.Context) error) error {
			do(ctx)
			return send(ctx)
		})
	}
	between(func(ctx context.Context) {
		if err := other.Save(ctx, []checkpoint.Checkpoint{at(1, 10)})[0]; err != nil {
			t.Error(err)
		}
	})
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{at(2, 20)})[0]; err != nil {
		t.Fatal(err)
	}
	stored, err := other.Load(t.Context(), "gw/1")
	if err != nil || stored[0].In(1).Compare(checkpointtest.Event(10)) != 0 || stored[0].In(2).Compare(checkpointtest.Event(20)) != 0 {
		t.Errorf("%+v, %v", stored, err)
	}
	between(func(context.Context) { claim(other, "later", started.Add(time.Minute)) })
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{at(2, 30)})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("saved over a later process: %v", err)
	}
	between(func(ctx context.Context) {
		if err := other.Delete(ctx, "gw/1"); err != nil {
			t.Error(err)
		}
	})
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{at(2, 30)})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("saved what was deleted: %v", err)
	}
	// A store that remembers a claim that was deleted since does not refuse the one that stands
	// now.
	mine = claim(other, "again", started)
	if mine.Number != 1 {
		t.Errorf("claimed as %+v", mine)
	}
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{at(2, 40)})[0]; err != nil {
		t.Error(err)
	}
}

// A save that was made before its answer got lost, and is fenced when it is made again, may have
// been saved: nobody is told that it was not.
func TestSaveThatIsFencedAfterItsAnswerGotLostIsUnknown(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	store, l := p.linked()
	term := p.begin(1, 0)[0]
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		if err := send(ctx); err != nil {
			t.Error(err)
		}
		p.begin(1, 0)
		return lost
	})
	save := func() error {
		return store.Save(t.Context(), []checkpoint.Checkpoint{checkpointtest.Shared(term, checkpointtest.Event(5))})[0]
	}
	if err := save(); err == nil || errors.Is(err, checkpoint.ErrFenced) || fault.Of(err) != fault.EtcdUnreachable {
		t.Errorf("save gave %v", err)
	}
	if err := save(); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the next save gave %v", err)
	}
}

// What the network does to a Save: it fails in time, and a later one succeeds.
func TestSaveOverABadNetwork(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.Endpoints(t)
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
			p.origin(1)
			store, l := p.linked()
			term := p.begin(1, 0)[0]
			save := func(ctx context.Context, n int) error {
				return store.Save(ctx, []checkpoint.Checkpoint{checkpointtest.Shared(term, checkpointtest.Event(n))})[0]
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
			if c, err := store.Load(t.Context(), checkpointtest.Subscriber); err != nil || c[0].Position.Compare(checkpointtest.Event(100)) != 0 {
				t.Errorf("the checkpoint is %v, %v", c, err)
			}
		})
	}
}

func TestSaveGoesOnWhenEtcdIsBack(t *testing.T) {
	t.Parallel()
	p := newPlace(t, etcdtest.Endpoints(t))
	p.origin(1)
	store, l := p.linked()
	term := p.begin(1, 0)[0]
	l.Proxy.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	c := checkpointtest.Shared(term, checkpointtest.Event(1))
	if err := store.Save(ctx, []checkpoint.Checkpoint{c})[0]; err == nil {
		t.Error("saved without a server")
	}
	l.Restart()
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{c})[0]; err != nil {
		t.Error(err)
	}
}

// FuzzPartitionOf reads any key.
func FuzzPartitionOf(f *testing.F) {
	k := newKeys("/streamer", "c1")
	f.Add(k.owner(0))
	f.Add(k.owner(change.MaxPartitions - 1))
	f.Add(k.owners() + "-0001")
	f.Fuzz(func(t *testing.T, key string) {
		if p, err := partitionOf(k.owners(), k.owners()+key); err == nil && k.owner(p) != k.owners()+key {
			t.Fatalf("%q gave partition %d", key, p)
		}
	})
}

// FuzzKey gives names keys: no two have one, and none is part of another's.
func FuzzKey(f *testing.F) {
	k := newKeys("/streamer", "c1")
	for _, name := range []string{"gw", "gw/1", "gw%2F1", "..", "\x00", "é"} {
		f.Add(name, "gw")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		keyA, keyB := k.checkpoint(checkpoint.Key{Subscriber: a}), k.checkpoint(checkpoint.Key{Subscriber: b})
		if (a == b) != (keyA == keyB) || strings.Contains(strings.TrimPrefix(keyA, k.exclusive()), "/") {
			t.Fatalf("%q is kept as %s, %q as %s", a, keyA, b, keyB)
		}
		if a != b && strings.HasPrefix(k.partitions(a), k.partitions(b)) {
			t.Fatalf("%q is kept below %q", a, b)
		}
	})
}
