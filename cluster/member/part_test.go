package member_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/member"
)

// A partition that cannot be served, because nobody can read its mark, keeps none of the others
// that its node claims with it from being served, and is tried again and again, at a measured pace.
func TestPartitionThatCannotBeServedKeepsNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, spoilt = 300, change.Partition(217)
		memory := clustertest.NewMemory(partitions, nil)
		leader, err := memory.For("leader").Campaign(t.Context(), "leader")
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.Publish(t.Context(), cluster.Plan{Version: 1, Owners: slices.Repeat([]string{"a"}, partitions)}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		served, calls := map[change.Partition]change.Term{}, 0
		began := time.Now()
		unreadable := errors.New("the mark cannot be read")
		s := member.New(member.Config{
			Member: cluster.Identity{Node: "a", Process: "p"}, Offer: func([]change.Term) {},
			Clock: func() time.Duration { return time.Since(began) },
			Resume: func(_ context.Context, terms []change.Term) error {
				mu.Lock()
				defer mu.Unlock()
				calls++
				for _, term := range terms {
					if term.Partition == spoilt {
						return unreadable
					}
				}
				for _, term := range terms {
					served[term.Partition] = term
				}
				return nil
			},
		}, memory.For("a"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- s.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(5 * time.Second)
		mu.Lock()
		before := calls
		mu.Unlock()
		time.Sleep(10 * time.Second)
		mu.Lock()
		there, tried := maps.Clone(served), calls-before
		mu.Unlock() // or the last attempt waits for it while it is waited for
		for p := range change.Partition(partitions) {
			if term, ok := there[p]; p != spoilt && (!ok || term.Err() != nil) {
				t.Fatalf("partition %d of %d is not served: %d are", p, partitions, len(there))
			}
		}
		if tried < 2 || tried > 12 {
			t.Errorf("%d attempts in 10 s at what cannot be served", tried)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
