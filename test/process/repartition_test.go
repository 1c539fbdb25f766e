package process

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd"
)

// of returns the lab with nodes that count so many partitions.
func (l *lab) of(n int) *lab {
	return l.with(fmt.Sprintf("STREAMER_CLUSTER_PARTITIONS=%d", n))
}

// The number of partitions changes there and back between writes; a gateway over gRPC and a session
// of the process miss nothing, and histories stay.
func TestPartitionsAreCountedAnewAndNothingIsMissing(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		for _, nodes := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d nodes", backend, nodes), func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, backend, nodes, unhurried)
				begin := func(n int) {
					for _, s := range f.ships {
						s.lab = s.lab.of(n)
						s.launch()
					}
					for _, s := range f.ships {
						s.await(nodeRuns)
					}
				}
				end := func() {
					for _, s := range f.ships {
						s.signal(syscall.SIGTERM)
					}
					for _, s := range f.ships {
						if code := s.wait(); code != 0 {
							t.Errorf("exit code %d", code)
						}
					}
				}
				begin(partitions)
				follower := f.attend("follower", client.Owned, f.addresses()...)
				stop := f.write(100) // while nobody reads, too
				for i, n := range []int{24, partitions, 5} {
					delivered, _ := f.printed.Delivered()
					until(t, "something is printed, and a mark of partition 3 is saved", func() bool {
						now, _ := f.printed.Delivered()
						return now > delivered+100 && f.lab.has(3)
					})
					running := f.lab.operate("cluster", "repartition", "--to", fmt.Sprint(n), "--yes")
					running.refused(fault.NodeRunning)
					end()
					before := f.lab.list().Origin
					if plan := f.lab.result("cluster", "repartition", "--to", fmt.Sprint(n), "--dry-run"); !strings.Contains(plan, "shared ones begin at") {
						t.Errorf("%s", plan)
					}
					text := f.lab.result("cluster", "repartition", "--to", fmt.Sprint(n), "--yes")
					if !strings.Contains(text, fmt.Sprintf("There are %d partitions, incarnation %d.", n, i+2)) {
						t.Errorf("%s", text)
					}
					f.lab.operate("subscribers", "list").refused(fault.CheckpointPartitions)
					f.lab = f.lab.of(n)
					after := f.lab.list()
					if len(after.Subscribers) == 0 || after.Origin.Cluster != before.Cluster || after.Origin.Incarnation != before.Incarnation+1 || after.Origin.Partitions != n {
						t.Errorf("%+v after %+v", after, before)
					}
					if past := f.lab.result("subscribers", "history", printer, "--partition", "3"); !strings.Contains(past, fmt.Sprintf("3 of %d", before.Partitions)) {
						t.Errorf("%s", past)
					}
					f.lab.operate("cluster", "repartition", "--to", fmt.Sprint(n), "--yes").refused(fault.CheckpointRepartition, "already")
					begin(n)
				}
				stop()
				follower.judge()
				f.judge()
			})
		}
	}
}

// Where marks are in MongoDB and nodes share them through etcd, whoever counts anew may be killed
// between the two. No node starts then, and the same command does the rest.
func TestRepartitionThatWasKilledIsDoneByTheNext(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "mongo", 2)
	f.begin()
	stop := f.write(100)
	until(t, "something is printed", func() bool { n, _ := f.printed.Delivered(); return n > 100 })
	for _, s := range f.ships {
		s.signal(syscall.SIGTERM)
	}
	for _, s := range f.ships {
		s.wait()
	}
	client, err := etcd.Dial(t.Context(), etcd.Config{Endpoints: []string{f.etcd}, Prefix: "/test", Cluster: f.lab.cluster, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	half := etcd.NewStore(client, 0)
	last, err := half.Origin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := last
	next.Partitions, next.Incarnation = 24, 2
	if _, err := half.Repartition(t.Context(), last, next); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	for _, n := range []int{partitions, 24} {
		l := f.ships[0].lab.of(n)
		p := start(t, launch{args: []string{"run"}, env: l.settings})
		p.refused(fault.CheckpointPartitions)
	}
	if text := f.lab.result("cluster", "repartition", "--to", "24", "--yes"); !strings.Contains(text, "24 partitions, incarnation 3.") {
		t.Errorf("%s", text)
	}
	for _, s := range f.ships {
		s.lab = s.lab.of(24)
		s.launch()
	}
	for _, s := range f.ships {
		s.await(nodeRuns)
	}
	stop()
	f.judge()
}
