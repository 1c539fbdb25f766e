package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/etcd"
)

// What an operator has moved back comes again, whole and in order, although the number of
// partitions changes before anything of it was delivered, or right before it was moved back: at
// every target, at a gateway that runs all the time, and at one that begins at its checkpoint.
// Nothing of an earlier number of partitions, or of an earlier rewind, is taken for it.
func TestRewindsOutliveRepartitions(t *testing.T) {
	t.Parallel()
	for name, start := range toEach() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &landing{}
			r := sinkRig(t, start(t, l))
			address := devmongotest.FreeAddress()
			count := partitions
			begin := func() *live {
				return r.beginWith(nil, "STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=1m", "STREAMER_GRPC_LISTEN="+address, fmt.Sprint("STREAMER_CLUSTER_PARTITIONS=", count))
			}
			n := begin()
			begun := r.now()
			stays := n.connectTo(address, following("stays"), client.Subscription{ID: "all", DB: "shop"})
			comes := n.connectTo(address, following("comes"), client.Subscription{ID: "all", DB: "shop"})
			stays.told(t, "connected", connected)
			comes.told(t, "connected", connected)
			const documents = 10
			r.writes(0, documents)
			n.landed(l, documents)
			want := []int{1, 2, 3}
			stays.takesEach(t, documents)
			comes.takesEach(t, documents)
			for _, next := range []int{2 * partitions, 3, partitions} {
				comes.stop()
				n.stopped()
				if next == 3 { // a part of it moves back, and is moved back with the others
					r.rewinds("sink/out", count, []change.Partition{1}, begun)
				} else {
					r.rewinds("sink/out", count, nil, begun)
				}
				r.rewinds("stays", count, nil, begun)
				r.repartitions(count, next)
				count = next
				r.rewinds("comes", count, nil, begun)
				n = begin()
				comes = n.connectTo(address, following("comes"), client.Subscription{ID: "all", DB: "shop"})
				stays.told(t, "it is told of the rewind", func(n client.Notice) bool { _, rewound := n.(client.Rewound); return rewound })
				stays.takesEach(t, documents)
				comes.takesEach(t, documents)
				want = append(want, 1, 2, 3)
				n.until(fmt.Sprintf("everything comes again in %d partitions", next), func() bool {
					all := l.seqs(t)
					for id := range documents {
						if len(all[fmt.Sprint(id)]) < len(want) {
							return false
						}
					}
					return true
				})
			}
			r.writes(documents, documents+1)
			n.until("what is written afterwards comes", func() bool { return len(l.seqs(t)[fmt.Sprint(documents)]) == 3 })
			stays.takes(t, 3)
			for id := range documents {
				if got := l.seqs(t)[fmt.Sprint(id)]; !slices.Equal(got, want) {
					t.Errorf("document %d: changes %v, want %v", id, got, want)
				}
			}
		})
	}
}

// takesEach waits for the three changes of each of so many documents, and nothing else.
func (p *program) takesEach(t *testing.T, documents int) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	of := make(map[string]int)
	for i := range 3 * documents {
		select {
		case id := <-p.changes:
			of[id]++
		case <-timeout.C:
			t.Fatalf("%d changes of %d documents: %v", i, documents, of)
		}
	}
	for id, n := range of {
		if n != 3 {
			t.Errorf("%d changes of document %s", n, id)
		}
	}
}

// following is the configuration of a gateway that is saved often and comes back soon.
func following(name string) client.Config {
	return client.Config{Subscriber: name, Start: client.StartEarliest, ReconnectWait: 10 * time.Millisecond, MaxReconnectWait: 100 * time.Millisecond}
}

// rewinds moves a subscriber back, past nodes that count so many partitions.
func (r *rig) rewinds(subscriber string, count int, of []change.Partition, to change.Timestamp) {
	r.Helper()
	store := etcd.NewStore(r.etcd, count)
	plan, err := admin.PlanRewind(r.Context(), store, deployment{r, store}, subscriber, of, change.At(to))
	if err == nil {
		_, err = plan.Apply(r.Context(), store, "operator", "a test")
	}
	if err != nil {
		r.Fatalf("rewind %s: %v", subscriber, err)
	}
}

// repartitions changes the number of partitions.
func (r *rig) repartitions(from, to int) {
	r.Helper()
	store := etcd.NewStore(r.etcd, from)
	plan, err := admin.PlanRepartition(r.Context(), store, deployment{r, store}, to, change.Coverage{})
	if err == nil {
		_, err = plan.Apply(r.Context(), store, "operator")
	}
	if err != nil {
		r.Fatal(err)
	}
}

// A deployment is a rig's MongoDB for operators.
type deployment struct {
	*rig

	store *etcd.Store
}

var _ admin.Source = deployment{}

// Identity implements admin.Source.
func (d deployment) Identity(ctx context.Context) (string, error) {
	o, err := d.store.Origin(ctx)
	return o.Source, err
}

// Now implements admin.Source.
func (d deployment) Now(context.Context) (change.Timestamp, error) { return d.now(), nil }

// FirstEntry implements admin.Source.
func (d deployment) FirstEntry(context.Context) (change.Timestamp, bool, error) {
	return d.first(), true, nil
}

// CountEntries implements admin.Source.
func (d deployment) CountEntries(context.Context, change.Timestamp, change.Timestamp) (int64, bool, error) {
	return 0, false, nil
}
