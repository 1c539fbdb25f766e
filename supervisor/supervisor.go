package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/notice"
)

// Config configures a Supervisor. Everything is required unless it says more.
type Config struct {
	Member cluster.Identity
	// Host is the name of this machine.
	Host string
	// Settings are those of the configuration.
	Settings Settings
	// StallAfter is from which age on a component makes no progress. Defaults to 10 s.
	StallAfter time.Duration
	// Budget is how many restarts of a component are given within Window. Default to 3 and 10 min.
	Budget int
	Window time.Duration
	// Ping is a URL that is asked after every sweep whose report was written; empty for none.
	Ping string

	// Members returns the members of the cluster, and how long ago they were read. It must not
	// block.
	Members func() (view cluster.View, age time.Duration)
	// Leads reports whether this node is the one that sweeps. It must not block.
	Leads func() bool
	// Restart restarts a component of this process, Leave drains the process and ends it. Neither
	// may block.
	Restart func(component string) error
	Leave   func(Order)

	// Transport asks the components. Defaults to one without TLS settings and without a proxy.
	Transport *http.Transport
	Board     *notice.Board
	Logger    *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// A Supervisor looks after the components of all nodes while its node leads, and always after the
// one that does.
type Supervisor struct {
	cfg     Config
	store   Store
	client  *http.Client
	metrics metrics
	logger  *slog.Logger
	turning *health.Loop
	silent  atomic.Pointer[[]string]  // components that do not answer; nil at nodes that do not sweep
	unswept atomic.Pointer[time.Time] // since when nobody sweeps, nil while somebody does or nobody knows
	asked   chan chan struct{}        // requests an immediate sweep; the sent channel is closed after it

	// Of the loop that sweeps.
	registry registry
	judge    *judge
	sweep    uint64    // the number of the last one; begun only
	begun    bool      // this process is the one that sweeps
	last     *Report   // that was written
	pending  []Commit  // that could not be written
	settings Settings  // in force
	warned   Settings  // those that delay pages and have been logged
	tellAt   time.Time // when the next notice about a report is due
}

// maxPending bounds the reports that wait for the store; beyond it the oldest are dropped.
const maxPending = 100

// New returns a Supervisor.
func New(cfg Config, store Store) *Supervisor {
	cfg.StallAfter, cfg.Budget = cmp.Or(cfg.StallAfter, 10*time.Second), cmp.Or(cfg.Budget, 3)
	cfg.Window = cmp.Or(cfg.Window, 10*time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{}
	}
	t := cfg.Transport.Clone()
	t.Proxy = nil
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = maxConns
	t.MaxConnsPerHost = maxConns
	t.IdleConnTimeout = maxInterval + time.Minute
	return &Supervisor{
		cfg: cfg, store: store, metrics: newMetrics(cfg.Registerer), logger: cfg.Logger, turning: health.NewLoop(), settings: cfg.Settings,
		asked:    make(chan chan struct{}),
		registry: registry{host: cfg.Host, keep: cfg.Window},
		client: &http.Client{
			Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// maxConns bounds the connections to a node.
const maxConns = 16

// Age returns how long the Supervisor has had work without making progress: a sweep is due every
// interval and must end before the next.
func (s *Supervisor) Age() time.Duration { return s.turning.Age() }

// Run looks after the components until the context ends.
func (s *Supervisor) Run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	var wg sync.WaitGroup
	wg.Go(func() { s.runSweeps(ctx) })
	wg.Go(func() { s.runDeadman(ctx) })
	wg.Go(func() { s.runOrders(ctx) })
	wg.Wait()
}

// lookAtLeadership is how often a node that does not sweep looks whether it should.
const lookAtLeadership = time.Second

// runSweeps sweeps while the node leads.
func (s *Supervisor) runSweeps(ctx context.Context) {
	defer s.turning.Rest()
	next := time.Now()
	var asked chan struct{} // the requests for the sweep that is due, nil if there are none
	for said := false; ctx.Err() == nil; {
		now := time.Now()
		switch {
		case !s.cfg.Leads():
			s.rest()
			s.turning.Rest()
			next = now
			_ = retry.Sleep(ctx, min(lookAtLeadership, s.settings.Interval))
			continue
		case now.Before(next) && asked == nil:
			s.turning.RestFor(next.Sub(now) + s.settings.Interval)
			asked = s.await(ctx, min(lookAtLeadership, next.Sub(now)))
			continue
		case !s.begun:
			if err := s.begin(ctx); err != nil {
				if !said && ctx.Err() == nil {
					s.logger.Warn("components cannot be looked after yet", "error", err)
				}
				said = true
				_ = retry.Sleep(ctx, min(lookAtLeadership, s.settings.Interval))
				continue
			}
			said = false
		}
		s.turning.RestFor(2 * s.settings.Interval)
		s.Sweep(ctx)
		if asked != nil {
			close(asked)
			asked = nil
		}
		if next = now.Add(s.settings.Interval); next.Before(time.Now()) {
			next = time.Now()
		}
	}
}

// await waits for a duration, or until a sweep is requested; it returns the requests.
func (s *Supervisor) await(ctx context.Context, d time.Duration) (asked chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case asked = <-s.asked:
	case <-timer.C:
	case <-ctx.Done():
	}
	return asked
}

// SweepNow has the loop sweep before that is due, as soon as its node leads, and waits until it
// has.
func (s *Supervisor) SweepNow(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case s.asked <- done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rest forgets what belongs to the node that sweeps.
func (s *Supervisor) rest() {
	if !s.begun {
		return
	}
	s.begun, s.judge, s.last, s.pending, s.registry.known = false, nil, nil, nil, nil
	s.silent.Store(nil)
	s.metrics.healthy.Set(0)
	s.metrics.unhealthy.Set(0)
	s.metrics.unwatched.Set(0)
	s.metrics.registryAge.Set(0)
}

// begin makes this process the one that sweeps. Misses begin at 0; restarts of the window are in
// the store.
func (s *Supervisor) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	sweep, err := s.store.Begin(ctx, s.cfg.Member.Node, s.cfg.Member.Process)
	if err != nil {
		return err
	}
	s.sweep = sweep
	s.judge = &judge{}
	s.last = nil
	s.begun = true
	s.logger.Info("looking after the components", "last_sweep", sweep)
	return nil
}

// timeout bounds each step of a sweep.
func (s *Supervisor) timeout() time.Duration { return s.settings.Interval / 3 }

// Sweep asks all components once, judges, and writes the report with the orders.
func (s *Supervisor) Sweep(ctx context.Context) {
	began := time.Now()
	standing, known := s.standing(ctx)
	if known {
		s.adopt(s.cfg.Settings.in(standing.Change))
	}
	view, age := s.cfg.Members()
	round := s.registry.round(began, view)
	checks := append(s.poll(ctx, round.ask, s.timeout()), round.seen...)
	if ctx.Err() != nil {
		return // then unanswered requests are not failures
	}
	in := input{
		Now: began, Checks: checks, Nodes: round.nodes, Known: known, Used: standing.Used, Paused: make(map[string]bool), Settings: s.settings,
		Budget: s.cfg.Budget, Keep: int(s.cfg.Window / s.settings.Interval),
	}
	for _, p := range standing.Paused {
		in.Paused[p.Slug] = true
	}
	v := s.judge.Step(in)
	r := s.report(began, v, len(checks), age)
	r.Paused = standing.Paused
	r.Unwatched = round.unwatched
	s.count(ctx, checks, v, &r)
	s.commit(ctx, v, r)
}

// adopt puts settings in force, and warns once of those that delay pages.
func (s *Supervisor) adopt(settings Settings) {
	if s.settings = settings; settings.late() && settings != s.warned {
		s.logger.Warn("pages are delayed by the supervisor's settings", "heartbeat_interval", settings.Interval, "missed_heartbeats_to_alert", settings.Misses,
			"paged_after", time.Duration(settings.Misses)*settings.Interval)
	}
	s.warned = settings
}

// standing asks the store.
func (s *Supervisor) standing(ctx context.Context) (Standing, bool) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	standing, err := s.store.Look(ctx)
	if err != nil {
		s.logger.Warn("sweeping without orders: the store does not answer", "error", err)
	}
	return standing, err == nil
}

// report makes the report.
func (s *Supervisor) report(began time.Time, v verdict, total int, age time.Duration) Report {
	r := newReport(began)
	r.By, r.Process = s.cfg.Member.Node, s.cfg.Member.Process
	r.Total, r.Healthy, r.Unhealthy, r.Missed = total, v.Healthy, total-v.Healthy, v.Missed
	for _, f := range v.Findings {
		if f.Action == ActionRestarted {
			r.Restarted++
		}
		r.Findings = append(r.Findings, f)
	}
	for _, e := range v.Events {
		if pages := []fault.Code{fault.SupervisorDown, fault.SupervisorBudget, fault.SupervisorCascade}; slices.Contains(pages, e.Code) {
			r.Alerts++
		}
	}
	r.Events = v.Events
	r.RegistryAge = age.Milliseconds()
	r.Settings = map[string]any{
		"heartbeat_interval_s": s.settings.Interval.Seconds(), "missed_heartbeats_to_alert": float64(s.settings.Misses), "auto_restart": s.settings.AutoRestart,
		"page_on_failure": true,
	}
	r.Duration = time.Since(began).Milliseconds()
	return r
}

// Unanswered returns which components have not answered for as many sweeps as are tolerated, nil
// for none and at nodes that do not sweep.
func (s *Supervisor) Unanswered() error {
	silent := s.silent.Load()
	if silent == nil || len(*silent) == 0 {
		return nil
	}
	return fault.Newf(fault.SupervisorDown, "no answer from %s", strings.Join(*silent, ", "))
}

// count counts the results of a sweep.
func (s *Supervisor) count(ctx context.Context, checks []check, v verdict, r *Report) {
	m := s.metrics
	for _, c := range checks {
		m.restarts.WithLabelValues(c.Slug) // from 0: Prometheus ignores the first value of a series
		if c.Miss != "" {
			m.misses.WithLabelValues(c.Slug).Inc()
		}
	}
	down := 0
	var silent []string
	for _, f := range v.Findings {
		level := slog.LevelInfo
		if f.Misses >= s.settings.Misses {
			down++
			level = slog.LevelWarn
			if f.Cause != Stalled && f.Cause != gone { // its own node tells, or the cluster that it is gone
				silent = append(silent, f.Slug)
			}
		}
		code := fault.Code("")
		if f.Cause == timedOut {
			code = fault.SupervisorTimeout
		}
		s.logger.Log(ctx, level, "component missed its heartbeat", "slug", f.Slug, "miss_count", f.Misses, "threshold", s.settings.Misses,
			"cause", string(f.Cause), "detail", f.Detail, "action", string(f.Action), "last_seen_ms", f.LastSeen, "code", string(code))
	}
	s.silent.Store(&silent)
	m.healthy.Set(float64(v.Healthy))
	m.unhealthy.Set(float64(down))
	m.unwatched.Set(float64(len(r.Unwatched)))
	m.registryAge.Set(time.Duration(r.RegistryAge * int64(time.Millisecond)).Seconds())
	m.duration.Observe(float64(r.Duration))
	m.sweeps.Inc()
}

// commit writes a sweep, after those that could not be written.
func (s *Supervisor) commit(ctx context.Context, v verdict, r Report) {
	s.sweep++
	r.Sweep = s.sweep
	for i := range v.Orders {
		v.Orders[i].Sweep = r.Sweep
		v.Orders[i].By = s.cfg.Member.Node
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	var err error
	for len(s.pending) > 0 && err == nil {
		if err = s.store.Commit(ctx, s.pending[0]); err == nil {
			s.wrote(s.pending[0].Report)
			s.pending = s.pending[1:]
		}
	}
	c := Commit{Report: r, Orders: v.Orders, Charges: v.Charges}
	if err == nil {
		c.Joined = c.Report.after(s.last)
		err = s.store.Commit(ctx, c)
	}
	if err == nil {
		s.wrote(c.Report)
		s.given(v.Orders)
		s.tell(v.Events, &c.Report)
		s.ping(ctx)
		return
	}
	s.metrics.failures.Inc()
	s.judge.Revoke(v.Orders)
	if errors.Is(err, ErrDeposed) {
		s.logger.Warn("another node looks after the components")
		s.rest()
		return
	}
	s.logger.Warn("report not written, nothing restarted", "sweep", r.Sweep, "error", err)
	s.tell(v.Events, &r) // a page does not wait for the store
	c = Commit{Report: r}
	c.Report.Restarted = 0
	for i := range c.Report.Findings {
		if f := &c.Report.Findings[i]; f.Action == ActionRestarted {
			f.Action = actionUnknown
		}
	}
	if s.pending = append(s.pending, c); len(s.pending) > maxPending {
		s.pending = s.pending[1:]
		for i := range s.pending { // numbers have no gaps
			s.pending[i].Report.Sweep--
		}
		s.sweep--
	}
}

func (s *Supervisor) wrote(r Report) { s.last = &r }

// given counts the orders that were given.
func (s *Supervisor) given(orders []Order) {
	for _, o := range orders {
		s.metrics.restarts.WithLabelValues(o.Slug).Inc()
	}
}

// ping reports to the external deadman that a sweep is complete.
func (s *Supervisor) ping(ctx context.Context) {
	if s.cfg.Ping == "" {
		return
	}
	err := func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.Ping, nil)
		if err != nil {
			return err
		}
		client := http.Client{CheckRedirect: s.client.CheckRedirect}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // read only
		_, _ = io.CopyN(io.Discard, resp.Body, maxBody)
		if resp.StatusCode >= http.StatusMultipleChoices {
			return errors.New(resp.Status)
		}
		return nil
	}()
	if err != nil {
		s.metrics.pings.Inc()
		s.logger.Warn("external deadman not reached") // the error would show the URL, which is a secret
	}
}
