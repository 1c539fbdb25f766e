package wiring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/streamer"
)

// A sink is as late as at the node where it is latest, and nobody knows while a node that serves
// partitions does not say it, or nobody serves a partition.
func TestSharedSubscriberIsAsLateAsWhereItIsLatest(t *testing.T) {
	member := func(first, held int, lags map[string]float64) cluster.Member {
		m := cluster.Member{Heartbeat: cluster.Heartbeat{Lags: lags}}
		for i := range held {
			m.Held = append(m.Held, cluster.HeldPartition{Partition: change.Partition(first + i)})
		}
		return m
	}
	idle, late, silent := map[string]float64{"sink/a": 0, "sink/b": 1}, map[string]float64{"sink/a": 0, "sink/b": 90}, map[string]float64(nil)
	for name, c := range map[string]struct {
		members []cluster.Member
		of      string
		lag     float64
		known   bool
	}{
		"healthy":                     {[]cluster.Member{member(0, 2, idle), member(2, 2, late)}, "sink/a", 0, true},
		"late at one":                 {[]cluster.Member{member(0, 2, idle), member(2, 2, late)}, "sink/b", 90, true},
		"a node says nothing":         {[]cluster.Member{member(0, 2, idle), member(2, 2, silent)}, "sink/a", 0, false},
		"a node without partitions":   {[]cluster.Member{member(0, 4, idle), member(0, 0, silent)}, "sink/b", 1, true},
		"partitions without an owner": {[]cluster.Member{member(0, 2, idle), member(2, 1, late)}, "sink/b", 0, false},
		"two say that they own one":   {[]cluster.Member{member(0, 2, idle), member(1, 2, late)}, "sink/b", 0, false},
		"nobody is there":             {nil, "sink/a", 0, false},
	} {
		if lag, known := sharedLag(c.members, 4, c.of); lag != c.lag || known != c.known {
			t.Errorf("%s: %v, %t", name, lag, known)
		}
	}
}

// A node says nothing of a sink that does not get all of the node's partitions.
func TestLagOfASinkThatGetsPartOnlyIsUnknown(t *testing.T) {
	status := func(partitions int, failure error) streamer.SubscriberStatus {
		return streamer.SubscriberStatus{Name: "sink/a", Shared: true, Partitions: partitions, Failure: failure, Lag: new(time.Second)}
	}
	client := status(2, nil)
	client.Shared = false
	for name, c := range map[string]struct {
		status streamer.SubscriberStatus
		told   bool
	}{
		"all":              {status(2, nil), true},
		"one is missing":   {status(1, nil), false},
		"it has stopped":   {status(2, errors.New("corrupt")), false},
		"it is a client's": {client, false},
	} {
		if _, told := lags([]streamer.SubscriberStatus{c.status}, 2)["sink/a"]; told != c.told {
			t.Errorf("%s: told %t", name, told)
		}
	}
}

// A stop that comes while the node claims its checkpoints is no fault of it.
func TestStopWhileTheNodeBegins(t *testing.T) {
	t.Parallel()
	const partitions = 4
	ctx, stop := context.WithCancel(t.Context())
	node, _ := newNode(t, partitions, &slowStore{Memory: checkpointtest.NewMemory(partitions), asked: stop})
	if _, err := node.Share(t.Context(), "stdout", nil); err != nil {
		t.Fatal(err)
	}
	registry := &registry{partitions: partitions}
	m := NewMembership(MembershipConfig{Node: node, Registry: registry, Partitions: partitions, Member: cluster.Identity{Node: "n", Process: "p"}})
	if err := m.Run(ctx); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if !registry.released {
		t.Error("its claim is left to run out")
	}
}

// A node with a long watch list writes little into each heartbeat.
func TestHeartbeatsOfLongWatchListsAreSmall(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprint("shop.collection", i))
	}
	node, log := newNode(t, 4, checkpointtest.NewMemory(4))
	m := NewMembership(MembershipConfig{
		Node: node, Log: log, Registry: &registry{partitions: 4}, Partitions: 4, Announced: Announced{Coverage: change.Coverage{Namespaces: names}}, Stopping: func() bool { return false },
	})
	text, err := json.Marshal(m.report())
	if err != nil || len(text) > 4<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if h := m.report(); h.Coverage == nil || !(change.Coverage{Namespaces: []string{"shop.*"}}).Covers(*h.Coverage) || h.Coverage.Covers(change.Coverage{}) {
		t.Errorf("it covers %v", h.Coverage)
	}
}

// slowStore answers no claim before the asker gives up.
type slowStore struct {
	*checkpointtest.Memory
	asked func()
}

func (s *slowStore) ClaimTerms(ctx context.Context, _ string, _ []change.Term) ([]checkpoint.Checkpoint, error) {
	s.asked()
	<-ctx.Done()
	return nil, ctx.Err()
}

// A registry gives all partitions to whoever asks.
type registry struct {
	partitions int
	released   bool
}

func (r *registry) Claim(context.Context, cluster.Identity, int, time.Duration, bool) ([]change.Epoch, error) {
	return r.epochs(), nil
}

func (r *registry) Renew(context.Context) (time.Duration, []change.Partition, error) {
	return time.Minute, nil, nil
}

func (r *registry) Reclaim(context.Context, []change.Partition) ([]change.Epoch, error) {
	return r.epochs(), nil
}

func (r *registry) Release(context.Context) error {
	r.released = true
	return nil
}

func (r *registry) epochs() []change.Epoch {
	epochs := make([]change.Epoch, r.partitions)
	for p := range epochs {
		epochs[p] = change.Epoch{Incarnation: 1, Revision: 1}
	}
	return epochs
}
