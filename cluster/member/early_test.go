package member_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/member"
)

// A term that is to go to another node before the node serves it, because its checkpoints take long
// to be read, goes as soon as it is served, and not before: the node would begin to serve what it
// has handed over.
func TestTermThatIsToGoBeforeItIsServedGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		memory := clustertest.NewMemory(1, nil)
		leader, err := memory.For("leader").Campaign(t.Context(), "leader")
		if err != nil {
			t.Fatal(err)
		}
		plan := func(version uint64, owner string) {
			if err := leader.Publish(t.Context(), cluster.Plan{Version: version, Owners: []string{owner}}); err != nil {
				t.Fatal(err)
			}
		}
		plan(1, "a")
		var mu sync.Mutex
		served := map[string]change.Term{}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for node, takes := range map[string]time.Duration{"a": 3 * time.Second, "b": 0} {
			var s *member.Member
			s = member.New(member.Config{
				Member: cluster.Identity{Node: node, Process: node}, Clock: func() time.Duration { return time.Since(began) },
				Resume: func(_ context.Context, terms []change.Term) error {
					time.Sleep(takes)
					mu.Lock()
					defer mu.Unlock()
					served[node] = terms[0]
					return nil
				},
				Offer: func(terms []change.Term) {
					mu.Lock()
					defer mu.Unlock()
					if term, ok := served[node]; !ok || term.Epoch != terms[0].Epoch {
						t.Errorf("%s: epoch %s is offered before it is served", node, terms[0].Epoch)
					}
					delete(served, node)
					running.Go(func() { s.Return(terms[0]) })
				},
			}, memory.For(node))
			running.Go(func() {
				err := s.Run(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		plan(2, "b")
		time.Sleep(10 * time.Second)
		mu.Lock()
		if _, there := served["b"]; !there {
			t.Error("the partition has not gone")
		}
		mu.Unlock()
		stop()
		running.Wait()
	})
}
