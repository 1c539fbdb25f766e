package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
)

// The states of a patient.
const (
	well    = iota
	wedged  // answers, and makes no progress
	garbled // answers something else
	mute    // takes the request and answers nothing
	broken  // takes no connection
)

const (
	interval = 30 * time.Second
	patients = 3
)

// A hospital is nodes in a bubble: two that may sweep, and patients with a hub each, which are what
// a test says and do what they are ordered.
type hospital struct {
	t     testing.TB
	store *outage // of the nodes that sweep
	kept  *Memory
	ctx   context.Context // of everything that runs
	stop  func()
	wg    sync.WaitGroup

	leads  atomic.Pointer[string]
	boards map[string]*notice.Board

	mu       sync.Mutex
	dials    map[string]chan net.Conn // by address
	state    map[string]int           // of patients
	since    map[string]time.Time     // when the state began
	process  map[string]int
	restarts map[string][]time.Time // by slug; processes by node
}

// open opens a hospital, in which a leads and nothing is restarted more often than the budget in
// ten minutes. It is to be closed.
func open(t testing.TB, budget int) *hospital {
	h := &hospital{
		t: t, kept: NewMemory(10 * time.Minute), boards: make(map[string]*notice.Board), dials: make(map[string]chan net.Conn), state: make(map[string]int),
		since: make(map[string]time.Time), process: make(map[string]int), restarts: make(map[string][]time.Time),
	}
	h.store = &outage{Store: h.kept}
	h.leader("a")
	h.ctx, h.stop = context.WithCancel(t.Context())
	for i := range patients {
		node := fmt.Sprintf("p%d", i)
		h.serve(node)
		h.wg.Go(func() { h.obey(node) })
	}
	for _, node := range []string{"a", "b"} {
		h.serve(node)
		h.boards[node] = notice.NewBoard(notice.Config{Node: node})
		s := New(Config{
			Member: cluster.Identity{Node: node, Process: node + "-0"}, Host: "here", Settings: Settings{Interval: interval, Misses: 3, AutoRestart: true},
			Members: h.members, Leads: func() bool { return *h.leads.Load() == node }, Board: h.boards[node],
			Restart: func(string) error { t.Error("a node that sweeps is restarted"); return nil }, Leave: func(o Order) { t.Errorf("leaves: %+v", o) },
			Transport: &http.Transport{DialContext: h.dial}, Budget: budget,
		}, h.store)
		h.wg.Go(func() { s.Run(h.ctx) })
	}
	return h
}

// close ends everything.
func (h *hospital) close() {
	h.stop()
	h.wg.Wait()
}

func (h *hospital) leader(node string) { h.leads.Store(&node) }

// serve answers for a node's hub.
func (h *hospital) serve(node string) {
	conns := make(chan net.Conn)
	h.mu.Lock()
	h.dials[node+":80"], h.since[node] = conns, time.Now()
	h.mu.Unlock()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.answer(node, w, r) })}
	h.wg.Go(func() { _ = server.Serve(&pipes{conns: conns, done: h.ctx.Done()}) })
	h.wg.Go(func() {
		<-h.ctx.Done()
		_ = server.Close()
	})
}

func (h *hospital) answer(node string, w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	state, age, process := h.state[node], time.Since(h.since[node]), fmt.Sprintf("%s-%d", node, h.process[node])
	h.mu.Unlock()
	v := health.Vital{Slug: strings.TrimPrefix(r.URL.Path, health.VitalPath), Status: health.VitalOK, Process: process, Restartable: true}
	switch state {
	case wedged:
		v.LastDecision = age.Milliseconds()
	case garbled:
		_, _ = w.Write([]byte(`{"status": "ok"`))
		return
	case mute:
		<-r.Context().Done()
		return
	case broken: // over a connection from before
		panic(http.ErrAbortHandler)
	}
	says(http.StatusOK, v)(w, r)
}

func (h *hospital) dial(ctx context.Context, _, address string) (net.Conn, error) {
	node, _, _ := strings.Cut(address, ":")
	h.mu.Lock()
	state, conns := h.state[node], h.dials[address]
	h.mu.Unlock()
	if state == broken {
		return nil, errors.New("refused")
	}
	near, far := net.Pipe()
	select {
	case conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pipes is a listener of connections within a bubble.
type pipes struct {
	net.Listener

	conns <-chan net.Conn
	done  <-chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// members is the registry.
func (h *hospital) members() (view cluster.View, age time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for address := range h.dials {
		node, _, _ := strings.Cut(address, ":")
		view.Members = append(view.Members, cluster.Member{Heartbeat: cluster.Heartbeat{
			Node: node, Process: fmt.Sprintf("%s-%d", node, h.process[node]), Kind: cluster.KindNode, Status: cluster.StatusHealthy, HTTP: "http://" + address,
			Components: []string{"hub"},
		}})
	}
	return view, 0
}

// becomes changes the state of a patient.
func (h *hospital) becomes(node string, state int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state[node] != state {
		h.state[node], h.since[node] = state, time.Now()
	}
}

// obey does what a patient is ordered: whatever it is, it is well afterwards.
func (h *hospital) obey(node string) {
	for {
		orders, err := h.kept.Next(h.ctx, node)
		if err != nil {
			return
		}
		for _, o := range orders {
			if err := h.kept.Done(h.ctx, o); err != nil {
				return
			}
			h.mu.Lock()
			if o.Process == fmt.Sprintf("%s-%d", node, h.process[node]) {
				slug := o.Slug
				if o.Level == Node {
					slug = node
					h.process[node]++
				}
				h.restarts[slug] = append(h.restarts[slug], time.Now())
				h.state[node], h.since[node] = well, time.Now()
			}
			h.mu.Unlock()
		}
	}
}

// restarted returns how often something was restarted.
func (h *hospital) restarted(slug string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.restarts[slug])
}

// reports returns the reports, the oldest first, and fails the test where sweeps are missing among
// them.
func (h *hospital) reports() []Report {
	reports, err := h.kept.Reports(h.ctx, 10_000)
	if err != nil {
		h.t.Fatal(err)
	}
	slices.Reverse(reports)
	last := uint64(0)
	for _, r := range reports {
		if r.Sweep != last+uint64(r.Sweeps) {
			h.t.Errorf("report of %d sweeps up to %d after sweep %d", r.Sweeps, r.Sweep, last)
		}
		last = r.Sweep
	}
	return reports
}

// happened returns what the reports say of a component.
func happened(reports []Report, slug string) (codes []fault.Code) {
	for _, r := range reports {
		for _, e := range r.Events {
			if e.Slug == slug {
				codes = append(codes, e.Code)
			}
		}
	}
	return codes
}

// What fails is found, restarted and reported as well within three sweeps, whichever way it fails.
func TestFailuresAreMendedWithinThreeSweeps(t *testing.T) {
	for name, c := range map[string]struct {
		state  int
		slug   string        // that is restarted
		within time.Duration // from the failure on
		events []fault.Code
	}{
		"a lane stands still": {wedged, "p0/hub", 3 * interval, []fault.Code{fault.SupervisorRestarted, fault.SupervisorRecovered}},
		"garbage":             {garbled, "p0", 3 * interval, []fault.Code{fault.SupervisorRestarted, fault.SupervisorDown, fault.SupervisorRecovered}},
		"no answer":           {mute, "p0", 3*interval + interval/3, []fault.Code{fault.SupervisorRestarted, fault.SupervisorDown, fault.SupervisorRecovered}},
		"no connection":       {broken, "p0", 3 * interval, []fault.Code{fault.SupervisorRestarted, fault.SupervisorDown, fault.SupervisorRecovered}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, 3)
				defer h.close()
				time.Sleep(5*interval + time.Second) // after a sweep
				h.becomes("p0", c.state)
				time.Sleep(c.within)
				synctest.Wait()
				if got := h.restarted(c.slug); got != 1 {
					t.Errorf("%d restarts", got)
				}
				time.Sleep(interval)
				synctest.Wait()
				if got := happened(h.reports(), "p0/hub"); !slices.Equal(got, c.events) {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// Components that take a request and do not answer hold up neither a sweep nor the others: reports
// come every interval.
func TestSlowEndpointsDelayNoSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, 3)
		defer h.close()
		h.becomes("p0", mute)
		h.becomes("p1", mute)
		time.Sleep(2*interval + interval/2)
		synctest.Wait()
		reports := h.reports()
		last := reports[len(reports)-1]
		if last.Sweep != 3 || last.Healthy != 3 || last.Missed != 2 || last.Duration != (interval/3).Milliseconds() {
			t.Errorf("%+v", last)
		}
	})
}

// The store is away for five minutes, from the middle of a sweep on: who fails is paged in time and
// not restarted; afterwards no report is missing, and the restart is made up for.
func TestStoreThatIsAwayForLongIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, 3)
		defer h.close()
		time.Sleep(interval + time.Second)
		h.becomes("p0", wedged)
		h.store.commits.Store(true)
		time.Sleep(interval)
		h.store.looks.Store(true)
		time.Sleep(4*time.Minute + interval)
		synctest.Wait()
		if got := h.restarted("p0/hub") + h.restarted("p0"); got != 0 {
			t.Errorf("%d restarts", got)
		}
		if !slices.Contains(kinds(h.boards["a"]), notice.KindComponentDown) {
			t.Errorf("nobody was paged: %v", kinds(h.boards["a"]))
		}
		h.store.looks.Store(false)
		h.store.commits.Store(false)
		time.Sleep(2 * interval)
		synctest.Wait()
		if got := h.restarted("p0/hub") + h.restarted("p0"); got != 1 {
			t.Errorf("%d restarts", got)
		}
		if reports := h.reports(); reports[len(reports)-1].Sweep != 14 { // of six and a half minutes
			t.Errorf("%d sweeps are reported", reports[len(reports)-1].Sweep)
		}
	})
}

// The store is away for longer than reports can wait: the newest stay, without a gap in their
// numbers.
func TestReportsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, 3)
		defer h.close()
		time.Sleep(time.Second)
		h.store.commits.Store(true)
		time.Sleep(150 * interval)
		h.store.commits.Store(false)
		time.Sleep(interval)
		synctest.Wait()
		reports := h.reports()
		if last := reports[len(reports)-1]; last.Sweep != 1+maxPending+1 {
			t.Errorf("%d sweeps are reported", last.Sweep)
		}
	})
}

// Leadership changes while a sweep waits for an answer: the node that was deposed writes and
// restarts nothing, and the next one counts anew.
func TestLeaderChangesWithinASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, 3)
		defer h.close()
		h.becomes("p0", mute)
		time.Sleep(2*interval + time.Second) // in the third sweep, whose miss would be paged
		h.leader("b")
		time.Sleep(interval / 3)
		synctest.Wait()
		if got := h.restarted("p0"); got != 0 {
			t.Errorf("%d restarts", got)
		}
		time.Sleep(2*interval + interval/3)
		synctest.Wait()
		if got := h.restarted("p0"); got != 1 {
			t.Errorf("%d restarts", got)
		}
		for _, r := range h.reports() {
			if want := map[bool]string{true: "a", false: "b"}[r.Sweep <= 2]; r.By != want {
				t.Errorf("sweep %d is by %s", r.Sweep, r.By)
			}
		}
		if found := kinds(h.boards["a"]); slices.Contains(found, notice.KindComponentDown) {
			t.Errorf("who was deposed pages: %v", found)
		}
	})
}

// Whatever fails, and however often the store and the leader do: nobody is restarted more often
// than the budget in any window, and every sweep is in a report.
func TestFleetIsNeverRestartedBeyondItsBudget(t *testing.T) {
	type step struct {
		leader         string
		looks, commits bool // fail
		states         [patients]int
		failing        [patients]bool // whose state changes
		wait           time.Duration
	}
	steps := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) (s step) {
		s.leader = rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(r, "leader")
		s.looks = rapid.IntRange(0, 9).Draw(r, "looks") == 0
		s.commits = rapid.IntRange(0, 9).Draw(r, "commits") == 0
		for i := range patients {
			s.failing[i] = rapid.Bool().Draw(r, "failing")
			s.states[i] = rapid.SampledFrom([]int{well, wedged, wedged, garbled, mute, broken}).Draw(r, "state")
		}
		s.wait = time.Duration(rapid.IntRange(1, 60).Draw(r, "wait")) * time.Second
		return s
	}), 10, 40)
	restarts, refused := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		script, budget := steps.Draw(r, "steps"), rapid.IntRange(1, 3).Draw(r, "budget")
		var failures []string
		synctest.Test(t, func(t *testing.T) {
			h := open(t, budget)
			for _, s := range script {
				h.leader(s.leader)
				h.store.looks.Store(s.looks)
				h.store.commits.Store(s.commits)
				for i := range patients {
					if s.failing[i] {
						h.becomes(fmt.Sprintf("p%d", i), s.states[i])
					}
				}
				time.Sleep(s.wait)
			}
			synctest.Wait()
			for _, report := range h.reports() {
				for _, f := range report.Findings {
					if f.Action == actionExhausted {
						refused++
					}
				}
			}
			for slug, times := range h.restarts {
				restarts += len(times)
				for i := range times {
					if i >= budget && times[i].Sub(times[i-budget]) < 10*time.Minute {
						failures = append(failures, fmt.Sprintf("%s was restarted at %v", slug, times))
					}
				}
			}
			h.close()
		})
		if len(failures) > 0 {
			r.Fatal(failures)
		}
	})
	if t.Logf("%d restarts, %d not made", restarts, refused); restarts == 0 || refused == 0 {
		t.Error("the budget was not put to the test")
	}
}
