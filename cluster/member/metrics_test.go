package member_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/member"
)

// A gauged is a node whose metrics are looked at. It takes its time to give up a term.
type gauged struct {
	*testing.T

	registry *prometheus.Registry
	asleep   atomic.Int64 // how long the process has stood still, in all
}

// run runs a node until the context ends.
func (g *gauged) run(ctx context.Context, running *sync.WaitGroup, memory *clustertest.Memory, node string, slow time.Duration) {
	began := time.Now()
	var s *member.Member
	s = member.New(member.Config{
		Member: cluster.Identity{Node: node, Process: node}, TTL: 9 * time.Second, Registerer: g.registry,
		Clock: func() time.Duration { return time.Since(began) + time.Duration(g.asleep.Load()) },
		Resume: func(_ context.Context, terms []change.Term) error {
			for _, term := range terms {
				running.Go(func() {
					<-term.Context.Done()
					s.Return(term)
				})
			}
			return nil
		},
		Offer: func(terms []change.Term) {
			running.Go(func() {
				time.Sleep(slow)
				for _, term := range terms {
					s.Return(term)
				}
			})
		},
	}, memory.For(node))
	running.Go(func() {
		if err := s.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
			g.Error(err)
		}
	})
}

// value returns what a metric says.
func (g *gauged) value(name string) float64 {
	g.Helper()
	families, err := g.registry.Gather()
	if err != nil {
		g.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	g.Fatalf("there is no metric %s", name)
	return 0
}

// says fails where a metric is not between two values.
func (g *gauged) says(name string, least, most float64) {
	g.Helper()
	if n := g.value(name); n < least || n > most {
		g.Errorf("%s is %v, must be %v to %v", name, n, least, most)
	}
}

// What becomes of a lease and of claims is told in metrics, by the names that alerts are made of.
func TestMetricsTellOfLeasesAndClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := clustertest.NewMemory(4, nil)
		leader, err := memory.For("leader").Campaign(t.Context(), "leader")
		if err != nil {
			t.Fatal(err)
		}
		plan := func(version uint64, owners ...string) {
			if err := leader.Publish(t.Context(), cluster.Plan{Version: version, Owners: owners}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		a, b := &gauged{T: t, registry: prometheus.NewRegistry()}, &gauged{T: t, registry: prometheus.NewRegistry()}
		plan(1, "a", "a", "a", "a")
		a.run(ctx, &running, memory, "a", 4*time.Second)
		time.Sleep(time.Second)
		b.run(ctx, &running, memory, "b", 0)
		plan(2, "b", "a", "a", "a")
		time.Sleep(6 * time.Second)
		a.says("streamer_terms_claimed_total", 4, 4)
		a.says("streamer_terms_released_total", 1, 1)
		b.says("streamer_acquire_retry_attempts_total", 5, 15) // every 200 ms, for 2 s
		b.says("streamer_acquire_retry_window_exhausted_total", 1, 1)
		b.says("streamer_lease_keepalive_failures_total", 0, 0)

		a.says("streamer_lease_deadline_lag_seconds", 7, 9) // of 9 s, renewed every 1.8 s

		memory.Cut("a", true)
		time.Sleep(8 * time.Second)
		a.says("streamer_sharding_detached", 1, 1)
		a.says("streamer_lease_keepalive_failures_total", 2, 100)
		a.says("streamer_lease_keepalive_failure_streak", 2, 100)
		a.says("streamer_lease_deadline_lag_seconds", -1, 1) // of the lease that it had
		memory.Cut("a", false)
		time.Sleep(3 * time.Second)
		a.says("streamer_sharding_detached", 0, 0)
		a.says("streamer_lease_keepalive_failure_streak", 0, 0)
		a.says("streamer_lease_deadline_lag_seconds", 7, 9)

		a.asleep.Store(int64(20 * time.Second))
		memory.Expire("a")
		a.says("streamer_lease_deadline_lag_seconds", -13, -11) // at once, before anything has had time to tell it
		time.Sleep(3 * time.Second)
		a.says("streamer_lease_deadline_lag_seconds", 7, 9)

		a.says("streamer_cluster_view_age_seconds", 0, 2)
		failed := a.value("streamer_cluster_view_failures_total")
		memory.Blind("a", clustertest.ErrCut)
		time.Sleep(5 * time.Minute)
		a.says("streamer_cluster_view_failures_total", failed+1100, failed+1300) // every 250 ms while it is detached
		a.says("streamer_cluster_view_age_seconds", 300, 302)
		a.says("streamer_sharding_detached", 1, 1)
	})
}
