package partition

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/gateway/streampb"
)

func newSet(ctx context.Context, w Worker, count uint32, room int, begin map[uint32]Position) *Set {
	return NewSet(ctx, Config{Cluster: "c", Count: count, Worker: w, Room: NewRoom(room), Counts: &Counts{}}, begin)
}

func TestPushWaitsWhileTooMuchIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &book{after: -1, blocked: make(chan struct{})}
		set := newSet(ctx, b, 1, 1000, nil)
		large := func(from, to string) *streampb.Batch {
			batch := batch(at(from), at(to, "1"), event(at(to, "1"))...)
			batch.Events[0].Change = slices.Concat(batch.Events[0].Change, make([]byte, 5000))
			return batch
		}
		pushed := 0
		go func() {
			for i := range 3 {
				if err := set.Push(ctx, b, large(string(rune('a'+i)), string(rune('b'+i)))); err != nil {
					return
				}
				pushed++
			}
		}()
		synctest.Wait()
		if pushed != 1 { // one is larger than all of the room, and gets in alone
			t.Fatalf("%d batches of 5 kB are in a room of 1 kB", pushed)
		}
		b.blocked <- struct{}{}
		synctest.Wait()
		if pushed != 2 {
			t.Fatalf("%d batches are in after one was handled", pushed)
		}
		cancel()
		b.blocked <- struct{}{}
		set.Close()
		synctest.Wait()
		if set.room.Used() != 0 {
			t.Errorf("%d bytes are still counted", set.room.Used())
		}
	})
}

func TestPushEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b := &book{after: -1, blocked: make(chan struct{}, 1)}
		set := newSet(ctx, b, 1, 1, nil)
		session, end := context.WithCancelCause(ctx)
		if err := set.Push(session, b, batch(at("a"), at("b", "1"), event(at("b", "1"))...)); err != nil {
			t.Fatal(err)
		}
		errOver := errors.New("over")
		ended := make(chan error)
		go func() { ended <- set.Push(session, b, batch(at("b", "1"), at("c"))) }()
		synctest.Wait()
		end(errOver)
		if err := <-ended; !errors.Is(err, errOver) {
			t.Error(err)
		}
		b.blocked <- struct{}{}
		cancel()
		set.Close()
		if err := set.Push(t.Context(), b, batch(at("c"), at("d"))); err != nil || set.room.Used() != 0 {
			t.Errorf("after the end: %v, %d bytes", err, set.room.Used())
		}
	})
}

func TestWhatWaitsIsForgottenWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &book{after: -1, blocked: make(chan struct{})}
		set := newSet(ctx, b, 1, 1<<20, nil)
		first := batch(at("a"), at("b", "1"), event(at("b", "1"))...)
		second := batch(at("b", "1"), at("c", "1"), event(at("c", "1"))...)
		for _, batch := range []*streampb.Batch{first, second} {
			if err := set.Push(ctx, b, batch); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // the first is being handled, the second waits
		set.Forget(nil)
		close(b.blocked)
		synctest.Wait()
		if !slices.Equal(b.lines, []string{"b1"}) || set.room.Used() != 0 {
			t.Errorf("%q, %d bytes", b.lines, set.room.Used())
		}
		// The next session sends both.
		for _, batch := range []*streampb.Batch{first, second} {
			if err := set.Push(ctx, b, batch); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if !slices.Equal(b.lines, []string{"b1", "c1"}) || set.counts.Duplicates.Load() != 1 {
			t.Errorf("%q, %d duplicates", b.lines, set.counts.Duplicates.Load())
		}
		cancel()
		set.Close()
	})
}

func TestPositionsAreKnownWithAllOrWithAnOrigin(t *testing.T) {
	b := &book{}
	set := newSet(t.Context(), b, 3, 1, map[uint32]Position{1: Of(at("c", "1"))})
	defer set.Retire()
	if p, ok := set.Positions(); ok {
		t.Fatalf("%+v, with one of three", p)
	}
	set.SetOrigin(Of(at("b")))
	set.SetOrigin(Of(at("z"))) // the first counts
	p, ok := set.Positions()
	if !ok || !p.Complete() || string(p.Partitions[0].Head) != "b" || string(p.Partitions[1].Head) != "c" || string(p.Partitions[2].Head) != "b" {
		t.Errorf("%+v, %t", p, ok)
	}
}

func TestWatchTellsOnceWhenAllHavePassed(t *testing.T) {
	set := newSet(t.Context(), &book{}, 3, 1, map[uint32]Position{0: Of(at("c", "1")), 1: Of(at("d"))})
	defer set.Retire()
	var w Watch[string]
	drop := Of(at("c", "1"))
	if passed, _ := w.Add(set, 0, drop, "drop"); len(passed) != 0 {
		t.Fatalf("%q, and one partition has passed nothing yet", passed)
	}
	if passed, _ := w.Add(set, 1, drop, "drop"); len(passed) != 0 {
		t.Fatalf("%q the second time", passed)
	}
	for _, step := range []struct {
		at   Position
		want int
	}{{Of(at("b")), 0}, {Of(at("c")), 0}, {Of(at("c", "2")), 0}, {Of(at("c", "1", "2")), 1}, {Of(at("e")), 0}} {
		if passed := w.Passed(2, step.at); len(passed) != step.want {
			t.Errorf("at %s: %q", step.at, passed)
		}
	}
}

func TestWatchTellsAtOnceWhatAllHavePassed(t *testing.T) {
	set := newSet(t.Context(), &book{}, 2, 1, map[uint32]Position{0: Of(at("c", "1")), 1: Of(at("d"))})
	defer set.Retire()
	var w Watch[string]
	if passed, _ := w.Add(set, 0, Of(at("c", "1")), "drop"); !slices.Equal(passed, []string{"drop"}) {
		t.Errorf("%q", passed)
	}
}

func TestWatchIsBounded(t *testing.T) {
	set := newSet(t.Context(), &book{}, 2, 1, nil)
	defer set.Retire()
	var w Watch[int]
	for i := range maxWatched + 10 {
		if _, dropped := w.Add(set, 0, Of(at("c", strconv.Itoa(i))), i); dropped != (i >= maxWatched) {
			t.Fatalf("%d: dropped %t", i, dropped)
		}
	}
	if passed := w.Passed(1, Of(at("d"))); len(passed) != maxWatched || passed[0] != 10 {
		t.Errorf("%d passed, the first %d", len(passed), passed[0])
	}
	w.Forget()
	if passed := w.Passed(0, Of(at("z"))); len(passed) != 0 {
		t.Errorf("%v after it was forgotten", passed)
	}
}

// TestWatchMissesNobodyWhoPassesMeanwhile lets the last partition pass while the change is being added.
func TestWatchMissesNobodyWhoPassesMeanwhile(t *testing.T) {
	change := Of(at("c", "1"))
	for range 2000 {
		set := newSet(t.Context(), &book{}, 2, 1, map[uint32]Position{0: change, 1: Of(at("b"))})
		last := set.lane(1)
		var w Watch[int]
		told := make(chan int)
		go func() {
			last.mu.Lock()
			last.mu.have.Reach(Of(at("d")))
			last.mu.Unlock()
			told <- len(w.Passed(1, Of(at("d"))))
		}()
		passed, _ := w.Add(set, 0, change, 1)
		if n := len(passed) + <-told; n != 1 {
			t.Fatalf("told %d times", n)
		}
		set.Retire()
	}
}
