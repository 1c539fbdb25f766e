package cursor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/fault"
)

// made is when keys of these tests were made.
func made() time.Time { return time.Date(2024, time.May, 17, 8, 30, 0, 0, time.UTC) }

// grown returns the keys with one more.
func grown(tb testing.TB, keys key.Set) key.Set {
	tb.Helper()
	keys, _, err := keys.Add(keys.Next(made()))
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

func newRing(tb testing.TB, cfg Config, keys key.Set) *Keyring {
	tb.Helper()
	k := NewKeyring(cfg)
	if err := k.Turn(keys); err != nil {
		tb.Fatal(err)
	}
	return k
}

func plain() Config { return Config{Cluster: "c", Partitions: 64, Fingerprint: "f"} }

// positionAt is an event's position.
func positionAt(id int64) change.Position {
	return changetest.Event{ID: id, Time: change.Timestamp{T: 1_700_000_000, I: 7}}.Position()
}

// anyPosition draws a position: an event's, progress with or without a token, and tokens that nobody can read.
func anyPosition(t *rapid.T) change.Position {
	at := change.Timestamp{T: rapid.Uint32Min(1).Draw(t, "seconds"), I: rapid.Uint32().Draw(t, "increment")}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return change.At(at)
	case 1:
		return changetest.HighWater(at)
	case 2:
		return change.Position{Token: rapid.SliceOfN(rapid.Byte(), 1, 2000).Draw(t, "token"), Time: at}
	}
	return changetest.Event{ID: rapid.Int64Min(0).Draw(t, "id"), Index: rapid.Uint64Max(1<<40).Draw(t, "index"), Time: at}.Position()
}

func same(a, b change.Position) bool { return a.Time == b.Time && bytes.Equal(a.Token, b.Token) }

func refused(tb rapid.TB, what string, err error, code fault.Code) {
	tb.Helper()
	if fault.Of(err) != code {
		tb.Fatalf("%s: %v, want %s", what, err, code)
	}
}

func TestEveryPositionComesBackAndNothingElseDoes(t *testing.T) {
	keys := grown(t, grown(t, nil))
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Cluster: rapid.String().Draw(t, "cluster"), Partitions: rapid.IntRange(1, change.MaxPartitions).Draw(t, "partitions"),
			Fingerprint: rapid.String().Draw(t, "fingerprint"),
		}
		ring := NewKeyring(cfg)
		if err := ring.Turn(keys); err != nil {
			t.Fatal(err)
		}
		p, want := change.Partition(rapid.Uint32Max(change.MaxPartitions).Draw(t, "partition")), anyPosition(t)
		sealed := ring.Seal(p, want)
		if got, err := ring.Open(p, sealed); err != nil || !same(got, want) {
			t.Fatalf("%v came back as %v, %v", want, got, err)
		}
		another := NewKeyring(cfg) // another node
		if err := another.Turn(keys); err != nil {
			t.Fatal(err)
		}
		if got, err := another.Open(p, sealed); err != nil || !same(got, want) {
			t.Fatalf("%v came back elsewhere as %v, %v", want, got, err)
		}
		for name, other := range map[string]Config{
			"another cluster":      {Cluster: cfg.Cluster + "x", Partitions: cfg.Partitions, Fingerprint: cfg.Fingerprint},
			"another number":       {Cluster: cfg.Cluster, Partitions: cfg.Partitions + 1, Fingerprint: cfg.Fingerprint},
			"another of the bytes": {Cluster: "\x00" + cfg.Cluster, Partitions: cfg.Partitions >> 8, Fingerprint: cfg.Fingerprint},
		} {
			stranger := NewKeyring(other)
			if err := stranger.Turn(keys); err != nil {
				t.Fatal(err)
			}
			_, err := stranger.Open(p, sealed)
			refused(t, name, err, fault.SessionBadCursor)
		}
		_, err := ring.Open(p^1<<rapid.IntRange(0, 31).Draw(t, "other partition"), sealed)
		refused(t, "another partition", err, fault.SessionBadCursor)
		bit := rapid.IntRange(0, 8*len(sealed)-1).Draw(t, "bit")
		flipped := slices.Clone(sealed)
		flipped[bit/8] ^= 1 << (bit % 8)
		_, err = ring.Open(p, flipped)
		if code := fault.Of(err); code != fault.SessionBadCursor && (code != fault.SessionOldCursor || bit/8 < 1 || bit/8 > serialSize) {
			t.Fatalf("bit %d flipped: %v", bit, err)
		}
		_, err = ring.Open(p, sealed[:rapid.IntRange(0, len(sealed)-1).Draw(t, "cut")])
		refused(t, "cut short", err, fault.SessionBadCursor)
		_, err = ring.Open(p, append(slices.Clone(sealed), rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "tail")...))
		refused(t, "made longer", err, fault.SessionBadCursor)
	})
}

func TestEveryBitCounts(t *testing.T) {
	ring := newRing(t, plain(), grown(t, nil))
	sealed := ring.Seal(7, positionAt(1))
	for bit := range 8 * len(sealed) {
		sealed[bit/8] ^= 1 << (bit % 8)
		if at, err := ring.Open(7, sealed); fault.Of(err) == "" {
			t.Errorf("bit %d flipped: %v, %v", bit, at, err)
		}
		sealed[bit/8] ^= 1 << (bit % 8)
	}
	if _, err := ring.Open(7, sealed); err != nil {
		t.Error(err)
	}
}

func TestCursorsTellNothing(t *testing.T) {
	ring := newRing(t, plain(), grown(t, nil))
	at := positionAt(42)
	first, second := ring.Seal(7, at), ring.Seal(7, at)
	if bytes.Equal(first[frontSize:], second[frontSize:]) {
		t.Error("two cursors of one position are equal")
	}
	if bytes.Contains(first, at.Token[20:40]) {
		t.Error("a cursor holds its token")
	}
	// Neither does the length: an _id of one byte more is not seen.
	lengths := map[int]int{}
	for n := range 256 {
		lengths[len(ring.Seal(7, change.Position{Token: make([]byte, n+1), Time: at.Time}))]++
	}
	if len(lengths) > 256/block+1 {
		t.Errorf("lengths of cursors: %v", lengths)
	}
	_, err := ring.Open(8, first)
	if err == nil || strings.Contains(err.Error(), fmt.Sprintf("%x", first[:20])) {
		t.Errorf("%v", err)
	}
}

func TestSizeIsBounded(t *testing.T) {
	ring := newRing(t, plain(), grown(t, nil))
	at := change.Position{Token: make([]byte, MaxToken), Time: change.Timestamp{T: 9}}
	sealed := ring.Seal(1, at)
	if len(sealed) == 0 || len(sealed) > MaxSize {
		t.Fatalf("%d bytes of at most %d", len(sealed), MaxSize)
	}
	if got, err := ring.Open(1, sealed); err != nil || !same(got, at) {
		t.Errorf("%v", err)
	}
	at.Token = append(at.Token, 0)
	if ring.Seal(1, at) != nil {
		t.Error("a token that is too large is sealed")
	}
	if ring.Seal(1, change.Position{}) != nil {
		t.Error("no position is sealed")
	}
	_, err := ring.Open(1, make([]byte, 1<<20))
	refused(t, "a megabyte", err, fault.SessionBadCursor)
	_, err = ring.Open(1, nil)
	refused(t, "nothing", err, fault.SessionBadCursor)
}

func TestKeysOpenUntilTheyAreDropped(t *testing.T) {
	first := grown(t, nil)
	ring := newRing(t, plain(), nil)
	if ring.Seal(1, positionAt(1)) != nil {
		t.Fatal("sealed without a key")
	}
	other := newRing(t, plain(), first)
	old := other.Seal(1, positionAt(1))
	if _, err := ring.Open(1, old); fault.Of(err) != fault.SessionBadCursor || !ring.Lacks(old) {
		t.Errorf("opened without keys: %v, lacks %v", err, ring.Lacks(old))
	}
	both := grown(t, first)
	if err := ring.Turn(both); err != nil {
		t.Fatal(err)
	}
	young := ring.Seal(1, positionAt(2))
	for _, sealed := range [][]byte{old, young, old} {
		if _, err := ring.Open(1, sealed); err != nil || ring.Lacks(sealed) {
			t.Errorf("%v", err)
		}
	}
	if _, err := other.Open(1, young); fault.Of(err) != fault.SessionBadCursor || !other.Lacks(young) {
		t.Errorf("a node that has not heard of the key: %v", err)
	}
	if err := ring.Turn(both[1:]); err != nil {
		t.Fatal(err)
	}
	_, err := ring.Open(1, old)
	refused(t, "a dropped key", err, fault.SessionOldCursor)
	if ring.Lacks(old) {
		t.Error("newer keys would not open it")
	}
	if _, err := ring.Open(1, young); err != nil {
		t.Error(err)
	}
	if again := ring.Seal(1, positionAt(2)); !bytes.Equal(again[:frontSize], young[:frontSize]) {
		t.Error("another salt although the key is the same")
	}
	// The store was restored: another key has the serial now.
	if err := ring.Turn(grown(t, grown(t, nil))); err != nil {
		t.Fatal(err)
	}
	_, err = ring.Open(1, young)
	refused(t, "another key of the serial", err, fault.SessionBadCursor)
}

func TestTokenOfAnotherFilterOpensAsItsTime(t *testing.T) {
	keys := grown(t, nil)
	ring, cfg := newRing(t, plain(), keys), plain()
	cfg.Fingerprint = "another"
	filtered := newRing(t, cfg, keys)
	event, progress := positionAt(1), changetest.HighWater(change.Timestamp{T: 5, I: 6})
	if got, err := filtered.Open(1, ring.Seal(1, event)); err != nil || !same(got, change.At(event.Time)) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := filtered.Open(1, ring.Seal(1, progress)); err != nil || !same(got, progress) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSaltIsReplacedBeforeItHasSealedTooMuch(t *testing.T) {
	keys := grown(t, nil)
	ring := newRing(t, plain(), keys)
	ring.maxSeals = 100
	var mu sync.Mutex
	salts := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				sealed := ring.Seal(1, positionAt(int64(i)))
				if _, err := ring.Open(1, sealed); err != nil {
					t.Error(err)
				}
				mu.Lock()
				salts[string(sealed[:frontSize])]++
				mu.Unlock()
				if i == 50 {
					if err := ring.Turn(slices.Clone(keys)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	sealed := 0
	for _, n := range salts {
		sealed += n
		if n > 100 {
			t.Errorf("a salt has sealed %d", n)
		}
	}
	if sealed != 800 || len(salts) != 8 {
		t.Errorf("%d sealed with %d salts", sealed, len(salts))
	}
}

func FuzzOpen(f *testing.F) {
	keys := key.Set{{Serial: 1, Secret: key.Secret{1}, Made: made()}, {Serial: 2, Secret: key.Secret{2}, Made: made()}}
	ring := newRing(f, plain(), keys)
	for _, at := range []change.Position{positionAt(1), change.At(change.Timestamp{T: 1}), changetest.HighWater(change.Timestamp{T: 1, I: 2})} {
		f.Add(uint32(3), ring.Seal(3, at), []byte{})
		sealed := ring.Seal(3, at)
		f.Add(uint32(3), sealed[:frontSize+nonceSize], sealed[frontSize+nonceSize:len(sealed)-tagSize])
	}
	f.Add(uint32(3), []byte{version, 0, 0, 0, 1}, make([]byte, block))
	f.Fuzz(func(t *testing.T, partition uint32, sealed, inside []byte) {
		p := change.Partition(partition)
		at, err := ring.Open(p, sealed)
		switch {
		case err == nil: // one of the seeds, which nobody can make
			if p != 3 || at.Time.IsZero() {
				t.Fatalf("partition %d: opened as %v", p, at)
			}
		case fault.Of(err) != fault.SessionBadCursor && fault.Of(err) != fault.SessionOldCursor:
			t.Fatalf("refused without a code: %v", err)
		case !at.IsZero():
			t.Fatalf("refused, and there is %v", at)
		}
		_ = ring.Lacks(sealed)
		// What is inside is only read where the tag was right; it must be harmless all the same.
		if len(inside) >= block && len(inside)%block == 0 {
			if at, err := ring.read(slices.Clone(inside)); err == nil && len(at.Token) > len(inside)-fieldsSize {
				t.Fatalf("a token of %d bytes in %d", len(at.Token), len(inside))
			}
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	ring := newRing(b, plain(), grown(b, nil))
	at := positionAt(123456)
	b.ReportAllocs()
	b.SetBytes(int64(len(at.Token)))
	for b.Loop() {
		if ring.Seal(7, at) == nil {
			b.Fatal("not sealed")
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	keys := grown(b, nil)
	ring := newRing(b, plain(), keys)
	at := positionAt(123456)
	mine, theirs := ring.Seal(7, at), newRing(b, plain(), keys).Seal(7, at)
	forged := slices.Clone(theirs)
	for name, sealed := range map[string]*[]byte{"mine": &mine, "another node's": &theirs, "forged": &forged} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if name == "forged" {
					binary.BigEndian.PutUint64(forged[1+serialSize:], uint64(i)) // another salt each time: the dearest forgery
				}
				if _, err := ring.Open(7, *sealed); (err != nil) != (name == "forged") {
					b.Fatal(err)
				}
			}
		})
	}
}
