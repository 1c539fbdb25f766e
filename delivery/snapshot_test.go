package delivery_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
)

// A doc is a document of the store: v is set by every change, b only by those that carry the whole
// document.
type doc struct{ v, b int64 }

type contents map[string]map[int64]doc // by collection and _id

func (c contents) clone() contents {
	d := make(contents, len(c))
	for name, docs := range c {
		d[name] = maps.Clone(docs)
	}
	return d
}

// A store is collections with a log of their changes, which can be read as they were.
type store struct {
	log   *oplogtest.Log
	exact bool // pages are read at a time, as from MongoDB 5.0 on
	page  int
	brief bool // updates in transactions carry no documents
	dice  *rand.Rand

	untold bool // updates do not say what they did

	mu       sync.Mutex
	now      contents
	versions int64
	past     []moment
	times    map[int64]change.Timestamp // of versions
	several  map[change.Timestamp]bool  // times of several changes
	reads    int
}

type moment struct {
	at   change.Timestamp
	then contents
}

func (s *store) write(op string, coll string, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions++
	v := s.versions
	docs := s.now[coll]
	if docs == nil {
		docs = make(map[int64]doc)
		s.now[coll] = docs
	}
	d, there := docs[id]
	e := changetest.Event{Op: op, Coll: coll, ID: id, Untold: s.untold}
	switch op {
	case "insert":
		if there {
			e.Op = "replace"
		}
		d = doc{v, v}
	case "update", "whole":
		if !there {
			return
		}
		e.Op, e.Whole, d.v = "update", op == "whole", v
	case "delete":
		if !there {
			return
		}
		delete(docs, id)
	case "drop":
		delete(s.now, coll)
		e.Keyless = true
	case "rename": // other to orders
		e.Keyless, e.Coll, e.To = true, "other", "orders"
		s.now["orders"] = s.now["other"]
		delete(s.now, "other")
	}
	if !e.Keyless && op != "delete" {
		docs[id], e.Value, e.Base = d, d.v, d.b
	}
	at := s.log.Append(e)[0].Time
	s.times[v] = at
	s.past = append(s.past, moment{at, s.now.clone()})
}

// transaction updates a document several times at one time.
func (s *store) transaction(coll string, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, there := s.now[coll][id]
	if !there {
		return
	}
	_, at := s.log.Reach()
	at = at.Next()
	s.several[at] = true
	var events []changetest.Event
	for i := range uint64(4) {
		s.versions++
		d.v = s.versions
		s.times[d.v] = at
		events = append(events, changetest.Event{
			Op: "update", Coll: coll, ID: id, Value: d.v, Base: d.b, Time: at, Index: i, Txn: s.now[coll][id].v, Whole: i%2 == 1 && !s.brief,
		})
	}
	s.now[coll][id] = d
	s.log.Append(events...)
	s.past = append(s.past, moment{at, s.now.clone()})
}

// at returns the contents after everything up to a time.
func (s *store) at(t change.Timestamp) contents {
	i, _ := slices.BinarySearchFunc(s.past, t.Next(), func(m moment, t change.Timestamp) int { return m.at.Compare(t) })
	if i == 0 {
		return contents{}
	}
	return s.past[i-1].then
}

// Collections lists them as they are at first, with a time after the command, as a server's
// operation time is.
func (s *store) Collections(_ context.Context, _, coll string) (all []snapshot.Collection, at change.Timestamp, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, docs := range s.now {
		if coll == "" || coll == name {
			all = append(all, snapshot.Collection{Namespace: change.Namespace{DB: "shop", Coll: name}, Documents: int64(len(docs))})
		}
	}
	slices.SortFunc(all, func(a, b snapshot.Collection) int { return len(a.Coll) - len(b.Coll) })
	wait := time.Duration(s.dice.IntN(3)) * 10 * time.Millisecond
	s.mu.Unlock()
	time.Sleep(wait)
	s.mu.Lock()
	_, at = s.log.Reach()
	return all, at, nil
}

func idValue(n int64) change.Value {
	return change.Value{Type: 0x12, Data: binary.LittleEndian.AppendUint64(nil, uint64(n))}
}

func idOf(v change.Value) int64 { return int64(binary.LittleEndian.Uint64(v.Data)) }

// Read reads every document by itself, at any time after the query's, as a server does that lets
// others write meanwhile.
func (s *store) Read(_ context.Context, q snapshot.Query) (p snapshot.Page, err error) {
	take := func(id int64) (d doc, there bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := q.After
		if _, last := s.log.Reach(); !s.exact && s.dice.IntN(2) == 0 && last.Compare(at) > 0 {
			at = last
		}
		d, there = s.at(at)[q.Namespace.Coll][id]
		return d, there
	}
	s.mu.Lock()
	s.reads++
	ids := make(map[int64]bool)
	for _, m := range s.past {
		for id := range m.then[q.Namespace.Coll] {
			ids[id] = true
		}
	}
	wait := time.Duration(s.dice.IntN(3)) * 10 * time.Millisecond
	if s.dice.IntN(20) == 0 {
		err = errors.New("not now")
	}
	s.mu.Unlock()
	time.Sleep(wait)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		among := slices.ContainsFunc(q.IDs, func(v change.Value) bool { return idOf(v) == id })
		if len(q.IDs) > 0 && !among || !q.From.IsZero() && id < idOf(q.From) || !q.Until.IsZero() && id >= idOf(q.Until) {
			continue
		}
		if len(q.IDs) == 0 && len(p.Documents) == s.page {
			p.Next = idValue(id)
			break
		}
		time.Sleep(time.Millisecond)
		if d, there := take(id); there {
			p.Documents = append(p.Documents, changetest.Event{ID: id, Value: d.v, Base: d.b}.Document())
		}
	}
	p.To = q.After
	if !s.exact {
		_, p.To = s.log.Reach()
	}
	return p, err
}

// A replica keeps collections as its subscription tells them.
type replica struct {
	session *delivery.Session
	cfg     delivery.SessionConfig
	coll    string // empty: all
	credit  int
	recover bool
	fresh   bool // it has nothing
	leaves  bool // it has the documents of an even v only

	has    contents
	last   map[string]change.Timestamp // of documents: when they were changed last, as far as the replica knows
	newest map[string]int64            // of documents: their last v
	kept   []contents                  // after the batches that are not acknowledged
	seqs   []uint64
	// keptKeyless is keyless after these batches.
	keptKeyless []int
	saved       contents
	state       delivery.SessionState
	marks       int
	// renamed says that something that is not acknowledged renames a collection. Whoever gets that
	// again must go back to what it had before: it would rename the documents, too, that have come
	// to the old name since.
	renamed bool
	acks    []acknowledged
	keyless int  // events without a document that it has had
	few     bool // it wants no updates
	slow    bool // it seldom receives
	done    bool
	whole   bool // it has had everything since the snapshot was complete
	failed  string
	past    []string // marks and crashes
}

// An acknowledged is what a replica had and had been told when it acknowledged.
type acknowledged struct {
	state   delivery.SessionState
	has     contents
	keyless int
}

func (r *replica) open(t *testing.T, b *bench) {
	r.cfg.CreditEvents = r.credit
	filter := match.Filter{Coll: r.coll}
	if r.leaves {
		filter.Source = "doc.v % 2 == 0"
	}
	if r.few {
		var err error
		if filter.Ops, err = match.ParseOps([]string{"insert", "replace", "delete", "drop", "rename"}); err != nil {
			t.Fatal(err)
		}
	}
	r.session = b.open(r.cfg, []delivery.Subscription{{ID: "docs", Program: deliverytest.Compile(t, filter), Snapshot: true, Recover: r.recover, Leaves: r.leaves, Fresh: r.fresh}})
	r.fresh = false
}

// forget has the replica crash, and the last of its acknowledgements be lost.
func (r *replica) forget(t *testing.T, b *bench, n int, lossy bool) {
	if len(r.acks) == 0 {
		r.crash(t, b, lossy)
		return
	}
	back := r.acks[max(0, len(r.acks)-1-n)]
	if r.saved = back.has; back.keyless != r.keyless { // it would be told of the collection again
		lossy = true
	}
	r.crashAt(t, b, back.state, lossy)
}

func (r *replica) crash(t *testing.T, b *bench, lossy bool) {
	r.crashAt(t, b, r.session.State(), lossy)
}

func (r *replica) crashAt(t *testing.T, b *bench, state delivery.SessionState, lossy bool) {
	r.state, r.acks = state, nil
	r.past = append(r.past, fmt.Sprintf("crash %t %+v", lossy, r.state.Snapshots))
	r.session.Close(nil)
	r.cfg.Start, r.cfg.Snapshots = delivery.Place{At: r.state.At}, r.state.Snapshots
	if lossy || r.renamed {
		r.has = r.saved.clone()
	}
	r.whole, r.renamed = false, false
	r.last, r.newest, r.kept, r.seqs = make(map[string]change.Timestamp), make(map[string]int64), nil, nil
	r.keptKeyless = nil
	r.open(t, b)
}

func (r *replica) receive(t *testing.T, s *store) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	batches, _, err := r.session.Receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if err != nil {
		r.failed = err.Error()
		return false
	}
	for _, b := range batches {
		for i := range b.Events {
			r.apply(s, b, i)
		}
		if m := b.Snapshot; m != nil {
			r.done = m.State == delivery.SnapshotDone
			r.past = append(r.past, fmt.Sprintf("%d %s %s", b.Seq, m.State, b.To))
			r.whole = r.done
			r.marks++
		}
		if l := b.Loss; l != nil {
			if r.whole = false; !r.recover {
				r.session.Snapshot([]string{"docs"}, snapshot.Operator)
			}
		}
		r.check(s, b.To)
		r.kept, r.seqs, r.keptKeyless = append(r.kept, r.has.clone()), append(r.seqs, b.Seq), append(r.keptKeyless, r.keyless)
		r.session.Recycle(b)
	}
	return len(batches) > 0
}

// check compares the replica with what the collections were at the end of a batch.
func (r *replica) check(s *store, to change.Position) {
	at := to.Time
	if to.IsProgress() { // before everything of its time
		at = at.Prev()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.whole || s.several[at] {
		return
	}
	for name, want := range s.at(at) {
		want = r.wants(want)
		if (r.coll == "" || r.coll == name) && !r.equal(r.has[name], want) {
			r.failed = fmt.Sprintf("at %s %s is %v, was %v", at, name, r.has[name], want)
		}
	}
}

// equal reports whether the replica has the documents as far as it is told of them.
func (r *replica) equal(has, want map[int64]doc) bool {
	if !r.few {
		return maps.Equal(has, want)
	}
	return maps.EqualFunc(has, want, func(has, want doc) bool { return has.v >= want.b && has.v <= want.v })
}

// wants returns the documents that match the replica's filter.
func (r *replica) wants(docs map[int64]doc) map[int64]doc {
	if !r.leaves {
		return docs
	}
	docs = maps.Clone(docs)
	maps.DeleteFunc(docs, func(_ int64, d doc) bool { return d.v%2 != 0 })
	return docs
}

func (r *replica) apply(s *store, b *delivery.Batch, i int) {
	raw := b.Payload(i)
	// Payloads have no token, which Parse wants.
	token := change.AppendDocument(nil, "_id", changetest.Token(changetest.Event{Time: change.Timestamp{T: 1, I: 1}}))
	e, err := change.Parse(change.WrapDocument(append(token, raw[4:len(raw)-1]...)))
	if err != nil {
		r.failed = err.Error()
		return
	}
	coll := string(e.Coll())
	docs := r.has[coll]
	if docs == nil {
		docs = make(map[int64]doc)
		r.has[coll] = docs
	}
	if e.Key() == nil {
		r.keyless++
		clear(r.last)
		clear(r.newest)
		switch {
		case e.Op() == change.OpDrop:
			delete(r.has, coll)
		case e.Op() == change.OpRename:
			r.has["orders"] = r.has["other"] // what there is of it
			delete(r.has, "other")
			r.renamed = true
		}
		return
	}
	id, _ := e.ID().Int64()
	full := e.Lookup("fullDocument")
	v, _ := full.Lookup("v").Int64()
	base, _ := full.Lookup("b").Int64()
	at := e.Time()
	switch {
	case e.Op() == change.OpDelete:
		delete(docs, id)
	case string(e.OpName()) == change.LeftName:
		delete(docs, id)
		return // a change that has no v here
	case full.Document() != nil:
		docs[id] = doc{v, base}
		s.mu.Lock()
		at = s.times[v]
		if then := b.Events[i].Ref.Time().Prev(); b.Events[i].Snapshot && s.at(then)[coll][id] != docs[id] {
			r.failed = fmt.Sprintf("%s/%d comes at %s as %v, it was %v then", coll, id, then, docs[id], s.at(then)[coll][id])
		}
		s.mu.Unlock()
	default:
		v, _ = e.Lookup("updateDescription").Lookup("updatedFields").Lookup("v").Int64()
		d := docs[id]
		d.v = v
		docs[id] = d
	}
	name := fmt.Sprintf("%s/%d", coll, id)
	if at.Compare(r.last[name]) < 0 || v > 0 && v < r.newest[name] {
		r.failed = fmt.Sprintf("%s goes back from %s (%d) to %s (%d, %s)", name, r.last[name], r.newest[name], at, v, e.OpName())
	}
	r.last[name], r.newest[name] = at, max(v, r.newest[name])
}

func (r *replica) ack(n int) {
	n = min(n, len(r.seqs))
	if n == 0 {
		return
	}
	if _, err := r.session.Ack(r.seqs[n-1]); err != nil {
		r.failed = err.Error()
	}
	r.saved = r.kept[n-1]
	r.acks = append(r.acks, acknowledged{r.session.State(), r.saved, r.keptKeyless[n-1]})
	r.keptKeyless = r.keptKeyless[n:]
	r.seqs, r.kept = r.seqs[n:], r.kept[n:]
	r.renamed = r.renamed && len(r.seqs) > 0
}

// A collection that gets its name while the collections are listed is read, too, though no change
// tells of its documents.
func TestRenameDuringAListingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		s := &slowLister{store: &store{
			log: source, exact: true, page: 5, dice: rand.New(rand.NewPCG(1, 0)), now: make(contents), times: make(map[int64]change.Timestamp), several: make(map[change.Timestamp]bool),
		}, answer: make(chan struct{})}
		s.write("insert", "other", 7)
		b := begin(t, source, delivery.Config{Snapshots: s})
		defer b.end()
		r := &replica{
			cfg: delivery.SessionConfig{Subscriber: "s", Start: delivery.Place{At: b.log.End()}}, fresh: true, credit: 100, recover: true,
			has: make(contents), saved: make(contents), last: make(map[string]change.Timestamp), newest: make(map[string]int64),
		}
		r.open(t, b)
		synctest.Wait() // it is listed
		s.write("rename", "other", 0)
		synctest.Wait() // and the rename is delivered
		close(s.answer)
		for !r.done && r.failed == "" {
			r.receive(t, s.store)
		}
		if r.failed != "" || len(r.has["orders"]) != 1 {
			t.Errorf("%s: there is %v", r.failed, r.has)
		}
	})
}

// A slowLister answers what it has listed only when it may.
type slowLister struct {
	*store

	answer chan struct{}
}

func (s *slowLister) Collections(ctx context.Context, db, coll string) ([]snapshot.Collection, change.Timestamp, error) {
	all, at, err := s.store.Collections(ctx, db, coll)
	<-s.answer
	return all, at, err
}

// A document that an update has brought may be newer than a page that follows, because MongoDB
// looks it up when the change is read. The page does not take it back, unless the subscription was
// not told of a change in between.
func TestPagesTakeNoDocumentBack(t *testing.T) {
	for name, c := range map[string]struct {
		ops    string
		filter string // of documents
		then   func(*store)
		comes  bool // with the page
	}{
		"an update brought it":                {},
		"an update took it away":              {filter: "doc.v < 1000"},
		"a change in between may be hidden":   {ops: "update", comes: true},
		"a replacement was sent since":        {then: func(s *store) { s.write("insert", "orders", 3) }, comes: true},
		"another collection has got its name": {then: func(s *store) { s.write("rename", "other", 0) }, comes: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &oplogtest.Log{}
				source.Tick(1)
				s := &store{
					log: source, exact: true, page: 5, dice: rand.New(rand.NewPCG(2, 0)), now: make(contents), times: make(map[int64]change.Timestamp), several: make(map[change.Timestamp]bool),
				}
				s.write("insert", "orders", 3)
				s.write("insert", "other", 3)
				b := begin(t, source, delivery.Config{Snapshots: s})
				defer b.end()
				filter := match.Filter{Source: c.filter}
				if c.ops != "" {
					ops, err := match.ParseOps([]string{c.ops})
					if err != nil {
						t.Fatal(err)
					}
					filter.Ops = ops
				}
				session := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}, CreditEvents: 1}, []delivery.Subscription{
					{ID: "docs", Program: deliverytest.Compile(t, filter), Snapshot: true, Leaves: true},
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				comes := false
				for done := false; !done; {
					batches, _, err := session.Receive(ctx)
					if err != nil {
						t.Fatal(err)
					}
					for _, batch := range batches {
						for i := range batch.Events {
							comes = comes || batch.Events[i].Snapshot && bytes.Contains(batch.Payload(i), []byte("orders"))
						}
						if m := batch.Snapshot; m != nil && m.State == delivery.SnapshotBegun { // the session has no credit
							source.Append(changetest.Event{Op: "update", Coll: "orders", ID: 3, Whole: true, Value: 1000, Base: 1})
							if c.then != nil {
								c.then(s)
							}
							synctest.Wait()
						}
						done = batch.Snapshot != nil && batch.Snapshot.State == delivery.SnapshotDone
						if _, err := session.Ack(batch.Seq); err != nil {
							t.Fatal(err)
						}
					}
				}
				if comes != c.comes {
					t.Errorf("the page has the document: %t", comes)
				}
				session.Close(nil)
				synctest.Wait()
				if held := b.hub.Load().Held; held != 0 {
					t.Errorf("%d bytes are held by nobody", held)
				}
			})
		})
	}
}

// A subscription with Leaves has the documents that match its filter, and no others, whatever
// happens.
func TestDocumentsLeave(t *testing.T) {
	t.Parallel()
	during(t, shortly, documentsLeave)
}

func documentsLeave(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				do: rapid.SampledFrom([]string{
					"insert", "insert", "whole", "whole", "whole", "delete", "receive", "receive", "receive", "ack", "ack", "sleep", "sleep", "open", "crash",
					"crash lossy", "crash forgetful", "suspect", "snapshot",
				}).Draw(rt, "do"),
				n: rapid.IntRange(0, 40).Draw(rt, "n"), m: rapid.IntRange(0, 1000).Draw(rt, "m"),
			}
		}), 1, 150).Draw(rt, "steps")
		exact, page, seed := rapid.Bool().Draw(rt, "exact"), rapid.IntRange(1, 6).Draw(rt, "page"), rapid.Uint64().Draw(rt, "seed")
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = replicate(t, exact, true, page, seed, steps) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// Whatever happens, a replica has what the collections had at the end of each batch since its
// snapshot is complete, and no document goes back.
func TestSnapshotsMeetTheirChanges(t *testing.T) {
	t.Parallel()
	during(t, shortly, snapshotsMeetTheirChanges)
}

// during tries a property again and again, each time with a seed of its own, which rapid prints
// where it fails.
func during(t *testing.T, long time.Duration, try func(*testing.T)) {
	t.Helper()
	if testing.Short() {
		long = 0
	}
	for begun := time.Now(); ; {
		if try(t); t.Failed() || time.Since(begun) >= long {
			return
		}
	}
}

func snapshotsMeetTheirChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				do: rapid.SampledFrom([]string{
					"insert", "insert", "update", "update", "whole", "delete", "receive", "receive", "receive", "ack", "ack", "sleep", "sleep", "open", "crash",
					"crash lossy", "crash forgetful", "drop", "rename", "suspect", "snapshot", "transaction",
				}).Draw(rt, "do"),
				n: rapid.IntRange(0, 40).Draw(rt, "n"), m: rapid.IntRange(0, 1000).Draw(rt, "m"),
			}
		}), 1, 150).Draw(rt, "steps")
		exact, page, seed := rapid.Bool().Draw(rt, "exact"), rapid.IntRange(1, 6).Draw(rt, "page"), rapid.Uint64().Draw(rt, "seed")
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = replicate(t, exact, false, page, seed, steps) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

func replicate(t *testing.T, exact, leaves bool, page int, seed uint64, steps []step) string {
	source := &oplogtest.Log{ReplyEvents: 1 + page, Delay: time.Duration(page%3) * 3 * time.Millisecond}
	source.Tick(1)
	s := &store{log: source, exact: exact, page: page, dice: rand.New(rand.NewPCG(seed, 0)), now: make(contents), times: make(map[int64]change.Timestamp), several: make(map[change.Timestamp]bool)}
	for id := range int64(12) {
		s.write("insert", "orders", id)
		s.write("insert", "other", id)
	}
	b := begin(t, source, delivery.Config{Snapshots: s})
	defer b.end()
	var replicas []*replica
	open := func(m int) {
		r := &replica{
			cfg: delivery.SessionConfig{Subscriber: fmt.Sprint(len(replicas)), Start: delivery.Place{At: b.log.End()}}, fresh: true,
			has: make(contents), saved: make(contents), last: make(map[string]change.Timestamp), newest: make(map[string]int64),
			credit: 1 + m%40, recover: m%2 == 0, leaves: leaves, few: !leaves && (m+int(seed%4))%4 == 0, slow: seed%3 == 0 && len(replicas) == 0,
		}
		if m%3 == 0 {
			r.coll = "orders"
		}
		r.open(t, b)
		replicas = append(replicas, r)
	}
	open(3)
	for _, st := range steps {
		r := replicas[st.m%len(replicas)]
		coll := []string{"orders", "orders", "other"}[st.m%3]
		switch st.do {
		case "insert", "update", "whole", "delete":
			s.write(st.do, coll, int64(st.n%14))
		case "transaction":
			s.transaction(coll, int64(st.n%14))
		case "drop", "rename":
			if st.n%4 == 0 {
				s.write(st.do, coll, 0)
			}
		case "sleep":
			time.Sleep(time.Duration(st.n) * time.Millisecond)
		case "open":
			if len(replicas) < 4 {
				open(st.m)
			}
		case "receive":
			if !r.slow || st.n%5 == 0 {
				r.receive(t, s)
			}
		case "ack":
			r.ack(st.n)
		case "crash":
			r.crash(t, b, false)
		case "crash lossy":
			r.crash(t, b, true)
		case "crash forgetful":
			r.forget(t, b, st.n%5, st.m%2 == 0)
		case "suspect":
			source.Suspect()
		case "snapshot":
			r.whole, r.acks = false, nil // it is saved when it is accepted
			r.session.Snapshot([]string{"docs"}, snapshot.Operator)
		}
	}
	for i, r := range replicas {
		for quiet := 0; quiet < 5; quiet++ {
			if r.receive(t, s) {
				quiet = 0
			}
			r.ack(1000)
		}
		want := s.now.clone()
		if r.coll != "" {
			want = contents{r.coll: want[r.coll]}
		}
		switch {
		case r.failed != "":
			return fmt.Sprintf("replica %d: %s", i, r.failed)
		case !r.done:
			return fmt.Sprintf("replica %d: its snapshot does not end: %q, %+v, %s, %+v", i, r.past, r.session.Snapshots(), b.hub.Scans(), r.session.State())
		}
		for _, name := range []string{"orders", "other"} {
			if r.coll == "" || r.coll == name {
				want[name] = r.wants(want[name])
				if !r.equal(r.has[name], want[name]) {
					return fmt.Sprintf("replica %d: %s is %v, want %v", i, name, r.has[name], want[name])
				}
			}
		}
	}
	return ""
}

// A session with thousands of subscriptions that begin with documents costs what they cost, not
// their square.
func TestOpeningManySnapshotsIsLinear(t *testing.T) {
	synctest.Test(t, openManySnapshots)
}

func openManySnapshots(t *testing.T) {
	source, docs := ordersOf(true, 10, 1)
	b := begin(t, source, delivery.Config{Snapshots: docs})
	defer b.end()
	program := deliverytest.Compile(t, match.Filter{DB: "shop", Coll: "orders"})
	opening := func(n int) uint64 {
		subscriptions := make([]delivery.Subscription, n)
		for i := range subscriptions {
			subscriptions[i] = delivery.Subscription{ID: fmt.Sprint("subscription ", i), Program: program, Snapshot: true}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: change.At(change.Timestamp{T: 1})}, CreditEvents: 1}, subscriptions)
		runtime.ReadMemStats(&after)
		if got := len(s.Snapshots()); got != n {
			t.Errorf("%d snapshots, want %d", got, n)
		}
		s.Close(nil)
		return after.TotalAlloc - before.TotalAlloc
	}
	const few, times = 125, 32
	less, more := opening(few), opening(few*times)
	if t.Logf("%d bytes, %d bytes", less, more); more > 8*times*less { // beside it the session begins to read
		t.Errorf("%d times as many allocate %d times as much", times, more/less)
	}
}

// A countingLister counts the listings.
type countingLister struct {
	*store

	listings atomic.Int64
	takes    time.Duration
}

func (c *countingLister) Collections(ctx context.Context, db, coll string) ([]snapshot.Collection, change.Timestamp, error) {
	c.listings.Add(1)
	if err := retry.Sleep(ctx, c.takes); err != nil {
		return nil, change.Timestamp{}, err
	}
	return c.store.Collections(ctx, db, coll)
}

// Snapshots of a collection are listed together, however many there are and whether they come at
// once or one by one: one client must not keep all connections to MongoDB busy.
func TestManySnapshotsOfACollectionAreListedTogether(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		t.Run(fmt.Sprintf("at once %t", atOnce), func(t *testing.T) { testListings(t, atOnce) })
	}
}

func testListings(t *testing.T, atOnce bool) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		s := &countingLister{takes: time.Second, store: &store{
			log: source, exact: true, page: 5, dice: rand.New(rand.NewPCG(2, 0)), now: make(contents), times: make(map[int64]change.Timestamp), several: make(map[change.Timestamp]bool),
		}}
		s.write("insert", "orders", 1)
		s.write("insert", "other", 1)
		b := begin(t, source, delivery.Config{Snapshots: s})
		defer b.end()
		const each = 100
		var subscriptions []delivery.Subscription
		for i := range each {
			for _, coll := range []string{"orders", "other"} {
				program := deliverytest.Compile(t, match.Filter{DB: "shop", Coll: coll})
				subscriptions = append(subscriptions, delivery.Subscription{ID: fmt.Sprint(coll, i), Program: program, Snapshot: true})
			}
		}
		first := subscriptions
		if !atOnce {
			first = subscriptions[:1]
		}
		session := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, first)
		for i := len(first); i < len(subscriptions); i++ {
			session.Subscribe(subscriptions[i : i+1])
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for done := 0; done < 2*each; {
			batches, _, err := session.Receive(ctx)
			if err != nil {
				t.Fatalf("%d are done: %v", done, err)
			}
			for _, batch := range batches {
				if batch.Snapshot != nil && batch.Snapshot.State == delivery.SnapshotDone {
					done++
				}
				if _, err := session.Ack(batch.Seq); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := s.listings.Load(); n > 10 { // one each, and again where the hub is not so far yet
			t.Errorf("%d listings of 2 collections", n)
		}
	})
}
