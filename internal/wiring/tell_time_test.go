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
	stall standstill // of etcd
}

// runPair begins a pair of nodes, a before b, which runs until the context ends.
func runPair(ctx context.Context, beat, lease time.Duration) *pair {
	p := &pair{board: notice.NewBoard(notice.Config{}), beat: beat, lease: lease}
	p.nodes = map[string]*half{"a": {pair: p}, "b": {pair: p}}
	for _, h := range p.nodes {
		h.news = make(chan struct{}, 1)
	}
	go p.nodes["a"].run(ctx, "a")
	time.Sleep(70 * time.Millisecond)
	go p.nodes["b"].run(ctx, "b")
	return p
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
	still standstill // when it does nothing
}

// send has the node's heartbeat arrive at the other one: when the node goes on, and a moment after
// etcd does.
func (h *half) send() {
	h.pair.mu.Lock()
	wait := time.Duration(0)
	if now := time.Now(); h.still.holds(now) {
		wait = h.still.to.Sub(now)
	} else if h.pair.stall.holds(now) {
		wait = h.pair.stall.to.Sub(now) + 100*time.Millisecond
	}
	h.pair.mu.Unlock()
	time.Sleep(wait)
	h.pair.mu.Lock()
	defer h.pair.mu.Unlock()
	if told := h.told.Load(); !h.frozen && told != nil {
		h.beat, h.at, h.problems = h.beat+1, time.Now(), told.problems
	}
}

func (s standstill) holds(now time.Time) bool { return !now.Before(s.from) && now.Before(s.to) }

// viewAge is how old the view of a node is that asks etcd regularly.
func (p *pair) viewAge(now time.Time) time.Duration {
	asked := now
	if p.stall.holds(now) {
		asked = p.stall.from
	}
	return now.Sub(asked.Truncate(member.AsksEvery))
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
	heardOf := func(node string) (int64, time.Time) {
		if at := h.pair.nodes[node].at; !h.still.from.IsZero() && at.After(h.still.from) && time.Since(h.still.to) < 100*time.Millisecond {
			return 0, h.still.from.Add(-h.pair.beat) // what came meanwhile is not read yet
		}
		return h.pair.nodes[node].beat, h.pair.nodes[node].at
	}
	facts := func(now time.Time) health.Facts {
		h.pair.mu.Lock()
		still := h.still
		h.pair.mu.Unlock()
		if still.holds(now) {
			time.Sleep(still.to.Sub(now))
			now = still.to
		}
		h.pair.mu.Lock()
		defer h.pair.mu.Unlock()
		f := health.Facts{Now: now, Node: name, Store: health.SubjectEtcd}
		if h.frozen {
			return f
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.look(now)
		h.heardThrough(h.pair.viewAge(now), now)
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
				p := runPair(ctx, cfg.Cluster.HeartbeatInterval, cfg.Cluster.LeaseTTL)
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

// What passes by itself pages nobody: a node that stands still for a moment does not take the signs
// that it has not read yet for missing ones, and while etcd keeps everybody waiting no node is
// missing because its heartbeats wait, too.
func TestStandstillsPageNobody(t *testing.T) {
	const beat, lease = 2 * time.Second, 10 * time.Second
	for name, cause := range map[string]func(p *pair, now time.Time, d time.Duration){
		"the leader stands still": func(p *pair, now time.Time, d time.Duration) { p.nodes["a"].still = standstill{now, now.Add(d)} },
		"the other stands still":  func(p *pair, now time.Time, d time.Duration) { p.nodes["b"].still = standstill{now, now.Add(d)} },
		"etcd is slow":            func(p *pair, now time.Time, d time.Duration) { p.stall = standstill{now, now.Add(d)} },
	} {
		for phase := time.Duration(0); phase < beat; phase += 110 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := runPair(ctx, beat, lease)
				time.Sleep(6*time.Second + phase)
				p.mu.Lock()
				d := 1900 * time.Millisecond // then the other one hears nothing for less than it tolerates
				if name == "etcd is slow" {
					d = 2900 * time.Millisecond // less than it is tolerated
				}
				cause(p, time.Now(), d)
				p.mu.Unlock()
				time.Sleep(20 * time.Second)
				if posted, _ := p.board.Since(0); len(posted) > 0 {
					t.Errorf("%s, %v after a heartbeat: %+v", name, phase, posted)
				}
			})
		}
	}
}

// Time in which the node stands still counts for no fact: MongoDB has not been silent in it, and
// what has failed at its beginning may be over.
func TestStandstillsCountForNothing(t *testing.T) {
	begun := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return begun.Add(d) }
	var o observed
	for d := time.Duration(0); d <= 10*time.Second; d += judgeEvery {
		o.look(at(d))
	}
	o.look(at(20 * time.Second)) // late
	if since, err := o.silence(at(9*time.Second), 3500*time.Millisecond, at(20*time.Second)); err != nil {
		t.Errorf("silent since %v: %v", since, err)
	}
	if s := o.fact("etcd", at(20*time.Second), at(10*time.Second), errors.New("no answer")); at(20*time.Second).Sub(s.At) > time.Second {
		t.Errorf("etcd has failed since %v", s.At)
	}
	component := func(age time.Duration) []health.Vital {
		return []health.Vital{{Slug: "hub", LastDecision: age.Milliseconds()}}
	}
	if stalls := o.stalled(at(20*time.Second), component(12*time.Second), 10*time.Second); len(stalls) > 0 {
		t.Errorf("a component had no time to do anything: %v", stalls)
	}
	for d := 20 * time.Second; d <= 25*time.Second; d += judgeEvery {
		o.look(at(d))
		o.look(at(d - 5*time.Second)) // a request that had to wait for its look
	}
	if len(o.stood) != 1 {
		t.Errorf("requests that wait are standstills: %v", o.stood)
	}
	if stalls := o.stalled(at(25*time.Second), component(21*time.Second), 10*time.Second); len(stalls) != 1 {
		t.Error("a component has done nothing for 11.5 s in which it could, and nobody knows")
	}
	if _, err := o.silence(at(9*time.Second), 3500*time.Millisecond, at(25*time.Second)); err == nil {
		t.Error("MongoDB has answered nothing for 5 s since the node goes on, and nobody knows")
	}
	if s := o.still("etcd", at(25*time.Second), true, errors.New("no answer")); at(25*time.Second).Sub(s.At) > time.Second {
		t.Errorf("a fact that is new has been there since %v", s.At)
	}
	o.look(at(10 * time.Minute))
	o.look(at(20 * time.Minute))
	if len(o.stood) > 2 {
		t.Errorf("%d standstills are remembered", len(o.stood))
	}
}
