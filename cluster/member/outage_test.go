package member_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/member"
)

// A mute store answers nothing while it is cut off.
type mute struct {
	member.Store

	cut atomic.Bool
}

func (m *mute) View(ctx context.Context) (cluster.View, error) {
	if m.cut.Load() {
		<-ctx.Done()
		return cluster.View{}, errors.New("no answer")
	}
	return m.Store.View(ctx)
}

// Whenever a store stops answering, the member knows within two intervals of its questions, since
// the first question that was not answered.
func TestStoreThatDoesNotAnswerIsKnownInTime(t *testing.T) {
	for phase := time.Duration(0); phase < 2*member.AsksEvery; phase += member.AsksEvery / 7 {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			store := &mute{Store: clustertest.NewMemory(1, nil).For("a")}
			s := member.New(member.Config{
				Member: cluster.Identity{Node: "a", Process: "1"}, TTL: time.Minute,
				Clock:  func() time.Duration { return time.Since(began) },
				Resume: func(context.Context, []change.Term) error { return nil }, Offer: func([]change.Term) {},
			}, store)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = s.Run(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				})
			}()
			time.Sleep(5*time.Second + phase)
			store.cut.Store(true)
			cut := time.Now()
			time.Sleep(2*member.AsksEvery + time.Millisecond)
			synctest.Wait()
			if since, err := s.Outage(); err == nil || since.Sub(cut) > member.AsksEvery || since.Before(cut) {
				t.Errorf("cut off %v after a question: known since %v: %v", phase, since.Sub(cut), err)
			}
			store.cut.Store(false)
			time.Sleep(time.Minute)
			cancel()
			<-ended
		})
	}
}
