package wiring

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/devmongo"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/supervisor"
)

// The hub stands still: it is found, restarted within its process, and makes progress again. Nothing is lost, and the reports say it.
func TestWedgedHubIsFoundAndRestarted(t *testing.T) {
	t.Parallel()
	// A third of the interval is what the node has to answer, and etcd to write the order: a second, also for a machine that is short of breath.
	r := newRig(t, devmongo.Config{}, "STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=3s", "STREAMER_SUPERVISOR_STALL_AFTER=3s")
	var wedged atomic.Bool
	r.stallHub = func(ctx context.Context) {
		if wedged.CompareAndSwap(true, false) {
			<-ctx.Done()
		}
	}
	n := r.begin()
	ids := r.series(0, 10)
	n.until("the first changes are delivered", func() bool { return len(n.ids()) == len(ids) })
	wedged.Store(true)
	ids = append(ids, r.series(10, 20)...)
	n.until("the others are delivered, too", func() bool { return len(n.ids()) == len(ids) })
	var happened []fault.Code
	n.until("the reports say so", func() bool {
		happened = nil
		reports, err := n.service.supervised.Reports(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, report := range reports {
			for _, e := range report.Events {
				if e.Slug == "n/hub" {
					happened = append(happened, e.Code)
				}
			}
		}
		for len(happened) > 0 && happened[len(happened)-1] == fault.SupervisorRecovered {
			happened = happened[:len(happened)-1] // of a miss before it was wedged
		}
		return len(happened) > 0 && happened[0] == fault.SupervisorRecovered
	})
	if happened[len(happened)-1] != fault.SupervisorRestarted {
		t.Errorf("%v", happened)
	}
	posted, _ := n.service.board.Since(0)
	restarted := 0
	for _, p := range posted {
		if err := notice.Check(p); err != nil {
			t.Error(err)
		}
		if p.Kind == notice.KindComponentRestarted && p.Fields["slug"] == "n/hub" {
			restarted++
		}
	}
	if restarted == 0 || restarted > 3 {
		t.Errorf("%d restarts", restarted)
	}
	n.once(ids...)
	n.stopped()
}

// A node that was refused at its start looks after nobody: it writes no report, and deposes nobody who does.
func TestNodeThatIsRefusedSweepsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{}, "STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=500ms", "STREAMER_CLUSTER_LEASE_TTL=2s")
	service, err := r.assemble()
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // before it serves
	if err := service.Run(ctx); err != nil {
		t.Fatal(err)
	}
	again, err := r.assemble()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	standing, err := again.supervised.Look(t.Context())
	if err != nil || standing.Sweep != 0 || standing.By != "" {
		t.Errorf("%v, %+v", err, standing)
	}
}

// Neither MongoDB nor etcd that is away is a reason to replace the process.
func TestNothingIsStalledWhileMongoDBIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{}, "STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=500ms", "STREAMER_SUPERVISOR_STALL_AFTER=1s")
	n := r.begin()
	r.insert("a")
	n.until("it runs", func() bool { return len(n.ids()) == 1 })
	r.fail("alwaysOn", 0, "getMore", "aggregate", "hello", "ping", "find")
	before, err := n.service.supervised.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.until("eight sweeps", func() bool {
		standing, err := n.service.supervised.Look(t.Context())
		return err == nil && standing.Sweep > before.Sweep+8
	})
	reports, err := n.service.supervised.Reports(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range reports {
		for _, f := range report.Findings {
			if f.Slug == "n/tail" && f.Action == supervisor.ActionRestarted {
				t.Errorf("restarted because MongoDB is away: %+v", f)
			}
		}
	}
	if err := n.service.components.Alive(); err != nil {
		t.Error(err)
	}
	r.heal()
	r.insert("b")
	n.until("it goes on", func() bool { return len(n.ids()) == 2 })
}
