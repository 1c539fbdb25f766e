package wiring

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/sink"
)

// A pair is two nodes, of which the first leads, with one history of notices. What a node does when
// it judges itself, reports to the other and tells its problems is the real thing; the cluster
// between them passes heartbeats on as a member sends them.
type pair struct {
	board *notice.Board
	beat  time.Duration // the interval of heartbeats
	lease time.Duration
	mu    sync.Mutex
	nodes map[string]*half
}

// A half is one of the two.
type half struct {
	observed

	pair     *pair
	frozen   bool
	beat     int64 // of its last heartbeat
	at       time.Time
	problems []health.Problem // that it reports
	// facts adds what is wrong with it.
	facts func(f *health.Facts)
}

// send has the node's heartbeat arrive at the other one.
func (h *half) send() {
	h.pair.mu.Lock()
	defer h.pair.mu.Unlock()
	if told := h.told.Load(); !h.frozen && told != nil {
		h.beat, h.at, h.problems = h.beat+1, time.Now(), told.problems
	}
}

// members are both nodes, as a view that is as old as one may be shows them.
func (p *pair) members() (all []cluster.Member) {
	for _, name := range []string{"a", "b"} {
		h := p.nodes[name]
		all = append(all, cluster.Member{Heartbeat: cluster.Heartbeat{Node: name, Problems: h.problems}, Beat: 1})
	}
	return all
}

// run has the node judge itself, and send its heartbeats, until the context ends.
func (h *half) run(ctx context.Context, name string) {
	heardOf := func(node string) (int64, time.Time) { return h.pair.nodes[node].beat, h.pair.nodes[node].at }
	facts := func(now time.Time) health.Facts {
		h.pair.mu.Lock()
		defer h.pair.mu.Unlock()
		f := health.Facts{Now: now, Node: name, Store: health.SubjectEtcd}
		if h.frozen {
			return f
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.look()
		members := h.pair.members()
		others := members[1:]
		if name == "b" {
			others = members[:1]
		}
		for _, m := range others {
			f.Others = append(f.Others, m.Problems...)
		}
		names, since, _ := h.missing(others, heardOf, 1, missedBeats*h.pair.beat, h.pair.lease, now)
		if len(names) > 0 {
			f.MissingNodes, f.Missing = names, h.fact("missing", now, since.Add(h.pair.beat), errors.New("no heartbeat"))
		}
		if h.facts != nil {
			h.facts(&f)
		}
		return f
	}
	speaks := func(f health.Facts) bool {
		h.pair.mu.Lock()
		defer h.pair.mu.Unlock()
		return !h.frozen && speaks(f, cluster.View{Leader: "a", Members: h.pair.members()}, name == "a")
	}
	h.begun.Store(true)
	go h.judge(ctx, h.pair.board, facts, func(bool) {}, speaks)
	soon := time.NewTimer(0)
	for {
		select {
		case <-soon.C:
			h.send()
			soon.Reset(h.pair.beat)
		case <-h.news:
			soon.Reset(member.TellsWithin)
		case <-ctx.Done():
			return
		}
	}
}

// Whatever part fails, and whenever between two looks, heartbeats or requests: operators have heard
// of it within 5 s, once, whoever of the nodes has the problem, and also where the leader is who is
// gone. This adds up the worst cases of what each look takes until it knows; the tests of the looks
// hold them to that: TestStoreThatDoesNotAnswerIsKnownInTime, TestSilentTargetIsKnownInTime.
func TestProblemsAreToldInTime(t *testing.T) {
	const within = 5 * time.Second
	cfg, err := config.Load("", []string{"STREAMER_MONGODB_URI=mongodb://h"})
	if err != nil {
		t.Fatal(err)
	}
	// known adds a fact that is known so long after its beginning.
	known := func(after, since time.Duration, add func(f *health.Facts, s health.Since)) func(f *health.Facts, cut time.Time) {
		return func(f *health.Facts, cut time.Time) {
			if f.Now.Sub(cut) >= after {
				add(f, health.Since{At: cut.Add(since), Err: errors.New("it fails")})
			}
		}
	}
	mongodb := func(f *health.Facts, s health.Since) { f.MongoDB, f.Closed = s, s }
	target := func(f *health.Facts, s health.Since) {
		f.Subscribers = []health.Subscriber{{Name: "sink/x", Shared: true, Unacknowledged: s}}
	}
	const await = time.Second // of a stream, unless it is configured
	for name, c := range map[string]struct {
		subject string
		code    fault.Code
		facts   func(f *health.Facts, cut time.Time)
		at      string // the nodes with the problem
		frozen  string
	}{
		"MongoDB refuses":                     {"mongodb", fault.MongoUnreachable, known(0, 0, mongodb), "ab", ""},
		"MongoDB refuses one node":            {"mongodb", fault.MongoUnreachable, known(0, 0, mongodb), "b", ""},
		"MongoDB is silent":                   {"mongodb", fault.MongoUnreachable, known(await+unansweredFor, 0, mongodb), "ab", ""},
		"MongoDB is silent to one node":       {"mongodb", fault.MongoUnreachable, known(await+unansweredFor, 0, mongodb), "b", ""},
		"etcd refuses":                        {"etcd", fault.EtcdUnreachable, known(0, 0, func(f *health.Facts, s health.Since) { f.Etcd = s }), "ab", ""},
		"etcd is silent":                      {"etcd", fault.EtcdUnreachable, known(2*member.AsksEvery, member.AsksEvery, func(f *health.Facts, s health.Since) { f.Etcd = s }), "ab", ""},
		"etcd is silent to one node":          {"etcd", fault.EtcdUnreachable, known(2*member.AsksEvery, member.AsksEvery, func(f *health.Facts, s health.Since) { f.Etcd = s }), "b", ""},
		"a target refuses":                    {"sink/x", "", known(0, 0, target), "ab", ""},
		"a target refuses one node":           {"sink/x", "", known(0, 0, target), "b", ""},
		"a target is silent to one node":      {"sink/x", "", known(sink.SilentAfter+sink.LookEvery, 0, target), "b", ""},
		"a node is frozen":                    {"nodes", fault.NodeMissing, nil, "", "b"},
		"the leader is frozen":                {"nodes", fault.NodeMissing, nil, "", "a"},
		"a client begins with an old start":   {"", "", known(0, 0, oldStart), "ab", ""},
		"a client of one node, likewise":      {"", "", known(0, 0, oldStart), "b", ""},
		"the majority is away for the leader": {"reading", fault.MongoMajority, known(0, 0, func(f *health.Facts, s health.Since) { f.Majority = s }), "a", ""},
	} {
		for phase := time.Duration(0); phase < 2*time.Second; phase += 430 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := &pair{board: notice.NewBoard(notice.Config{}), beat: cfg.Cluster.HeartbeatInterval, lease: cfg.Cluster.LeaseTTL}
				p.nodes = map[string]*half{"a": {pair: p}, "b": {pair: p}}
				for _, h := range p.nodes {
					h.news = make(chan struct{}, 1)
				}
				go p.nodes["a"].run(ctx, "a")
				time.Sleep(70 * time.Millisecond)
				go p.nodes["b"].run(ctx, "b")
				time.Sleep(3*time.Second + phase)
				p.mu.Lock()
				cut := time.Now()
				for _, h := range p.nodes {
					h.facts = nil
				}
				for _, node := range c.at {
					p.nodes[string(node)].facts = func(f *health.Facts) { c.facts(f, cut) }
				}
				if c.frozen != "" {
					p.nodes[c.frozen].frozen = true
				}
				p.mu.Unlock()
				time.Sleep(2 * within)
				posted, _ := p.board.Since(0)
				switch {
				case c.subject == "" && len(posted) == 0:
				case len(posted) != 1 || posted[0].Fields["subject"] != c.subject || c.code != "" && posted[0].Fields["code"] != string(c.code):
					t.Errorf("%s: %d notices are posted: %+v", name, len(posted), posted)
				case posted[0].At.Sub(cut) > within:
					t.Errorf("%s, %v after a look: told after %v", name, phase, posted[0].At.Sub(cut))
				}
			})
		}
	}
}

func oldStart(f *health.Facts, s health.Since) {
	f.Subscribers = []health.Subscriber{{Name: "old", Late: s}}
}
