package streamer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/build"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/rescan"
	"github.com/mongostream/streamer/streamer"
)

// A shelf is a collection of documents with _ids from 0, read at whatever time the log is at.
type shelf struct {
	world *world
	n     int

	mu       sync.Mutex
	requests []rescan.Request
	onPage   func(p rescan.Page) // called with each page before it is returned
}

func (s *shelf) Page(_ context.Context, r rescan.Request) (rescan.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	from := 0
	if r.After != nil {
		if _, err := fmt.Sscanf(string(r.After), "%d", &from); err != nil {
			return rescan.Page{}, err
		}
		from++
	}
	_, now := s.world.source.Reach()
	page := rescan.Page{At: now}
	for id := from; id < min(s.n, from+r.Limit); id++ {
		page.Documents = append(page.Documents, build.Document(build.AppendInt64(nil, "_id", int64(id))))
		page.Last = fmt.Appendf(nil, "%d", id)
	}
	page.Done = from+r.Limit >= s.n
	if s.onPage != nil {
		s.onPage(page)
	}
	return page, nil
}

func rescanning(w *world, n, pageSize int) (*shelf, streamer.Config) {
	s := &shelf{world: w, n: n}
	orders := rescan.Collection{Namespace: change.Namespace{DB: "shop", Coll: "orders"}, UpdatedAt: "updated_at"}
	return s, streamer.Config{Rescan: rescan.Config{Collections: []rescan.Collection{orders}, Reader: s, PageSize: pageSize}}
}

// collect acknowledges everything and returns what came: rescanned documents and events, each by _id in the order of arrival.
func collect(t *testing.T, s *delivery.Session, d time.Duration) (arrived map[int64][]string) {
	t.Helper()
	arrived = make(map[int64][]string)
	for end := time.Now().Add(d); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		batches, _ := s.Receive(ctx)
		cancel()
		for _, b := range batches {
			for i := range b.Events {
				id, _ := b.Events[i].ID().Int64()
				what := b.Events[i].Op().String()
				if b.Rescan {
					what = "rescan"
				}
				if b.Rescan != (b.Events[i].Lookup("rescan").Type != 0) {
					t.Errorf("flag and batch differ: %v", b.Rescan)
				}
				arrived[id] = append(arrived[id], what)
			}
			s.Ack(b)
		}
	}
	return arrived
}

func TestDocumentsAreReadAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lose(t)
		s, cfg := rescanning(w, 100, 30)
		p := w.begin(cfg, delivery.Config{})
		arrived := collect(t, p.session, 10*time.Second)
		for id := range int64(100) {
			n := 0
			for _, what := range arrived[id] {
				if what == "rescan" {
					n++
				}
			}
			if n != 1 {
				t.Errorf("document %d came again %d times: %v", id, n, arrived[id])
			}
		}
		s.mu.Lock()
		if len(s.requests) != 4 || s.requests[0].Since.Unix() != 1001 {
			t.Errorf("%d pages, since %v", len(s.requests), s.requests[0].Since)
		}
		s.mu.Unlock()
		gaps, _ := w.marks.Gaps(t.Context())
		for _, g := range gaps {
			if g.Reason == string(gap.HistoryLost) && !g.Rescan["shop.orders"].Done {
				t.Errorf("partition %d: %+v", g.Partition, g.Rescan)
			}
		}
		p.crash()
	})
}

// What the stream changes while a page is on its way must not be followed by an older state.
func TestRescannedDocumentNeverGoesBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lose(t)
		s, cfg := rescanning(w, 40, 100)
		s.onPage = func(rescan.Page) {
			for id := range int64(10) { // changed after the page was read, before it is there
				w.source.Append(changetest.Event{Op: "delete", ID: id})
			}
		}
		p := w.begin(cfg, delivery.Config{})
		arrived := collect(t, p.session, 10*time.Second)
		for id := range int64(40) {
			last := arrived[id][len(arrived[id])-1]
			if want := map[bool]string{true: "delete", false: "rescan"}[id < 10]; last != want {
				t.Errorf("document %d ends with %s: %v", id, last, arrived[id])
			}
		}
		p.crash()
	})
}

// A crash in the middle goes on behind the last page that was acknowledged.
func TestRescanGoesOnAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lose(t)
		s, cfg := rescanning(w, 100, 10)
		cfg.Rescan.Rate = 10 // a page a second
		p := w.begin(cfg, delivery.Config{})
		first := collect(t, p.session, 4500*time.Millisecond)
		p.crash()
		s.mu.Lock()
		before := len(s.requests)
		s.mu.Unlock()
		if before < 3 || before > 6 {
			t.Fatalf("%d pages in 4.5 s", before)
		}
		p = w.begin(cfg, delivery.Config{})
		second := collect(t, p.session, 15*time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		if again := s.requests[before]; again.After == nil {
			t.Error("begun from the start")
		}
		for id := range int64(100) {
			n := 0
			for _, what := range append(first[id], second[id]...) {
				if what == "rescan" {
					n++
				}
			}
			if n < 1 || n > 2 {
				t.Errorf("document %d came again %d times", id, n)
			}
		}
		p.crash()
	})
}
