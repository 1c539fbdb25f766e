package snapshot_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/snapshot"
)

// orders is the collection of these tests.
func orders() change.Namespace { return change.Namespace{DB: "shop", Coll: "orders"} }

// A shelf is a collection of documents with the _ids 1 to documents.
type shelf struct {
	documents int
	late      uint32       // how much later than asked it is read
	reads     atomic.Int64 // documents
	readers   sync.Map     // the goroutines that have read
}

func (s *shelf) Collections(context.Context, string, string) ([]snapshot.Collection, change.Timestamp, error) {
	return nil, change.Timestamp{}, nil
}

func (s *shelf) Read(_ context.Context, q snapshot.Query) (p snapshot.Page, err error) {
	ids := q.IDs
	if len(ids) == 0 {
		for n := max(1, place(q.From)); n <= s.documents && (q.Until.IsZero() || n < place(q.Until)); n++ {
			if len(ids) == q.Documents {
				p.Next = idOf(n)
				break
			}
			ids = append(ids, idOf(n))
		}
	}
	for _, id := range ids {
		p.Documents = append(p.Documents, change.WrapDocument(change.AppendElement(nil, id.Type, "_id", id.Data)))
	}
	s.reads.Add(int64(len(ids)))
	s.readers.Store(goroutine(), nil)
	p.To = change.Timestamp{T: q.After.T + s.late, I: q.After.I}
	return p, nil
}

// goroutine returns the name of the calling goroutine.
func goroutine() string {
	name, _, _ := strings.Cut(string(debug.Stack()), " [")
	return name
}

func idOf(n int) change.Value {
	return change.Value{Type: change.TypeInt64, Data: binary.LittleEndian.AppendUint64(nil, uint64(n))}
}

func place(id change.Value) int {
	n, _ := id.Int64()
	return int(n)
}

// A desk is the loop and the sessions of a Scanner: its port, as simple as can be.
type desk struct {
	scanner  *snapshot.Scanner[string]
	shelf    *shelf
	commands chan func()
	place    snapshot.Place
	away     map[string]bool // who is not ready
	waiting  []*snapshot.Reader[string]
	got      map[string][]int // the documents of each reader, in their order
}

func newDesk(ctx context.Context, s *shelf) *desk {
	d := &desk{
		shelf: s, commands: make(chan func()), away: make(map[string]bool), got: make(map[string][]int),
		place: snapshot.Place{At: change.At(change.Timestamp{T: 10}), Drained: true},
	}
	d.scanner = snapshot.NewScanner(ctx, snapshot.Config[string]{
		Source: s, Sessions: d, Do: d.do, Documents: func(int) int { return 3 },
		Turns: snapshot.NewTurns(nil), Reads: snapshot.NewReads(), Logger: slog.New(slog.DiscardHandler),
	})
	go func() {
		for {
			select {
			case f := <-d.commands:
				f()
			case <-ctx.Done():
				return
			}
		}
	}()
	d.in(func() { d.scanner.Place(d.place) })
	return d
}

func (d *desk) do(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	select {
	case d.commands <- func() { f(); close(done) }:
		<-done
		return true
	case <-ctx.Done():
		return false
	}
}

// in calls a function in the loop.
func (d *desk) in(f func()) { d.do(context.Background(), f) }

func (d *desk) offer(who string) *snapshot.Reader[string] {
	r := &snapshot.Reader[string]{Left: snapshot.Left{Namespace: orders()}, Who: who, Identity: who}
	d.in(func() { d.scanner.Offer(r) })
	return r
}

func (d *desk) Ready(r *snapshot.Reader[string]) bool { return !d.away[r.Who] }
func (d *desk) Wait(r *snapshot.Reader[string])       { d.waiting = append(d.waiting, r) }

func (d *desk) Stand(readers []*snapshot.Reader[string], _ change.Timestamp) snapshot.Stand {
	return &standing{desk: d, readers: readers}
}

type standing struct {
	desk    *desk
	readers []*snapshot.Reader[string]
	page    *snapshot.PageRead
}

func (s *standing) Stays(int, int) int { return len(s.readers) }

func (s *standing) Writer() func(*snapshot.PageRead, int) int {
	return func(p *snapshot.PageRead, _ int) int {
		s.page = p
		return 0
	}
}

func (s *standing) Give(g *snapshot.Given) {
	if g == nil {
		return
	}
	for i, doc := range s.page.Page.Documents {
		for _, r := range s.readers {
			if len(g.Out) == 0 || !g.Out[i] {
				s.desk.got[r.Who] = append(s.desk.got[r.Who], place(change.IDOf(doc)))
			}
		}
	}
}

// whole reports whether readers are complete, and have each document once.
func (d *desk) whole(t *testing.T, readers ...*snapshot.Reader[string]) {
	t.Helper()
	d.in(func() {
		for _, r := range readers {
			got := slices.Sorted(slices.Values(d.got[r.Who]))
			if len(got) != d.shelf.documents || len(slices.Compact(got)) != d.shelf.documents || !r.Done {
				t.Errorf("%s got %v, done %t; %s", r.Who, d.got[r.Who], r.Done, d.scanner)
			}
		}
	})
}

// Readers of a collection share a scan whenever they come; nothing runs once they are complete.
func TestScannerSharesItsReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &shelf{documents: 20}
		d := newDesk(ctx, s)
		var readers []*snapshot.Reader[string]
		d.in(func() {
			for _, who := range []string{"a", "b", "c"} {
				r := &snapshot.Reader[string]{Left: snapshot.Left{Namespace: orders()}, Who: who, Identity: who}
				d.scanner.Offer(r)
				readers = append(readers, r)
			}
		})
		synctest.Wait()
		d.whole(t, readers...)
		if n := s.reads.Load(); n > 2*20 {
			t.Errorf("%d documents were read for three readers of 20", n)
		}
		cancel()
		d.scanner.Join()
	})
}

// The pages that come at one time are read by one goroutine: its stack grows once.
func TestScannerReadsThePagesOfATimeInOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &shelf{documents: 20}
		d := newDesk(ctx, s)
		r := d.offer("a")
		synctest.Wait()
		d.whole(t, r)
		readers := 0
		s.readers.Range(func(any, any) bool {
			readers++
			return true
		})
		if readers != 1 {
			t.Errorf("%d goroutines read the pages of 20 documents", readers)
		}
		cancel()
		d.scanner.Join()
	})
}

// A scan waits a moment for a reader that is not ready, and then continues without it. It joins
// again when it is offered.
func TestScannerContinuesWithoutThoseThatAreNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := newDesk(ctx, &shelf{documents: 20})
		d.in(func() { d.away["slow"] = true })
		slow := d.offer("slow")
		fast := d.offer("fast")
		synctest.Wait()
		d.whole(t, fast)
		d.in(func() {
			if len(d.waiting) != 1 || d.waiting[0] != slow {
				t.Errorf("%d readers wait", len(d.waiting))
			}
			d.away["slow"] = false
			d.scanner.Offer(slow)
		})
		synctest.Wait()
		d.whole(t, slow)
		cancel()
		d.scanner.Join()
	})
}

// A document that changed while an inexact page was read comes with a later one, and the others
// come once.
func TestScannerReadsTouchedDocumentsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := newDesk(ctx, &shelf{documents: 3, late: 5})
		r := d.offer("a")
		synctest.Wait() // for the page, which waits for the log
		d.in(func() {
			if len(d.got["a"]) > 0 {
				t.Errorf("%v came before the log was considered up to their time", d.got["a"])
			}
			e, err := change.Parse(changetest.Event{ID: 2, Time: change.Timestamp{T: 12, I: 1}}.Bytes())
			if err != nil {
				t.Error(err)
				return
			}
			d.scanner.Note(&e)
			d.scanner.Place(snapshot.Place{At: change.At(change.Timestamp{T: 16}), Drained: true})
		})
		synctest.Wait()
		d.in(func() {
			if got := d.got["a"]; !slices.Equal(got, []int{1, 3}) {
				t.Errorf("%v came with the page in which 2 was touched", got)
			}
			d.scanner.Place(snapshot.Place{At: change.At(change.Timestamp{T: 30}), Drained: true})
		})
		synctest.Wait()
		d.whole(t, r)
		cancel()
		d.scanner.Join()
	})
}
