package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/checkpoint/rowtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/devetcd/devetcdtest"
)

func TestStoreKeepsRows(t *testing.T) {
	rowtest.TestKeeper(t, opener(t), func(t *testing.T, s checkpointtest.Store, rows []rowtest.Stored) {
		client := s.(*Store).client
		for some := range slices.Chunk(rows, MaxNested) {
			puts := make([]clientv3.Op, len(some))
			for i, r := range some {
				puts[i] = clientv3.OpPut(client.keys.rows()+url.PathEscape(r.Gateway), string(r.Value))
			}
			if _, err := client.etcd.Txn(t.Context()).Then(puts...).Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}, func(t *testing.T, s checkpointtest.Store, gateway string, by time.Duration) {
		client := s.(*Store).client
		key := client.keys.rows() + url.PathEscape(gateway)
		resp, err := client.etcd.Get(t.Context(), key)
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("%v, %v", resp, err)
		}
		left, err := client.etcd.TimeToLive(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
		if err != nil || left.TTL < int64((24*time.Hour).Seconds()) {
			t.Fatalf("%+v, %v", left, err)
		}
		lease, err := client.etcd.Grant(t.Context(), max(left.TTL-int64(by.Seconds()), 1))
		if err == nil {
			_, err = client.etcd.Put(t.Context(), key, string(resp.Kvs[0].Value), clientv3.WithLease(lease.ID))
		}
		if err == nil && lease.TTL == 1 { // it would run out in a second
			_, err = client.etcd.Revoke(t.Context(), lease.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// rowAt returns a row of a gateway that stands at an event.
func rowAt(gateway string, event int) checkpoint.Row {
	return checkpoint.Row{
		Gateway: gateway, Process: "p", Started: time.Unix(1_700_000_000, 0).UTC(), Partitions: checkpointtest.Partitions,
		Base: checkpointtest.Event(event), SeenAt: time.Now().Round(0).UTC(),
	}
}

// give saves a row until the caller's patience ends with what was to come.
func give(t *testing.T, s *Store, r checkpoint.Row, came <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- s.SaveRow(ctx, r) }()
	<-came
	cancel()
	if err := <-result; err == nil {
		t.Error("saved without an answer")
	}
}

func TestRowThatArrivesLateUndoesNothing(t *testing.T) {
	endpoints := devetcdtest.Endpoints(t)
	for name, first := range map[string][]checkpoint.Row{"over another": {rowAt("gw/1", 10)}, "as the first": nil} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, endpoints)
			slow, l := p.linked()
			other := p.store(nil, "")
			for _, r := range first {
				if err := other.SaveRow(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			held, deliver := l.Hold()
			give(t, slow, rowAt("gw/1", 20), held)
			stands := rowAt("gw/1", 30)
			if err := other.SaveRow(t.Context(), stands); err != nil {
				t.Fatal(err)
			}
			deliver()
			if got, ok, err := other.Row(t.Context(), "gw/1"); err != nil || !ok || got.Base.Compare(stands.Base) != 0 {
				t.Errorf("the gateway stands at %s, %t, %v", got.Base, ok, err)
			}
		})
	}
}

func TestRowWhoseAnswerGotLostIsSavedAgain(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	store, l := p.linked()
	r := rowAt("gw/1", 20)
	give(t, store, r, l.Mute())
	for range 2 {
		if got, ok, err := p.store(nil, "").Row(t.Context(), "gw/1"); err != nil || !ok || !cmp.Equal(r, got) {
			t.Errorf("%+v, %t, %v", got, ok, err)
		}
		if err := store.SaveRow(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
}

func TestRowThatSomebodyElseWritesMeanwhileIsTriedAgain(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	store, l := p.linked()
	other := p.store(nil, "")
	newer, mine := rowAt("gw/1", 10), rowAt("gw/1", 20)
	between := func(r checkpoint.Row) {
		l.Next(func(ctx context.Context, send func(context.Context) error) error {
			if err := other.SaveRow(ctx, r); err != nil {
				t.Error(err)
			}
			return send(ctx)
		})
	}
	between(newer)
	if err := store.SaveRow(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if got, _, err := other.Row(t.Context(), "gw/1"); err != nil || got.Base.Compare(mine.Base) != 0 {
		t.Errorf("the gateway stands at %s, %v", got.Base, err)
	}
	newer.Process, newer.Started = "newer", newer.Started.Add(time.Second)
	between(newer)
	if err := store.SaveRow(t.Context(), mine); !errors.Is(err, checkpoint.ErrRowSuperseded) {
		t.Errorf("saved over a newer process: %v", err)
	}
}

// Versions before saved rows under no lease. Whoever lists them puts them under one, as they are, unless they are saved again meanwhile.
func TestRowsAreReadPageByPageAndPutUnderLeases(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	store, l := p.linked()
	const all = 450
	for n := range all {
		r := rowAt(fmt.Sprintf("gw/%04d", n), n+1)
		if n%3 > 0 {
			if err := store.SaveRow(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			continue
		}
		value, err := record.EncodeRow(r)
		if err != nil {
			t.Fatal(err)
		}
		p.put(p.key("row/%s", url.PathEscape(r.Gateway)), value)
	}
	p.put(p.key("row/no gateway"), []byte("{}"))
	// The first transaction of the listing puts the first of them under a lease, which is saved again before.
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		if err := p.store(nil, "").SaveRow(ctx, rowAt("gw/0000", 7)); err != nil {
			t.Error(err)
		}
		return send(ctx)
	})
	rows, err := store.Rows(t.Context())
	if len(rows) != all || fault.Of(err) != fault.CheckpointCorrupt || !strings.Contains(err.Error(), p.key("row/no gateway")) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	resp, err := p.raw.Get(t.Context(), p.key("row/gw"), clientv3.WithPrefix())
	if err != nil || resp.Count != all {
		t.Fatalf("%d rows are left, %v", resp.Count, err)
	}
	leases := map[int64]int{}
	for _, kv := range resp.Kvs {
		leases[kv.Lease]++
	}
	if leases[0] != 0 || len(leases) != 2 {
		t.Errorf("rows by lease: %v", leases)
	}
	if got, ok, err := store.Row(t.Context(), "gw/0000"); err != nil || !ok || got.Base.Compare(checkpointtest.Event(7)) != 0 {
		t.Errorf("what came back is %+v, %t, %v", got, ok, err)
	}
}

// The lease under which rows are saved may be gone, because etcd was restored or the machine stood still: the next is taken.
func TestRowsAreSavedWhenTheirLeaseIsGone(t *testing.T) {
	p := newPlace(t, devetcdtest.Endpoints(t))
	store := p.store(nil, "")
	for round := range 2 {
		for _, gateway := range []string{"a", "b"} {
			if err := store.SaveRow(t.Context(), rowAt(gateway, 10)); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := p.raw.Get(t.Context(), p.key("row/"), clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) != 2 || resp.Kvs[0].Lease != resp.Kvs[1].Lease || resp.Kvs[0].Lease == 0 {
			t.Fatalf("round %d: %v, %v", round, resp, err)
		}
		if _, err := p.raw.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
			t.Fatal(err)
		}
		if rows, err := store.Rows(t.Context()); err != nil || len(rows) != 0 {
			t.Errorf("%v, %v", rows, err)
		}
	}
}
