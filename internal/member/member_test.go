package member

import (
	"context"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
	"github.com/mongostream/streamer/streamer"
)

// A stop that comes while the node claims its marks is no fault of it.
func TestStopWhileTheNodeBegins(t *testing.T) {
	t.Parallel()
	const partitions = 4
	ctx, stop := context.WithCancel(t.Context())
	log := &lanetest.Log{}
	log.Tick(1)
	node := streamer.NewNode(streamer.Config{
		Origin: checkpoint.Origin{Incarnation: 1, Partitions: partitions, Start: change.Timestamp{T: 1001, I: 1}}, Surveyor: surveyor{log},
	}, lane.NewLog(lane.Config{Partitions: partitions}, log), &slowMarks{Memory: checkpoint.NewMemory(partitions), asked: stop})
	registry := &registry{partitions: partitions}
	m := New(Config{Node: node, Registry: registry, Partitions: partitions, Member: cluster.Member{Node: "n", Process: "p"}})
	if err := m.Run(ctx); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if !registry.released {
		t.Error("its claim is left to run out")
	}
}

// slowMarks answers no claim before the asker gives up.
type slowMarks struct {
	*checkpoint.Memory
	asked func()
}

func (s *slowMarks) Claim(ctx context.Context, _ []change.Term) ([]checkpoint.Mark, error) {
	s.asked()
	<-ctx.Done()
	return nil, ctx.Err()
}

// A registry gives all partitions to whoever asks.
type registry struct {
	partitions int
	released   bool
}

func (r *registry) Claim(context.Context, cluster.Member, int, time.Duration, bool) ([]change.Epoch, error) {
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
