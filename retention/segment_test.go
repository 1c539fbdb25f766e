package retention

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// one is a store of one object.
type one struct {
	Store

	data []byte
}

func (s *one) Get(_ context.Context, _ string, offset, n int64) ([]byte, Object, error) {
	size := int64(len(s.data))
	from := max(0, min(offset, size))
	return s.data[from:min(size, from+n)], Object{Size: size}, nil
}

func event(t testing.TB, e changetest.Event) *change.Event {
	t.Helper()
	parsed, err := change.Parse(e.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return &parsed
}

// segmentOf encodes a segment with changes, and a loss after each tenth.
func segmentOf(t testing.TB, events []changetest.Event) ([]byte, Header) {
	t.Helper()
	d := newDraft(newEncoder())
	for i, e := range events {
		if !d.add(event(t, e)) {
			t.Fatal("not added")
		}
		if i%10 == 9 {
			if err := d.addLoss(&oplog.Loss{From: e.Position(), To: e.Position(), Reason: gap.Poison, Found: time.Unix(9, 0)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	b, h, err := d.encode(Header{Number: 1, From: events[0].Time, To: events[len(events)-1].Time.Next(), Writer: "a"})
	if err != nil {
		t.Fatal(err)
	}
	return b, h
}

// shared is a decoder for all tests.
//
//nolint:gochecknoglobals // costs more than what it decodes
var shared = sync.OnceValue(newDecoder)

// contents reads a segment; damaged are the losses that its reader has made.
func contents(data []byte) (raw [][]byte, stored int, damaged []oplog.Loss, err error) {
	store := &one{data: data}
	h, _, err := readHeader(context.Background(), store, "x")
	if err != nil {
		return nil, 0, nil, err
	}
	r := newSegmentReader(store, "x", h, shared(), nil)
	if err := r.open(context.Background(), change.Timestamp{}); err != nil {
		return nil, 0, nil, err
	}
	for {
		e, ok, err := r.next(context.Background())
		switch {
		case err != nil:
			return nil, 0, nil, err
		case !ok:
			return raw, stored, r.damaged, nil
		case e.loss != nil:
			stored++
		default:
			raw = append(raw, e.raw)
		}
	}
}

// some makes changes of many namespaces, some of them in one cluster time.
func some(n int) (events []changetest.Event) {
	for i := range n {
		events = append(events, changetest.Event{
			Coll: fmt.Sprintf("c%d", (i*i)%23), ID: int64(i), Time: change.Timestamp{T: 1000 + uint32(i/3), I: 1}, Index: uint64(i % 3), Pad: i * 37 % 900,
		})
	}
	return events
}

func TestSegmentsHaveWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		events := some(rapid.IntRange(1, 80).Draw(rt, "events"))
		if rapid.Bool().Draw(rt, "large") {
			events[len(events)/2].Pad = rapid.IntRange(blockSize-1000, 2*blockSize).Draw(rt, "pad")
		}
		b, written := segmentOf(t, events)
		raw, stored, damaged, err := contents(b)
		if err != nil || len(damaged) > 0 || stored != len(events)/10 || len(raw) != len(events) {
			rt.Fatalf("%d of %d changes, %d losses, %d damaged, %v", len(raw), len(events), stored, len(damaged), err)
		}
		for i, e := range events {
			if !bytes.Equal(raw[i], e.Bytes()) {
				rt.Fatalf("change %d differs", i)
			}
		}
		h, err := parseHeader(b)
		if err != nil || h.ID != written.ID || h.LastRef() != events[len(events)-1].Position().Ref() || h.Events != len(events) || h.Size != int64(len(b)) {
			rt.Fatalf("%+v, %v", h, err)
		}
	})
}

// judgeDamage holds what is read of a damaged segment against what was written: it is the same, or
// the segment is refused, or each missing change is within a loss of its time and namespace.
func judgeDamage(events []changetest.Event, data []byte) error {
	raw, _, damaged, err := contents(data)
	if err != nil {
		if !errors.Is(err, errDamaged) && !errors.Is(err, ErrFormat) {
			return fmt.Errorf("another error: %w", err)
		}
		return nil
	}
	for _, e := range events {
		if len(raw) > 0 && bytes.Equal(raw[0], e.Bytes()) {
			raw = raw[1:]
			continue
		}
		covered := slices.ContainsFunc(damaged, func(l oplog.Loss) bool {
			return l.From.Time.Compare(e.Time) <= 0 && l.To.Time.Compare(e.Time) > 0 && slices.Contains(l.Namespaces, "shop."+e.Coll)
		})
		if !covered {
			return fmt.Errorf("change %d is missing silently", e.ID)
		}
	}
	if len(raw) > 0 {
		return fmt.Errorf("%d changes that were not written", len(raw))
	}
	return nil
}

func TestTruncatedSegmentsAreNoticed(t *testing.T) {
	events := some(40)
	b, _ := segmentOf(t, events)
	for n := range b {
		if _, _, _, err := contents(b[:n]); !errors.Is(err, errDamaged) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
}

func TestFlippedBitsAreABoundedLoss(t *testing.T) {
	events := some(12)
	for i := range events {
		events[i].Pad = 0
	}
	b, _ := segmentOf(t, events)
	lost := 0
	for n := 0; n < len(b); n += 2 { // the fuzz target tries others
		b[n] ^= 1 << (n / 2 % 8)
		if err := judgeDamage(events, b); err != nil {
			t.Fatalf("byte %d of %d: %v", n, len(b), err)
		}
		b[n] ^= 1 << (n / 2 % 8)
	}
	for n := range b {
		if n%97 != 0 {
			continue
		}
		b[n] ^= 0xFF
		if _, _, damaged, err := contents(b); err == nil && len(damaged) > 0 {
			lost++
		}
		b[n] ^= 0xFF
	}
	if lost < len(b)/97/4 {
		t.Errorf("%d of %d damaged bytes cost a block and not the segment", lost, len(b)/97)
	}
}

func FuzzSegment(f *testing.F) {
	events := some(30)
	b, _ := segmentOf(f, events)
	f.Add(uint32(0), uint32(len(b)), []byte{1})
	f.Fuzz(func(t *testing.T, at, length uint32, by []byte) {
		damaged := slices.Clone(b[:min(int(length), len(b))])
		for i, x := range by {
			if n := int(at) + i; n < len(damaged) {
				damaged[n] ^= x
			}
		}
		if err := judgeDamage(events, damaged); err != nil {
			t.Error(err)
		}
	})
}

// FuzzParts parses bytes whose checksums are right.
func FuzzParts(f *testing.F) {
	f.Add([]byte(`{"lanes":[{}],"blocks":[{"stored":9}]}`), uint8(codecZstd), uint32(100))
	f.Add([]byte{1, 5, 0, 0, 0, 0}, uint8(codecRaw), uint32(6))
	f.Fuzz(func(t *testing.T, body []byte, codec uint8, raw uint32) {
		_, _ = parseFooter(body, checksum(body), int64(len(body)))
		k := block{Raw: int(raw % (1 << 20)), Stored: blockHeader + len(body)}
		b := slices.Concat([]byte(blockMagic), []byte{codec, 0}, make([]byte, 26), body)
		put := func(at int, v uint32) { copy(b[at:], []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}) }
		put(12, uint32(k.Raw))
		put(28, blockSum(b))
		content, err := parseBlock(b, shared(), &k)
		if err != nil {
			return
		}
		if len(content) != k.Raw {
			t.Fatalf("%d bytes instead of %d", len(content), k.Raw)
		}
		for _, kind := range []kind{changes, losses} {
			r := records{kind: kind, rest: content}
			for n := 0; ; n++ {
				if _, ok, err := r.next(); !ok || err != nil {
					break
				}
				if n > len(content) {
					t.Fatal("more records than bytes")
				}
			}
		}
	})
}

// A header says nothing of documents: it is listed and logged.
func TestHeadersHaveNoDocuments(t *testing.T) {
	events := []changetest.Event{{ID: 0x5345435245544944, Time: change.Timestamp{T: 1, I: 1}}}
	b, h := segmentOf(t, events)
	if key := []byte("SECRETID"); bytes.Contains(b[:h.size], key) || bytes.Contains(bytes.ToUpper(b[:h.size]), []byte("5345435245544944")) {
		t.Error("the header has the key of a document")
	}
}

func TestLaterFormatsAreNoLoss(t *testing.T) {
	b, h := segmentOf(t, some(3))
	b[10] = format + 1
	sum := checksum(b[:h.size-4])
	copy(b[h.size-4:], []byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)})
	if _, _, _, err := contents(b); !errors.Is(err, ErrFormat) || errors.Is(err, errDamaged) {
		t.Error(err)
	}
}

// A block of a later codec, as that of encrypted ones, is a problem that waits for a later version:
// its changes are there, so it is no loss.
func TestLaterCodecsAreNoLoss(t *testing.T) {
	for kind, events := range map[string]int{"the first block": 3, "a later one": 2000} {
		b, _ := segmentOf(t, some(events))
		at := bytes.LastIndex(b, []byte(blockMagic))
		if kind == "the first block" {
			at = bytes.Index(b, []byte(blockMagic))
		}
		b[at+4] = 2
		end := at + blockHeader + int(binary.LittleEndian.Uint32(b[at+8:]))
		binary.LittleEndian.PutUint32(b[at+28:], blockSum(b[at:end]))
		if _, _, damaged, err := contents(b); !errors.Is(err, ErrFormat) || errors.Is(err, errDamaged) || len(damaged) > 0 {
			t.Errorf("%s: %v, losses %v", kind, err, damaged)
		}
	}
}

func TestCoverageOfSegments(t *testing.T) {
	of := func(full string, namespaces ...string) Coverage {
		return Coverage{Coverage: change.Coverage{Namespaces: namespaces}, FullDocument: full}
	}
	for name, c := range map[string]struct {
		has, asked Coverage
		lacks      []string
		some       bool
	}{
		"the same":         {of("", "shop.*"), of("", "shop.*"), nil, false},
		"everything":       {of(""), of("", "shop.a"), nil, false},
		"a part":           {of("", "shop.a"), of("", "shop.a", "crm.b"), []string{"crm.b"}, true},
		"all asked":        {of("", "shop.a"), of(""), nil, true},
		"no documents":     {of(""), of("updateLookup", "shop.a"), []string{"shop.a"}, true},
		"more documents":   {of("updateLookup"), of("", "shop.a"), nil, false},
		"fewer operations": {Coverage{Coverage: change.Coverage{Operations: []string{"insert"}}}, of("", "shop.a"), []string{"shop.a"}, true},
	} {
		lacks, some := c.has.Lacks(c.asked)
		if some != c.some || !slices.Equal(lacks, c.lacks) {
			t.Errorf("%s: %v, %v", name, lacks, some)
		}
	}
}

// A meteredStore is a store of one object that counts the bytes that are read of it.
type meteredStore struct {
	one

	read int
}

func (s *meteredStore) Get(ctx context.Context, key string, offset, n int64) ([]byte, Object, error) {
	data, about, err := s.one.Get(ctx, key, offset, n)
	s.read += len(data)
	return data, about, err
}

// However many readers of different segments share a cache, each fetches its blocks about once.
func TestReadersFarApartFetchTheirBlocksOnce(t *testing.T) {
	t.Parallel()
	const readers = 20
	events := some(160)
	for i := range events {
		events[i].Pad, events[i].Noise = blockSize/8, i%8 == 0 // many blocks, which compress well
	}
	data, h := segmentOf(t, events)
	store, common := &meteredStore{one: one{data: data}}, newCache(1<<20, nil)
	var all []*segmentReader
	for i := range readers {
		common.enter()
		r := newSegmentReader(store, fmt.Sprint("segment ", i), h, shared(), common)
		if err := r.open(t.Context(), change.Timestamp{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	for more := true; more; {
		for _, r := range all { // by turns
			var err error
			if _, more, err = r.next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if stored := readers * len(data); store.read > 2*stored {
		t.Errorf("%d bytes were read, of %d", store.read, stored)
	}
}

// A lateStore is a store of one object that answers after a second, unless the context ends; the
// first answer may be an error.
type lateStore struct {
	one

	reads int
	err   error
}

func (s *lateStore) Get(ctx context.Context, key string, offset, n int64) ([]byte, Object, error) {
	s.reads++
	first := s.reads == 1
	answer := time.NewTimer(time.Second)
	defer answer.Stop()
	select {
	case <-answer.C:
	case <-ctx.Done():
		return nil, Object{}, context.Cause(ctx)
	}
	if first && s.err != nil {
		return nil, Object{}, s.err
	}
	return s.one.Get(ctx, key, offset, n)
}

// A reader that waits for what another one fetches gets it also if the other one leaves. If the
// store fails, it has failed for both: a store that hangs would be asked by one after the other.
func TestWaitingReaderSharesWhatAnotherFetches(t *testing.T) {
	t.Parallel()
	unavailable := errors.New("unavailable")
	for name, failure := range map[string]error{"leaves": nil, "fails": unavailable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, common := &lateStore{one: one{data: []byte("block")}, err: failure}, newCache(1<<20, nil)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				failed := make(chan error, 1)
				go func() {
					_, err := common.get(ctx, store, edition{}, 0, 5, 5)
					failed <- err
				}()
				synctest.Wait() // it fetches
				want := failure
				if failure == nil {
					want = context.Canceled
					time.AfterFunc(time.Millisecond, leave)
				}
				got, err := common.get(t.Context(), store, edition{}, 0, 5, 5)
				if failure != nil {
					if !errors.Is(err, failure) || store.reads != 1 {
						t.Errorf("whoever waits for what fails gets %q after %d reads: %v", got, store.reads, err)
					}
					got, err = common.get(t.Context(), store, edition{}, 0, 5, 5) // it is not kept
				}
				if string(got) != "block" || err != nil || store.reads != 2 {
					t.Errorf("%q after %d reads: %v", got, store.reads, err)
				}
				if err := <-failed; !errors.Is(err, want) {
					t.Errorf("the other one: %v", err)
				}
			})
		})
	}
}
