package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// A written is a change of a chain, and the namespaces that it concerns.
type written struct {
	raw      []byte
	at       change.Position
	concerns []string
}

// collections of the tests: those of shop have lanes, or share one; the other database has two.
func drawNamespace(rt *rapid.T, label string) change.Namespace {
	const ofShop = namedLanes + 4
	if n := rapid.IntRange(0, ofShop+1).Draw(rt, label); n < ofShop {
		return change.Namespace{DB: "shop", Coll: fmt.Sprint("c", n)}
	}
	return change.Namespace{DB: "other", Coll: rapid.SampledFrom([]string{"c1", "d.e"}).Draw(rt, label)}
}

// drawChange draws a change of one document, of a collection, of two, of a database, or of
// everything.
func drawChange(rt *rapid.T, e changetest.Event) written {
	ns, to := drawNamespace(rt, "namespace"), change.Namespace{}
	op := rapid.SampledFrom([]string{"insert", "insert", "insert", "insert", "insert", "drop", "rename", "dropDatabase", "invalidate"}).Draw(rt, "operation")
	e.Op = op
	w := written{at: e.Position(), concerns: []string{ns.String()}}
	b := change.AppendDocument(nil, "_id", changetest.Token(e))
	b = change.AppendString(b, "operationType", op)
	b = change.AppendTimestamp(b, "clusterTime", e.Time.T, e.Time.I)
	switch op {
	case "rename":
		to = drawNamespace(rt, "target")
		w.concerns = append(w.concerns, to.String())
	case "dropDatabase":
		ns.Coll = ""
		w.concerns = []string{ns.DB}
	case "invalidate":
		ns, w.concerns = change.Namespace{}, []string{""}
	case "insert":
		b = change.AppendDocument(b, "documentKey", change.WrapDocument(change.AppendInt64(nil, "_id", e.ID)))
	}
	appendNamespace := func(field string, ns change.Namespace) {
		if ns.DB == "" {
			return
		}
		names := change.AppendString(nil, "db", ns.DB)
		if ns.Coll != "" {
			names = change.AppendString(names, "coll", ns.Coll)
		}
		b = change.AppendDocument(b, field, change.WrapDocument(names))
	}
	appendNamespace("ns", ns)
	appendNamespace("to", to)
	w.raw = change.WrapDocument(b)
	return w
}

// A draftedChain is a chain in memory that is being written.
type draftedChain struct {
	rt     *rapid.T
	store  *desk
	chain  *Chain
	head   Header
	draft  *draft
	from   change.Timestamp
	events []written
}

// end ends the segment.
func (c *draftedChain) end(to change.Timestamp, cut bool) {
	segment, h, err := c.draft.encode(Header{Number: c.head.Number + 1, Previous: c.head.ID, PreviousNumber: c.head.Number, From: c.from, To: to, Cut: cut})
	if err != nil {
		c.rt.Fatal(err)
	}
	c.store.objects[c.chain.segment(h.Number)] = segment
	c.head, c.draft, c.from = h, newDraft(c.draft.encoder), to
}

// drawChain draws a chain of segments, some of which end within a time.
func drawChain(rt *rapid.T, encoder *zstd.Encoder) *draftedChain {
	c := &draftedChain{rt: rt, store: &desk{shelf{objects: map[string][]byte{}}}, draft: newDraft(encoder), from: change.Timestamp{T: 1000, I: 1}}
	c.chain = ChainAt(c.store, "v1/s/1")
	now := c.from
	for i := range rapid.IntRange(1, 40).Draw(rt, "changes") {
		if rapid.Bool().Draw(rt, "another time") {
			now.T++
			if rapid.IntRange(0, 4).Draw(rt, "end") == 0 {
				c.end(now, false)
			}
		} else if i > 0 && rapid.IntRange(0, 9).Draw(rt, "cut") == 0 {
			c.end(now, true)
		}
		w := drawChange(rt, changetest.Event{ID: int64(i), Time: now, Index: uint64(i)})
		c.events = append(c.events, w)
		parsed, err := change.Parse(w.raw)
		if err != nil {
			rt.Fatal(err)
		}
		if c.draft.add(&parsed); rapid.IntRange(0, 9).Draw(rt, "loss") == 0 {
			now = change.Timestamp{T: now.T + 1, I: 1}
			if err := c.draft.addLoss(&oplog.Loss{From: w.at, To: change.At(now), Reason: gap.HistoryLost}); err != nil {
				rt.Fatal(err)
			}
		}
	}
	c.end(now.Next(), false)
	return c
}

// spoil damages blocks and footers.
func (c *draftedChain) spoil() {
	for _, key := range slices.Sorted(maps.Keys(c.store.objects)) {
		data := c.store.objects[key]
		if !strings.HasPrefix(key, c.chain.segments()) {
			continue
		}
		h, err := parseHeader(data)
		if err != nil {
			c.rt.Fatal(err)
		}
		r := newSegmentReader(c.store, key, h, nil, nil)
		f, err := r.readFooter(context.Background(), r.fetch)
		if err != nil {
			c.rt.Fatal(err)
		}
		spoilt := slices.Clone(data)
		for _, k := range f.Blocks {
			if rapid.IntRange(0, 3).Draw(c.rt, "damaged") == 0 {
				spoilt[h.size+k.Offset+blockHeader] ^= 1
			}
		}
		if rapid.IntRange(0, 9).Draw(c.rt, "no footer") == 0 {
			spoilt[len(spoilt)-1] ^= 1
		}
		c.store.objects[key] = spoilt
	}
}

// narrowRead is what somebody gets who reads a scope of a chain through the log.
type narrowRead struct {
	events [][]byte
	losses []oplog.Loss
}

// readNarrow reads a scope from a time, and drops entries that the log's readers have
// passed.
func readNarrow(t *rapid.T, chain *Chain, from change.Timestamp, scope oplog.Scope) (got narrowRead) {
	s := &stream{source: NewSource(SourceConfig{}, nil, func() *Chain { return chain }), scope: scope, at: from, decoder: shared()}
	if found, err := s.begin(context.Background(), change.Timestamp{T: 1 << 31}); err != nil || !found {
		t.Fatalf("nothing from %s: %t, %v", from, found, err)
	}
	end := change.At(from)
	for {
		reply, err := s.Next(context.Background())
		if errors.Is(err, oplog.ErrJoin) { // its end
			return got
		} else if err != nil {
			t.Fatal(err)
		}
		if l := reply.Loss; l != nil && (l.From.Compare(l.To) == 0 || l.To.After(end)) {
			got.losses = append(got.losses, *l)
			end = change.Later(end, l.To)
		}
		for _, raw := range reply.Events {
			parsed, err := change.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if parsed.Position().After(end) {
				end = parsed.Position()
				got.events = append(got.events, raw)
			}
		}
		end = change.Later(end, reply.End)
	}
}

// tells reports whether a reader of the scope knows by a loss that he may have missed a change.
func tells(l *oplog.Loss, w *written, scope oplog.Scope) bool {
	if l.From.Time.Compare(w.at.Time) > 0 || w.at.After(l.To) {
		return false
	}
	return len(l.Namespaces) == 0 || slices.ContainsFunc(l.Namespaces, func(name string) bool {
		return reads(scope, name) && slices.ContainsFunc(w.concerns, func(of string) bool { return meet(of, name) })
	})
}

// meet reports whether two names have a collection in common: db.coll, db or db.*, or empty, which
// is everything.
func meet(a, b string) bool {
	dbA, collA, _ := strings.Cut(a, ".")
	dbB, collB, _ := strings.Cut(b, ".")
	whole := func(coll string) bool { return coll == "" || coll == "*" }
	return a == "" || b == "" || dbA == dbB && (collA == collB || whole(collA) || whole(collB))
}

// reads reports whether a name has a collection of the scope.
func reads(scope oplog.Scope, name string) bool {
	return scope == nil || slices.ContainsFunc(scope, func(ns change.Namespace) bool { return meet(ns.String(), name) })
}

// A reader of some namespaces of a chain gets all changes that concern them, in their order, or a
// loss of theirs in the place of those that cannot be read: however changes, renames and drops are
// spread over times, segments and lanes, whatever is damaged or was erased, and from every place.
// Losses of damaged and erased changes of others do not reach him.
func TestNarrowReadersMissNothingOfTheirs(t *testing.T) {
	t.Parallel()
	encoder := newEncoder()
	rapid.Check(t, func(rt *rapid.T) {
		c := drawChain(rt, encoder)
		if rapid.Bool().Draw(rt, "erase") {
			e := Erasure{Namespace: drawNamespace(rt, "erased"), Before: change.Timestamp{T: 9999}}
			if _, err := c.chain.Forget(context.Background(), e, "me", true); err != nil {
				rt.Fatal(err)
			}
		}
		if rapid.Bool().Draw(rt, "spoil") {
			c.spoil()
		}
		var scope oplog.Scope
		for range rapid.IntRange(0, 3).Draw(rt, "namespaces") { // none is everything
			ns := drawNamespace(rt, "read")
			if rapid.IntRange(0, 5).Draw(rt, "whole database") == 0 {
				ns.Coll = ""
			}
			scope = append(scope, ns)
		}
		from := c.events[rapid.IntRange(0, len(c.events)-1).Draw(rt, "from")].at.Time
		got := readNarrow(rt, c.chain, from, scope)
		rest := got.events
		for _, w := range c.events {
			if w.at.Time.Compare(from) < 0 {
				continue
			}
			if i := slices.IndexFunc(rest, func(raw []byte) bool { return string(raw) == string(w.raw) }); i >= 0 {
				rest = rest[i+1:] // before it are changes of others
				continue
			}
			if !slices.ContainsFunc(w.concerns, func(name string) bool { return reads(scope, name) }) {
				continue
			}
			if !slices.ContainsFunc(got.losses, func(l oplog.Loss) bool { return tells(&l, &w, scope) }) {
				rt.Errorf("a change at %s of %q is missing silently for %v; losses %+v", w.at, w.concerns, scope, got.losses)
			}
		}
		for _, l := range got.losses {
			if l.Reason != gap.HistoryLost && len(l.Namespaces) > 0 && !slices.ContainsFunc(l.Namespaces, func(name string) bool { return reads(scope, name) }) {
				rt.Errorf("a loss of others for %v: %+v", scope, l)
			}
		}
	})
}
