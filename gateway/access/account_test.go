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

// open opens a share that must be granted.
func open(t *testing.T, a *access.Accounts, i *access.Identity) *access.Account {
	t.Helper()
	account, err := a.Open(i, access.Session, "")
	if err != nil {
		t.Fatal(err)
	}
	return account
}

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
	accounts := access.NewAccounts(access.Defaults{})
	first, second, other := open(t, accounts, identify("a")), open(t, accounts, identify("a")), open(t, accounts, identify("b"))
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
		accounts := access.NewAccounts(access.Defaults{})
		i := &access.Identity{Name: "a", EventsPerSecond: 1000, BytesPerSecond: 1 << 20}
		a, b := open(t, accounts, i), open(t, accounts, i)
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
		accounts := access.NewAccounts(access.Defaults{})
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
				account := open(t, accounts, i)
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
		accounts := access.NewAccounts(access.Defaults{})
		a := open(t, accounts, &access.Identity{Name: "a"})
		defer a.Close()
		if wait := a.Reserve(1<<30, 1<<40); wait != 0 {
			t.Errorf("no limit: wait %s", wait)
		}
		if err := a.Subscribe(1 << 20); err != nil {
			t.Error(err)
		}
		defer open(t, accounts, &access.Identity{Name: "a", EventsPerSecond: 1000, MaxSubscriptions: 1}).Close()
		if wait := a.Reserve(2000, 1<<40); wait != time.Second {
			t.Errorf("limited: wait %s", wait)
		}
		if err := a.Subscribe(1); fault.Of(err) != fault.AccessLimit {
			t.Error(err)
		}
		time.Sleep(time.Second)
		defer open(t, accounts, &access.Identity{Name: "a", EventsPerSecond: 10}).Close()
		if wait := a.Reserve(10, 0); wait != time.Second {
			t.Errorf("limited more: wait %s", wait)
		}
		defer open(t, accounts, &access.Identity{Name: "a"}).Close()
		if wait := a.Reserve(1<<30, 0); wait != 0 {
			t.Errorf("no limit again: wait %s", wait)
		}
	})
}

func TestReconnectingIsNoWayAroundALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := access.NewAccounts(access.Defaults{})
		i := &access.Identity{Name: "a", EventsPerSecond: 1}
		a := open(t, accounts, i)
		if wait := a.Reserve(256, 0); wait != 0 {
			t.Errorf("at once: wait %s", wait)
		}
		a.Close()
		a = open(t, accounts, i)
		if wait := a.Reserve(10, 0); wait != 10*time.Second {
			t.Errorf("reconnected: wait %s", wait)
		}
		a.Close()
		if n := accounts.Kept(); n != 1 {
			t.Errorf("%d accounts kept", n)
		}
		time.Sleep(266 * time.Second)
		open(t, accounts, &access.Identity{Name: "b"}).Close()
		if n := accounts.Kept(); n != 0 {
			t.Errorf("%d accounts kept that have rested", n)
		}
	})
}

func TestIdentitiesOfOtherNamesPayForThemselves(t *testing.T) {
	accounts := access.NewAccounts(access.Defaults{})
	a := open(t, accounts, &access.Identity{Name: "a", MaxSubscriptions: 1})
	b := open(t, accounts, &access.Identity{Name: "b", MaxSubscriptions: 1})
	if err := errors.Join(a.Subscribe(1), b.Subscribe(1)); err != nil {
		t.Error(err)
	}
}

// connect opens a use of a connection.
type connect struct {
	use     access.Use
	address string
}

func TestIdentitiesHaveQuotas(t *testing.T) {
	const session, events, notices, request = access.Session, access.Events, access.Notices, access.Request
	for name, tt := range map[string]struct {
		defaults access.Defaults
		identity *access.Identity
		granted  []connect
		refused  []connect
	}{
		"nothing is limited": {
			access.Defaults{}, &access.Identity{Name: "a"}, []connect{{session, "1"}, {session, "2"}, {events, "3"}, {notices, "4"}, {request, "5"}}, nil,
		},
		"sessions over both transports": {
			access.Defaults{}, &access.Identity{Name: "a", MaxSessions: 2}, []connect{{session, "1"}, {events, "2"}, {notices, "3"}},
			[]connect{{session, "4"}, {events, "4"}},
		},
		"a share of each transport by default": {
			access.Defaults{Sessions: 1, Events: 2}, &access.Identity{Name: "a"}, []connect{{session, "1"}, {events, "2"}, {events, "3"}},
			[]connect{{session, "4"}, {events, "4"}},
		},
		"its own number instead of the share": {
			access.Defaults{Sessions: 1, Events: 1, Notices: 1}, &access.Identity{Name: "a", MaxSessions: 3, MaxNotices: 2},
			[]connect{{session, "1"}, {session, "2"}, {session, "3"}, {notices, "1"}, {notices, "2"}}, []connect{{events, "4"}, {notices, "4"}},
		},
		"connections, of which each may have several": {
			access.Defaults{}, &access.Identity{Name: "a", MaxConnections: 2},
			[]connect{{session, "1"}, {session, "1"}, {events, "2"}, {request, "1"}}, []connect{{request, "3"}, {session, "3"}},
		},
		"streams of notices": {access.Defaults{Notices: 1}, &access.Identity{Name: "a"}, []connect{{notices, "1"}, {request, "2"}}, []connect{{notices, "2"}}},
		"everybody":          {access.Defaults{Sessions: 1, Connections: 1, StartsPerSecond: 1}, access.Anonymous(), []connect{{session, "1"}, {session, "2"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			accounts := access.NewAccounts(tt.defaults)
			var all []*access.Account
			for _, c := range tt.granted {
				account, err := accounts.Open(tt.identity, c.use, c.address)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, account)
			}
			for range 100 { // and nothing is left of what is refused
				for _, c := range tt.refused {
					if _, err := accounts.Open(tt.identity, c.use, c.address); fault.Of(err) != fault.AccessLimit {
						t.Fatalf("%+v: %v", c, err)
					}
				}
			}
			if other, err := accounts.Open(&access.Identity{Name: "b"}, session, "1"); err != nil {
				t.Errorf("another identity: %v", err)
			} else {
				other.Close()
			}
			for _, account := range all {
				account.Close()
				account.Close()
			}
			for _, c := range tt.granted {
				if _, err := accounts.Open(tt.identity, c.use, c.address); err != nil {
					t.Errorf("%+v after all have ended: %v", c, err)
				}
			}
		})
	}
	if _, err := access.NewAccounts(access.Defaults{}).Open(nil, session, ""); fault.Of(err) != fault.AccessForbidden {
		t.Errorf("nobody: %v", err)
	}
}

// All sessions of an identity may start at once, as after a restart of a node, and then so many a
// second; to leave and come back does not help.
func TestStartsKeepToTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := access.NewAccounts(access.Defaults{Sessions: 20, Events: 20, StartsPerSecond: 10})
		i := &access.Identity{Name: "a"}
		starts := func() (n int) {
			for range 200 {
				account, err := accounts.Open(i, access.Session, "")
				switch {
				case err == nil:
					n++
					account.Close()
				case fault.Of(err) != fault.AccessLimit:
					t.Fatal(err)
				}
			}
			return n
		}
		if n := starts(); n != 40 {
			t.Errorf("%d at once", n)
		}
		for range 3 {
			time.Sleep(time.Second)
			if n := starts(); n != 10 {
				t.Errorf("%d after a second", n)
			}
		}
		i = &access.Identity{Name: "own", StartsPerSecond: 100}
		if n := starts(); n != 100 {
			t.Errorf("%d at once of one with its own limit", n)
		}
	})
}

// Clients that keep doing wrong are told so later and later: 20 at once, then 10 a second, within
// two seconds, and without end for nobody.
func TestRefusalsAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := access.NewAccounts(access.Defaults{})
		wrong, other := &access.Identity{Name: "a"}, &access.Identity{Name: "b"}
		held := func(i *access.Identity) time.Duration {
			begun := time.Now()
			accounts.Refused(t.Context(), i)
			return time.Since(begun)
		}
		for range 20 {
			if took := held(wrong); took != 0 {
				t.Fatalf("one of the first waited for %s", took)
			}
			open(t, accounts, wrong).Close() // and connecting in between evades nothing
		}
		begun := time.Now()
		for range 30 {
			held(wrong)
		}
		if took := time.Since(begun); took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("30 more took %s, want 3 s", took)
		}
		if took := held(other); took != 0 {
			t.Errorf("another identity waited for %s", took)
		}
		if took := held(access.Anonymous()); took != 0 {
			t.Errorf("the anonymous identity waited for %s", took)
		}
		// However many there are at a time, none waits for longer than two seconds.
		const many = 500
		var all sync.WaitGroup
		begun = time.Now()
		for range many {
			all.Go(func() {
				if took := held(wrong); took > 2*time.Second {
					t.Errorf("one of many waited for %s", took)
				}
			})
		}
		all.Wait()
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("all of them waited for %s", took)
		}
		// Whoever leaves does not wait.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun = time.Now()
		accounts.Refused(ctx, wrong)
		if took := time.Since(begun); took != 0 {
			t.Errorf("one that has left waited for %s", took)
		}
	})
}
