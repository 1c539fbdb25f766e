package process

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/client"
)

// Owners are killed under load, and then the leader: every partition is delivered again in time,
// and nobody misses anything.
func TestPartitionsOfKilledOwnersAreDeliveredAgainInTime(t *testing.T) {
	t.Parallel()
	kills(t, "etcd", 5)
}

func TestPartitionsOfKilledOwnersAreDeliveredAgainWithMarksInMongoDB(t *testing.T) {
	t.Parallel()
	kills(t, "mongo", 2)
}

// kills kills owners of a fleet, the last of which leads. At a kill that is late the machine may
// have been busy: another one like it must be in time, of three at most.
func kills(t *testing.T, backend string, runs int) {
	f := newFleet(t, backend, 3)
	f.begin()
	everything := f.attend("everything", client.All, f.addresses()...)
	parts := f.attend("parts", client.Owned, f.addresses()...)
	stop := f.write(300)
	late := 0
	for run := 0; run < runs; run++ {
		leads := run == runs-1
		victim, owned := f.owning(leads)
		within := fleetTTL + 2*time.Second*pace
		if leads {
			within = 2*fleetTTL + 3*time.Second*pace
		}
		at := time.Now()
		victim.signal(os.Kill)
		took := f.again(owned, victim.name, at)
		t.Logf("run %d: %s had %d partitions (leads: %v): delivered again after %v", run, victim.name, len(owned), leads, took)
		victim.wait()
		victim.launch()
		f.settled(owned, patience)
		if took <= within {
			continue
		}
		if late++; late == 3 {
			t.Fatalf("run %d took %v, more than %v, for the third time", run, took, within)
		}
		run--
	}
	stop()
	everything.judge()
	parts.judge()
	f.judge()
}

// A node that stops as planned gives up what it has at once: nobody waits for its lease.
func TestPlannedStopWaitsForNoLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 2, "STREAMER_CLUSTER_LEASE_TTL=60s")
	f.begin()
	stop := f.write(300)
	victim, owned := f.owning(true)
	at := time.Now()
	victim.signal(syscall.SIGTERM)
	took := f.again(owned, victim.name, at)
	if code := victim.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	victim.process = nil
	t.Logf("%d partitions: delivered again after %v", len(owned), took)
	if took > 30*time.Second {
		t.Errorf("it took %v, half of the lease", took)
	}
	stop()
	f.judge()
}
