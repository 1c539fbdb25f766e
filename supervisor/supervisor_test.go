package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
)

// A ward is nodes whose components answer as a test says.
type ward struct {
	testing.TB

	mu      sync.Mutex
	members []cluster.Member
	answers map[string]http.HandlerFunc // by NODE/COMPONENT; well without one
}

// add adds a node with its own server.
func (w *ward) add(node string, components ...string) {
	process := node + "-1"
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		slug := strings.TrimPrefix(r.URL.Path, health.VitalPath)
		w.mu.Lock()
		answer := w.answers[node+"/"+slug]
		w.mu.Unlock()
		if answer == nil {
			answer = says(200, health.Vital{Slug: slug, Status: health.VitalOK, Process: process, Uptime: 1})
		}
		answer(rw, r)
	}))
	w.Cleanup(server.Close)
	w.members = append(w.members, cluster.Member{Heartbeat: cluster.Heartbeat{
		Node: node, Process: process, Kind: cluster.KindNode, Status: cluster.StatusHealthy, HTTP: server.URL, Host: "here", Components: components,
	}})
}

func (w *ward) spoil(slug string, answer http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[slug] = answer
}

func says(status int, body any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
}

// watch makes the supervisor of the first node, which sweeps when it is told to.
func (w *ward) watch(store Store, interval time.Duration) (*Supervisor, *notice.Board) {
	board := notice.NewBoard(notice.Config{Node: w.members[0].Node})
	s := New(Config{
		Member: cluster.Identity{Node: w.members[0].Node, Process: w.members[0].Process}, Host: "here",
		Settings: Settings{Interval: interval, Misses: 3, AutoRestart: true},
		Members:  func() (cluster.View, time.Duration) { return cluster.View{Members: w.members}, time.Second },
		Leads:    func() bool { return true }, Board: board,
	}, store)
	w.Cleanup(s.client.CloseIdleConnections)
	if err := s.begin(context.Background()); err != nil {
		w.Fatal(err)
	}
	return s, board
}

func newWard(t testing.TB) *ward {
	t.Helper()
	return &ward{TB: t, answers: make(map[string]http.HandlerFunc)}
}

// last returns the last report.
func last(t testing.TB, store Store) Report {
	t.Helper()
	reports, err := store.Reports(t.Context(), 1)
	if err != nil || len(reports) != 1 {
		t.Fatalf("%v, %d reports", err, len(reports))
	}
	return reports[0]
}

// long is an interval whose third no test reaches.
const long = 3 * time.Minute

func TestSweepOfAllComponentsIsReported(t *testing.T) {
	w, store := newWard(t), NewMemory(time.Minute)
	for i := range 10 {
		w.add(fmt.Sprintf("n%d", i), "tail", "hub", "sink-kafka", "lease", "leader", "notices", "webhook", "snapshots", "supervisor", "checkpoints")
	}
	s, _ := w.watch(store, long)
	for range 3 {
		s.Sweep(t.Context())
	}
	r := last(t, store)
	if r.Total != 100 || r.Healthy != 100 || r.Missed != 0 || r.Sweeps != 3 || r.Sweep != 3 || r.Event != "HEALTH_SWEEP_COMPLETE" || r.Kind != "OperationsReport" ||
		r.By != "n0" || r.RegistryAge != 1000 || r.Locked["page_on_failure"] != true || !strings.HasPrefix(r.ID, "ops_health_") {
		t.Errorf("%+v", r)
	}
}

func TestBadAnswersAreMisses(t *testing.T) {
	well := health.Vital{Slug: "hub", Status: health.VitalOK, Process: "b-1", Uptime: 1}
	with := func(change func(*health.Vital)) health.Vital {
		v := well
		change(&v)
		return v
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   Cause
	}{
		"well":             {says(200, well), ""},
		"503":              {says(503, well), badStatus},
		"404":              {says(404, well), badStatus},
		"redirect":         {http.RedirectHandler("/elsewhere", http.StatusFound).ServeHTTP, badStatus},
		"garbage":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("OK")) }, badBody},
		"nothing":          {func(http.ResponseWriter, *http.Request) {}, badBody},
		"endless":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }, badBody},
		"another slug":     {says(200, with(func(v *health.Vital) { v.Slug = "tail" })), badBody},
		"negative age":     {says(200, with(func(v *health.Vital) { v.LastDecision = -1 })), badBody},
		"another process":  {says(200, with(func(v *health.Vital) { v.Process = "b-2" })), otherProcess},
		"zombie":           {says(200, with(func(v *health.Vital) { v.LastDecision = 60_000 })), Stalled},
		"says it stalls":   {says(503, with(func(v *health.Vital) { v.Status = health.VitalStalled })), Stalled},
		"breaks connected": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, unreachable},
	} {
		w, store := newWard(t), NewMemory(time.Minute)
		w.add("a", "tail")
		w.add("b", "hub", "tail")
		w.spoil("b/hub", c.answer)
		s, _ := w.watch(store, long)
		s.Sweep(t.Context())
		r := last(t, store)
		if c.want == "" {
			if r.Healthy != 3 {
				t.Errorf("%s: %+v", name, r)
			}
			continue
		}
		if r.Healthy != 2 || r.Missed != 1 || r.Findings[0].Cause != c.want || r.Findings[0].Slug != "b/hub" {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

func TestSlowEndpointIsATimeoutAndHoldsUpNoOther(t *testing.T) {
	w, store := newWard(t), NewMemory(time.Minute)
	w.add("a", "tail")
	w.add("b", "hub")
	w.spoil("b/hub", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s, _ := w.watch(store, 3*time.Second)
	s.Sweep(t.Context())
	i := slices.IndexFunc(last(t, store).Findings, func(f Finding) bool { return f.Slug == "b/hub" })
	if i < 0 || last(t, store).Findings[i].Cause != timedOut {
		t.Errorf("%+v", last(t, store))
	}
}

func TestNodeThatIsGoneIsMissedUntilItIsForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	m := cluster.Member{Heartbeat: cluster.Heartbeat{Node: "b", Process: "b-1", Status: cluster.StatusHealthy, HTTP: "http://10.0.0.1:8080", Components: []string{"hub"}}}
	r := registry{host: "here", keep: 10 * time.Minute}
	view := func(members ...cluster.Member) cluster.View { return cluster.View{Members: members} }
	if got := r.round(now, view(m)); len(got.ask) != 1 || got.nodes != 1 || got.ask[0].URL != "http://10.0.0.1:8080/internal/health/hub" {
		t.Errorf("%+v", got)
	}
	for _, after := range []time.Duration{0, 9 * time.Minute} {
		if got := r.round(now.Add(after), view()); len(got.seen) != 1 || got.seen[0].Miss != gone || got.nodes != 0 {
			t.Errorf("after %s: %+v", after, got)
		}
	}
	if got := r.round(now.Add(11*time.Minute), view()); len(got.seen) != 0 {
		t.Errorf("%+v", got)
	}
	for _, status := range []cluster.Status{cluster.StatusStarting, cluster.StatusStopping} {
		r.round(now, view(m))
		leaving := m
		leaving.Status = status
		for _, v := range []cluster.View{view(leaving), view()} {
			if got := r.round(now, v); len(got.ask)+len(got.seen) != 0 {
				t.Errorf("%s: %+v", status, got)
			}
		}
	}
}

func TestLoopbackOfAnotherMachineIsNotAsked(t *testing.T) {
	m := cluster.Member{Heartbeat: cluster.Heartbeat{Node: "b", Status: cluster.StatusHealthy, HTTP: "http://127.0.0.1:8080", Host: "there", Components: []string{"hub"}}}
	old := cluster.Member{Heartbeat: cluster.Heartbeat{Node: "c", Status: cluster.StatusHealthy}} // of an earlier version
	r := registry{host: "here"}
	if got := r.round(time.Now(), cluster.View{Members: []cluster.Member{m, old}}); len(got.ask) != 0 || !slices.Equal(got.unwatched, []string{"b", "c"}) {
		t.Errorf("%+v", got)
	}
	r.host = "there"
	if got := r.round(time.Now(), cluster.View{Members: []cluster.Member{m}}); len(got.ask) != 1 || len(got.unwatched) != 0 {
		t.Errorf("%+v", got)
	}
}

// What gateways report of themselves is no component of the cluster's: whatever they call
// themselves and fail, it is not swept.
func TestGatewaysAreNotSwept(t *testing.T) {
	m := cluster.Member{Heartbeat: cluster.Heartbeat{Node: "a", Status: cluster.StatusHealthy, Gateways: []cluster.Gateway{
		{Name: "well"}, {Name: "ill", Failing: []string{"db"}}, {Name: "left", Left: true},
	}}}
	r := registry{}
	if got := r.round(time.Now(), cluster.View{Members: []cluster.Member{m}}); len(got.seen)+len(got.ask) != 0 {
		t.Errorf("%+v", got.seen)
	}
}

// An outage is a store that can be away, also in the middle of a sweep.
type outage struct {
	Store

	looks, commits atomic.Bool // fail
	before         func()      // a commit
}

var errAway = errors.New("away")

func (o *outage) Look(ctx context.Context) (Standing, error) {
	if o.looks.Load() {
		return Standing{}, errAway
	}
	return o.Store.Look(ctx)
}

func (o *outage) Commit(ctx context.Context, c Commit) error {
	if o.before != nil {
		o.before()
	}
	if o.commits.Load() {
		return errAway
	}
	return o.Store.Commit(ctx, c)
}

func kinds(board *notice.Board) (all []string) {
	posted, _ := board.Since(0)
	for _, n := range posted {
		all = append(all, n.Kind)
	}
	return all
}

func TestStoreThatIsAwayCostsNoReportAndNoPage(t *testing.T) {
	w, memory := newWard(t), NewMemory(time.Minute)
	w.add("a", "tail")
	w.add("b", "hub", "tail")
	w.spoil("b/hub", says(500, nil))
	store := &outage{Store: memory}
	s, board := w.watch(store, long)
	s.Sweep(t.Context())
	store.commits.Store(true) // in the middle of a sweep
	for range 3 {
		s.Sweep(t.Context())
	}
	if found := kinds(board); !slices.Contains(found, notice.KindComponentDown) {
		t.Errorf("nobody was paged: %v", found)
	}
	if orders, _ := memory.Look(t.Context()); len(orders.Used) > 0 || orders.Sweep != 1 {
		t.Errorf("%+v", orders)
	}
	store.looks.Store(true)
	s.Sweep(t.Context())
	store.looks.Store(false)
	store.commits.Store(false)
	s.Sweep(t.Context())
	reports, err := memory.Reports(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	sweeps := 0
	for _, r := range reports {
		sweeps += r.Sweeps
	}
	if sweeps != 6 || reports[0].Sweep != 6 || reports[0].Restarted != 1 {
		t.Errorf("%d sweeps are reported: %+v", sweeps, reports[0])
	}
	posted, _ := board.Since(0)
	for _, n := range posted {
		if err := notice.Check(n); err != nil {
			t.Error(err)
		}
	}
}

// Components that have not answered for as many sweeps as are tolerated are a fact for the verdict;
// of one that answers and makes no progress its own node tells.
func TestSilenceIsAFact(t *testing.T) {
	w := newWard(t)
	w.add("a", "tail")
	w.add("b", "hub", "tail")
	s, _ := w.watch(NewMemory(time.Minute), long)
	w.spoil("b/tail", says(503, health.Vital{Slug: "tail", Status: health.VitalStalled, Process: "b-1", LastDecision: 60_000}))
	w.spoil("b/hub", says(500, nil))
	for sweep := range 3 {
		if err := s.Unanswered(); err != nil {
			t.Errorf("after %d sweeps: %v", sweep, err)
		}
		s.Sweep(t.Context())
	}
	if err := s.Unanswered(); fault.Of(err) != fault.SupervisorDown || !strings.Contains(err.Error(), "b/hub") || strings.Contains(err.Error(), "tail") {
		t.Errorf("%v", err)
	}
	w.spoil("b/hub", nil)
	s.Sweep(t.Context())
	if err := s.Unanswered(); err != nil {
		t.Errorf("it answers again: %v", err)
	}
	w.spoil("b/hub", says(500, nil))
	for range 3 {
		s.Sweep(t.Context())
	}
	s.rest()
	if err := s.Unanswered(); err != nil {
		t.Errorf("of a node that does not sweep: %v", err)
	}
}

func TestLeaderThatIsDeposedInASweepRestartsNobody(t *testing.T) {
	w, memory := newWard(t), NewMemory(time.Minute)
	w.add("a", "tail")
	w.add("b", "hub", "tail")
	w.spoil("b/hub", says(500, nil))
	store := &outage{Store: memory}
	s, _ := w.watch(store, long)
	s.Sweep(t.Context())
	s.Sweep(t.Context())
	store.before = func() { _, _ = memory.Begin(t.Context(), "c", "c-1") }
	s.Sweep(t.Context()) // the third miss
	standing, err := memory.Look(t.Context())
	if err != nil || len(standing.Used) > 0 || standing.Sweep != 2 || s.begun {
		t.Errorf("%v, %+v", err, standing)
	}
}

func TestWedgedLaneIsOrderedToRestartAndRecovers(t *testing.T) {
	w, store := newWard(t), NewMemory(time.Minute)
	w.add("a", "hub", "tail")
	w.spoil("a/hub", says(503, health.Vital{Slug: "hub", Status: health.VitalStalled, Process: "a-1", LastDecision: 20_000, Restartable: true}))
	s, board := w.watch(store, long)
	restarted := make(chan string, 1)
	s.cfg.Restart = func(component string) error {
		w.spoil("a/"+component, nil)
		restarted <- component
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { s.runOrders(ctx) })
	s.Sweep(t.Context())
	s.Sweep(t.Context()) // within two intervals
	if got := <-restarted; got != "hub" {
		t.Errorf("%s is restarted", got)
	}
	s.Sweep(t.Context())
	if r := last(t, store); r.Healthy != 2 || r.Events[0].Code != fault.SupervisorRecovered {
		t.Errorf("%+v", r)
	}
	if found := kinds(board); !slices.Equal(found, []string{notice.KindComponentRestarted, notice.KindSweepReport, notice.KindComponentRecovered}) {
		t.Errorf("%v", found)
	}
}

func TestOrderForAnotherProcessIsIgnored(t *testing.T) {
	store := NewMemory(time.Minute)
	s := New(Config{Member: cluster.Identity{Node: "a", Process: "new"}, Restart: func(string) error { t.Error("restarted"); return nil }}, store)
	s.obey(Order{Node: "a", Process: "old", What: "hub", Level: Lane})
	s.obey(Order{Node: "a", Process: "old", Level: Node}) // Leave is nil
}

// The watchdog is watched: a leader that stands still writes no reports, and another node pages.
func TestSilenceOfWhoeverSweepsIsPagedByAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, board := NewMemory(time.Minute), notice.NewBoard(notice.Config{Node: "b"})
		s := New(Config{
			Member: cluster.Identity{Node: "b", Process: "b-1"}, Settings: Settings{Interval: 30 * time.Second, Misses: 3},
			Members: func() (cluster.View, time.Duration) { return cluster.View{}, 0 }, Leads: func() bool { return false }, Board: board,
		}, store)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.runDeadman(ctx) })
		if _, err := store.Begin(ctx, "a", "a-1"); err != nil {
			t.Fatal(err)
		}
		sweep := uint64(0)
		report := func() {
			sweep++
			if err := store.Commit(ctx, Commit{Report: Report{Process: "a-1", Sweep: sweep}}); err != nil {
				t.Error(err)
			}
		}
		for range 5 {
			report()
			time.Sleep(30 * time.Second)
		}
		report()
		time.Sleep(59 * time.Second)
		if found := kinds(board); len(found) > 0 {
			t.Errorf("paged too early: %v", found)
		}
		unswept := func(want bool) {
			t.Helper()
			if at, err := s.Unswept(); (fault.Of(err) == fault.SupervisorMissing) != want || want == at.IsZero() {
				t.Errorf("since %v: %v", at, err)
			}
		}
		unswept(false)
		time.Sleep(3 * time.Second)
		if found := kinds(board); !slices.Equal(found, []string{notice.KindSweepMissing}) {
			t.Errorf("%v", found)
		}
		unswept(true)
		time.Sleep(time.Hour)
		report()
		time.Sleep(2 * time.Second)
		if found := kinds(board); !slices.Equal(found, []string{notice.KindSweepMissing, notice.KindSweepResumed}) {
			t.Errorf("%v", found)
		}
		unswept(false)
		stop()
		running.Wait()
	})
}

func TestReportsThatSayTheSameAreKeptAsOne(t *testing.T) {
	at := time.Unix(1000, 0)
	r := func(after time.Duration, change func(*Report)) *Report {
		r := newReport(at.Add(after))
		r.Process, r.Total, r.Healthy = "p", 10, 10
		if change != nil {
			change(&r)
		}
		return &r
	}
	first := r(0, nil)
	for name, c := range map[string]struct {
		next *Report
		want bool
	}{
		"the same":             {r(30*time.Second, nil), true},
		"much later":           {r(61*time.Minute, nil), false},
		"the clock jumps back": {r(-time.Hour, nil), false},
		"another process":      {r(30*time.Second, func(r *Report) { r.Process = "q" }), false},
		"one is ill":           {r(30*time.Second, func(r *Report) { r.Healthy = 9 }), false},
		"something happened":   {r(30*time.Second, func(r *Report) { r.Events = []Event{{Code: fault.SupervisorRecovered}} }), false},
		"paused":               {r(30*time.Second, func(r *Report) { r.Paused = []Pause{{Slug: "x"}} }), false},
	} {
		if got := c.next.after(first); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if next := r(time.Minute, nil); !next.after(first) || next.Sweeps != 2 || next.FirstAt != first.FiredAt {
		t.Errorf("%+v", next)
	}
}

func TestLockedSettingsAndHardLimitsAreRefused(t *testing.T) {
	for _, seconds := range []float64{301, 400, 0.1} {
		if err := (Change{Interval: &seconds}).Validate(); fault.Of(err) != fault.ParameterLocked {
			t.Errorf("%v s: %v", seconds, err)
		}
	}
	for _, misses := range []int{0, 11} {
		if err := (Change{Misses: &misses}).Validate(); fault.Of(err) != fault.ParameterLocked {
			t.Errorf("%d misses: %v", misses, err)
		}
	}
	no, seconds, misses := false, 300.0, 10
	if err := (Change{PageOnFailure: &no}).Validate(); fault.Of(err) != fault.ParameterLocked {
		t.Error(err)
	}
	got := Settings{Interval: time.Second, Misses: 3, AutoRestart: true}.in(Change{Interval: &seconds, Misses: &misses, AutoRestart: &no})
	if want := (Settings{Interval: 300 * time.Second, Misses: 10}); got != want {
		t.Errorf("%+v", got)
	}
}

// The external deadman hears of every sweep whose report was written, and of no other.
func TestExternalDeadmanIsPinged(t *testing.T) {
	var pings atomic.Int32
	deadman := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { pings.Add(1) }))
	defer deadman.Close()
	w, store := newWard(t), &outage{Store: NewMemory(time.Minute)}
	w.add("a", "tail")
	s, _ := w.watch(store, long)
	s.cfg.Ping = deadman.URL
	s.Sweep(t.Context())
	store.commits.Store(true)
	s.Sweep(t.Context())
	if got := pings.Load(); got != 1 {
		t.Errorf("%d pings", got)
	}
}

// Whatever a component answers, it counts as well only if it says so of itself, in time.
func FuzzAnswers(f *testing.F) {
	f.Add(200, []byte(`{"slug":"hub","status":"ok","last_decision_ms":120,"uptime_s":1,"process":"p"}`))
	f.Add(503, []byte(`{"slug":"hub","status":"stalled","last_decision_ms":12000,"uptime_s":1,"process":"p"}`))
	f.Add(200, []byte(`{"slug":"hub","status":"ok","last_decision_ms":9223372036854775807,"process":"p"}`))
	f.Add(200, []byte(`{"slug":"hub","status":"ok","last_decision_ms":18446744073710,"process":"p"}`)) // milliseconds that overflow to a small age
	f.Add(200, []byte("OK"))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		c := answered(target{Slug: "a/hub", Node: "a", Component: "hub", Process: "p"}, status, body, 10*time.Second)
		var v health.Vital
		well := status == http.StatusOK && json.Unmarshal(body, &v) == nil && v.Slug == "hub" && v.Status == health.VitalOK && v.Process == "p" &&
			v.Uptime >= 0 && v.LastDecision >= 0 && v.LastDecision <= 10_000
		if (c.Miss == "") != well || c.Slug != "a/hub" || c.Silent {
			t.Errorf("%d %q: %+v", status, body, c)
		}
	})
}

// A sweep over 100 nodes of 10 components each.
func BenchmarkSweep(b *testing.B) {
	w, store := newWard(b), NewMemory(time.Minute)
	for i := range 100 {
		w.add(fmt.Sprintf("n%03d", i), "tail", "hub", "checkpoints", "lease", "leader", "snapshots", "notices", "webhook", "supervisor", "sink-kafka")
	}
	s, _ := w.watch(store, long)
	s.Sweep(b.Context()) // connects
	for b.Loop() {
		s.Sweep(b.Context())
	}
	if r := last(b, store); r.Healthy != 1000 {
		b.Errorf("%+v", r)
	}
}
