//go:build prove

package process

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/dev/workload"
)

// Three nodes get a wider watch list and one more sink, one by one; then each of them has for a
// while a list without what is written, while another one is restarted. One is stopped, one is
// killed and starts at once, within the life of its lease, and one is frozen for longer than that.
// Every partition is served after each step, and nothing is missing at either sink.
func TestProveRollingChangesOfConfigurationLoseNothing(t *testing.T) {
	f := newFleet(t, "etcd", 3)
	l, late := &landing{t: t, check: workload.NewCheck(&f.ledger)}, &landing{t: t, check: workload.NewCheck(&f.ledger)}
	f.config = filepath.Join(t.TempDir(), "streamer.yaml")
	watch := func(coll string) string { return "mongodb: {watch: ['" + f.lab.database + "." + coll + "']}\n" }
	one := "sinks:\n  - name: out\n    start: earliest\n    " + landInJetStream(l, f.lab.database)
	two := one + "  - name: late\n    start: earliest\n    " + landInJetStream(late, f.lab.database)
	configure := func(text string) {
		if err := os.WriteFile(f.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(watch("orders") + one)
	f.begin()
	stop := f.write(200)
	leave := map[string]func(s *ship){
		"node-1": func(s *ship) { s.signal(syscall.SIGTERM) },
		"node-2": func(s *ship) { s.signal(syscall.SIGKILL) },
		"node-3": func(s *ship) {
			s.signal(syscall.SIGSTOP)
			rest := time.NewTimer(fleetTTL + time.Second)
			<-rest.C
			s.signal(syscall.SIGCONT)
			s.await("attached to the cluster again")
			s.signal(syscall.SIGTERM)
		},
	}
	change := func(s *ship, to string) {
		configure(to)
		begun := time.Now()
		leave[s.name](s)
		s.wait()
		s.launch()
		s.await(nodeRuns)
		f.settled(nil, patience)
		t.Logf("%s is back with another configuration, and every partition is served, after %v", s.name, time.Since(begun))
	}
	wide := watch("*") + two
	for _, s := range f.ships {
		change(s, wide)
	}
	for i, s := range f.ships {
		change(s, watch("other")+two)
		rest := time.NewTimer(5 * time.Second) // in which it would be given its share
		<-rest.C
		change(f.ships[(i+1)%len(f.ships)], wide) // whose partitions somebody must take over meanwhile
		if owned := epochs(f.view(), s.name); len(owned) > 0 {
			t.Errorf("%s does not read what is written, and owns %v", s.name, owned)
		}
		change(s, wide)
	}
	until(t, "all nodes own partitions again", func() bool {
		view := f.view()
		for _, s := range f.ships {
			if len(epochs(view, s.name)) == 0 {
				return false
			}
		}
		return true
	})
	stop()
	until(t, "everything arrives at both targets", func() bool { return l.check.Missing() == 0 && late.check.Missing() == 0 })
	f.judge()
	for _, at := range []*landing{l, late} {
		if r := at.check.Report(); r.Missing != 0 || r.OutOfOrder != 0 || r.Written == 0 {
			t.Errorf("at a target: %+v", r)
		}
	}
}
