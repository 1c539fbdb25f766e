package member

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// A lease of a rival, and a store that lets nobody join while it lives.
type rivalStore struct {
	Store

	mu         sync.Mutex
	ends, back time.Time // of the lease, and when the store answers again
}

func (r *rivalStore) Join(context.Context, cluster.Heartbeat, time.Duration) (cluster.Membership, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch now := time.Now(); {
	case now.Before(r.back):
		return nil, fault.Newf(fault.EtcdUnreachable, "away")
	case now.Before(r.ends):
		return nil, &cluster.HeldError{Node: "a", Process: "before", TTL: r.ends.Sub(now).Truncate(time.Second)}
	}
	return nil, nil //nolint:nilnil // nothing is done with the membership
}

// A node waits for the lease of a process that was killed, also if the store restarts meanwhile and
// the lease lives anew; it is refused when the other process renews it.
func TestJoinWaitsForTheDeadAlone(t *testing.T) {
	const ttl = 10 * time.Second
	for name, tt := range map[string]struct {
		rival   func(r *rivalStore)
		refused bool
		from    time.Duration // when it ends, at the earliest
		within  time.Duration
	}{
		"killed":                     {func(*rivalStore) {}, false, 9 * time.Second, 11 * time.Second},
		"killed, the store restarts": {func(r *rivalStore) { time.Sleep(5 * time.Second); r.restart(3 * time.Second) }, false, 17 * time.Second, 19 * time.Second},
		"killed, the store is away":  {func(r *rivalStore) { time.Sleep(time.Second); r.restart(20 * time.Second) }, false, 30 * time.Second, 32 * time.Second},
		"killed, the store restarts twice": {func(r *rivalStore) {
			time.Sleep(5 * time.Second)
			r.restart(time.Second)
			time.Sleep(5 * time.Second)
			r.restart(time.Second)
		}, false, 20 * time.Second, 22 * time.Second},
		"it lives": {func(r *rivalStore) {
			for range 10 {
				time.Sleep(ttl / 3)
				r.renew(ttl)
			}
		}, true, 6 * time.Second, 14 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rivalStore{ends: time.Now().Add(ttl)}
				begun := time.Now()
				s := New(Config{TTL: ttl, Clock: func() time.Duration { return time.Since(begun) }}, r)
				ended := make(chan error, 1)
				go func() {
					_, _, err := s.join(t.Context())
					ended <- err
				}()
				var playing sync.WaitGroup
				playing.Go(func() { tt.rival(r) })
				defer playing.Wait()
				err := <-ended
				if took := time.Since(begun); took < tt.from || took > tt.within {
					t.Errorf("it took %s, not %s to %s", took, tt.from, tt.within)
				}
				held, isHeld := errors.AsType[*cluster.HeldError](err)
				if (fault.Of(err) == fault.NodeRunning && isHeld && held.Process == "before") != tt.refused || !tt.refused && err != nil {
					t.Errorf("refused: %v", err)
				}
			})
		})
	}
}

// restart has the store away for a while; then every lease lives anew.
func (r *rivalStore) restart(away time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.back = time.Now().Add(away)
	r.ends = r.back.Add(10 * time.Second)
}

// renew has the rival renew its lease.
func (r *rivalStore) renew(ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = time.Now().Add(ttl)
}
