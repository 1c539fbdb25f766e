package retention

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
)

// A world is a store and three writers. While the store works for one of them, which may stand
// still there for as long as it likes, the others go on: each call is a place where that happens.
type world struct {
	t         *testing.T
	dice      *rand.Rand
	now       time.Time
	objects   map[string][]byte
	modified  map[string]time.Time
	depth     int
	blind     bool // writers see no floor after a put
	putting   int
	committed map[uint64][]ID
	writers   []*Writer
	chain     *Chain
}

var errNoAnswer = errors.New("no answer")

func (w *world) Put(_ context.Context, key string, data []byte) error {
	w.meanwhile()
	if _, there := w.objects[key]; there {
		return ErrExists
	}
	w.objects[key], w.modified[key] = slices.Clone(data), w.now
	w.meanwhile()
	if w.dice.IntN(5) == 0 {
		return errNoAnswer
	}
	return nil
}

func (w *world) Get(_ context.Context, key string, offset, n int64) ([]byte, Object, error) {
	w.meanwhile()
	data, there := w.objects[key]
	if !there {
		return nil, Object{}, ErrNotFound
	}
	return data[offset:min(int64(len(data)), offset+n)], w.about(key), nil
}

func (w *world) about(key string) Object {
	return Object{Name: key[strings.LastIndexByte(key, '/')+1:], Size: int64(len(w.objects[key])), Modified: w.modified[key]}
}

func (w *world) List(_ context.Context, folder, after string) (page []Object, more bool, err error) {
	w.meanwhile()
	if w.blind && w.putting > 0 && strings.HasSuffix(folder, "/floor") {
		return nil, false, nil
	}
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		if name, within := strings.CutPrefix(key, folder+"/"); within && name > after && len(page) < 100 {
			page = append(page, w.about(key))
		}
	}
	return page, len(page) == 100, nil
}

func (w *world) Delete(_ context.Context, key string) error {
	w.meanwhile()
	delete(w.objects, key)
	return nil
}

func (w *world) Now(context.Context) (time.Time, error) { return w.now, nil }

// meanwhile lets others do something, sometimes much.
func (w *world) meanwhile() {
	if w.depth >= 2 || w.dice.IntN(15) > 0 {
		return
	}
	w.depth++
	defer func() { w.depth-- }()
	putting := w.putting
	w.putting = 0
	for range w.dice.IntN(8) {
		w.step()
	}
	w.putting = putting
}

// step lets a writer write a segment, or what has expired be deleted.
func (w *world) step() {
	ctx := context.Background()
	w.now = w.now.Add(time.Hour)
	if w.dice.IntN(3) == 0 {
		_, _ = w.chain.Expire(ctx, 0, 1500) // about three segments
		return
	}
	writer := w.writers[w.dice.IntN(len(w.writers))]
	head, _, err := w.chain.Head(ctx)
	if err != nil {
		return
	}
	segment, h, err := newDraft(writer.encoder).encode(Header{
		Number: head.Next, Previous: head.ID, PreviousNumber: head.Number, From: head.To, To: change.Timestamp{T: head.To.T + 1}, Writer: writer.cfg.Node,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for {
		w.putting++
		err = writer.put(ctx, segment, &h)
		w.putting--
		if err == nil {
			w.committed[h.Number] = append(w.committed[h.Number], h.ID)
		}
		if err == nil || errors.Is(err, errOvertaken) {
			return
		}
	}
}

// doubles runs schedules and returns how many numbers were committed twice, and of how many.
func doubles(t *testing.T, schedules int, blind bool) (twice, all int) {
	t.Helper()
	encoder := newEncoder()
	for seed := range schedules {
		w := &world{
			t: t, dice: rand.New(rand.NewPCG(uint64(seed), 1)), now: time.Unix(1e9, 0), objects: map[string][]byte{}, modified: map[string]time.Time{},
			blind: blind, committed: map[uint64][]ID{},
		}
		w.chain = ChainAt(w, "v1/x/1")
		for _, node := range []string{"a", "b", "c"} {
			w.writers = append(w.writers, &Writer{cfg: WriterConfig{Node: node}, chain: w.chain, encoder: encoder})
		}
		floor := uint64(0)
		for range 40 {
			w.step()
			now, err := w.chain.Floor(t.Context())
			if err != nil || now < floor {
				t.Fatalf("seed %d: the floor fell from %d to %d, %v", seed, floor, now, err)
			}
			floor = now
		}
		for _, ids := range w.committed {
			all++
			twice += len(ids) - 1
		}
		w.intact(seed)
	}
	return twice, all
}

// intact checks that from the floor on nothing committed is missing, and that each segment fits the
// one before.
func (w *world) intact(seed int) {
	w.dice = rand.New(rand.NewPCG(0, 0))
	w.depth = 3
	segments, err := w.chain.Segments(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var before Header
	for i, s := range segments {
		h, _, err := w.chain.Header(w.t.Context(), s.Number)
		if err != nil {
			w.t.Fatal(err)
		}
		if i > 0 && !before.precedes(&h) && !w.blind {
			w.t.Errorf("seed %d: segment %d does not fit %d", seed, h.Number, before.Number)
		}
		before = h
	}
}

// Writers that stand still anywhere, answers that are lost, and expiry: a number has one owner. A
// writer that does not look at the floor after its put, and so believes in a number that was
// deleted and created again, is found by the same model.
func TestModelOfWriters(t *testing.T) {
	twice, all := doubles(t, 15, false)
	if twice > 0 || all < 300 {
		t.Errorf("%d of %d numbers have two owners", twice, all)
	}
	if twice, all = doubles(t, 15, true); twice == 0 {
		t.Errorf("without the floor none of %d numbers has two owners: the model proves nothing", all)
	}
}
