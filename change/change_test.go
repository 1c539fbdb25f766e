package change_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
)

// token makes a resume token document of the hexadecimal _data.
func token(data string) []byte {
	b := []byte{byte(len(data) + 17), byte((len(data) + 17) >> 8), 0, 0, 2, '_', 'd', 'a', 't', 'a', 0, byte(len(data) + 1), byte((len(data) + 1) >> 8), 0, 0}
	return append(append(b, data...), 0, 0)
}

func position(t *testing.T, data string) change.Position {
	t.Helper()
	p, err := change.ParseToken(token(data))
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return p
}

// The tokens are MongoDB's own: 4.4 (version 1), 4.4 sharded, 4.0 (version 0).
const (
	highWater    = "826B012B84000000052B0229296E04"
	firstInTxn   = "826B012B84000000052B022C0100296E5A10043EDE0000000000000000000000000000461E5F6964002B020004"
	secondInTxn  = "826B012B84000000052B022C01002B026E5A10043EDE0000000000000000000000000000461E5F6964002B020004"
	shardOne     = "826B012FB9000000192B022C0100296E5A100495303DCF8C9541FCB9FF13D5FC2E74A3461E5F6964002C07D00004"
	shardTwo     = "826B012FB9000000192B022C0100296E5A100495303DCF8C9541FCB9FF13D5FC2E74A3461E5F6964002C07D80004"
	versionZero  = "826B011DCA0000002E29295A100457602B58571E40C2A523BD0000000000461E5F6964002B020004"
	invalidation = "826B012B84000000062B022C0100296F5A10043EDE000000000000000000000000000004"
)

func TestPositionsOrderAsTheStreamDoes(t *testing.T) {
	at := change.At(change.Timestamp{T: 0x6B012B84, I: 5})
	first := position(t, firstInTxn)
	if at.Compare(position(t, highWater)) != 0 {
		t.Error("a time and its high-watermark token differ")
	}
	ordered := []change.Position{{}, position(t, versionZero), at, first, position(t, secondInTxn), position(t, invalidation), position(t, shardOne), position(t, shardTwo)}
	for i := range ordered {
		for j := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := ordered[i].Compare(ordered[j]); got != want {
				t.Errorf("position %d against %d: %d", i, j, got)
			}
		}
	}
	if change.Later(at, first).Compare(first) != 0 || change.Later(first, at).Compare(first) != 0 {
		t.Error("Later is not the later one")
	}
}

func TestHeadTellsKindAndPlaceInTheTransaction(t *testing.T) {
	for data, want := range map[string]change.Head{
		highWater:    {Time: change.Timestamp{T: 0x6B012B84, I: 5}, Kind: change.KindProgress},
		firstInTxn:   {Time: change.Timestamp{T: 0x6B012B84, I: 5}, Kind: change.KindEvent},
		secondInTxn:  {Time: change.Timestamp{T: 0x6B012B84, I: 5}, Kind: change.KindEvent, TxnOpIndex: 1},
		versionZero:  {Time: change.Timestamp{T: 0x6B011DCA, I: 0x2E}, Kind: change.KindEvent},
		invalidation: {Time: change.Timestamp{T: 0x6B012B84, I: 6}, Kind: change.KindEvent, FromInvalidate: true},
	} {
		p := position(t, data)
		if p.Head() != want {
			t.Errorf("%s: %+v", data, p.Head())
		}
		if p.IsProgress() != (want.Kind == change.KindProgress) {
			t.Errorf("%s: progress %v", data, p.IsProgress())
		}
		back, err := change.DecodeHead(p.Head().Append(nil))
		if err != nil || back != want {
			t.Errorf("%s: decoded %+v, %v", data, back, err)
		}
	}
	one, two := position(t, shardOne), position(t, shardTwo)
	if one.Head() != two.Head() || one.Hash() == two.Hash() {
		t.Error("events of different shards: one head and two hashes expected")
	}
}

func TestHeadsOrderAsTheirBytes(t *testing.T) {
	head := rapid.Custom(func(t *rapid.T) change.Head {
		return change.Head{
			Time:       change.Timestamp{T: rapid.Uint32().Draw(t, "t"), I: rapid.Uint32().Draw(t, "i")},
			Kind:       rapid.SampledFrom([]change.Kind{change.KindProgress, change.KindEvent}).Draw(t, "kind"),
			TxnOpIndex: rapid.Uint64().Draw(t, "index"), FromInvalidate: rapid.Bool().Draw(t, "invalidate"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := head.Draw(t, "a"), head.Draw(t, "b")
		back, err := change.DecodeHead(a.Append(nil))
		if err != nil || back != a {
			t.Fatalf("%+v became %+v, %v", a, back, err)
		}
		if c := a.Time.Compare(b.Time); c != 0 && c != bytes.Compare(a.Append(nil), b.Append(nil)) {
			t.Fatal("bytes order differently from times")
		}
	})
}

func TestUnknownTokensAreRefused(t *testing.T) {
	for name, tok := range map[string][]byte{
		"nothing": nil, "empty document": {5, 0, 0, 0, 0}, "no hex": token("82ZZ012B84000000052B"), "too short": token("826B01"),
		"not a timestamp first": token("466B012B84000000052B"), "data is a number": {16, 0, 0, 0, 0x10, '_', 'd', 'a', 't', 'a', 0, 1, 0, 0, 0, 0},
		"length beyond the end": {0xFF, 0, 0, 0, 2, '_', 'd', 'a', 't', 'a', 0, 0xFF, 0, 0, 0, 'x', 0, 0},
	} {
		if p, err := change.ParseToken(tok); err == nil {
			t.Errorf("%s: %v", name, p)
		}
	}
}

func TestParseFindsTheFieldsThatRoutingNeeds(t *testing.T) {
	ev := changetest.Event{Op: "replace", DB: "d", Coll: "c.x", ID: 7, Time: change.Timestamp{T: 9, I: 2}, Index: 3}
	raw := ev.Bytes()
	e, err := change.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if e.Op() != change.OpReplace || string(e.OpName()) != "replace" || string(e.DB()) != "d" || string(e.Coll()) != "c.x" || e.Time() != ev.Time {
		t.Errorf("op %v, ns %s.%s, time %v", e.Op(), e.DB(), e.Coll(), e.Time())
	}
	if e.Position().Compare(ev.Position()) != 0 || e.Position().Head().TxnOpIndex != 3 {
		t.Errorf("position %v", e.Position())
	}
	if id := e.ID(); id.Type != 0x12 || id.Data[0] != 7 {
		t.Errorf("id %v", id)
	}
	if _, _, ok := e.Transaction(); ok || len(e.ToDB()) != 0 {
		t.Error("fields that the event has not")
	}
	if got := e.Lookup("fullDocument").Document(); !bytes.Contains(raw, got) || len(got) == 0 {
		t.Error("fullDocument not found")
	}
	for i := range raw {
		cut := slices.Clone(raw[:i])
		if _, err := change.Parse(cut); err == nil {
			t.Fatalf("an event cut at %d is accepted", i)
		}
	}
}

func TestEventsOfUnusualShape(t *testing.T) {
	drop := changetest.Event{Op: "drop", Keyless: true, Time: change.Timestamp{T: 1, I: 1}}
	e, err := change.Parse(drop.Bytes())
	if err != nil || e.Op() != change.OpDrop || e.Key() != nil || !e.ID().IsZero() {
		t.Errorf("drop: %v %v", e.Op(), err)
	}
	if _, keyed := change.NewPartitioner(8).Of(&e); keyed {
		t.Error("a drop has a partition")
	}
	odd := changetest.Event{Op: "shardCollection", Keyless: true, Time: change.Timestamp{T: 1, I: 1}}
	e, err = change.Parse(odd.Bytes())
	if err != nil || e.Op() != change.OpOther || string(e.OpName()) != "shardCollection" {
		t.Errorf("unknown operation: %v %v", e.Op(), err)
	}
	if _, err := change.Parse([]byte{5, 0, 0, 0, 0}); err == nil {
		t.Error("an event without a token is accepted")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(changetest.Event{ID: 1, Time: change.Timestamp{T: 1, I: 1}}.Bytes())
	f.Add(changetest.Event{Op: "drop", Keyless: true}.Bytes())
	partitioner := change.NewPartitioner(64)
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := change.Parse(raw)
		if err != nil {
			return
		}
		// Whatever was accepted can be read without a panic, and stays inside the event.
		p, keyed := partitioner.Of(&e)
		if keyed && int(p) >= 64 {
			t.Fatal("partition out of range")
		}
		for _, piece := range [][]byte{e.Token(), e.OpName(), e.DB(), e.Coll(), e.ToDB(), e.ToColl(), e.Key(), e.ID().Data} {
			if len(piece) > len(raw) {
				t.Fatal("a piece is longer than the event")
			}
		}
		_ = e.Position().Head()
		_ = e.Position().Hash()
		_, _, _ = e.Transaction()
	})
}

func BenchmarkParse(b *testing.B) {
	raw := changetest.Event{ID: 123456, Time: change.Timestamp{T: 9, I: 2}, Pad: 100}.Bytes()
	partitioner := change.NewPartitioner(64)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		e, err := change.Parse(raw)
		if err != nil {
			b.Fatal(err)
		}
		partitioner.Of(&e)
	}
}

func TestTokensOfTwoVersionsNameOneChange(t *testing.T) {
	event := func(version int, change changetest.Event) change.Position {
		change.Version = version
		return change.Position()
	}
	at := change.Timestamp{T: 9, I: 1}
	one := changetest.Event{Op: "update", ID: 5, Time: at, Index: 2}
	for name, other := range map[string]changetest.Event{
		"another time": {Op: "update", ID: 5, Time: change.Timestamp{T: 9, I: 2}, Index: 2}, "another place": {Op: "update", ID: 5, Time: at, Index: 3},
		"another document": {Op: "update", ID: 6, Time: at, Index: 2}, "no document": {Op: "drop", Keyless: true, Time: at, Index: 2},
	} {
		for _, versions := range [][2]int{{1, 1}, {1, 2}, {2, 1}, {2, 2}} {
			if event(versions[0], one).Ref() == event(versions[1], other).Ref() {
				t.Errorf("%s: one change in versions %v", name, versions)
			}
		}
	}
	first, second := event(1, one), event(2, one)
	if first.Ref() != second.Ref() || first.Form() == second.Form() || first.Comparable(second) {
		t.Error("a change is not the same in two versions")
	}
	whole, part := one, one
	whole.Version, part.Version, part.Fragment = 2, 2, 1
	for _, part.Fragment = range []int{1, 2, 127} {
		p := part.Position()
		if p.Ref() != whole.Position().Ref() || p.Form() == whole.Position().Form() || !p.Comparable(whole.Position()) {
			t.Errorf("fragment %d is of another change", part.Fragment)
		}
	}
}

// Of tokens of two versions the place in the transaction tells which comes first. Where that is
// equal nothing is known, and nothing is taken for read.
func TestPositionsOfTwoVersions(t *testing.T) {
	at := change.Timestamp{T: 9, I: 1}
	made := func(version int, id int64, index uint64) change.Position {
		return changetest.Event{Version: version, ID: id, Time: at, Index: index}.Position()
	}
	for _, versions := range [][2]int{{1, 2}, {2, 1}} {
		early, late := made(versions[0], 9, 0), made(versions[1], 1, 1)
		if !late.After(early) || early.After(late) || !late.Covers(early) || early.Covers(late) || !late.Has(early) || early.Has(late) {
			t.Errorf("%v: the place in the transaction does not count", versions)
		}
		one, other := made(versions[0], 1, 1), made(versions[1], 2, 1)
		if one.Covers(other) || other.Covers(one) || one.Has(other) || other.Has(one) {
			t.Errorf("%v: changes of two shards are in an order", versions)
		}
		if one.Compare(other) != -other.Compare(one) || one.Compare(other) == 0 {
			t.Errorf("%v: the order is not total", versions)
		}
		if earlier := change.Earlier(one, other); !one.Covers(earlier) || !other.Covers(earlier) {
			t.Errorf("%v: %v is not earlier than both", versions, earlier)
		}
		if same := made(versions[1], 1, 1); !one.Has(same) || one.Covers(same) {
			t.Errorf("%v: of one change it is not known that it was read, or more than that", versions)
		}
	}
	unknown := position(t, "82000000090000000"+"1"+"2B0680"+"FF")
	if event := made(2, 1, 1); unknown.Covers(event) || event.Covers(unknown) || unknown.Has(event) {
		t.Error("something is known of a version that there is not yet")
	}
	if later := change.At(change.Timestamp{T: 9, I: 2}); !later.Covers(unknown) || unknown.Covers(later) {
		t.Error("times do not order unknown versions")
	}
}
