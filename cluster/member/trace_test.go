package member_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/member"
)

// A handedStore is one in which the claims were written by a handoff with a trace. Its views may be
// of another claim than the one that stands.
type handedStore struct {
	cluster.Store

	wrong atomic.Bool
}

const handoff = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// View implements cluster.Store.
func (s *handedStore) View(ctx context.Context) (cluster.View, error) {
	view, err := s.Store.View(ctx)
	if s.wrong.Load() {
		view.Owners = slices.Clone(view.Owners)
		view.Owners[0].Epoch.Revision--
	}
	return view, err
}

// Join implements cluster.Store.
func (s *handedStore) Join(ctx context.Context, first cluster.Heartbeat, ttl time.Duration) (cluster.Membership, error) {
	m, err := s.Store.Join(ctx, first, ttl)
	return handedMembership{m}, err
}

type handedMembership struct{ cluster.Membership }

// Claim implements cluster.Membership.
func (m handedMembership) Claim(ctx context.Context, partitions []change.Partition) ([]cluster.Owner, error) {
	owners, err := m.Membership.Claim(ctx, partitions)
	for i := range owners {
		owners[i].Trace = handoff
	}
	return owners, err
}

// A spanList is a tracer that keeps the names of the spans that were begun, by trace.
type spanList struct {
	noop.Tracer

	mu    sync.Mutex
	begun map[string][]string
}

// Start implements trace.Tracer.
func (l *spanList) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := trace.SpanContextFromContext(ctx).TraceID().String()
	l.begun[id] = append(l.begun[id], name)
	return l.Tracer.Start(ctx, name, options...)
}

// The trace of a handoff has the claim that follows it. A node that claims the partition again,
// because it believed that it was taken, finds the same record, and adds nothing.
func TestOnlyTheClaimAfterAHandoffIsInItsTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		memory := clustertest.NewMemory(1, nil)
		leader, err := memory.For("leader").Campaign(t.Context(), "leader")
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.Publish(t.Context(), cluster.Plan{Version: 1, Owners: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		store, tracer := &handedStore{Store: memory.For("a")}, &spanList{begun: make(map[string][]string)}
		ctx, stop := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		var served []change.Epoch
		var s *member.Member
		s = member.New(member.Config{
			Member: cluster.Identity{Node: "a", Process: "p"}, Clock: func() time.Duration { return time.Since(began) }, Tracer: tracer,
			Resume: func(_ context.Context, terms []change.Term) error {
				served = append(served, terms[0].Epoch)
				serving.Go(func() {
					<-terms[0].Context.Done()
					s.Return(terms[0])
				})
				return nil
			},
			Offer: func([]change.Term) {},
		}, store)
		ended := make(chan error, 1)
		go func() {
			ended <- s.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(5 * time.Second)
		store.wrong.Store(true)
		time.Sleep(5 * time.Second)
		store.wrong.Store(false)
		time.Sleep(5 * time.Second)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		serving.Wait()
		if len(served) < 2 || served[0] != served[1] {
			t.Fatalf("served with epochs %v: the partition was not claimed again", served)
		}
		id := handoff[3:35]
		if got := tracer.begun[id]; len(tracer.begun) != 1 || !slices.Equal(got, []string{"handoff.claim", "handoff.serve"}) {
			t.Errorf("spans by trace: %v", tracer.begun)
		}
	})
}

// A countedStore counts the heartbeats of its members.
type countedStore struct {
	cluster.Store

	beats atomic.Int64
	ttl   time.Duration // of the leases
}

// Join implements cluster.Store.
func (s *countedStore) Join(ctx context.Context, first cluster.Heartbeat, ttl time.Duration) (cluster.Membership, error) {
	m, err := s.Store.Join(ctx, first, ttl)
	s.ttl = ttl
	return countedMembership{m, &s.beats}, err
}

type countedMembership struct {
	cluster.Membership

	beats *atomic.Int64
}

// Beat implements cluster.Membership.
func (m countedMembership) Beat(ctx context.Context, h cluster.Heartbeat) error {
	m.beats.Add(1)
	return m.Membership.Beat(ctx, h)
}

func TestHeartbeatsAreAsConfigured(t *testing.T) {
	for interval, want := range map[time.Duration]int64{500 * time.Millisecond: 40, 5 * time.Second: 4} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			store := &countedStore{Store: clustertest.NewMemory(1, nil).For("a")}
			s := member.New(member.Config{
				Member: cluster.Identity{Node: "a", Process: "p"}, HeartbeatInterval: interval, TTL: 17 * time.Second, Clock: func() time.Duration { return time.Since(began) },
				Resume: func(context.Context, []change.Term) error { return nil }, Offer: func([]change.Term) {},
			}, store)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- s.Run(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				})
			}()
			time.Sleep(5 * time.Second)
			before := store.beats.Load()
			time.Sleep(20 * time.Second)
			if n := store.beats.Load() - before; n < want-1 || n > want+1 {
				t.Errorf("%d heartbeats in 20 s at an interval of %v", n, interval)
			}
			if store.ttl != 17*time.Second {
				t.Errorf("a lease of %v", store.ttl)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
