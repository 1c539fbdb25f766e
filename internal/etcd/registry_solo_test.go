package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/member"
	devetcd "github.com/mongostream/streamer/dev/etcd"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// solo runs a cluster of one until its terms end or stop is called; serving is closed when it owns
// the partitions.
func (p registryPlace) solo(process string, takeOver bool) (serving chan []change.Term, stop func(), result chan error) {
	p.Helper()
	s := member.NewSolo(member.SoloConfig{
		Member:     identity(process),
		Partitions: n,
		TTL:        5 * time.Second,
		TakeOver:   takeOver,
	}, NewRegistry(p.dial(nil)))
	ctx, stop := context.WithCancel(p.Context())
	serving, result = make(chan []change.Term, 1), make(chan error, 1)
	go func() {
		result <- s.Run(ctx, func(ctx context.Context, terms []change.Term) error {
			serving <- terms
			select {
			case <-ctx.Done():
				return nil
			case <-terms[0].Context.Done():
				return context.Cause(terms[0].Context)
			}
		})
	}()
	return serving, stop, result
}

func (p registryPlace) save(store *Store, term change.Term, event int) error {
	return store.Save(p.Context(), []checkpoint.Checkpoint{checkpointtest.Shared(term, checkpointtest.Event(event))})[0]
}

func TestSoloWaitsForTheClaimOfACrashedProcess(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	crashed := NewRegistry(p.dial(nil))
	p.claimFor(crashed, "crashed", time.Second)
	serving, stop, result := p.solo("restarted", false)
	select {
	case terms := <-serving:
		if err := p.save(NewStore(p.dial(nil), n), terms[9], 1); err != nil {
			t.Error(err)
		}
	case err := <-result:
		t.Fatal(err)
	}
	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
	if owners := p.owners(); len(owners) != 0 {
		t.Errorf("%d partitions are still owned", len(owners))
	}
}

func TestSoloThatIsTakenOverEndsItsTerms(t *testing.T) {
	t.Parallel()
	p := newRegistryPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
	p.origin(1)
	store := NewStore(p.dial(nil), n)
	serving, stopFirst, first := p.solo("first", false)
	defer stopFirst()
	old := <-serving
	serving, stopSecond, second := p.solo("second", true)
	young := <-serving
	if err := p.save(store, old[0], 1); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("save of the first: %v", err)
	}
	if err := p.save(store, young[0], 1); err != nil {
		t.Errorf("save of the second: %v", err)
	}
	if err := <-first; fault.Of(err) != fault.NodeTermLost || !errors.Is(err, cluster.ErrLost) {
		t.Errorf("the first ended with %v", err)
	}
	if cause := context.Cause(old[0].Context); !errors.Is(cause, change.ErrTermLost) {
		t.Errorf("the first's terms ended with %v", cause)
	}
	stopSecond()
	if err := <-second; err != nil {
		t.Errorf("the second ended with %v", err)
	}
}
