package access_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

func TestSubscriptionsAreCountedOverAllConnections(t *testing.T) {
	a := newAuthenticator(t, access.Config{Identities: write(t, t.TempDir()+"/i",
		tokenLine("a", "name=a namespace=* max_subscriptions=3")+tokenLine("b", "name=b namespace=* max_subscriptions=3"))})
	identify := func(token string) *access.Identity {
		t.Helper()
		i, err := a.Authenticate(local("Bearer " + token))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	accounts := access.NewAccounts()
	first, second, other := accounts.Open(identify("a")), accounts.Open(identify("a")), accounts.Open(identify("b"))
	steps := []struct {
		name string
		do   func() error
		want fault.Code
	}{
		{"two of the first", func() error { return first.Subscribe(2) }, ""},
		{"two of the second", func() error { return second.Subscribe(2) }, fault.AccessLimit},
		{"one of the second", func() error { return second.Subscribe(1) }, ""},
		{"one of the first", func() error { return first.Subscribe(1) }, fault.AccessLimit},
		{"another identity", func() error { return other.Subscribe(3) }, ""},
		{"after one fewer", func() error { first.Unsubscribe(1); return second.Subscribe(1) }, ""},
		{"gives back no more than it has", func() error { first.Unsubscribe(100); return first.Subscribe(2) }, fault.AccessLimit},
		{"after a connection", func() error { second.Close(); second.Close(); return first.Subscribe(3) }, ""},
		{"at the bound", func() error { return first.Subscribe(1) }, fault.AccessLimit},
		{"more than can be counted", func() error { return other.Subscribe(int(^uint(0) >> 1)) }, fault.AccessLimit},
	}
	for _, s := range steps {
		if err := s.do(); fault.Of(err) != s.want || (err == nil) != (s.want == "") {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
}

func TestPaceIsThatOfTheIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := access.NewAccounts()
		i := &access.Identity{Name: "a", EventsPerSecond: 1000, BytesPerSecond: 1 << 20}
		a, b := accounts.Open(i), accounts.Open(i)
		defer a.Close()
		defer b.Close()
		expect := func(got, want time.Duration) {
			t.Helper()
			if (got - want).Abs() > time.Millisecond {
				t.Errorf("wait %s, want %s", got, want)
			}
		}
		expect(a.Reserve(1000, 1000), 0)                   // a second's worth at once
		expect(b.Reserve(500, 1000), 500*time.Millisecond) // the other connection pays too
		expect(a.Reserve(10_500, 1000), 11*time.Second)    // more than fits the burst waits, and is not dropped
		time.Sleep(11 * time.Second)                       // the debt is paid
		expect(a.Reserve(1, 16<<20), 15*time.Second)       // bytes, after a second's worth
		time.Sleep(16 * time.Second)                       // and rest
		expect(a.Reserve(0, 0), 0)                         // nothing costs nothing
		start := time.Now()
		if err := b.Wait(t.Context(), 3000, 0); err != nil { // 1000 at once, 2000 more
			t.Fatal(err)
		}
		expect(time.Since(start), 2*time.Second)
		// Whoever leaves meanwhile does not wait.
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		start = time.Now()
		if err := b.Wait(ctx, 100_000, 0); !errors.Is(err, gone) {
			t.Error(err)
		}
		expect(time.Since(start), time.Second)
	})
}

// TestLongTermRateIsTheLimit sends for an hour through many connections and counts.
func TestLongTermRateIsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := access.NewAccounts()
		i := &access.Identity{Name: "a", EventsPerSecond: 100}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var sent struct {
			sync.Mutex
			events int
		}
		var wg sync.WaitGroup
		for n := range 10 {
			wg.Go(func() {
				account := accounts.Open(i)
				defer account.Close()
				for account.Wait(ctx, n*50+1, 0) == nil {
					sent.Lock()
					sent.events += n*50 + 1
					sent.Unlock()
				}
			})
		}
		wg.Wait()
		if most := 100*3600 + 256; sent.events > most || sent.events < most-10*500 {
			t.Errorf("%d events in an hour, at most %d", sent.events, most)
		}
	})
}

func TestLimitsThatChangeHoldFromThenOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := access.NewAccounts()
		a := accounts.Open(&access.Identity{Name: "a"})
		defer a.Close()
		if wait := a.Reserve(1<<30, 1<<40); wait != 0 {
			t.Errorf("no limit: wait %s", wait)
		}
		if err := a.Subscribe(1 << 20); err != nil {
			t.Error(err)
		}
		defer accounts.Open(&access.Identity{Name: "a", EventsPerSecond: 1000, MaxSubscriptions: 1}).Close()
		if wait := a.Reserve(2000, 1<<40); wait != time.Second {
			t.Errorf("limited: wait %s", wait)
		}
		if err := a.Subscribe(1); fault.Of(err) != fault.AccessLimit {
			t.Error(err)
		}
		time.Sleep(time.Second)
		defer accounts.Open(&access.Identity{Name: "a", EventsPerSecond: 10}).Close()
		if wait := a.Reserve(10, 0); wait != time.Second {
			t.Errorf("limited more: wait %s", wait)
		}
		defer accounts.Open(&access.Identity{Name: "a"}).Close()
		if wait := a.Reserve(1<<30, 0); wait != 0 {
			t.Errorf("no limit again: wait %s", wait)
		}
	})
}

func TestReconnectingIsNoWayAroundALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := access.NewAccounts()
		i := &access.Identity{Name: "a", EventsPerSecond: 1}
		a := accounts.Open(i)
		if wait := a.Reserve(256, 0); wait != 0 {
			t.Errorf("at once: wait %s", wait)
		}
		a.Close()
		a = accounts.Open(i)
		if wait := a.Reserve(10, 0); wait != 10*time.Second {
			t.Errorf("reconnected: wait %s", wait)
		}
		a.Close()
		if n := accounts.Kept(); n != 1 {
			t.Errorf("%d accounts kept", n)
		}
		time.Sleep(266 * time.Second)
		accounts.Open(&access.Identity{Name: "b"}).Close()
		if n := accounts.Kept(); n != 0 {
			t.Errorf("%d accounts kept that have rested", n)
		}
	})
}

func TestIdentitiesOfOtherNamesPayForThemselves(t *testing.T) {
	accounts := access.NewAccounts()
	a := accounts.Open(&access.Identity{Name: "a", MaxSubscriptions: 1})
	b := accounts.Open(&access.Identity{Name: "b", MaxSubscriptions: 1})
	if err := errors.Join(a.Subscribe(1), b.Subscribe(1)); err != nil {
		t.Error(err)
	}
}
