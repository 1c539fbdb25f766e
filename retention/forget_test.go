package retention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// stored keeps a segment with changes in a folder, and what interrupted writes have left of it.
func stored(t *testing.T, events []changetest.Event) (root string, chain *Chain) {
	t.Helper()
	root = t.TempDir()
	files := NewFiles(root)
	t.Cleanup(func() { _ = files.Close() })
	chain = ChainAt(files, "v1/s/1")
	segment, _ := segmentOf(t, events)
	if err := chain.store.Put(t.Context(), chain.segment(1), segment); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(root, "v1/s/1/seg/left"+temporary)
	if err := os.WriteFile(left, segment, fileMode); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * abandoned)
	if err := os.Chtimes(left, long, long); err != nil {
		t.Fatal(err)
	}
	return root, chain
}

// gone returns what of some changes an erasure leaves.
func gone(t *testing.T, events []changetest.Event, e Erasure) (rest []changetest.Event) {
	t.Helper()
	for _, c := range events {
		if !e.erases(event(t, c)) {
			rest = append(rest, c)
		}
	}
	return rest
}

// erasures are those of the tests: of a collection with a lane of its own, of one in the rest lane,
// of one document, and of what is before a time.
func erasures(t *testing.T) map[string]Erasure {
	t.Helper()
	id := string(change.AppendCanonical(nil, event(t, changetest.Event{ID: 39}).ID()))
	later := change.Timestamp{T: 9999}
	return map[string]Erasure{
		"collection": {Namespace: change.Namespace{DB: "shop", Coll: "c0"}, Before: later},
		"document":   {Namespace: change.Namespace{DB: "shop", Coll: "c3"}, Documents: []string{id}, Before: later},
		"time":       {Namespace: change.Namespace{DB: "shop", Coll: "c1"}, Before: change.Timestamp{T: 1030}},
	}
}

// Nothing of what was erased is in any byte of the store: every byte of every file belongs to what
// is known to be in it. The rest is there unharmed and in order, with a loss in the place of what
// was erased.
func TestNothingOfTheErasedRemains(t *testing.T) {
	t.Parallel()
	events := some(200)
	for name, e := range erasures(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, chain := stored(t, events)
			rest := gone(t, events, e)
			planned, err := chain.Forget(t.Context(), e, "me", false)
			if err != nil || planned.Changes != len(events)-len(rest) || planned.Changes == 0 {
				t.Fatalf("%+v, %v", planned, err)
			}
			if raw, _, _, err := contents(segmentIn(t, root)); err != nil || len(raw) != len(events) {
				t.Fatalf("a plan has left %d changes, %v", len(raw), err)
			}
			if done, err := chain.Forget(t.Context(), e, "me", true); err != nil || done.Changes != planned.Changes {
				t.Fatalf("%+v, %v", done, err)
			}
			data := segmentIn(t, root)
			raw, losses, damaged, err := contents(data)
			if err != nil || len(raw) != len(rest) || losses != len(events)/10 {
				t.Fatalf("%d changes of %d, %d losses, %v", len(raw), len(rest), losses, err)
			}
			for i := range rest {
				if !bytes.Equal(raw[i], rest[i].Bytes()) {
					t.Fatalf("change %d differs", i)
				}
			}
			if len(damaged) != 1 || damaged[0].Reason != gap.Forgotten || !slices.Equal(damaged[0].Namespaces, []string{e.Namespace.String()}) {
				t.Errorf("losses %v", damaged)
			}
			everyByte(t, data)
			v, err := chain.Verify(t.Context())
			if err != nil || len(v.Findings) > 0 || v.Events != len(rest) {
				t.Errorf("%+v, %v", v, err)
			}
			if again, err := chain.Forget(t.Context(), e, "me", false); err != nil || again.Changes != 0 {
				t.Errorf("again: %+v, %v", again, err)
			}
			if again, err := chain.Forget(t.Context(), e, "me", true); err != nil || again.Changes != 0 || again.To != planned.To {
				t.Errorf("erased again: %+v, %v", again, err)
			}
			if times, err := chain.Forgettings(t.Context()); err != nil || len(times) != 1 { // nothing was to be erased again
				t.Errorf("erased at %v, %v", times, err)
			}
			for path, mode := range filesIn(t, root) {
				if mode != fileMode {
					t.Errorf("%s has mode %o", path, mode)
				}
				if strings.HasSuffix(path, temporary) {
					t.Errorf("%s is still there", path)
				}
			}
		})
	}
}

// segmentIn returns the segment of a folder.
func segmentIn(t *testing.T, root string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "v1/s/1/seg", name(1)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// filesIn returns the modes of the files of a folder.
func filesIn(t *testing.T, root string) map[string]os.FileMode {
	t.Helper()
	modes := map[string]os.FileMode{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		modes[path] = info.Mode().Perm()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return modes
}

// everyByte looks that header, blocks, footer and trailer make a whole segment, with nothing
// between them.
func everyByte(t *testing.T, data []byte) {
	t.Helper()
	h, err := parseHeader(data)
	if err != nil {
		t.Fatal(err)
	}
	r := newSegmentReader(&one{data: data}, "x", h, shared(), nil)
	f, err := r.readFooter(t.Context(), r.fetch)
	if err != nil {
		t.Fatal(err)
	}
	offset, length, _, err := parseTrailer(data[len(data)-trailerSize:], &h)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for _, k := range f.Blocks {
		if k.Offset != at {
			t.Errorf("a block begins at %d, not at %d", k.Offset, at)
		}
		at += int64(k.Stored)
	}
	if h.size+at != offset || offset+length+trailerSize != int64(len(data)) {
		t.Errorf("blocks end at %d, the footer begins at %d, of %d bytes", h.size+at, offset, len(data))
	}
}

// A rename belongs to two collections and has no document: it stays, whichever of them is erased.
// Otherwise subscribers of the other one would miss it in silence.
func TestRenamesStay(t *testing.T) {
	t.Parallel()
	events := []changetest.Event{
		{Coll: "tmp", ID: 1}, {Op: "rename", Coll: "tmp", To: "orders", Keyless: true}, {Op: "rename", Coll: "orders", To: "tmp", Keyless: true},
		{Coll: "tmp", ID: 2}, {Op: "drop", Coll: "tmp", Keyless: true},
	}
	for i := range events {
		events[i].Time = change.Timestamp{T: 1000 + uint32(i), I: 1}
	}
	root, chain := stored(t, events)
	e := Erasure{Namespace: change.Namespace{DB: "shop", Coll: "tmp"}, Before: change.Timestamp{T: 9999}}
	if done, err := chain.Forget(t.Context(), e, "me", true); err != nil || done.Changes != 3 {
		t.Errorf("%+v, %v", done, err)
	}
	raw, _, _, err := contents(segmentIn(t, root))
	if err != nil || len(raw) != 2 || !bytes.Equal(raw[0], events[1].Bytes()) || !bytes.Equal(raw[1], events[2].Bytes()) {
		t.Errorf("%d changes are left, %v", len(raw), err)
	}
}

// A segment that is written again is as old as before, and expires when it would have.
func TestErasureProlongsNothing(t *testing.T) {
	t.Parallel()
	root, chain := stored(t, some(60))
	path, written := filepath.Join(root, "v1/s/1/seg", name(1)), time.Now().Add(-48*time.Hour).Truncate(time.Second)
	if err := os.Chtimes(path, written, written); err != nil {
		t.Fatal(err)
	}
	if done, err := chain.Forget(t.Context(), erasures(t)["collection"], "me", true); err != nil || done.Segments != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if all, err := chain.Segments(t.Context()); err != nil || len(all) != 1 || !all[0].Modified.Equal(written) {
		t.Errorf("%v, %v", all, err)
	}
}

// A store that cannot replace segments is read neither for a plan nor for records of erasures.
func TestErasureNeedsAStoreThatReplaces(t *testing.T) {
	t.Parallel()
	if times, err := ChainAt(&one{}, "v1/s/1").Forgettings(t.Context()); err != nil || len(times) > 0 {
		t.Errorf("erased at %v, %v", times, err)
	}
	for _, do := range []bool{false, true} {
		if _, err := ChainAt(&one{}, "v1/s/1").Forget(t.Context(), erasures(t)["collection"], "me", do); !errors.Is(err, ErrImmutable) {
			t.Errorf("%t: %v", do, err)
		}
	}
}

// A hooked store calls a function before one of its reads.
type hooked struct {
	Store

	reads, at int
	call      func()
}

func (s *hooked) Get(ctx context.Context, key string, offset, n int64) ([]byte, Object, error) {
	if s.reads++; s.reads == s.at {
		s.call()
	}
	return s.Store.Get(ctx, key, offset, n)
}

// A reader that is within a segment when it is written again gets everything of the rest, in order,
// and no loss but that of the erased changes, whichever of its reads comes after that.
func TestReadersSurviveAnErasure(t *testing.T) {
	t.Parallel()
	events := some(60)
	for i := range events {
		events[i].Pad, events[i].Noise = blockSize/4, i%4 == 0 // blocks of a few changes, and more than is fetched at once
	}
	e := erasures(t)["collection"]
	rest := gone(t, events, e)
	for at := 1; ; at++ {
		_, chain := stored(t, events)
		store := &hooked{Store: chain.store, at: at, call: func() {
			if _, err := chain.Forget(t.Context(), e, "me", true); err != nil {
				t.Error(err)
			}
		}}
		reading := ChainAt(store, chain.prefix)
		s := &stream{source: NewSource(SourceConfig{}, nil, func() *Chain { return reading })}
		h, found, err := reading.find(t.Context(), change.Timestamp{})
		if err != nil || !found {
			t.Fatal(err)
		}
		s.enter(h)
		got, seen := 0, map[string]bool{}
		for s.reader != nil || len(s.losses) > 0 {
			if len(s.losses) > 0 {
				if l := s.nextLoss().Loss; l.Reason != gap.Forgotten {
					t.Fatalf("read %d: %+v", at, l)
				}
				continue
			}
			reply, err := s.read(t.Context())
			if err != nil {
				t.Fatalf("read %d: %v", at, err)
			}
			for _, raw := range reply.Events {
				parsed, err := change.Parse(raw)
				if err != nil {
					t.Fatal(err)
				}
				if e.erases(&parsed) || seen[string(raw)] { // before it was erased; those of a time come again
					continue
				}
				if seen[string(raw)] = true; got == len(rest) || !bytes.Equal(raw, rest[got].Bytes()) {
					t.Fatalf("read %d: change %d is another one", at, got)
				}
				got++
			}
		}
		if s.decoder.Close(); got != len(rest) {
			t.Fatalf("read %d: %d changes of %d", at, got, len(rest))
		}
		if store.reads < at {
			if at < 5 {
				t.Errorf("only %d reads", store.reads)
			}
			return
		}
	}
}

// Readers that share what they fetch get everything of the rest in order, too, whichever of their
// reads comes after a segment was written again, or deleted: then the rest is a loss. Nobody who
// begins afterwards gets what was erased, although others have fetched it.
func TestSharingReadersSurviveWhatHappensToASegment(t *testing.T) {
	t.Parallel()
	events := some(40)
	for i := range events {
		events[i].Pad, events[i].Noise = blockSize/4, i%4 == 0
	}
	e := erasures(t)["collection"]
	happenings := map[string]func(*Chain) error{
		"erased": func(chain *Chain) error {
			_, err := chain.Forget(t.Context(), e, "me", true)
			return err
		},
		"deleted": func(chain *Chain) error { return chain.store.Delete(t.Context(), chain.segment(1)) },
	}
	for name, happens := range happenings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at, last := 1, false; !last; at++ {
				_, chain := stored(t, events)
				store := &hooked{Store: chain.store, call: func() {
					if err := happens(chain); err != nil {
						t.Error(err)
					}
				}}
				reading := ChainAt(store, chain.prefix)
				source := NewSource(SourceConfig{}, nil, func() *Chain { return reading })
				sharers := []*sharer{newSharer(t, source), newSharer(t, source)}
				store.at = store.reads + at
				for sharers[0].reads(t) || sharers[1].reads(t) {
					sharers[1].reads(t)
				}
				for i, r := range sharers {
					r.has(t, fmt.Sprintf("read %d, reader %d", at, i), gone(t, events, e))
				}
				if last = store.reads < store.at; last && at < 5 {
					t.Errorf("only %d reads", store.reads)
				}
				if name == "erased" && !last {
					late := newSharer(t, source)
					for late.reads(t) {
						continue
					}
					for _, raw := range late.events {
						if parsed, err := change.Parse(raw); err != nil || e.erases(&parsed) {
							t.Fatalf("read %d: somebody who began later got what was erased, %v", at, err)
						}
					}
				}
			}
		})
	}
}

// A sharer is a reader beside others.
type sharer struct {
	*stream

	events [][]byte
	lost   []*oplog.Loss
}

func newSharer(t *testing.T, source *Source) *sharer {
	t.Helper()
	s := &stream{source: source}
	h, found, err := source.chain().find(t.Context(), change.Timestamp{})
	if err != nil || !found {
		t.Fatal(err)
	}
	s.enter(h)
	return &sharer{stream: s}
}

// reads reads a reply; more is false at the end of the segment.
func (r *sharer) reads(t *testing.T) (more bool) {
	t.Helper()
	switch {
	case len(r.losses) > 0:
		r.lost = append(r.lost, r.nextLoss().Loss)
	case r.reader == nil:
		r.release()
		return false
	default:
		reply, err := r.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.events = append(r.events, reply.Events...)
	}
	return true
}

// has looks whether every change was read, in order, or is within a loss.
func (r *sharer) has(t *testing.T, who string, want []changetest.Event) {
	t.Helper()
	at := 0
	for _, w := range want {
		i := slices.IndexFunc(r.events[at:], func(raw []byte) bool { return bytes.Equal(raw, w.Bytes()) })
		if i >= 0 {
			at += i + 1
			continue
		}
		told := slices.ContainsFunc(r.lost, func(l *oplog.Loss) bool {
			return l.Reason != gap.Forgotten && l.From.Time.Compare(w.Time) <= 0 && w.Time.Compare(l.To.Time) < 0
		})
		if !told {
			t.Fatalf("%s: a change at %s is missing without a loss: %v", who, w.Time, r.lost)
		}
	}
}

// A desk is a shelf whose objects can be replaced.
type desk struct{ shelf }

func (s *desk) Put(_ context.Context, key string, data []byte) error {
	s.objects[key] = data
	return nil
}

func (s *desk) Replace(ctx context.Context, key string, data []byte, _ string) error {
	return s.Put(ctx, key, data)
}

func (s *desk) Hold(context.Context, string) (release func(), err error) { return func() {}, nil }

// erase erases a collection.
func erase(t *testing.T, chain *Chain, coll string) {
	t.Helper()
	f, err := chain.Forget(t.Context(), Erasure{Namespace: change.Namespace{DB: "shop", Coll: coll}, Before: change.Timestamp{T: 9999}}, "me", true)
	if err != nil || f.Changes == 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

// cut returns the objects of a transaction that is cut into two segments. Collections a and b have
// been erased, of the first segment and of both.
func cut(t *testing.T, at change.Timestamp) map[string][]byte {
	t.Helper()
	store := &desk{shelf{objects: map[string][]byte{}}}
	chain, head, encoder := ChainAt(store, "v1/s/1"), Header{}, newEncoder()
	for n, colls := range [][]string{{"a", "b", "d"}, {"b", "c", "d"}} {
		d := newDraft(encoder)
		for i, coll := range colls {
			d.add(event(t, changetest.Event{Coll: coll, ID: int64(n), Time: at, Index: uint64(10*n + i)}))
		}
		h := Header{Number: head.Number + 1, Previous: head.ID, PreviousNumber: head.Number, From: at, To: at, Cut: n == 0}
		if !h.Cut {
			h.To = at.Next()
		}
		segment, h, err := d.encode(h)
		if err != nil {
			t.Fatal(err)
		}
		store.objects[chain.segment(h.Number)], head = segment, h
	}
	erase(t, chain, "a")
	erase(t, chain, "b")
	return store.objects
}

// What was erased of a segment that is cut is told, and once, whichever read of the next segment
// comes after that was written again, too.
func TestErasedOfACutSegmentIsTold(t *testing.T) {
	t.Parallel()
	from := change.Timestamp{T: 1000, I: 1}
	objects := cut(t, from)
	for at := 1; ; at++ {
		chain := ChainAt(&desk{shelf{objects: maps.Clone(objects)}}, "v1/s/1")
		store := &hooked{Store: chain.store, at: at, call: func() { erase(t, chain, "c") }}
		told, others := map[string]int{}, map[string]bool{}
		for _, r := range readChain(t, ChainAt(store, chain.prefix), from, SourceConfig{}) {
			for _, coll := range []string{"shop.a", "shop.b"} {
				if strings.Contains(r.loss, coll) {
					told[coll]++
				}
			}
			if r.coll == "d" {
				others[r.raw] = true // those of a time may come again
			}
		}
		if told["shop.a"] != 1 || told["shop.b"] != 1 || len(others) != 2 {
			t.Errorf("read %d: losses of what was erased: %v, %d other changes", at, told, len(others))
		}
		if store.reads < at {
			return
		}
	}
}

// In a store like a bucket erasure works without a lock: whoever meets a segment that somebody else
// has replaced meanwhile reads it again, and segments expire by when they were written first.
func TestErasuresAtOnceLoseNothing(t *testing.T) {
	t.Parallel()
	at := change.Timestamp{T: 1000, I: 1}
	objects := cut(t, at)
	for first := 1; ; first++ {
		store := &versioned{desk: desk{shelf{objects: maps.Clone(objects)}}}
		chain := ChainAt(store, "v1/s/1")
		hook := &hooked{Store: store, at: first, call: func() { erase(t, chain, "d") }}
		f, err := ChainAt(&rewriting{hook, store}, "v1/s/1").Forget(t.Context(), Erasure{Namespace: change.Namespace{DB: "shop", Coll: "c"}, Before: change.Timestamp{T: 9999}}, "me", true)
		if err != nil || len(f.Unreadable) > 0 {
			t.Fatalf("read %d: %+v, %v", first, f, err)
		}
		if hook.reads < first {
			if first < 5 {
				t.Errorf("only %d reads", hook.reads)
			}
			return
		}
		for _, n := range []uint64{1, 2} {
			raw, _, _, err := contents(store.objects[chain.segment(n)])
			if err != nil || len(raw) > 0 {
				t.Errorf("read %d: %d changes are left in segment %d, %v", first, len(raw), n, err)
			}
			if h, _, err := chain.Header(t.Context(), n); err != nil || h.Written.IsZero() {
				t.Errorf("read %d: segment %d was written at %s, %v", first, n, h.Written, err)
			}
		}
	}
}

// A versioned store is a desk that notices what was replaced.
type versioned struct {
	desk

	versions map[string]int
}

func (s *versioned) Get(ctx context.Context, key string, offset, n int64) ([]byte, Object, error) {
	data, about, err := s.desk.Get(ctx, key, offset, n)
	about.Version, about.Modified = strconv.Itoa(s.versions[key]), time.Unix(1000, 0)
	return data, about, err
}

func (s *versioned) Replace(ctx context.Context, key string, data []byte, version string) error {
	if strconv.Itoa(s.versions[key]) != version {
		return ErrChanged
	}
	if s.versions == nil {
		s.versions = map[string]int{}
	}
	s.versions[key]++
	return s.Put(ctx, key, data)
}

// A rewriting store reads through another one.
type rewriting struct {
	*hooked
	rewriter
}

func (s *rewriting) Replace(ctx context.Context, key string, data []byte, version string) error {
	if s.reads++; s.reads == s.at {
		s.call()
	}
	return s.rewriter.Replace(ctx, key, data, version)
}
