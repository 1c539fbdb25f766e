package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

// A site is where the checkpoints of a cluster are.
type site struct {
	*testing.T

	client *mongodb.Client
	name   string
}

func newSite(t *testing.T) site {
	t.Helper()
	c := mongodbtest.Dial(t, devmongotest.URI(t))
	s := site{t, c, mongodbtest.Database(t, c)}
	if _, err := s.store().Create(t.Context(), checkpointtest.Origin("c")); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s site) store() *Store { return NewStore(s.client, s.name, "c", checkpointtest.Partitions) }

// claim claims all partitions, as a cluster of one.
func (s site) claim(ctx context.Context, process string, takeOver bool) (*Registry, error) {
	o := NewRegistry(s.store())
	_, err := o.Claim(ctx, cluster.Identity{Node: "alone", Process: process}, checkpointtest.Partitions, time.Minute, takeOver)
	return o, err
}

func (s site) share(ctx context.Context, process string) error {
	return NewRegistry(s.store()).Share(ctx, cluster.Identity{Node: "node-" + process, Process: process})
}

// holder returns the process that an error says to be in the way, empty for none.
func (s site) holder(err error) string {
	s.Helper()
	held, isHeld := errors.AsType[*cluster.HeldError](err)
	if err != nil && !isHeld {
		s.Fatal(err)
	}
	if !isHeld {
		return ""
	}
	return held.Process
}

func TestPartitionsThatAreSharedAreClaimedByNobodyAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, process := range []string{"a", "b", "b"} {
		if by := s.holder(s.share(t.Context(), process)); by != "" {
			t.Fatalf("%s: held by %q", process, by)
		}
	}
	if _, err := s.claim(t.Context(), "p", false); s.holder(err) != "b" {
		t.Errorf("a claim gave %v", err)
	}
	alone, err := s.claim(t.Context(), "p", true)
	if err != nil {
		t.Fatal(err)
	}
	if by := s.holder(s.share(t.Context(), "a")); by != "p" {
		t.Errorf("a member is told that %q holds the partitions", by)
	}
	if err := alone.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if alone, err = s.claim(t.Context(), "q", false); err != nil {
		t.Fatalf("a member that was refused has changed something: %v", err)
	}
	if err := alone.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if by := s.holder(s.share(t.Context(), "a")); by != "" {
		t.Errorf("held by %q, which has released them", by)
	}
}

// Who stood still until its claim had run out finds out, when it goes on, that others share the
// partitions.
func TestClaimThatHasRunOutDoesNotComeBackToLifeBesideMembers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	alone := NewRegistry(s.store())
	if _, err := alone.Claim(t.Context(), cluster.Identity{Node: "alone", Process: "p"}, checkpointtest.Partitions, time.Millisecond,
		false); err != nil {
		t.Fatal(err)
	}
	for held := true; held; { // for a millisecond at most
		held = s.holder(s.share(t.Context(), "a")) != ""
	}
	if _, _, err := alone.Renew(t.Context()); !errors.Is(err, cluster.ErrLost) {
		t.Errorf("renewing gave %v", err)
	}
	if _, err := alone.Reclaim(t.Context(), []change.Partition{1}); !errors.Is(err, cluster.ErrLost) {
		t.Errorf("claiming again gave %v", err)
	}
}

// Whatever either of them sees first, not both have the partitions.
func TestOneThatClaimsAndOneThatSharesAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	won := map[string]int{}
	for round := range 100 {
		var claimed, shared error
		var alone *Registry
		var both sync.WaitGroup
		both.Go(func() { alone, claimed = s.claim(t.Context(), fmt.Sprint("p", round), false) })
		both.Go(func() { shared = s.share(t.Context(), fmt.Sprint("m", round)) })
		both.Wait()
		switch claimedBy, sharedBy := s.holder(shared), s.holder(claimed); {
		case claimedBy == "" && sharedBy == "":
			t.Fatalf("round %d: both have them", round)
		case claimedBy == "":
			won["shared"]++
		case sharedBy == "":
			won["claimed"]++
		default:
			won["neither"]++ // they try again
		}
		if err := errors.Join(alone.Release(t.Context()), alone.Unshare(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(won)
	if won["shared"]+won["claimed"] == 0 {
		t.Error("nobody ever has them")
	}
}
