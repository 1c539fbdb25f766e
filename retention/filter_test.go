package retention

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// A shelf is a store that is only read.
type shelf struct {
	Store

	objects map[string][]byte
}

func (s *shelf) Get(_ context.Context, key string, offset, n int64) ([]byte, Object, error) {
	data, there := s.objects[key]
	if !there {
		return nil, Object{}, ErrNotFound
	}
	size := int64(len(data))
	return data[min(offset, size):min(offset+n, size)], Object{Size: size}, nil
}

func (s *shelf) List(_ context.Context, folder, after string) (objects []Object, more bool, err error) {
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if name, within := strings.CutPrefix(key, folder+"/"); within && name > after {
			objects = append(objects, Object{Name: name, Size: int64(len(s.objects[key]))})
		}
	}
	return objects, false, nil
}

// A node that watches some of the namespaces reads what one that watches all of them reads, without
// the others: however the changes are distributed over times, segments and lanes, and from every
// place.
func TestFilteredReadIsTheWholeReadFiltered(t *testing.T) {
	t.Parallel()
	encoder := newEncoder()
	const namespaces = namedLanes + 8 // the last ones share a lane
	rapid.Check(t, func(rt *rapid.T) {
		store := &shelf{objects: map[string][]byte{}}
		chain := ChainAt(store, "v1/s/1")
		var events []changetest.Event
		head, d, begin, now := Header{}, newDraft(encoder), change.Timestamp{T: 1000, I: 1}, change.Timestamp{T: 1000, I: 1}
		end := func(to change.Timestamp) {
			segment, h, err := d.encode(Header{Number: head.Number + 1, Previous: head.ID, PreviousNumber: head.Number, From: begin, To: to})
			if err != nil {
				rt.Fatal(err)
			}
			store.objects[chain.segment(h.Number)] = segment
			head, d, begin = h, newDraft(encoder), to
		}
		for i := range rapid.IntRange(1, 80).Draw(rt, "changes") {
			e := changetest.Event{Coll: fmt.Sprint("c", rapid.IntRange(0, namespaces-1).Draw(rt, "namespace")), ID: int64(i), Index: uint64(i)}
			if rapid.Bool().Draw(rt, "another time") {
				now.T++
				if rapid.IntRange(0, 4).Draw(rt, "cut") == 0 {
					end(now)
				}
			}
			e.Time = now
			events = append(events, e)
			if d.add(event(t, e)); rapid.IntRange(0, 9).Draw(rt, "loss") == 0 {
				if err := d.addLoss(&oplog.Loss{From: e.Position(), To: change.At(now.Next()), Reason: gap.HistoryLost}); err != nil {
					rt.Fatal(err)
				}
			}
		}
		end(now.Next())
		from := events[rapid.IntRange(0, len(events)-1).Draw(rt, "from")].Time
		watched := map[string]bool{}
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, namespaces-1), 1, namespaces).Draw(rt, "watched") {
			watched[fmt.Sprint("c", n)] = true
		}
		var watch []string
		for coll := range watched {
			watch = append(watch, "shop."+coll)
		}
		whole := readChain(t, chain, from, SourceConfig{})
		got := readChain(t, chain, from, SourceConfig{
			Coverage: Coverage{Coverage: change.Coverage{Namespaces: watch}}, Keep: func(e *change.Event) bool { return watched[string(e.Coll())] },
		})
		later := slices.IndexFunc(events, func(e changetest.Event) bool { return e.Time == from })
		if n := len(slices.DeleteFunc(slices.Clone(whole), func(r readEntry) bool { return r.loss != "" })); n != len(events)-later {
			rt.Fatalf("%d changes of %d were read", n, len(events)-later)
		}
		want := slices.DeleteFunc(whole, func(r readEntry) bool { return r.loss == "" && !watched[r.coll] })
		if !slices.Equal(got, want) {
			rt.Errorf("read %v\nwant %v", got, want)
		}
	})
}

// Between segments that do not follow each other is a loss of what may be missing: of the stretch
// between them, or at the place where another chain goes on. Nothing is missing where the next one
// begins earlier, and nothing comes twice.
func TestSegmentsThatDoNotFollowAreALoss(t *testing.T) {
	t.Parallel()
	at := func(second uint32) change.Timestamp { return change.Timestamp{T: second, I: 1} }
	for name, c := range map[string]struct {
		number, from uint32
		stranger     bool // the second one names another predecessor
		want         []string
	}{
		"the next one":               {number: 2, from: 1020, want: []string{"0", "1"}},
		"a number is missing":        {number: 3, from: 1030, want: []string{"0", "1020:1 1030:1", "1"}},
		"another one's successor":    {number: 2, from: 1020, stranger: true, want: []string{"0", "1020:1 1020:1", "1"}},
		"another one's, later":       {number: 2, from: 1030, stranger: true, want: []string{"0", "1020:1 1030:1", "1"}},
		"another one's, and earlier": {number: 2, from: 1005, stranger: true, want: []string{"0", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &shelf{objects: map[string][]byte{}}
			chain, first := ChainAt(store, "v1/s/1"), Header{}
			for i, h := range []Header{{Number: 1, From: at(1000), To: at(1020)}, {Number: uint64(c.number), From: at(c.from), To: at(1040)}} {
				d := newDraft(newEncoder())
				for id := range i + 1 {
					if e := (changetest.Event{ID: int64(id), Time: at(1010 + 25*uint32(id))}); h.From.Compare(e.Time) <= 0 {
						d.add(event(t, e))
					}
				}
				if i > 0 && !c.stranger {
					h.Previous, h.PreviousNumber = first.ID, uint64(c.number)-1
				}
				segment, h, err := d.encode(h)
				if err != nil {
					t.Fatal(err)
				}
				store.objects[chain.segment(h.Number)], first = segment, h
			}
			var got []string
			for _, r := range readChain(t, chain, at(1000), SourceConfig{}) {
				switch parsed, err := change.Parse([]byte(r.raw)); {
				case r.loss != "":
					got = append(got, r.loss)
				case err != nil:
					t.Fatal(err)
				default:
					got = append(got, fmt.Sprint(binary.LittleEndian.Uint64(parsed.ID().Data)))
				}
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("read %q, want %q", got, c.want)
			}
		})
	}
}

// A readEntry is a change or a loss that was read.
type readEntry struct{ loss, coll, raw string }

// readChain reads a chain from a time to its end.
func readChain(t *testing.T, chain *Chain, from change.Timestamp, cfg SourceConfig) (all []readEntry) {
	t.Helper()
	s := &stream{source: NewSource(cfg, nil, func() *Chain { return chain }), at: from, decoder: shared()}
	if found, err := s.begin(t.Context(), change.Timestamp{T: 1 << 31}); err != nil || !found {
		t.Fatalf("nothing from %s: %t, %v", from, found, err)
	}
	for {
		reply, err := s.Next(t.Context())
		if errors.Is(err, oplog.ErrJoin) { // its end
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if l := reply.Loss; l != nil {
			all = append(all, readEntry{loss: fmt.Sprint(l.From, l.To, l.Reason, l.Namespaces)})
		}
		for _, raw := range reply.Events {
			parsed, err := change.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, readEntry{coll: string(parsed.Coll()), raw: string(raw)})
		}
	}
}
