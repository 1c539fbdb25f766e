package checkpointtest

import (
	"context"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/snapshot"
)

func testFields(h harness) {
	term := h.term(3)
	for i, reason := range []checkpoint.Reason{checkpoint.ReasonInterval, checkpoint.ReasonIdle, checkpoint.ReasonFinal} {
		want := checkpoint.Checkpoint{
			Key:         SharedKey(3),
			Position:    Event(10 + i),
			Partitions:  Partitions,
			Snapshots:   snapshots(i),
			Fingerprint: "0123456789abcdef",
			Epoch:       term.Epoch,
			Began:       checkpoint.Beginning{At: change.Timestamp{T: 1_600_000_000, I: 4}, ID: "ABC"},
			At:          time.Date(2031, time.January, 2, 3, 4, 5, 678_000_000, time.UTC),
			By:          "knoten-ä/1",
			Reason:      reason,
			Note:        "for the upgrade",
		}
		h.mustSave(want)
		h.want(want)
	}
}

// snapshots returns the progress of snapshots that have read the given number of documents.
func snapshots(read int) []snapshot.Progress {
	return []snapshot.Progress{
		{
			Subscription: "orders", Filter: 1 << 63, Reason: snapshot.Loss, Partitions: []change.Partition{3, 200}, Listed: true, Read: uint64(read), Estimated: 100,
			Left: []snapshot.Left{
				{Namespace: change.Namespace{DB: "shop", Coll: "orders"}, From: change.Value{Type: 0x10, Data: []byte{1, 2, 3, 4}}, Round: true},
				{Namespace: change.Namespace{DB: "shop", Coll: "with.dots"}, Until: change.Value{Type: 0x02, Data: []byte("\x02\x00\x00\x00x\x00")}},
				{Namespace: change.Namespace{DB: "shop", Coll: "fresh"}},
			},
		},
		{Subscription: "all", Reason: snapshot.Start},
		{Subscription: "old", Reason: snapshot.Operator, Listed: true, Done: true},
	}
}

func testPositions(h harness) {
	for name, want := range map[string]change.Position{
		"event":            Event(5),
		"of a transaction": Event(7),
		"high-watermark":   changetest.HighWater(change.Timestamp{T: 1_700_000_000, I: 9}),
		"time only":        change.At(change.Timestamp{T: 1_700_000_000, I: 9}),
		"with type bits":   withTypeBits(Event(5), []byte{0x82, 0, 0xff}),
		"at the limit":     withTypeBits(Event(5), make([]byte, maxTokenBytes-len(withTypeBits(Event(5), nil).Token))),
	} {
		term := h.term(0)
		h.mustSave(Shared(term, want))
		if got := h.load(SharedKey(0)).Position; got.Time != want.Time || !slices.Equal(got.Token, want.Token) {
			h.Errorf("%s: %s came back as %s, with a token of %d bytes, not %d", name, want, got, len(got.Token), len(want.Token))
		}
		if err := h.Store.Delete(h.Context(), Subscriber); err != nil {
			h.Fatalf("delete: %v", err)
		}
	}
}

func testLargeToken(h harness) {
	term := h.term(0)
	large := func(n int) change.Position { return withTypeBits(Event(n), make([]byte, maxTokenBytes)) }
	h.mustSave(Shared(term, large(4)))
	h.wantAt(0, change.At(Event(4).Time))
	h.mustSave(Shared(term, large(4)))
	h.wantAt(0, change.At(Event(4).Time))

	// The time alone is earlier than the saved event of that time.
	h.mustSave(Shared(term, Event(5)))
	h.mustSave(Shared(term, large(6)))
	h.wantAt(0, Event(5))
	h.mustSave(Shared(term, large(8)))
	h.wantAt(0, change.At(Event(8).Time))
}

func testStrangeToken(h harness) {
	term := h.term(0)
	strange := change.Position{Token: []byte("\x05\x00\x00\x00\x00"), Time: change.Timestamp{T: 7, I: 1}}
	h.mustSave(Shared(term, strange))
	h.wantAt(0, change.At(strange.Time))
}

func testAliasing(h harness) {
	term := h.term(0)
	saved := []checkpoint.Checkpoint{Shared(term, Event(1).Clone())}
	results := h.Store.Save(h.Context(), saved)
	clear(saved[0].Position.Token)
	clear(saved)
	if results[0] != nil {
		h.Fatalf("save: %v", results[0])
	}
	// The store's cached state must not have changed either: check it before any read.
	h.mustSave(Shared(term, Event(0)))
	h.wantAt(0, Event(1))
	clear(h.load(SharedKey(0)).Position.Token)
	h.mustSave(Shared(term, Event(0)))
	h.wantAt(0, Event(1))
	h.mustSave(Shared(term, Event(2)))
	h.wantAt(0, Event(2))

	mine := Exclusive("gw-1", h.claim("gw-1", 1).Claim, Event(4).Clone())
	mine.Positions = at(7, Event(9).Clone())
	h.mustSave(mine)
	want := Exclusive("gw-1", mine.Claim, Event(4))
	want.Positions = at(7, Event(9))
	clear(mine.Position.Token)
	clear(mine.Positions)
	h.want(want)
	got := h.load(want.Key)
	clear(got.Position.Token)
	clear(got.Positions)
	h.mustSave(Exclusive("gw-1", want.Claim, Event(2)))
	h.want(want)
}

func testNone(h harness) {
	h.term(0)
	h.wantNone(SharedKey(0))
	if all, err := h.Store.Load(h.Context(), "nobody"); len(all) != 0 || err != nil {
		h.Errorf("load gave %v, %v", all, err)
	}
	if err := h.Store.Delete(h.Context(), Subscriber); err != nil {
		h.Errorf("delete: %v", err)
	}
	if all, err := h.Store.List(h.Context()); len(all) != 0 || err != nil {
		h.Errorf("list gave %v, %v", all, err)
	}
}

func testRefused(h harness) {
	term := h.term(0)
	claimed := h.claim("gw-1", 1).Claim
	other := Shared(term, Event(5))
	other.Partitions--
	for name, c := range map[string]checkpoint.Checkpoint{
		"another count":          other,
		"no position":            Shared(term, change.Position{}),
		"a partition beyond":     Shared(change.Term{Partition: Partitions, Epoch: term.Epoch}, Event(5)),
		"no subscriber":          Exclusive("", claimed, Event(5)),
		"a subscriber too large": Exclusive(strings.Repeat("x", checkpoint.MaxName+1), claimed, Event(5)),
		"a name of no text":      Exclusive("a\xffb", claimed, Event(5)),
	} {
		if err := h.save(c); err == nil {
			h.Errorf("%s was saved", name)
		}
	}
	if all, err := h.Store.List(h.Context()); err != nil || len(all) != 1 {
		h.Errorf("list gave %v, %v", all, err)
	}
}

// Names are stored unchanged, and none is confused with another one or with part of a path.
func testNames(h harness) {
	h.create()
	names := []string{"gw", "gw-1", "gw/1", "gw%2F1", "gw/", "GW", "../gw", "ä ö", " ", ".", "a\x00b", strings.Repeat("n", checkpoint.MaxName), Subscriber}
	term := h.term(1)
	h.mustSave(Shared(term, Event(2)))
	for i, name := range names {
		c := h.claim(name, 1)
		h.mustSave(Exclusive(name, c.Claim, Event(10+i)))
	}
	for i, name := range names {
		if got := h.load(checkpoint.Key{Subscriber: name}); got.Position.Compare(Event(10+i)) != 0 {
			h.Errorf("%q is at %s", name, got.Position)
		}
	}
	var listed []string
	stored, err := h.Reopen().List(h.Context())
	if err != nil {
		h.Fatalf("list: %v", err)
	}
	for _, c := range stored {
		if !c.Shared {
			listed = append(listed, c.Subscriber)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, listed) || len(stored) != len(names)+1 {
		h.Errorf("listed %q, want %q", listed, names)
	}
	h.wantAt(1, Event(2))
	if err := h.Store.Delete(h.Context(), "gw"); err != nil {
		h.Fatalf("delete: %v", err)
	}
	h.wantNone(checkpoint.Key{Subscriber: "gw"})
	for _, name := range names {
		if name != "gw" {
			h.load(checkpoint.Key{Subscriber: name})
		}
	}
}

func testList(h harness) {
	partitions := []change.Partition{200, 3, 100, 20, 0, 255, 9, 10, 11}
	for i, term := range h.terms(partitions...) {
		h.mustSave(Shared(term, Event(i+1)))
	}
	h.claim("a", 1)
	h.claim("z", 1)
	listed, err := h.Store.List(h.Context())
	if err != nil {
		h.Fatalf("list: %v", err)
	}
	slices.Sort(partitions)
	want := []checkpoint.Key{{Subscriber: "a"}}
	for _, p := range partitions {
		want = append(want, SharedKey(p))
	}
	want = append(want, checkpoint.Key{Subscriber: "z"})
	if got := keys(listed); !slices.Equal(want, got) {
		h.Errorf("listed %v, want %v", got, want)
	}
	loaded, err := h.Store.Load(h.Context(), Subscriber)
	if got := keys(loaded); err != nil || !slices.Equal(want[1:len(want)-1], got) {
		h.Errorf("loaded %v, %v", got, err)
	}
}

func keys(all []checkpoint.Checkpoint) (of []checkpoint.Key) {
	for _, c := range all {
		of = append(of, c.Key)
	}
	return of
}

func testDelete(h harness) {
	terms := h.terms(0, 1)
	for _, term := range terms {
		h.mustSave(Shared(term, Event(10)))
	}
	mine := h.claim("gw-1", 1)
	h.claim("gw-2", 1)
	if err := h.Store.Delete(h.Context(), Subscriber); err != nil {
		h.Fatalf("delete: %v", err)
	}
	h.wantNone(SharedKey(0))
	h.wantNone(SharedKey(1))
	h.mustSave(Shared(terms[0], Event(5)))
	h.wantAt(0, Event(5))
	if err := h.Reopen().Delete(h.Context(), Subscriber); err != nil {
		h.Fatalf("delete from elsewhere: %v", err)
	}
	h.mustSave(Shared(terms[0], Event(7)))
	h.wantAt(0, Event(7))

	if err := h.Reopen().Delete(h.Context(), "gw-1"); err != nil {
		h.Fatalf("delete: %v", err)
	}
	h.wantNone(mine.Key)
	h.wantFenced("a save of a subscriber that was deleted", h.save(Exclusive("gw-1", mine.Claim, Event(9))))
	h.wantNone(mine.Key)
	if again := h.claim("gw-1", 0); again.Claim.Number != 1 || again.Position.Compare(Event(1)) != 0 {
		h.Errorf("claimed again as %+v", again)
	}
	h.load(checkpoint.Key{Subscriber: "gw-2"})
}

func testSaveNothing(h harness) {
	if results := h.Store.Save(h.Context(), nil); len(results) != 0 {
		h.Errorf("results %v", results)
	}
}

func testSaveCanceled(h harness) {
	terms := h.terms(0, 1)
	mine := h.claim("gw-1", 1)
	ctx, cancel := context.WithCancel(h.Context())
	cancel()
	for i, err := range h.Store.Save(ctx, []checkpoint.Checkpoint{Shared(terms[0], Event(1)), Shared(terms[1], Event(1)), Exclusive("gw-1", mine.Claim, Event(5))}) {
		if err == nil || errors.Is(err, checkpoint.ErrFenced) || fault.Of(err) == fault.CheckpointCorrupt {
			h.Errorf("checkpoint %d: %v", i, err)
		}
	}
	if c, err := h.Store.ClaimName(ctx, process(2), first("gw-1")); err == nil || errors.Is(err, checkpoint.ErrFenced) {
		h.Errorf("claimed %+v, %v", c, err)
	}
	h.mustSave(Shared(terms[0], Event(1)))
}

func testSaveOlder(h harness) {
	term := h.term(0)
	h.mustSave(Shared(term, Event(6)))
	for _, older := range []change.Position{Event(5), Event(1), change.At(Event(6).Time), changetest.HighWater(Event(6).Time)} {
		h.mustSave(Shared(term, older))
		h.wantAt(0, Event(6))
	}
	// A later term begins after the checkpoint that it has not moved yet.
	h.mustSave(Shared(h.term(0), Event(3)))
	h.wantAt(0, Event(6))
	h.mustSave(Shared(h.term(0), changetest.HighWater(change.Timestamp{T: 1_700_000_000, I: 2})))
	h.wantAt(0, changetest.HighWater(change.Timestamp{T: 1_700_000_000, I: 2}))
}

func testSaveRepeated(h harness) {
	term := h.term(0)
	for range 3 {
		h.mustSave(Shared(term, Event(4)))
		h.wantAt(0, Event(4))
	}
}

func testSaveReopened(h harness) {
	term := h.term(0)
	h.mustSave(Shared(term, Event(4)))
	for i, position := range []change.Position{Event(4), Event(3), Event(5)} {
		if err := h.saveTo(h.Reopen(), Shared(term, position)); err != nil {
			h.Fatalf("save %d: %v", i, err)
		}
	}
	h.wantAt(0, Event(5))
	h.mustSave(Shared(term, Event(6)))
	h.wantAt(0, Event(6))
}

func testSaveMany(h harness) {
	terms := h.terms(all()...)
	// Together they are larger than most servers accept in one request.
	bits := []byte(strings.Repeat("b", maxTokenBytes-1024))
	for round := 1; round <= 2; round++ {
		saved := make([]checkpoint.Checkpoint, len(terms))
		for i, term := range terms {
			saved[i] = Shared(term, withTypeBits(Event(round*1000+i), bits))
		}
		for i, err := range h.Store.Save(h.Context(), saved) {
			if err != nil {
				h.Fatalf("checkpoint %d: %v", i, err)
			}
		}
		stored, err := h.Store.List(h.Context())
		if err != nil {
			h.Fatalf("list: %v", err)
		}
		if len(stored) != len(saved) {
			h.Fatalf("round %d: %d checkpoints came back, of %d", round, len(stored), len(saved))
		}
		for i := range saved {
			if !reflect.DeepEqual(saved[i], stored[i]) { // not cmp, which takes a minute for this size
				h.Fatalf("round %d: checkpoint %d at %s came back otherwise, at %s", round, i, saved[i].Position, stored[i].Position)
			}
		}
	}
}

// The largest checkpoints of exclusive subscribers are saved together, each on its own.
func testSaveLarge(h harness) {
	h.create()
	bits := []byte(strings.Repeat("b", maxTokenBytes-1024))
	names := []string{"gw-1", "gw-2", "gw-3"}
	var saved []checkpoint.Checkpoint
	for _, name := range names {
		c := Exclusive(name, h.claim(name, 1).Claim, Event(10_000))
		c.Reason = checkpoint.ReasonFinal
		c.Positions = make(map[change.Partition]change.Position)
		c.Partitions = change.MaxPartitions
		for p := range change.Partition(change.MaxPartitions - 1) { // the last partition has the position itself
			if c.Positions[p] = change.At(Event(10_004 + 4*int(p)).Time); p < 15 {
				c.Positions[p] = withTypeBits(Event(10_004+4*int(p)), bits)
			}
		}
		saved = append(saved, c)
	}
	for i, err := range h.Store.Save(h.Context(), saved) {
		if err != nil {
			h.Fatalf("checkpoint %d: %v", i, err)
		}
	}
	stored, err := h.Reopen().List(h.Context())
	if err != nil || !reflect.DeepEqual(saved, stored) {
		h.Errorf("%d checkpoints came back, of %d, or other ones; %v", len(stored), len(saved), err)
	}
}

// wantRepaired checks that a corrupt checkpoint was replaced from its history, in the next
// generation.
func (h harness) wantRepaired(k checkpoint.Key, err error) {
	h.Helper()
	if err != nil {
		h.Errorf("repair %s: %v", k, err)
		return
	}
	all, _ := h.Reopen().Load(h.Context(), k.Subscriber)
	history, _ := h.Reopen().History(h.Context(), k)
	i := slices.IndexFunc(all, func(c checkpoint.Checkpoint) bool { return c.Key == k })
	if i < 0 || len(history) < 2 {
		h.Errorf("%s was repaired to %+v, its history is %+v", k, all, history)
		return
	}
	repaired := all[i]
	isRewound := repaired.Reason == checkpoint.ReasonRewind && repaired.Generation == 1 && !repaired.Position.IsZero()
	isRecorded := history[0].Reason == checkpoint.ReasonRewind && history[1].Position.Compare(repaired.Position) >= 0
	if !isRewound || !isRecorded {
		h.Errorf("%s was repaired to %+v, its history is %+v", k, repaired, history)
	}
}

// wantDamage checks that an operation on a damaged checkpoint has returned the damage's fault.
func (h harness) wantDamage(d Damage, what string, err error) {
	h.Helper()
	if fault.Of(err) != d.Code() {
		h.Errorf("%s gave %v, want %s", what, err, d.Code())
	}
}

func testDamage(h harness) {
	if h.Put == nil {
		return
	}
	h.create()
	damages := []Damage{NewerVersion, OtherPartitions, Garbage, OtherKey}
	for _, d := range damages {
		p := change.Partition(d)
		term := h.term(p)
		h.mustSave(Shared(term, Event(1)))
		h.Put(SharedKey(p), d.Of(SharedKey(p)))
		want := h.Raw(SharedKey(p))
		h.wantDamage(d, "save", h.save(Shared(term, Event(2))))
		h.wantDamage(d, "save by a store that remembers nothing", h.saveTo(h.Reopen(), Shared(term, Event(2))))
		_, err := h.Store.ClaimTerms(h.Context(), Subscriber, h.Begin(p))
		h.wantDamage(d, "claim", err)
		if got := h.Raw(SharedKey(p)); !slices.Equal(got, want) {
			h.Errorf("the damaged checkpoint was changed from %q to %q", want, got)
		}
		_, err = h.Store.Rewind(h.Context(), SharedKey(p), Event(1), "ann", "")
		if d.Code() == fault.CheckpointCorrupt {
			h.wantRepaired(SharedKey(p), err)
			h.Put(SharedKey(p), d.Of(SharedKey(p)))
		} else {
			h.wantDamage(d, "rewind", err)
		}
		if d == OtherPartitions {
			continue // not a damage for an exclusive subscriber
		}
		h.damageExclusive(d)
	}
	h.damageOneOf(damages)
}

// damageExclusive damages the checkpoint of an exclusive subscriber.
func (h harness) damageExclusive(d Damage) {
	h.Helper()
	mine := h.claim("gw-1", 1)
	h.Put(mine.Key, d.Of(mine.Key))
	_, err := h.Store.Load(h.Context(), "gw-1")
	h.wantDamage(d, "load", err)
	h.wantDamage(d, "save", h.save(Exclusive("gw-1", mine.Claim, Event(2))))
	h.wantDamage(d, "save by a store that remembers nothing", h.saveTo(h.Reopen(), Exclusive("gw-1", mine.Claim, Event(2))))
	_, err = h.Store.ClaimName(h.Context(), process(2), first("gw-1"))
	h.wantDamage(d, "claim", err)
	if got := h.Raw(mine.Key); !slices.Equal(got, d.Of(mine.Key)) {
		h.Errorf("the damaged checkpoint was changed to %q", got)
	}
	_, err = h.Reopen().Rewind(h.Context(), mine.Key, Event(5), "ann", "")
	if d.Code() == fault.CheckpointCorrupt {
		h.wantRepaired(mine.Key, err)
	} else {
		h.wantDamage(d, "rewind", err)
	}
	if err := h.Store.Delete(h.Context(), "gw-1"); err != nil {
		h.Errorf("delete: %v", err)
	}
}

// damageOneOf reads one whole checkpoint of a shared subscriber whose others are damaged.
func (h harness) damageOneOf(damages []Damage) {
	h.Helper()
	whole := h.term(100)
	h.mustSave(Shared(whole, Event(1)))
	claimed, err := h.Reopen().ClaimTerms(h.Context(), Subscriber, append(h.Begin(change.Partition(Garbage)), whole))
	unread, is := errors.AsType[*checkpoint.UnreadError](err)
	if !is || len(unread.Partitions) != 1 || unread.Partitions[change.Partition(Garbage)] == nil {
		h.Errorf("a claim of one that can be read and one that cannot: %v", err)
	}
	if len(claimed) != 2 || claimed[1].Position.Compare(Event(1)) != 0 {
		h.Errorf("a claim of one that can be read and one that cannot: %+v", claimed)
	}
	for what, read := range map[string]func() ([]checkpoint.Checkpoint, error){
		"list": func() ([]checkpoint.Checkpoint, error) { return h.Store.List(h.Context()) },
		"load": func() ([]checkpoint.Checkpoint, error) { return h.Reopen().Load(h.Context(), Subscriber) },
	} {
		readable, err := read()
		if fault.Of(err) == "" || len(readable) != 1 || readable[0].Partition != 100 {
			h.Errorf("%s gave %v, %v; want the whole checkpoint and a fault", what, readable, err)
		}
	}
	if err := h.Store.Delete(h.Context(), Subscriber); err != nil {
		h.Errorf("delete: %v", err)
	}
	for _, d := range damages {
		if got := h.Raw(SharedKey(change.Partition(d))); got != nil {
			h.Errorf("what cannot be read was not deleted: %q", got)
		}
	}
}

// An exclusive checkpoint with the former number of partitions is readable, and a save replaces it.
func testOtherCount(h harness) {
	h.create()
	old := first("gw-1")
	old.Position = Event(6)
	old.Partitions = 4
	old.Positions = at(1, Event(30))
	old.Snapshots = snapshots(2)[:1]
	old.Snapshots[0].Partitions = []change.Partition{3}
	claimed, err := h.Store.ClaimName(h.Context(), process(1), old)
	if err != nil || claimed.Partitions != 4 {
		h.Fatalf("claimed %+v, %v", claimed, err)
	}
	c := Exclusive("gw-1", claimed.Claim, Event(2))
	h.mustSave(c)
	c.Position = Event(6)
	c.Snapshots = old.Snapshots
	c.Snapshots[0].Partitions = nil // all partitions of the new number
	h.want(c)
	c.Position = Event(8)
	c.Snapshots = nil
	h.mustSave(c)
	h.want(c)
}

// maxTokenBytes is the size of the largest token that a store accepts.
const maxTokenBytes = 16 << 10

// withTypeBits returns the position with _typeBits in its token.
func withTypeBits(p change.Position, bits []byte) change.Position {
	token := slices.Clone(p.Token[:len(p.Token)-1])
	token = append(token, 0x05)
	token = append(token, "_typeBits\x00"...)
	token = binary.LittleEndian.AppendUint32(token, uint32(len(bits)))
	token = append(append(token, 0), bits...)
	token = append(token, 0)
	binary.LittleEndian.PutUint32(token, uint32(len(token)))
	return change.Position{Token: token, Time: p.Time}
}

// at returns a position in one partition.
func at(p change.Partition, position change.Position) map[change.Partition]change.Position {
	return map[change.Partition]change.Position{p: position}
}
