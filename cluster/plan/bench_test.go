package plan_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
)

// large returns the view of a cluster in which everybody serves what it is planned to.
func large(members, partitions int) cluster.View {
	v := cluster.View{Revision: 1, Leader: "node-0000", Owners: make([]cluster.Owner, partitions)}
	for i := range members {
		node := fmt.Sprintf("node-%04d", i)
		v.Members = append(v.Members, cluster.Member{Joined: 1, Beat: 1, Heartbeat: cluster.Heartbeat{
			Node: node, Process: node + "/a", Kind: cluster.KindNode, Status: cluster.StatusHealthy, Count: partitions, Version: "1.2.3",
			Checks: map[string]bool{cluster.CheckMongoDB: true, cluster.CheckEtcd: true, cluster.CheckCheckpoint: true, cluster.CheckGateway: true},
		}})
	}
	v.Plan = cluster.Plan{Version: 1, Owners: make([]string, partitions)}
	for p := range partitions {
		seat := &v.Members[p%members]
		epoch := change.Epoch{Incarnation: 1, Revision: uint64(p + 1)}
		v.Plan.Owners[p] = seat.Node
		v.Owners[p] = cluster.Owner{Node: seat.Node, Process: seat.Process, Epoch: epoch}
		seat.Held = append(seat.Held, cluster.HeldPartition{Partition: change.Partition(p), Epoch: epoch, Rate: 10})
	}
	return v
}

// A thousand heartbeats a second, of two thousand members, looked at as often as a leader looks at
// most. 100 % is one core.
func BenchmarkThousandHeartbeatsASecond(b *testing.B) {
	const members, looks = 2000, 20
	v := large(members, 1024)
	s := plan.New(plan.Config{Node: "node-0000", Partitions: 1024})
	now, beaten := time.Hour, 0
	b.ReportAllocs()
	for b.Loop() {
		for range looks { // a second
			now += time.Second / looks
			for range 1000 / looks {
				v.Revision++
				v.Members[beaten%members].Beat = v.Revision
				beaten++
			}
			if d := s.Step(now, v); len(d.Notices) > 0 {
				b.Fatalf("%+v", d)
			}
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*100, "%-of-a-core")
}

// heap is what is alive.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestStateOfTwentyMembersTakesLessThanAMebibyte(t *testing.T) {
	before := heap()
	s := plan.New(plan.Config{Node: "node-0000", Partitions: 1024})
	for i := range 200 { // each look is of a view of its own
		v := large(20, 1024)
		for m := range v.Members {
			v.Members[m].Beat = int64(i)
			v.Members[m].Process = fmt.Sprint(i / 50)
			v.Members[m].Checks[cluster.CheckMongoDB] = i%7 > 0 || m > 0
		}
		s.Step(time.Hour+time.Duration(i)*time.Second, v)
	}
	taken := int64(heap()) - int64(before)
	t.Logf("%d KiB", taken>>10)
	if taken > 1<<20 {
		t.Errorf("%d bytes", taken)
	}
	runtime.KeepAlive(s)
}
