package etcd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	devetcd "github.com/mongostream/streamer/dev/etcd"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/notice"
)

// noticePatience bounds waits for what must come.
const noticePatience = 3 * time.Minute

// A noticePlace is an etcd that processes share.
type noticePlace struct {
	*testing.T

	cfg Config
	raw *clientv3.Client
}

func newNoticePlace(t *testing.T) *noticePlace {
	t.Helper()
	endpoints := etcdtest.Endpoints(t)
	p := &noticePlace{T: t, cfg: Config{Endpoints: endpoints, Prefix: etcdtest.Prefix(t, endpoints), Cluster: "c", DialTimeout: time.Minute}, raw: etcdtest.Client(t, endpoints)}
	t.Cleanup(func() { _ = p.raw.Close() })
	return p
}

// process returns the store of a process.
func (p *noticePlace) process(cfg NoticeConfig) *NoticeStore {
	p.Helper()
	client, err := Dial(p.Context(), p.cfg)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := client.Close(); err != nil {
			p.Error(err)
		}
	})
	return NewNoticeStore(client, cfg)
}

// keys returns how many keys stand below the prefix of notices.
func (p *noticePlace) keys() int64 {
	p.Helper()
	resp, err := p.raw.Get(p.Context(), p.cfg.Prefix+"/c/notice/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		p.Fatal(err)
	}
	return resp.Count
}

func some(node string, from, to uint64) (notices []notice.Notice) {
	for id := from; id < to; id++ {
		notices = append(notices, notice.Notice{
			ID: id, Channel: notice.Breaker, Kind: notice.KindBreakerClosed, Level: notice.Info, At: time.Unix(1000, 0).UTC(), Node: node,
			Text: fmt.Sprintf("%s/%d", node, id), Fields: map[string]any{"breaker": "etcd"},
		})
	}
	return notices
}

func texts(notices []notice.Notice) (said []string) {
	for _, n := range notices {
		said = append(said, n.Text)
	}
	return said
}

func (p *noticePlace) append(s *NoticeStore, notices []notice.Notice) {
	p.Helper()
	if err := s.Append(p.Context(), notices); err != nil {
		p.Fatal(err)
	}
}

func (p *noticePlace) read(s *NoticeStore, after int64) ([]notice.Notice, int64) {
	p.Helper()
	notices, at, err := s.Read(p.Context(), after)
	if err != nil {
		p.Fatal(err)
	}
	return notices, at
}

func TestOthersNoticesAreReadInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	p := newNoticePlace(t)
	a, b, c := p.process(NoticeConfig{Process: "zz"}), p.process(NoticeConfig{Process: "aa"}), p.process(NoticeConfig{Process: "mm"})
	p.append(a, some("a", 1, 3))
	p.append(b, some("b", 1, 2))
	p.append(a, some("a", 3, 12))
	got, at := p.read(c, 0)
	want := []string{"a/1", "a/2", "b/1", "a/3", "a/4", "a/5", "a/6", "a/7", "a/8", "a/9", "a/10", "a/11"}
	if !slices.Equal(texts(got), want) {
		t.Errorf("%v", texts(got))
	}
	first := got[0]
	if first.Channel != notice.Breaker || first.Level != notice.Info || first.Node != "a" || !first.At.Equal(time.Unix(1000, 0)) || first.Fields["breaker"] != "etcd" {
		t.Errorf("%+v", first)
	}
	if got, _ := p.read(c, at); len(got) != 0 {
		t.Errorf("read twice: %v", texts(got))
	}
	if got, _ := p.read(a, 0); !slices.Equal(texts(got), []string{"b/1"}) {
		t.Errorf("one's own come back: %v", texts(got))
	}
	p.append(b, some("b", 1, 3)) // nobody knew whether the first was written
	if got, _ := p.read(c, at); !slices.Equal(texts(got), []string{"b/2"}) {
		t.Errorf("what was written again came again: %v", texts(got))
	}
}

func TestOldestGoBeyondTheBoundWhoeverWrites(t *testing.T) {
	t.Parallel()
	p := newNoticePlace(t)
	stores := []*NoticeStore{p.process(NoticeConfig{Process: "p0", Keep: 250}), p.process(NoticeConfig{Process: "p1", Keep: 250})}
	var writing sync.WaitGroup
	for i, s := range stores {
		writing.Go(func() {
			for from := uint64(1); from < 601; from += notice.MaxBatch {
				if err := s.Append(t.Context(), some(fmt.Sprint(i), from, from+notice.MaxBatch)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	p.append(stores[0], some("0", 601, 602))
	if n := p.keys(); n != 250 {
		t.Errorf("%d are kept", n)
	}
	got, _ := p.read(p.process(NoticeConfig{Process: "reader", Keep: 250}), 0)
	if len(got) != 250 || got[249].Text != "0/601" {
		t.Errorf("%d, the last is %v", len(got), texts(got[len(got)-1:]))
	}
	next := map[string]uint64{}
	for _, n := range got { // of each node the newest, without a hole
		if last := next[n.Node]; last != 0 && n.ID != last {
			t.Fatalf("%s/%d follows %d", n.Node, n.ID, last-1)
		}
		next[n.Node] = n.ID + 1
	}
	if few, _ := p.read(p.process(NoticeConfig{Process: "other", Keep: 10}), 0); len(few) != 10 || few[9].Text != "0/601" {
		t.Errorf("who keeps 10 read %v", texts(few))
	}
}

func TestNoticesEndWithTheirLeases(t *testing.T) {
	t.Parallel()
	p := newNoticePlace(t)
	s := p.process(NoticeConfig{Process: "p", TTL: 24 * time.Hour})
	p.append(s, some("a", 1, 2))
	p.append(s, some("a", 2, 3))
	resp, err := p.raw.Get(t.Context(), p.cfg.Prefix+"/c/notice/", clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 2 || resp.Kvs[0].Lease == 0 || resp.Kvs[0].Lease != resp.Kvs[1].Lease {
		t.Fatalf("%v, %v", resp, err)
	}
	lease := clientv3.LeaseID(resp.Kvs[0].Lease)
	ttl, err := p.raw.TimeToLive(t.Context(), lease)
	if err != nil || ttl.GrantedTTL != 25*3600 {
		t.Errorf("granted for %v s, %v", ttl, err)
	}
	// The lease ends, as after a day. The store does not know, and writes nevertheless.
	if _, err := p.raw.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if n := p.keys(); n != 0 {
		t.Errorf("%d outlived their lease", n)
	}
	p.append(s, some("a", 3, 4))
	if n := p.keys(); n != 1 {
		t.Errorf("%d are there", n)
	}
	// After its share of the time a lease takes no more.
	before := s.mu.leases[s.cfg.TTL].id
	s.mu.leases[s.cfg.TTL] = noticeLease{before, time.Now()}
	p.append(s, some("a", 4, 5))
	if s.mu.leases[s.cfg.TTL].id == before {
		t.Error("written under the old lease")
	}
}

func TestStrangersKeysAreLeftAlone(t *testing.T) {
	t.Parallel()
	p := newNoticePlace(t)
	s, reader := p.process(NoticeConfig{Process: "p", Keep: 5}), p.process(NoticeConfig{Process: "r", Keep: 5})
	strange := map[string]string{
		"readme": "hello", "a/b/c": "{}", "p/7": "{}", "/00000000000000000001": "{}", "q/0000000000000000000x": "{}",
	}
	garbage := map[string]string{"q/00000000000000000001": "\xff{", "q/00000000000000000002": "[]", "q/00000000000000000003": `{"id":3}`}
	for _, keys := range []map[string]string{strange, garbage} {
		for name, value := range keys {
			if _, err := p.raw.Put(t.Context(), p.cfg.Prefix+"/c/notice/"+name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.append(s, some("a", 1, 3))
	if got, _ := p.read(reader, 0); !slices.Equal(texts(got), []string{"a/1", "a/2"}) {
		t.Errorf("%v", texts(got))
	}
	p.append(s, some("a", 3, 20))
	if got, _ := p.read(reader, 0); len(got) != 5 || got[4].Text != "a/19" {
		t.Errorf("%v", texts(got))
	}
	resp, err := p.raw.Get(t.Context(), p.cfg.Prefix+"/c/notice/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		name := strings.TrimPrefix(string(kv.Key), p.cfg.Prefix+"/c/notice/")
		if value, ok := strange[name]; ok && value != string(kv.Value) {
			t.Errorf("%s has become %s", name, kv.Value)
		}
		delete(strange, name)
		if _, ok := garbage[name]; ok {
			t.Errorf("%s was among the oldest, and is there", name)
		}
	}
	if len(strange) != 0 {
		t.Errorf("deleted: %v", strange)
	}
}

func TestWaitEndsWithWhatOthersWrite(t *testing.T) {
	t.Parallel()
	p := newNoticePlace(t)
	s, other := p.process(NoticeConfig{Process: "p"}), p.process(NoticeConfig{Process: "q"})
	_, at := p.read(s, 0)
	woken := make(chan error, 1)
	waiting, stop := context.WithTimeout(t.Context(), noticePatience)
	defer stop()
	go func() { woken <- s.Wait(waiting, at) }()
	p.append(s, some("a", 1, 2)) // one's own wakes nobody
	select {
	case err := <-woken:
		t.Fatalf("woken by one's own: %v", err)
	default:
	}
	p.append(other, some("b", 1, 2))
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context(), at); err != nil { // it was written before the waiting began
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, at = p.read(s, at)
	go func() { woken <- s.Wait(ctx, at) }()
	cancel()
	if err := <-woken; err == nil {
		t.Error("ended by its context, and says that there is something")
	}
	revision, err := p.raw.Put(t.Context(), p.cfg.Prefix+"/elsewhere", "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.raw.Compact(t.Context(), revision.Header.Revision); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context(), 1); err != nil {
		t.Errorf("compacted: %v", err)
	}
}

func TestLargeAndOddNoticesFit(t *testing.T) {
	t.Parallel()
	p := newNoticePlace(t)
	s, reader := p.process(NoticeConfig{Process: "p"}), p.process(NoticeConfig{Process: "r"})
	batch := some("a", 1, notice.MaxBatch+1)
	for i := range batch {
		batch[i].Text = strings.Repeat("é\x01", 1<<14)
		batch[i].Fields = map[string]any{"f": func() {}}
	}
	p.append(s, batch)
	got, _ := p.read(reader, 0)
	if len(got) != notice.MaxBatch || got[0].Fields["shortened"] != true || len(got[0].Text) > maxNoticeText+8 {
		t.Errorf("%d came, the first with %d bytes", len(got), len(got[0].Text))
	}
}

// The whole way: two nodes' boards over one etcd.
func TestBoardsOfTwoNodesShowTheCluster(t *testing.T) {
	t.Parallel()
	p := newNoticePlace(t)
	old := p.process(NoticeConfig{Process: "before"})
	p.append(old, some("a", 1, 3))
	boards := map[string]*notice.Board{}
	for _, node := range []string{"a", "b"} {
		board := notice.NewBoard(notice.Config{Node: node})
		r := notice.NewRecorder(notice.RecorderConfig{}, board, p.process(NoticeConfig{Process: "process-of-" + node}))
		if err := r.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
		boards[node] = board
	}
	for node, board := range boards {
		for i := range 3 {
			board.Post(notice.Notice{Channel: notice.Health, Kind: notice.KindMoved, Level: notice.Info, Text: fmt.Sprint(node, i)})
		}
	}
	for node, board := range boards {
		ctx, cancel := context.WithTimeout(t.Context(), noticePatience)
		defer cancel()
		var got []notice.Notice
		for len(got) < 8 {
			var last uint64
			if len(got) > 0 {
				last = got[len(got)-1].ID
			}
			more, _, err := board.Follow(ctx, last)
			if err != nil {
				t.Fatalf("%s has %v", node, texts(got))
			}
			got = append(got, more...)
		}
		for i, n := range got {
			if past := i < 2; n.Past != past || n.Relayed != (past || n.Node != node) || past && n.Text != fmt.Sprint("a/", i+1) {
				t.Errorf("on %s: %+v", node, n)
			}
		}
	}
}

// etcd is restored from a copy under a process that reads: it hears what others post from then on,
// and nothing twice, although the revisions count again from where the copy was made. It was
// waiting for what follows its place all the time.
func TestNoticesAreHeardAfterARestore(t *testing.T) {
	t.Parallel()
	dir, backup := t.TempDir(), t.TempDir()
	address := devmongotest.FreeAddress()
	start := func(dir string) (stop func()) {
		server, err := devetcd.Listen(devetcd.Config{Dir: dir, Listen: address})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- server.Run(ctx) }()
		return func() {
			cancel()
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		}
	}
	stop := start(dir)
	p := &noticePlace{T: t, cfg: Config{Endpoints: []string{address}, Prefix: "/p", Cluster: "c", DialTimeout: time.Minute}}
	a, b := p.process(NoticeConfig{Process: "a"}), p.process(NoticeConfig{Process: "b"})
	p.append(a, some("a", 1, 3))
	got, at := p.read(b, 0)
	if !slices.Equal(texts(got), []string{"a/1", "a/2"}) {
		t.Fatalf("%v", texts(got))
	}
	stop()
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	stop = start(dir)
	for id := range uint64(50) {
		p.append(a, some("a", 3+id, 4+id))
	}
	if got, at = p.read(b, at); len(got) != 50 {
		t.Fatalf("%v", texts(got))
	}
	waited := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), noticePatience)
	defer cancel()
	go func() { waited <- b.Wait(ctx, at) }()
	stop()
	stop = start(backup)
	defer stop()
	p.append(a, some("a", 53, 54))
	if err := <-waited; err != nil {
		t.Fatalf("wait: %v", err)
	}
	if got, at = p.read(b, at); !slices.Equal(texts(got), []string{"a/53"}) {
		t.Errorf("%v", texts(got))
	}
	p.append(a, some("a", 54, 55))
	if err := b.Wait(ctx, at); err != nil {
		t.Fatalf("wait: %v", err)
	}
	if got, _ = p.read(b, at); !slices.Equal(texts(got), []string{"a/54"}) {
		t.Errorf("%v", texts(got))
	}
}
