package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Loop reports whether a loop makes progress. Its methods are safe for concurrent use, and do
// nothing on a nil Loop.
type Loop struct {
	begun time.Time
	due   atomic.Int64 // since begun: from when on the loop has something to do; 0 while it has nothing
}

// NewLoop returns the Loop of a loop that has nothing to do yet.
func NewLoop() *Loop { return &Loop{begun: time.Now().Add(-1)} }

// Work says that the loop begins something: it has just made progress, and has more to do.
func (l *Loop) Work() { l.RestFor(0) }

// Rest says that the loop has nothing to do until something happens.
func (l *Loop) Rest() {
	if l != nil {
		l.due.Store(0)
	}
}

// RestFor says that the loop has no work for the duration, unless an event arrives earlier.
func (l *Loop) RestFor(d time.Duration) {
	if l != nil {
		l.due.Store(int64(time.Since(l.begun) + max(d, 0)))
	}
}

// Age returns for how long the loop has had something to do and has not made progress.
func (l *Loop) Age() time.Duration {
	if l == nil {
		return 0
	}
	due := time.Duration(l.due.Load())
	if due == 0 {
		return 0
	}
	return max(time.Since(l.begun)-due, 0)
}

// A Progress detects progress by a mark that moves with it. Only one goroutine may use it.
type Progress struct {
	mark  uint64
	since time.Time // when the mark was first seen while something waited
}

// Age returns for how long, as far as was looked, something has waited while the mark has not
// moved.
func (p *Progress) Age(mark uint64, waits bool, now time.Time) time.Duration {
	if !waits || mark != p.mark || p.since.IsZero() {
		p.mark = mark
		p.since = now
		if !waits {
			p.since = time.Time{}
		}
	}
	if p.since.IsZero() {
		return 0
	}
	return now.Sub(p.since)
}

// A Component is a part of the node that has work of its own.
type Component struct {
	// Slug names the component: hub, sink-orders.
	Slug string
	// Age returns for how long the component has made no progress although it had something to do,
	// 0 while it makes progress or has nothing to do. Work of a dependency does not count as the
	// component's.
	Age func() time.Duration
	// Restart ends the component's work and starts it again, in this process. It does not wait
	// until that succeeds. It is nil if only a new process can do that.
	Restart func() error
}

// The states of a component.
const (
	VitalOK      = "ok"
	VitalStalled = "stalled"
)

// A Vital is the answer of a component's endpoint.
type Vital struct {
	Slug   string `json:"slug"`
	Status string `json:"status"`
	// LastDecision is how long ago, in milliseconds, the component last made progress, or last had
	// nothing to do.
	LastDecision int64 `json:"last_decision_ms"`
	// Uptime is that of the process, in seconds.
	Uptime int64 `json:"uptime_s"`
	// Process is the random id of the process.
	Process string `json:"process"`
	// Restartable says that the component can be restarted within its process.
	Restartable bool `json:"restartable,omitempty"`
}

// ComponentsConfig configures Components.
type ComponentsConfig struct {
	// Process is the random id of the process, Uptime how long it has run. Required.
	Process string
	Uptime  func() time.Duration
	// Stalled is from which age on a component counts as stalled, Lost from which on the process
	// should be replaced. Required.
	Stalled, Lost time.Duration
}

// Components are those of a node.
type Components struct {
	cfg ComponentsConfig

	mu  sync.Mutex
	all []*watched
}

// A watched is a component as it was last seen.
type watched struct {
	Component

	looking atomic.Bool
	at      time.Time
	age     time.Duration
}

// NewComponents returns the components of a node, none yet.
func NewComponents(cfg ComponentsConfig) *Components { return &Components{cfg: cfg} }

// Add adds a component.
func (c *Components) Add(component Component) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, &watched{Component: component, at: time.Now()})
}

// Slugs returns the names of the components.
func (c *Components) Slugs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slugs := make([]string, len(c.all))
	for i, w := range c.all {
		slugs[i] = w.Slug
	}
	slices.Sort(slugs)
	return slugs
}

// lookEvery is the interval at which components are checked.
const lookEvery = time.Second

// Run looks at the components until the context ends. A component that does not even answer how it
// does ages, and holds up no other.
func (c *Components) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		c.mu.Lock()
		all := slices.Clone(c.all)
		c.mu.Unlock()
		for _, w := range all {
			if w.looking.CompareAndSwap(false, true) {
				go c.look(w)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look looks at a component.
func (c *Components) look(w *watched) {
	defer w.looking.Store(false)
	age := w.Age()
	c.mu.Lock()
	defer c.mu.Unlock()
	w.at = time.Now()
	w.age = age
}

// ErrUnknownComponent says that there is no component of that name, ErrNotRestartable that it has
// no restart of its own.
var (
	ErrUnknownComponent = errors.New("unknown component")
	ErrNotRestartable   = errors.New("the component cannot be restarted within its process")
)

// vital returns a component as it was last seen, and how old its progress is now.
func (c *Components) vital(w *watched, now time.Time) (Vital, time.Duration) {
	age := w.age + now.Sub(w.at)
	v := Vital{
		Slug: w.Slug, Status: VitalOK, LastDecision: age.Milliseconds(), Uptime: int64(c.cfg.Uptime().Seconds()), Process: c.cfg.Process,
		Restartable: w.Restart != nil,
	}
	if age > c.cfg.Stalled {
		v.Status = VitalStalled
	}
	return v, age
}

// Vital returns how a component does.
func (c *Components) Vital(slug string) (Vital, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.all {
		if w.Slug == slug {
			v, _ := c.vital(w, time.Now())
			return v, nil
		}
	}
	return Vital{}, ErrUnknownComponent
}

// Stalled returns the components that are stalled.
func (c *Components) Stalled() (stalled []Vital) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.all {
		if v, _ := c.vital(w, time.Now()); v.Status == VitalStalled {
			stalled = append(stalled, v)
		}
	}
	return stalled
}

// Restart restarts a component within the process.
func (c *Components) Restart(slug string) error {
	c.mu.Lock()
	i := slices.IndexFunc(c.all, func(w *watched) bool { return w.Slug == slug })
	var restart func() error
	if i >= 0 {
		restart = c.all[i].Component.Restart
	}
	c.mu.Unlock()
	switch {
	case i < 0:
		return ErrUnknownComponent
	case restart == nil:
		return ErrNotRestartable
	}
	return restart()
}

// Alive returns an error that lists the components without progress for so long that the process
// should be replaced, nil if there are none.
func (c *Components) Alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lost []string
	for _, w := range c.all {
		if _, age := c.vital(w, time.Now()); age > c.cfg.Lost {
			lost = append(lost, fmt.Sprintf("%s for %s", w.Slug, age.Truncate(time.Second)))
		}
	}
	if len(lost) > 0 {
		return fmt.Errorf("no progress although there is something to do: %s", strings.Join(lost, ", "))
	}
	return nil
}

// VitalPath is where the endpoints of components are; the slug follows.
const VitalPath = "/internal/health/"

// Handle puts the endpoints of the components on a mux: 200 while the component makes progress, 503
// while it is stalled, 404 if there is none.
func (c *Components) Handle(mux *http.ServeMux) {
	mux.HandleFunc("GET "+VitalPath+"{slug...}", func(w http.ResponseWriter, r *http.Request) {
		v, err := c.Vital(r.PathValue("slug"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		answer(w, v.Status == VitalOK, v)
	})
}
