package wiring

import (
	"context"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/leader"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/mongodb/stream"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
	"github.com/mongostream/streamer/supervisor"
)

// A still is a node whose parts run, and one call of which never returns once it is frozen,
// whatever becomes of its context.
type still struct {
	t      *testing.T
	s      *Service
	frozen atomic.Bool
	thaw   chan struct{}
	source *oplogtest.Log
	board  *notice.Board
	memory *clustertest.Memory
	clock  func() time.Duration
}

// hold returns when the node thaws, at once unless it is frozen.
func (w *still) hold() {
	if w.frozen.Load() {
		<-w.thaw
	}
}

// The calls that do not return.
type (
	stillStore struct {
		*checkpointtest.Memory

		hold func()
	}
	stillCluster struct {
		cluster.Store

		hold func()
	}
	stillHistory struct{ write, read func() }
	stillSource  struct {
		log  *oplogtest.Log
		hold func()
	}
	stillTransport func()
)

func (s stillStore) Save(ctx context.Context, all []checkpoint.Checkpoint) []error {
	s.hold()
	return s.Memory.Save(ctx, all)
}

func (s stillCluster) View(ctx context.Context) (cluster.View, error) {
	s.hold()
	return s.Store.View(ctx)
}

func (s stillHistory) Append(context.Context, []notice.Notice) error { s.write(); return nil }

func (s stillHistory) Read(_ context.Context, after int64) ([]notice.Notice, int64, error) {
	s.read()
	return nil, after, nil
}

func (s stillHistory) Wait(ctx context.Context, _ int64) error {
	waiting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	<-waiting.Done()
	return context.Cause(ctx)
}

func (s stillSource) Collections(context.Context, string, string) ([]snapshot.Collection, change.Timestamp, error) {
	_, last := s.log.Reach()
	return []snapshot.Collection{{Namespace: change.Namespace{DB: "shop", Coll: "orders"}, Documents: 1}}, last, nil
}

func (s stillSource) Read(_ context.Context, q snapshot.Query) (snapshot.Page, error) {
	s.hold()
	return snapshot.Page{To: q.After}, nil
}

func (s stillTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	s()
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

// newStill returns a node of which nothing runs yet.
func newStill(t *testing.T) *still {
	begun := time.Now()
	w := &still{t: t, thaw: make(chan struct{}), source: &oplogtest.Log{}, board: notice.NewBoard(notice.Config{}), clock: func() time.Duration { return time.Since(begun) }}
	w.source.Tick(1)
	w.memory = clustertest.NewMemory(4, w.clock)
	none := func() {}
	w.s = &Service{reading: reading{source: new(stream.Source)}, member: &Membership{}}
	w.s.extent = oplog.NewRange(oplog.RangeConfig{Ask: func(context.Context) (gap.Reach, error) {
		first, last := w.source.Reach()
		return gap.Reach{First: first, Last: last}, nil
	}})
	w.node(none, delivery.Config{})
	w.owns(func(cluster.View) {})
	w.leads(none)
	w.sweeps(none)
	w.records(none, none)
	w.posts(none)
	return w
}

func (w *still) node(saves func(), cfg delivery.Config) {
	cfg.Partitions = 4
	w.s.log = oplog.New(oplog.Config{Partitions: 4, Reach: w.s.extent.Now}, w.source)
	w.s.node = streamer.NewNode(streamer.NodeConfig{
		Origin: checkpoint.Origin{Incarnation: 1, Partitions: 4, Start: change.Timestamp{T: 1001, I: 1}}, Range: w.s.extent,
		Policy: checkpoint.Policy{Interval: time.Second},
	}, delivery.New(cfg, w.s.log), w.s.log, stillStore{checkpointtest.NewMemory(4), saves})
}

func (w *still) owns(viewed func(cluster.View)) {
	w.s.member.member = member.New(member.Config{
		Member: cluster.Identity{Node: "a", Process: "1"}, Clock: w.clock, Viewed: viewed,
		Report: func() cluster.Heartbeat { return cluster.Heartbeat{} }, Resume: func(context.Context, []change.Term) error { return nil }, Offer: func([]change.Term) {},
	}, w.memory.For("a"))
}

func (w *still) leads(views func()) {
	w.s.member.leader = leader.New(leader.Config{Config: plan.Config{Node: "a"}, Clock: w.clock}, stillCluster{w.memory.For("a"), views})
}

func (w *still) sweeps(members func()) {
	w.s.supervisor = supervisor.New(supervisor.Config{
		Settings: supervisor.Settings{Interval: 5 * time.Second, Misses: 3}, Board: w.board, Leads: func() bool { return true },
		Members: func() (cluster.View, time.Duration) { members(); return cluster.View{}, 0 },
	}, supervisor.NewMemory(time.Minute))
}

func (w *still) records(write, read func()) {
	w.s.channels.recorder = notice.NewRecorder(notice.RecorderConfig{}, w.board, stillHistory{write, read})
}

func (w *still) posts(request func()) {
	w.s.channels.webhook = notice.NewWebhook(notice.WebhookConfig{URL: "http://receiver.example", Secret: "s", Transport: stillTransport(request)}, w.board)
}

// reads runs the node, with a subscriber that acknowledges everything.
func (w *still) reads(ctx context.Context, start streamer.StartPolicy) {
	client, left := context.WithCancel(ctx)
	everything := deliverytest.Everything(w.t)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer left()
	reading.Go(func() {
		e, err := w.s.node.Connect(client, streamer.Request{Subscriber: "x", Process: "1", Started: time.Now(), Start: start}, everything)
		for err == nil {
			var batches []*delivery.Batch
			if batches, _, err = e.Session().Receive(client); len(batches) > 0 {
				err = e.Ack(deliverytest.Last(batches).Seq)
			}
		}
	})
	if err := w.s.node.Run(ctx); err != nil {
		w.t.Error(err)
	}
}

// stands says for each kind of component how one stands still.
func stands() map[string]func(w *still) (run func(context.Context)) {
	reads := func(start streamer.StartPolicy, cfg func(w *still) delivery.Config, saves func(w *still) func()) func(w *still) func(context.Context) {
		return func(w *still) func(context.Context) {
			w.node(saves(w), cfg(w))
			return func(ctx context.Context) { w.reads(ctx, start) }
		}
	}
	plain := func(*still) delivery.Config { return delivery.Config{} }
	saved := func(*still) func() { return func() {} }
	return map[string]func(w *still) func(context.Context){
		"tail": reads(streamer.StartNow, plain, saved), // its source stalls
		"hub": reads(streamer.StartNow, func(w *still) delivery.Config {
			return delivery.Config{Stall: func(context.Context) { w.hold() }}
		}, saved),
		"checkpoints": reads(streamer.StartNow, plain, func(w *still) func() { return w.hold }),
		"snapshots": reads(streamer.StartSnapshot, func(w *still) delivery.Config {
			return delivery.Config{Snapshots: stillSource{w.source, func() { <-w.thaw }}}
		}, saved),
		"lease": func(w *still) func(context.Context) {
			w.owns(func(cluster.View) { w.hold() })
			return func(ctx context.Context) {
				if err := w.s.member.member.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
					w.t.Error(err)
				}
			}
		},
		"leader": func(w *still) func(context.Context) {
			w.leads(w.hold)
			return func(ctx context.Context) { _ = w.s.member.leader.Run(ctx) }
		},
		"supervisor": func(w *still) func(context.Context) {
			w.sweeps(w.hold)
			return func(ctx context.Context) { w.s.supervisor.Run(ctx) }
		},
		"notices": func(w *still) func(context.Context) {
			w.records(w.hold, func() {})
			return func(ctx context.Context) { w.s.channels.recorder.Run(ctx) }
		},
		"notices, read": func(w *still) func(context.Context) {
			w.records(func() {}, w.hold)
			return func(ctx context.Context) { w.s.channels.recorder.Run(ctx) }
		},
		"webhook": func(w *still) func(context.Context) {
			w.posts(w.hold)
			return func(ctx context.Context) { w.s.channels.webhook.Run(ctx) }
		},
	}
}

// Every kind of component that a node has is seen when it stands still, by what the node's
// registration looks at, and not before.
func TestEveryKindOfComponentIsSeenToStandStill(t *testing.T) {
	for name, stand := range stands() {
		slug := regexp.MustCompile(`^\w+`).FindString(name)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newStill(t)
				run := stand(w)
				i := slices.IndexFunc(w.s.kinds(), func(c health.Component) bool { return c.Slug == slug })
				age := w.s.kinds()[i].Age
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go w.s.extent.Run(ctx)
				go func() { defer close(ended); run(ctx) }()
				lives := func(seconds int) (most time.Duration) {
					for range seconds {
						w.source.Append(deliverytest.Inserts(1, 0)...)
						w.board.Post(notice.Notice{Channel: notice.Health, Kind: notice.KindSweepResumed, Level: notice.Info, Text: "x", Fields: map[string]any{"code": "c", "by": "b"}})
						time.Sleep(time.Second)
						synctest.Wait()
						most = max(most, age())
					}
					return most
				}
				if slug != "snapshots" { // which has nothing to do later
					if most := lives(30); most > 5*time.Second {
						t.Errorf("%s is said to stand still for %s, and gets on", slug, most)
					}
				}
				w.frozen.Store(true)
				w.source.Stall(slug == "tail")
				if most := lives(60); most < 20*time.Second {
					t.Errorf("%s stands still for a minute, and is seen to for %s", slug, most)
				}
				w.source.Stall(false)
				close(w.thaw)
				cancel()
				<-ended
			})
		})
	}
}

// Whoever registers a component of a new kind shows how one is seen that stands still. Those of
// sinks are proven with their restart.
func TestEveryRegisteredKindOfComponentIsTried(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	registered := map[string]bool{}
	for _, file := range files {
		if matched, _ := filepath.Match("*_test.go", file); matched {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bSlug:\s*"([\w-]+)"`).FindAllSubmatch(text, -1) {
			registered[string(m[1])] = true
		}
	}
	tried := map[string]bool{"sink-": true} // sink.TestSinkIsJudgedByItsOldestBatch, test/node.TestWedgedSinkIsFoundAndRestarted
	for name := range stands() {
		tried[regexp.MustCompile(`^\w+`).FindString(name)] = true
	}
	if !maps.Equal(registered, tried) {
		t.Errorf("registered are %v, tried are %v", slices.Sorted(maps.Keys(registered)), slices.Sorted(maps.Keys(tried)))
	}
}
