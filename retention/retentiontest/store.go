package retentiontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/retention"
)

// TestStore holds a store, which must be empty, against the port's contract.
func TestStore(t *testing.T, open func(t *testing.T) retention.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, retention.Store){
		"objects are created once":            createdOnce,
		"one of many creates an object":       oneCreates,
		"ranges are read":                     ranges,
		"folders are listed in order":         listed,
		"what is deleted can be made again":   deleted,
		"objects have the age that they had":  aged,
		"an object that was read is replaced": replaced,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// A rewriter is a store that can replace objects.
type rewriter interface {
	Replace(ctx context.Context, key string, data []byte, version string) error
	Hold(ctx context.Context, folder string) (release func(), err error)
}

func replaced(t *testing.T, s retention.Store) {
	store, can := s.(rewriter)
	if !can {
		t.Fatal("it replaces nothing")
	}
	if err := s.Put(t.Context(), "v1/s/1", []byte("first")); err != nil {
		t.Fatal(err)
	}
	release, err := store.Hold(t.Context(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if left, _, err := s.List(t.Context(), "v1/probe", ""); err != nil || len(left) > 0 {
		t.Errorf("holding it left %v, %v", left, err)
	}
	_, first, err := s.Get(t.Context(), "v1/s/1", 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Replace(t.Context(), "v1/s/1", []byte("the second"), first.Version); err != nil {
		t.Fatal(err)
	}
	got, second, err := s.Get(t.Context(), "v1/s/1", 0, 100)
	if err != nil || string(got) != "the second" || second.Size != int64(len(got)) {
		t.Errorf("%q, %+v, %v", got, second, err)
	}
	if first.Version != "" { // a folder is locked instead
		if err := store.Replace(t.Context(), "v1/s/1", []byte("third"), first.Version); !errors.Is(err, retention.ErrChanged) {
			t.Errorf("replace what has changed: %v", err)
		}
	}
	if err := s.Delete(t.Context(), "v1/s/1"); err != nil {
		t.Fatal(err)
	}
	if err := store.Replace(t.Context(), "v1/s/1", []byte("fourth"), second.Version); !errors.Is(err, retention.ErrNotFound) {
		t.Errorf("replace what is gone: %v", err)
	}
	if _, _, err := s.Get(t.Context(), "v1/s/1", 0, 1); !errors.Is(err, retention.ErrNotFound) {
		t.Errorf("what was gone: %v", err)
	}
}

func createdOnce(t *testing.T, s retention.Store) {
	for _, data := range [][]byte{[]byte("first"), {}, bytes.Repeat([]byte{7}, 1<<20)} {
		key := fmt.Sprintf("a/b/%d", len(data))
		if err := s.Put(t.Context(), key, data); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), key, []byte("second")); !errors.Is(err, retention.ErrExists) {
			t.Errorf("put again: %v", err)
		}
		got, about, err := s.Get(t.Context(), key, 0, 2<<20)
		if err != nil || !bytes.Equal(got, data) || about.Size != int64(len(data)) {
			t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
		}
	}
}

func oneCreates(t *testing.T, s retention.Store) {
	const writers = 8
	for round, size := range []int{10, 100_000, 10, 100_000} {
		key := fmt.Sprintf("race/%d", round)
		won := make([]bool, writers)
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				err := s.Put(t.Context(), key, bytes.Repeat([]byte{byte(w)}, size))
				if won[w] = err == nil; err != nil && !errors.Is(err, retention.ErrExists) {
					t.Errorf("put: %v", err)
				}
			})
		}
		all.Wait()
		winner := slices.Index(won, true)
		got, _, err := s.Get(t.Context(), key, 0, int64(size))
		isAlone := winner >= 0 && !slices.Contains(won[winner+1:], true)
		if !isAlone || err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(winner)}, size)) {
			t.Errorf("round %d: winners %v, %v", round, won, err)
		}
	}
}

func ranges(t *testing.T, s retention.Store) {
	if err := s.Put(t.Context(), "r/x", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		offset, n int64
		want      string
	}{{0, 4, "0123"}, {4, 3, "456"}, {8, 10, "89"}, {10, 5, ""}, {20, 5, ""}, {0, 0, ""}} {
		got, about, err := s.Get(t.Context(), "r/x", r.offset, r.n)
		if err != nil || string(got) != r.want || about.Size != 10 {
			t.Errorf("%d bytes from %d: %q of %d, %v", r.n, r.offset, got, about.Size, err)
		}
		for i := range got {
			got[i] = '!' // is the caller's own
		}
	}
	if _, _, err := s.Get(t.Context(), "r/y", 0, 1); !errors.Is(err, retention.ErrNotFound) {
		t.Errorf("missing object: %v", err)
	}
}

// all lists a folder.
func all(t *testing.T, s retention.Store, folder, after string) (names []string) {
	t.Helper()
	for {
		page, more, err := s.List(t.Context(), folder, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page {
			names = append(names, o.Name)
		}
		if !more {
			return names
		}
		after = page[len(page)-1].Name
	}
}

func listed(t *testing.T, s retention.Store) {
	const objects = 1100 // more than a page
	var want []string
	for i := range objects {
		want = append(want, fmt.Sprintf("%020d", i))
	}
	const writers = 50
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := w; i < objects; i += writers {
				if err := s.Put(t.Context(), "l/seg/"+want[i], []byte{1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	if err := s.Put(t.Context(), "l/segment/0", nil); err != nil {
		t.Fatal(err)
	}
	if got := all(t, s, "l/seg", ""); !slices.Equal(got, want) {
		t.Errorf("%d names, want %d in order", len(got), len(want))
	}
	if got := all(t, s, "l/seg", want[1050]); !slices.Equal(got, want[1051:]) {
		t.Errorf("%d names after the 1050th", len(got))
	}
	if got := all(t, s, "l/seg", "00000000000000000041x"); !slices.Equal(got, want[42:]) {
		t.Errorf("%d names after one that does not exist", len(got))
	}
	if got := all(t, s, "l/nothing", ""); len(got) != 0 {
		t.Errorf("an empty folder has %v", got)
	}
}

func deleted(t *testing.T, s retention.Store) {
	for range 2 {
		if err := s.Put(t.Context(), "d/x", []byte("x")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.Delete(t.Context(), "d/x"); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.Get(t.Context(), "d/x", 0, 1); !errors.Is(err, retention.ErrNotFound) {
			t.Errorf("deleted object: %v", err)
		}
		if got := all(t, s, "d", ""); len(got) != 0 {
			t.Errorf("deleted and listed: %v", got)
		}
	}
}

func aged(t *testing.T, s retention.Store) {
	before, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "t/x", nil); err != nil {
		t.Fatal(err)
	}
	_, about, err := s.Get(t.Context(), "t/x", 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	after, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const coarse = time.Second // HTTP dates have seconds
	if about.Modified.Before(before.Add(-coarse)) || about.Modified.After(after.Add(coarse)) {
		t.Errorf("created at %s, between %s and %s", about.Modified, before, after)
	}
	listed, _, err := s.List(t.Context(), "t", "")
	isListed := err == nil && len(listed) == 1 && listed[0].Size == 0
	if !isListed || listed[0].Modified.Sub(about.Modified).Abs() > coarse {
		t.Errorf("listed as %+v, %v", listed, err)
	}
}
