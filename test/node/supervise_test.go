package node

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/supervisor"
)

// paced are settings of nodes that sweep when a test asks for it: what is asked in a sweep has a
// hundred seconds to answer, so nothing depends on the speed of the machine.
func paced() []string {
	return []string{"STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=300s", "STREAMER_SUPERVISOR_STALL_AFTER=3s"}
}

// sweep has the node sweep and returns the report.
func (n *live) sweep() supervisor.Report {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	if err := n.service.Supervisor().SweepNow(ctx); err != nil {
		n.Fatal(err)
	}
	reports, err := n.service.Supervision().Reports(n.Context(), 1)
	if err != nil || len(reports) == 0 {
		n.Fatalf("%v, %d reports", err, len(reports))
	}
	return reports[0]
}

// sweepsWell has the node sweep until all components make progress, and returns the number of that
// sweep.
func (n *live) sweepsWell() uint64 {
	n.Helper()
	var report supervisor.Report
	n.until("all components make progress", func() bool {
		return len(n.stalled()) == 0 && func() bool { report = n.sweep(); return report.Missed == 0 }()
	})
	return report.Sweep
}

// sweepsOver has the node sweep once a component, and no other, makes no progress.
func (n *live) sweepsOver(component string) {
	n.Helper()
	n.until(component+" makes no progress", func() bool { return slices.Equal(n.stalled(), []string{component}) })
	n.sweep()
}

// stalled returns the components that make no progress.
func (n *live) stalled() (slugs []string) {
	n.Helper()
	for _, slug := range n.service.Components().Slugs() {
		v, err := n.service.Components().Vital(slug)
		if err != nil {
			n.Fatal(err)
		}
		if v.Status != health.VitalOK {
			slugs = append(slugs, slug)
		}
	}
	return slugs
}

// restarted fails the test unless the reports after a sweep and the notices say that the component
// was restarted once, and makes progress again.
func (n *live) restarted(component string, after uint64) {
	n.Helper()
	reports, err := n.service.Supervision().Reports(n.Context(), 100)
	if err != nil {
		n.Fatal(err)
	}
	var happened []fault.Code // the newest first
	for _, report := range reports {
		for _, e := range report.Events {
			if e.Slug == "n/"+component && report.Sweep > after {
				happened = append(happened, e.Code)
			}
		}
	}
	if !slices.Equal(happened, []fault.Code{fault.SupervisorRecovered, fault.SupervisorRestarted}) {
		n.Errorf("%s: %v", component, happened)
	}
	posted, _ := n.service.Board().Since(0)
	restarts := 0
	for _, p := range posted {
		if err := notice.Check(p); err != nil {
			n.Error(err)
		}
		if p.Kind == notice.KindComponentRestarted && p.Fields["slug"] == "n/"+component && p.Fields["level"] == string(supervisor.Lane) {
			restarts++
		}
	}
	if restarts != 1 {
		n.Errorf("%s: %d notices of restarts", component, restarts)
	}
}

// The hub stands still: it is found, restarted within its process, and makes progress again.
// Nothing is lost, and the reports say it.
func TestWedgedHubIsFoundAndRestarted(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{}, paced()...)
	var wedged atomic.Bool
	r.stallHub = func(ctx context.Context) {
		if wedged.CompareAndSwap(true, false) {
			<-ctx.Done()
		}
	}
	n := r.begin()
	ids := r.series(0, 10)
	n.until("the first changes are delivered", func() bool { return len(n.ids()) == len(ids) })
	before := n.sweepsWell()
	wedged.Store(true)
	ids = append(ids, r.series(10, 20)...)
	n.sweepsOver("hub")
	n.sweepsOver("hub") // the second miss
	n.until("the others are delivered, too", func() bool { return len(n.ids()) == len(ids) })
	n.sweepsWell()
	n.restarted("hub", before)
	n.once(ids...)
	n.stopped()
}

// A sink stands still, with changes before its target and in it: it is found, restarted within its
// process, and publishes the rest, each change once where the target tells repetitions.
func TestWedgedSinkIsFoundAndRestarted(t *testing.T) {
	t.Parallel()
	for name, start := range toEach() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &landing{}
			r := sinkRig(t, start(t, l))
			r.settings = append(r.settings, paced()...)
			var wedged atomic.Bool
			r.stallSink = func(ctx context.Context) {
				if wedged.CompareAndSwap(true, false) {
					<-ctx.Done()
				}
			}
			n := r.beginWith(nil)
			r.writes(0, 10)
			n.landed(l, 10)
			before := n.sweepsWell()
			wedged.Store(true)
			r.writes(10, 20)
			n.sweepsOver("sink-out")
			n.sweepsOver("sink-out") // the second miss
			n.landed(l, 20)
			n.sweepsWell()
			n.restarted("sink-out", before)
		})
	}
}

// A sink is no zombie while its target is away or silent, nor while it is paused.
func TestSinkWithoutItsTargetIsNotStalled(t *testing.T) {
	t.Parallel()
	e := &endpoint{}
	var requests atomic.Int64
	e.answers(func(r *http.Request, _ []string) int {
		if requests.Add(1)%2 == 0 {
			<-r.Context().Done() // until the sink gives up
		}
		return http.StatusServiceUnavailable
	})
	r := sinkRig(t, strings.Replace(toHTTP(t, e), "timeout: 10m", "timeout: 2s", 1))
	r.settings = append(r.settings, paced()...)
	n := r.beginWith(nil)
	r.writes(0, 10)
	progress, last := int64(0), time.Duration(0) // how often it was noted; a look may miss it
	n.until("attempts fail, and count as progress", func() bool {
		age := n.age("sink-out")
		if age < last {
			progress++
		}
		last = age
		return requests.Load() > 8 && 3*progress >= requests.Load()
	})
	n.post("pause")
	n.until("it is paused", func() bool { return n.service.Sinks()[0].Status().State == sink.Paused })
	n.sweepsWell()
	e.answers(nil)
	n.post("resume")
	n.arrived(&e.landing, 10)
}

// age returns for how long a component makes no progress.
func (n *live) age(slug string) time.Duration {
	n.Helper()
	v, err := n.service.Components().Vital(slug)
	if err != nil {
		n.Fatal(err)
	}
	return time.Duration(v.LastDecision) * time.Millisecond
}

// A node that was refused at its start looks after nobody: it writes no report, and deposes nobody
// who does.
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
	standing, err := again.Supervision().Look(t.Context())
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
	before, err := n.service.Supervision().Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.until("eight sweeps, and the next attempt is seconds away", func() bool {
		standing, err := n.service.Supervision().Look(t.Context())
		return err == nil && standing.Sweep > before.Sweep+8 && n.metric("streamer_mongodb_stream_failures_total") >= 6
	})
	reports, err := n.service.Supervision().Reports(t.Context(), 100)
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
	if err := n.service.Components().Alive(); err != nil {
		t.Error(err)
	}
	r.heal()
	r.insert("b")
	n.until("it goes on", func() bool { return len(n.ids()) == 2 })
}
