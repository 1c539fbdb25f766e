package delivery_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
)

// A shelf is collections of documents that nobody changes, each read of which takes some time.
type shelf struct {
	collections []string
	documents   int64 // of each
	page        int
	takes       time.Duration
	padding     int                  // bytes of each document
	texts       bool                 // the _ids are strings
	read        func(snapshot.Query) // called before each read that is not nil

	mu      sync.Mutex
	queries []snapshot.Query
}

func (s *shelf) Collections(_ context.Context, _, coll string) (all []snapshot.Collection, at change.Timestamp, err error) {
	for _, name := range s.collections {
		if coll == "" || coll == name {
			all = append(all, snapshot.Collection{Namespace: change.Namespace{DB: "shop", Coll: name}, Documents: s.documents})
		}
	}
	return all, change.Timestamp{T: 1}, nil
}

// value returns the _id of a document, number the document of an _id.
func (s *shelf) value(id int64) change.Value {
	if !s.texts {
		return idValue(id)
	}
	doc := change.WrapDocument(change.AppendString(nil, "_id", fmt.Sprintf("%06d", id)))
	return change.IDOf(doc)
}

func (s *shelf) number(id change.Value) int64 {
	if id.Type != change.TypeString {
		return idOf(id)
	}
	n, err := strconv.ParseInt(string(id.Text()), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (s *shelf) Read(ctx context.Context, q snapshot.Query) (p snapshot.Page, err error) {
	s.mu.Lock()
	s.queries = append(s.queries, q)
	s.mu.Unlock()
	if s.read != nil {
		s.read(q)
	}
	if time.Sleep(s.takes); ctx.Err() != nil {
		return p, ctx.Err()
	}
	first, end := int64(0), s.documents
	if !q.From.IsZero() {
		first = s.number(q.From)
	}
	if !q.Until.IsZero() {
		end = s.number(q.Until)
	}
	last := min(end, first+int64(min(s.page, q.Documents)))
	for id := first; id < last; id++ {
		doc := changetest.Event{ID: id}.Document()
		if s.texts {
			of := s.value(id)
			doc = change.WrapDocument(change.AppendElement(nil, of.Type, "_id", of.Data))
		}
		if s.padding > 0 {
			doc = change.WrapDocument(change.AppendString(slices.Clone(doc[4:len(doc)-1]), "padding", strings.Repeat("-", s.padding)))
		}
		p.Documents = append(p.Documents, doc)
	}
	if last < end {
		p.Next = s.value(last)
	}
	p.To = q.After
	return p, nil
}

// asked returns the queries so far.
func (s *shelf) asked() []snapshot.Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.queries)
}

func onShelf(t *testing.T, docs *shelf, cfg delivery.Config) *bench {
	source := &oplogtest.Log{}
	source.Tick(1)
	cfg.Snapshots = docs
	return begin(t, source, cfg)
}

func collection(t *testing.T, name string) []delivery.Subscription {
	return []delivery.Subscription{{ID: name, Program: deliverytest.Compile(t, match.Filter{DB: "shop", Coll: name}), Snapshot: true}}
}

// Nobody waits for a page while the one before it is delivered: the next one is being read then, at
// the same time, while nothing happens.
func TestNextPageIsReadMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		third := make(chan struct{})
		docs := &shelf{collections: []string{"orders"}, documents: 40, page: 10, takes: time.Millisecond}
		docs.read = func(q snapshot.Query) {
			if !q.From.IsZero() && idOf(q.From) == 20 {
				<-third
			}
		}
		figures := prometheus.NewRegistry()
		b := onShelf(t, docs, delivery.Config{Registerer: figures})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, collection(t, "orders"))
		time.Sleep(100 * time.Millisecond)
		if st := s.State(); st.Live || st.Events < 20 {
			t.Errorf("while the third page is read: live %t, %d documents are sent", st.Live, st.Events)
		}
		close(third)
		wantAll(t, documents(t, s), 40)
		for _, q := range docs.asked() {
			if q.After != docs.asked()[0].After {
				t.Errorf("pages at %s and at %s, between which nothing has happened", docs.asked()[0].After, q.After)
			}
		}
		synctest.Wait() // it joins while the last mark is received
		families, err := figures.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if n := f.GetMetric()[0].GetCounter().GetValue(); f.GetName() == "streamer_hub_sessions_joined_total" && n != 2 {
				t.Errorf("it has joined the live path %.0f times, want when it was opened, and after the last page", n)
			}
		}
	})
}

// A change waits for few pages of the snapshot of the session that it is for.
func TestChangesWaitForFewPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 1000, page: 5, takes: 4 * time.Millisecond}
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, collection(t, "orders"))
		time.Sleep(100 * time.Millisecond)
		written := time.Now()
		b.source.Append(changetest.Event{Op: "insert", Coll: "orders", ID: 5000})
		for there := false; !there; {
			batches, _, err := s.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, batch := range batches {
				if _, err := s.Ack(batch.Seq); err != nil {
					t.Fatal(err)
				}
				there = there || slices.ContainsFunc(batch.Events, func(e delivery.Event) bool { return !e.Snapshot })
			}
		}
		if took := time.Since(written); took > 100*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

// Whoever comes later does not wait until the readers of a scan go on by themselves.
func TestReaderJoinsBetweenPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 10_000, page: 5, takes: 4 * time.Millisecond}
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		first := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, collection(t, "orders"))
		time.Sleep(100 * time.Millisecond)
		second := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, collection(t, "orders"))
		time.Sleep(50 * time.Millisecond)
		if n := second.State().Events; n < 5 {
			t.Errorf("after 50ms it has %d documents", n)
		}
		if n := first.State().Events; n < 20 {
			t.Errorf("the first one has %d documents", n)
		}
	})
}

// What is read ahead does not exceed the credit of a reader that acknowledges nothing, but for one
// page.
func TestPagesReadAheadAreWithinTheCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const page, credit = 9, 40
		docs := &shelf{collections: []string{"orders"}, documents: 1000, page: page, takes: time.Millisecond}
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}, CreditEvents: credit}, collection(t, "orders"))
		time.Sleep(10 * time.Second)
		if n := s.State().Events; n < credit/2 || n > credit/2+page {
			t.Errorf("%d of %d are sent", n, credit)
		}
		wantAll(t, documents(t, s), 1000)
	})
}

// The memory of pages is used again, but not while one of those who share them has a batch of them.
func TestPagesAreRecycled(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const page, pages = 100, 40
			docs := &shelf{collections: []string{"orders"}, documents: page * pages, page: page, takes: time.Millisecond, padding: 200}
			b := onShelf(t, docs, delivery.Config{})
			defer b.end()
			places := make(map[*byte]bool)
			var kept, copies [][]byte
			var other sync.WaitGroup
			if keeps {
				s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, collection(t, "orders"))
				other.Go(func() {
					untilDone(t, s, func(batch *delivery.Batch) {
						for i := range batch.Events {
							kept, copies = append(kept, batch.Payload(i)), append(copies, slices.Clone(batch.Payload(i)))
						}
					})
				})
			}
			s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}, CreditEvents: 2 * page}, collection(t, "orders"))
			untilDone(t, s, func(batch *delivery.Batch) {
				if len(batch.Events) > 0 {
					places[&batch.Payload(0)[0]] = true
				}
				s.Recycle(batch)
			})
			other.Wait()
			if !keeps && len(places) > pages*3/4 {
				t.Errorf("%d pages have had %d places in memory", pages, len(places))
			}
			if keeps && (len(kept) != page*pages || !slices.EqualFunc(kept, copies, bytes.Equal)) {
				t.Errorf("%d documents were kept, and are not what they were", len(kept))
			}
		})
	}
}

// untilDone receives and acknowledges batches until a snapshot is done.
func untilDone(t *testing.T, s *delivery.Session, take func(*delivery.Batch)) {
	for {
		batches, _, err := s.Receive(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		for _, b := range batches {
			if _, err := s.Ack(b.Seq); err != nil {
				t.Error(err)
			}
			isDone := b.Snapshot != nil && b.Snapshot.State == delivery.SnapshotDone
			if take(b); isDone {
				return
			}
		}
	}
}

// Pages that are read within one turn keep to the rate.
func TestPagesOfOneTurnKeepToTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const page = 10
		docs := &shelf{collections: []string{"orders"}, documents: 1000, page: page, takes: time.Millisecond}
		b := onShelf(t, docs, delivery.Config{SnapshotRate: rate.NewLimiter(1000, page)})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, collection(t, "orders"))
		begun := time.Now()
		wantAll(t, documents(t, s), 1000)
		if took := time.Since(begun); took < 980*time.Millisecond || took > 1500*time.Millisecond {
			t.Errorf("1000 documents at 1000 a second took %s", took)
		}
	})
}

// Documents that fill a page by their bytes are not asked for by the number of a page of small
// ones.
func TestPagesOfLargeDocumentsAskForFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 40, page: 10, takes: time.Millisecond, padding: 100_000}
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, collection(t, "orders"))
		wantAll(t, documents(t, s), 40)
		for i, q := range docs.asked() {
			if i > 0 && q.Documents > 10 {
				t.Errorf("page %d asks for %d documents of 100 kB, and uses %d bytes of them", i, q.Documents, q.Bytes)
			}
		}
	})
}

// A turn ends where another identity waits for its own.
func TestTurnsEndWhereOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"small", "a", "b", "c", "d", "e", "f"}, documents: 10_000, page: 10, takes: 4 * time.Millisecond}
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		for _, name := range docs.collections[1:] {
			b.open(delivery.SessionConfig{Identity: "large", Start: delivery.Place{At: b.log.End()}}, collection(t, name))
		}
		time.Sleep(100 * time.Millisecond)
		small := b.open(delivery.SessionConfig{Identity: "small", Start: delivery.Place{At: b.log.End()}}, collection(t, "small"))
		time.Sleep(100 * time.Millisecond)
		if n := small.State().Events; n < 20 {
			t.Errorf("after 100ms it has %d documents", n)
		}
	})
}

// Nothing is kept of sessions that end while they wait for room for a page.
func TestNothingIsKeptOfReadersThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 100, page: 10, takes: time.Millisecond}
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		var slow []*delivery.Session
		for range 3 {
			slow = append(slow, b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}, CreditEvents: 5}, collection(t, "orders")))
		}
		time.Sleep(10 * time.Second)
		if text := b.hub.Scans(); !strings.Contains(text, "waiting 3") {
			t.Errorf("%s, want 3 that wait", text)
		}
		for _, s := range slow {
			s.Close(nil)
		}
		synctest.Wait()
		if text := b.hub.Scans(); !strings.Contains(text, "waiting 0") {
			t.Errorf("%s after they have ended", text)
		}
	})
}

// A page that comes too late for a session, which has gone elsewhere and stands still for another
// collection since, takes nothing from it.
func TestLatePageTakesNothingFromAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, other, asked := make(chan struct{}), make(chan struct{}), make(chan struct{})
		docs := &shelf{collections: []string{"first", "second"}, documents: 5, page: 5}
		var once sync.Once
		docs.read = func(q snapshot.Query) {
			if first := false; q.Namespace.Coll == "first" {
				once.Do(func() { first = true })
				if first {
					<-late
				}
				return
			}
			close(asked)
			<-other
		}
		b := onShelf(t, docs, delivery.Config{})
		defer b.end()
		source := b.source.Append(changetest.Event{Op: "insert", Coll: "else", ID: 1}, changetest.Event{Op: "insert", Coll: "else", ID: 2})
		synctest.Wait()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, collection(t, "first"))
		synctest.Wait()
		s.Rewind(source[0].Position(), 1, nil) // which ends its standing still
		s.Subscribe(collection(t, "second"))
		s.Unsubscribe([]string{"first"})
		<-asked // it stands still for the second collection
		close(late)
		time.Sleep(time.Second)
		close(other)
		wantAll(t, documents(t, s), 5)
	})
}

// What a session has queued of several pages counts against the budget, page for page, and all of
// it is given back.
func TestAllPagesCountAgainstTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 40, page: 10, takes: time.Millisecond, padding: 1000}
		b := onShelf(t, docs, delivery.Config{QueueBytes: 64 << 20})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, collection(t, "orders"))
		time.Sleep(100 * time.Millisecond)
		if st, held := s.State(), b.hub.Load().Held; st.Bytes < 40*1000 || held < st.Bytes {
			t.Errorf("%d bytes are queued, %d held", st.Bytes, held)
		}
		wantAll(t, documents(t, s), 40)
		s.Close(nil)
		synctest.Wait()
		if held := b.hub.Load().Held; held != 0 {
			t.Errorf("%d bytes are held by nobody", held)
		}
	})
}
