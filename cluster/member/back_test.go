package member_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/fault"
)

// A shut store lets nobody join while it has a reason.
type shut struct {
	cluster.Store

	reason atomic.Pointer[error]
}

// Join implements cluster.Store.
func (s *shut) Join(ctx context.Context, first cluster.Heartbeat, ttl time.Duration) (cluster.Membership, error) {
	if reason := s.reason.Load(); reason != nil {
		return nil, *reason
	}
	return s.Store.Join(ctx, first, ttl)
}

// A node that comes back ends where another process has its name, and only there: what else is in
// the way it waits for, and says so once.
func TestNodeThatComesBackWaitsForWhatIsInTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		reason error
		ends   bool
	}{
		"its name is taken":                  {&cluster.HeldError{Node: "a", Process: "other"}, true},
		"another node owns without a seat":   {&cluster.HeldError{Node: "b", Process: "other"}, false},
		"the store does not let it join yet": {errors.New("no space"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				memory := clustertest.NewMemory(1, nil)
				store := &shut{Store: memory.For("a")}
				var log strings.Builder
				s := member.New(member.Config{
					Member: cluster.Identity{Node: "a", Process: "p"}, Clock: func() time.Duration { return time.Since(began) },
					Resume: func(context.Context, []change.Term) error { return nil }, Offer: func([]change.Term) {},
					Log: slog.New(slog.NewTextHandler(&log, nil)),
				}, store)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					ended <- s.Run(ctx, func(ctx context.Context) error {
						<-ctx.Done()
						return nil
					})
				}()
				time.Sleep(time.Second)
				memory.Cut("a", true)
				store.reason.Store(&c.reason)
				time.Sleep(15 * time.Second)
				memory.Cut("a", false)
				time.Sleep(30 * time.Second)
				if c.ends {
					if err := <-ended; fault.Of(err) != fault.NodeTermLost {
						t.Errorf("it ended with %v", err)
					}
					stop()
					return
				}
				store.reason.Store(nil)
				time.Sleep(5 * time.Second)
				if !s.Trusted() {
					t.Error("it has not come back")
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if n := strings.Count(log.String(), "cannot come back yet"); n != 1 {
					t.Errorf("it says %d times why it cannot come back: %s", n, log.String())
				}
			})
		})
	}
}
