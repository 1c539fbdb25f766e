package connect_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/cursor"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A ring is a keyring that never finds newer keys.
type ring struct{ *cursor.Keyring }

func (r ring) Open(_ context.Context, p change.Partition, sealed []byte) (change.Position, error) {
	return r.Keyring.Open(p, sealed)
}

func newRing(t *testing.T, cfg cursor.Config, keys key.Set) ring {
	t.Helper()
	k := cursor.NewKeyring(cfg)
	if err := k.Turn(keys); err != nil {
		t.Fatal(err)
	}
	return ring{k}
}

// keysOf returns so many keys.
func keysOf(t *testing.T, n int) (keys key.Set) {
	t.Helper()
	for range n {
		var err error
		if keys, _, err = keys.Add(keys.Next(time.Unix(1000, 0))); err != nil {
			t.Fatal(err)
		}
	}
	return keys
}

func bound() cursor.Config { return cursor.Config{Cluster: "c", Partitions: partitions} }

// A follower takes events and keeps the last cursor and position of each partition.
type follower struct {
	*session

	at     map[uint32]*streampb.PartitionPosition
	events map[string]int // how often each change came
}

func follow(s *session) *follower {
	return &follower{session: s, at: map[uint32]*streampb.PartitionPosition{}, events: map[string]int{}}
}

// take takes batches until there were so many events and a cursor in every partition.
func (f *follower) take(n int) {
	f.Helper()
	for got := 0; got < n || len(f.at) < partitions; {
		b := next(f.session, (*streampb.ConnectResponse).GetBatch)
		f.at[b.GetPartition()] = &streampb.PartitionPosition{Partition: b.GetPartition(), Position: b.GetTo(), Cursor: b.GetCursor()}
		for _, e := range b.GetEvents() {
			got++
			f.events[string(e.GetPosition().GetHead())+string(e.GetPosition().GetHashes()[0])]++
		}
	}
}

// resume makes a hello that goes on from there, each position changed by edit.
func (f *follower) resume(edit func(*streampb.PartitionPosition)) *streampb.Hello {
	return hello(func(h *streampb.Hello) {
		h.Start, h.Cluster, h.PartitionCount = streampb.Start_START_RESUME, "c", partitions
		for _, p := range slices.Sorted(maps.Keys(f.at)) {
			at := &streampb.PartitionPosition{Partition: p, Position: f.at[p].GetPosition(), Cursor: f.at[p].GetCursor()}
			edit(at)
			h.Positions = append(h.Positions, at)
		}
	})
}

func alone(p *streampb.PartitionPosition) { p.Position = nil }

// Many documents change at one time, with equal heads; a gateway that keeps nothing but cursors gets each once, over several
// connections, to whichever node.
func TestGatewayGoesOnByCursorsAlone(t *testing.T) {
	keys := keysOf(t, 2)
	w := newWorld(t, connect.Config{Cursors: newRing(t, bound(), keys)})
	at := change.Timestamp{T: 2000, I: 1}
	f := follow(w.connect(hello(nil)))
	next(f.session, (*streampb.ConnectResponse).GetSubscribed)
	written := int64(0)
	for round := range 5 {
		for range 20 {
			written++
			w.source.Append(changetest.Event{ID: written, Time: at})
		}
		f.take(20)
		for p, at := range f.at {
			if len(at.GetCursor()) == 0 {
				t.Fatalf("partition %d has no cursor", p)
			}
		}
		if round == 2 { // what comes on the next connection has been written before it begins
			for range 20 {
				written++
				w.source.Append(changetest.Event{ID: written, Time: at})
			}
		}
		f.session = w.connect(f.resume(alone))
		if !next(f.session, (*streampb.ConnectResponse).GetWelcome).GetRecovered() {
			t.Fatal("not recovered")
		}
		if round == 2 {
			f.take(20)
		}
	}
	w.source.Append(changetest.Event{ID: 9999, Time: change.Timestamp{T: 2001, I: 1}})
	f.take(1)
	if len(f.events) != int(written)+1 {
		t.Errorf("%d changes came of %d", len(f.events), written+1)
	}
	for _, n := range f.events {
		if n != 1 {
			t.Errorf("a change came %d times", n)
		}
	}
}

func TestRefusedCursorIsMadeUpForByItsPosition(t *testing.T) {
	keys := keysOf(t, 3)
	mine := newRing(t, bound(), keys[1:])
	w := newWorld(t, connect.Config{Cursors: mine})
	f := follow(w.connect(hello(nil)))
	next(f.session, (*streampb.ConnectResponse).GetSubscribed)
	id := int64(0)
	write := func() {
		for range 20 {
			id++
			w.source.Append(changetest.Event{ID: id})
		}
	}
	write()
	f.take(20)
	event := changetest.Event{ID: 1, Time: change.Timestamp{T: 1000, I: 2}}.Position()
	foreign := func(cfg cursor.Config, keys key.Set, away change.Partition) func(*streampb.PartitionPosition) {
		r := newRing(t, cfg, keys)
		return func(p *streampb.PartitionPosition) { p.Cursor = r.Seal(change.Partition(p.GetPartition())+away, event) }
	}
	for name, c := range map[string]struct {
		edit func(*streampb.PartitionPosition)
		code fault.Code
	}{
		"garbage":           {func(p *streampb.PartitionPosition) { p.Cursor = []byte("cursor") }, fault.SessionBadCursor},
		"a bit flipped":     {func(p *streampb.PartitionPosition) { p.Cursor = slices.Clone(p.GetCursor()); p.Cursor[60] ^= 1 }, fault.SessionBadCursor},
		"a megabyte":        {func(p *streampb.PartitionPosition) { p.Cursor = make([]byte, 900<<10) }, fault.SessionBadCursor},
		"another cluster":   {foreign(cursor.Config{Cluster: "d", Partitions: partitions}, keys, 0), fault.SessionBadCursor},
		"another number":    {foreign(cursor.Config{Cluster: "c", Partitions: 2 * partitions}, keys, 0), fault.SessionBadCursor},
		"another partition": {foreign(bound(), keys, 1), fault.SessionBadCursor},
		"another's keys":    {foreign(bound(), keysOf(t, 3), 0), fault.SessionBadCursor},
		"a key to come":     {foreign(bound(), keysOf(t, 4), 0), fault.SessionBadCursor},
		"a dropped key":     {foreign(bound(), keys[:1], 0), fault.SessionOldCursor},
	} {
		code, reason, text := w.connect(f.resume(func(p *streampb.PartitionPosition) { c.edit(p); alone(p) })).refused()
		if code != codes.InvalidArgument || reason != string(c.code) || !strings.HasPrefix(text, string(c.code)) {
			t.Errorf("%s alone: %s %s %q", name, code, reason, text)
		}
		s := follow(w.connect(f.resume(c.edit)))
		write()
		if !next(s.session, (*streampb.ConnectResponse).GetWelcome).GetRecovered() {
			t.Errorf("%s: not recovered", name)
		}
		if n := next(s.session, (*streampb.ConnectResponse).GetNotice); n.GetKind() != "cursor_refused" || n.GetCode() != string(c.code) {
			t.Errorf("%s: %v", name, n)
		}
		s.at, s.events = f.at, f.events
		s.take(20)
		f = s
	}
	if len(f.events) != int(id) {
		t.Errorf("%d changes came of %d", len(f.events), id)
	}
}

// A cursor and a position that are not of one batch: the one that stands before counts, and nothing is missed.
func TestCursorBehindItsPositionIsNotUsed(t *testing.T) {
	at := change.Timestamp{T: 2000, I: 1}
	t.Run("at its head", func(t *testing.T) { testCursorBehind(t, at, at) })
	t.Run("later", func(t *testing.T) { testCursorBehind(t, at, at.Next()) })
}

// testCursorBehind has changes at a time, and others at the next.
func testCursorBehind(t *testing.T, at, then change.Timestamp) {
	t.Helper()
	w := newWorld(t, connect.Config{Cursors: newRing(t, bound(), keysOf(t, 1))})
	f := follow(w.connect(hello(nil)))
	next(f.session, (*streampb.ConnectResponse).GetSubscribed)
	w.source.Append(changetest.Event{ID: 1, Time: at}, changetest.Event{ID: 2, Time: at}, changetest.Event{ID: 3, Time: at}, changetest.Event{ID: 4, Time: at})
	f.take(4)
	early := f.at
	w.source.Append(changetest.Event{ID: 5, Time: then}, changetest.Event{ID: 6, Time: then}, changetest.Event{ID: 7, Time: then}, changetest.Event{ID: 8, Time: then})
	f.at = map[uint32]*streampb.PartitionPosition{}
	for len(f.events) < 8 {
		b := next(f.session, (*streampb.ConnectResponse).GetBatch)
		f.at[b.GetPartition()] = &streampb.PartitionPosition{Partition: b.GetPartition(), Position: b.GetTo(), Cursor: b.GetCursor()}
		for _, e := range b.GetEvents() {
			f.events[string(e.GetPosition().GetHead())+string(e.GetPosition().GetHashes()[0])]++
		}
	}
	late := f.at
	missing := len(f.events) - 4
	f.at = early
	ahead := w.connect(f.resume(func(p *streampb.PartitionPosition) {
		if l := late[p.GetPartition()]; l != nil {
			p.Cursor = l.GetCursor()
		}
	}))
	if n := next(ahead, (*streampb.ConnectResponse).GetNotice); n.GetCode() != string(fault.SessionBadCursor) {
		t.Errorf("%v", n)
	}
	if got := len(ahead.events(missing)); got != missing {
		t.Errorf("%d changes behind the positions, want %d", got, missing)
	}
	// The other way round the position says what was seen.
	f.session = w.connect(f.resume(func(p *streampb.PartitionPosition) {
		if l := late[p.GetPartition()]; l != nil {
			p.Position = l.GetPosition()
		}
	}))
	w.source.Append(changetest.Event{ID: 9, Time: change.Timestamp{T: 2001, I: 1}})
	f.take(1)
	if len(f.events) != 9 {
		t.Errorf("%d changes came of 9", len(f.events))
	}
	for _, n := range f.events {
		if n != 1 {
			t.Errorf("a change came %d times", n)
		}
	}
}

func TestServerWithoutKeysSendsNoCursors(t *testing.T) {
	for name, cfg := range map[string]connect.Config{"none": {}, "no keys": {Cursors: newRing(t, bound(), nil)}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cfg)
			f := follow(w.connect(hello(nil)))
			f.take(0)
			for p, at := range f.at {
				if at.GetCursor() != nil {
					t.Errorf("partition %d has a cursor", p)
				}
			}
			code, reason, _ := w.connect(f.resume(func(p *streampb.PartitionPosition) { p.Cursor = []byte("x"); alone(p) })).refused()
			if code != codes.InvalidArgument || reason != string(fault.SessionBadCursor) {
				t.Errorf("%s %s", code, reason)
			}
		})
	}
}

func TestPartitionThatStandsTwiceIsRefused(t *testing.T) {
	w := newWorld(t, connect.Config{Cursors: newRing(t, bound(), keysOf(t, 1))})
	head := changetest.Event{ID: 1, Time: change.Timestamp{T: 1000, I: 1}}.Position().Head().Append(nil)
	place, sealed := &streampb.PartitionPosition{Position: &streampb.Position{Head: head}}, &streampb.PartitionPosition{Cursor: []byte("x")}
	for i, positions := range [][]*streampb.PartitionPosition{{place, place}, {sealed, sealed}, {place, sealed}, {sealed, place}, {{Partition: partitions, Cursor: []byte("x")}}} {
		code, reason, _ := w.connect(hello(func(h *streampb.Hello) {
			h.Start, h.Cluster, h.PartitionCount, h.Positions = streampb.Start_START_RESUME, "c", partitions, positions
		})).refused()
		if code != codes.InvalidArgument || reason != string(fault.SessionBadPosition) {
			t.Errorf("%d: %s %s", i, code, reason)
		}
	}
	// Of another number of partitions, places say where to begin, and cursors alone say nothing.
	code, reason, _ := w.connect(hello(func(h *streampb.Hello) {
		h.Start, h.Cluster, h.PartitionCount, h.Positions = streampb.Start_START_RESUME, "c", 2*partitions, []*streampb.PartitionPosition{sealed}
	})).refused()
	if code != codes.InvalidArgument || reason != string(fault.SessionBadCursor) {
		t.Errorf("%s", fmt.Sprint(code, reason))
	}
}
