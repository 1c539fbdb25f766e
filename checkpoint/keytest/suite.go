package keytest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/fault"
)

// A Harness is an empty keeper and what surrounds it.
type Harness struct {
	Keeper key.Keeper
	// Reopen opens the same keys anew, as another process would.
	Reopen func() key.Keeper
	// Damage puts something else in the place of what is stored. It is nil for a keeper that has no stored form.
	Damage func(value []byte)
}

// TestKeeper runs the suite. Open returns a new, empty keeper for every case and arranges for its end with t.Cleanup.
func TestKeeper(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	cases := []struct {
		name string
		run  func(h harness)
	}{
		{"where nothing was added there is nothing", testNothing},
		{"every field of a key comes back", testFields},
		{"a key follows the last one or is refused", testOrder},
		{"a key added again is no error", testAgain},
		{"old keys are dropped by the one that comes", testOld},
		{"there are never too many keys", testMany},
		{"of many that rotate at once one succeeds", testRace},
		{"a keeper whose caller gave up does nothing", testCanceled},
		{"what cannot be read is left as it is", testDamage},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(harness{open(t), t}) })
	}
}

type harness struct {
	Harness
	*testing.T
}

// made is when the first key of a case was made.
var made = time.Date(2024, time.May, 17, 8, 30, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

func (h harness) keys() key.Set {
	h.Helper()
	keys, err := h.Reopen().Keys(h.Context())
	if err != nil {
		h.Fatalf("keys: %v", err)
	}
	return keys
}

// add adds the key that follows, made so long after the first.
func (h harness) add(after time.Duration) key.Key {
	h.Helper()
	next := h.keys().Next(made.Add(after))
	if err := h.Keeper.AddKey(h.Context(), next); err != nil {
		h.Fatalf("add key %d: %v", next.Serial, err)
	}
	return next
}

func (h harness) want(keys ...key.Key) {
	h.Helper()
	if diff := cmp.Diff(key.Set(keys), h.keys()); diff != "" {
		h.Errorf("the keys are otherwise (-want +got):\n%s", diff)
	}
}

func testNothing(h harness) {
	for _, k := range []key.Keeper{h.Keeper, h.Reopen()} {
		if keys, err := k.Keys(h.Context()); err != nil || len(keys) != 0 {
			h.Errorf("nothing was added, and there is %v, %v", keys, err)
		}
	}
}

func testFields(h harness) {
	first := h.add(0)
	second := h.add(key.Rotation)
	if first.Serial != 1 || second.Serial != 2 || first.Secret == second.Secret || first.Secret == (key.Secret{}) {
		h.Fatalf("%v, %v", first, second)
	}
	h.want(first, second)
	// What a caller does to the keys it got does not matter.
	clear(h.keys())
	h.want(first, second)
}

func testOrder(h harness) {
	first := h.add(0)
	other := key.Set(nil).Next(made)
	gap := key.Key{Serial: 3, Secret: other.Secret, Made: made}
	zero := key.Key{Secret: other.Secret, Made: made}
	for _, k := range []key.Key{other, gap, zero, {}} {
		if err := h.Keeper.AddKey(h.Context(), k); !errors.Is(err, key.ErrMoved) {
			h.Errorf("key %d behind key 1: %v", k.Serial, err)
		}
	}
	h.want(first)
}

func testAgain(h harness) {
	first := h.add(0)
	for _, k := range []key.Keeper{h.Keeper, h.Reopen()} {
		if err := k.AddKey(h.Context(), first); err != nil {
			h.Error(err)
		}
	}
	h.want(first)
	second := h.add(key.Rotation)
	if err := h.Keeper.AddKey(h.Context(), first); !errors.Is(err, key.ErrMoved) {
		h.Errorf("the key before the last one, again: %v", err)
	}
	h.want(first, second)
}

func testOld(h harness) {
	h.add(0)
	second := h.add(time.Second)
	third := h.add(key.Life - time.Second)
	if n := len(h.keys()); n != 3 {
		h.Fatalf("%d keys, none is as old as to be dropped", n)
	}
	fourth := h.add(key.Life)
	h.want(second, third, fourth)
	last := h.add(100 * key.Life)
	h.want(last)
	if last.Serial != 5 {
		h.Errorf("serial %d was given before", last.Serial)
	}
}

func testMany(h harness) {
	var last key.Key
	for range key.MaxKeys + 3 {
		last = h.add(0)
	}
	keys := h.keys()
	if len(keys) != key.MaxKeys || keys.Last() != last || keys[0].Serial != 4 {
		h.Errorf("%d keys from %d to %d", len(keys), keys[0].Serial, keys.Last().Serial)
	}
}

func testRace(h harness) {
	keepers := []key.Keeper{h.Keeper, h.Reopen()}
	for round := range 3 {
		before := h.keys()
		const nodes = 8
		errs, tried := make([]error, nodes), make([]key.Key, nodes)
		var wg sync.WaitGroup
		for i := range nodes {
			tried[i] = before.Next(made)
			wg.Go(func() { errs[i] = keepers[i%2].AddKey(h.Context(), tried[i]) })
		}
		wg.Wait()
		added := 0
		for i, err := range errs {
			switch {
			case err == nil:
				added++
				if h.keys().Last() != tried[i] {
					h.Error("another key stands than the one that was added")
				}
			case !errors.Is(err, key.ErrMoved):
				h.Errorf("node %d: %v", i, err)
			}
		}
		if n := len(h.keys()); added != 1 || n != round+1 {
			h.Fatalf("%d nodes have added a key, and there are %d", added, n)
		}
	}
}

func testCanceled(h harness) {
	ctx, cancel := context.WithCancel(h.Context())
	cancel()
	if _, err := h.Keeper.Keys(ctx); !errors.Is(err, context.Canceled) {
		h.Errorf("keys: %v", err)
	}
	if err := h.Keeper.AddKey(ctx, key.Set(nil).Next(made)); !errors.Is(err, context.Canceled) {
		h.Errorf("add: %v", err)
	}
	h.want()
}

func testDamage(h harness) {
	if h.Damage == nil {
		return // nothing is stored that could be damaged
	}
	const secret = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U="
	h.add(0)
	for value, code := range map[string]fault.Code{
		`{"v":2,"keys":"` + secret + `"}`: fault.MarkNewer,
		`{"v":1,"keys":"` + secret + `"}`: fault.MarkCorrupt,
		`{"v":1,"keys":[]}`:               fault.MarkCorrupt,
		secret:                            fault.MarkCorrupt,
		`{"v":1,"keys":[{"serial":1,"secret":"` + secret[:40] + `","made":"2024-05-17T08:30:00Z"}]}`: fault.MarkCorrupt,
	} {
		h.Damage([]byte(value))
		_, read := h.Keeper.Keys(h.Context())
		added := h.Keeper.AddKey(h.Context(), key.Key{Serial: 2, Made: made})
		for _, err := range []error{read, added} {
			if fault.Of(err) != code {
				h.Errorf("%s: %v, want %s", value, err, code)
			} else if strings.Contains(err.Error(), secret[:8]) {
				h.Errorf("the error shows what is stored: %v", err)
			}
		}
	}
}
