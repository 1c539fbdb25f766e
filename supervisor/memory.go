package supervisor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is the Store of a node without etcd. Its content ends with the process.
type Memory struct {
	// Window is how long restarts count, Keep how many reports are kept. Default to 10 min and
	// 10000.
	Window time.Duration
	Keep   int

	mu struct {
		sync.Mutex
		process string
		sweep   uint64
		by      string
		reports []Report // the newest last
		used    map[string][]time.Time
		paused  map[string]paused
		change  Change
		orders  map[string]Order
		changed chan struct{}
	}
}

type paused struct {
	Pause

	end time.Time
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory(window time.Duration) *Memory {
	m := &Memory{Window: window, Keep: 10000}
	m.mu.used, m.mu.paused, m.mu.orders = make(map[string][]time.Time), make(map[string]paused), make(map[string]Order)
	m.mu.changed = make(chan struct{})
	return m
}

// Look implements [Reader].
func (m *Memory) Look(context.Context) (Standing, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Standing{Sweep: m.mu.sweep, By: m.mu.by, Used: make(map[string]int), Change: m.mu.change}
	now := time.Now()
	for slug, times := range m.mu.used {
		times = slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) >= m.Window })
		m.mu.used[slug] = times
		if s.Used[slug] = len(times); len(times) == 0 {
			delete(m.mu.used, slug)
			delete(s.Used, slug)
		}
	}
	maps.DeleteFunc(m.mu.paused, func(_ string, p paused) bool { return !now.Before(p.end) })
	for _, p := range m.mu.paused {
		s.Paused = append(s.Paused, p.Pause)
	}
	slices.SortFunc(s.Paused, func(a, b Pause) int { return strings.Compare(a.Slug, b.Slug) })
	return s, nil
}

// Reports implements [Reader].
func (m *Memory) Reports(_ context.Context, n int) ([]Report, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := slices.Clone(m.mu.reports[max(len(m.mu.reports)-n, 0):])
	slices.Reverse(last)
	return last, nil
}

// Begin implements [Keeper].
func (m *Memory) Begin(_ context.Context, node, process string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.process = process
	m.mu.by = node
	return m.mu.sweep, nil
}

// Commit implements [Keeper].
func (m *Memory) Commit(_ context.Context, c Commit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.mu.process != c.Report.Process:
		return ErrDeposed
	case m.mu.sweep == c.Report.Sweep:
		return nil
	case m.mu.sweep+1 != c.Report.Sweep:
		return ErrDeposed
	}
	m.mu.sweep = c.Report.Sweep
	if c.Joined && len(m.mu.reports) > 0 {
		m.mu.reports = m.mu.reports[:len(m.mu.reports)-1]
	}
	m.mu.reports = append(m.mu.reports, c.Report)
	if over := len(m.mu.reports) - m.Keep; over > 0 {
		m.mu.reports = slices.Delete(m.mu.reports, 0, over)
	}
	for _, slug := range c.Charges {
		m.mu.used[slug] = append(m.mu.used[slug], time.Now())
	}
	for _, o := range c.Orders {
		m.mu.orders[o.Node+"/"+o.Slug] = o
	}
	if len(c.Orders) > 0 {
		close(m.mu.changed)
		m.mu.changed = make(chan struct{})
	}
	return nil
}

// Next implements [Orders].
func (m *Memory) Next(ctx context.Context, node string) ([]Order, error) {
	for {
		m.mu.Lock()
		var orders []Order
		for _, o := range m.mu.orders {
			if o.Node == node {
				orders = append(orders, o)
			}
		}
		changed := m.mu.changed
		m.mu.Unlock()
		if len(orders) > 0 {
			return orders, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Done implements [Orders].
func (m *Memory) Done(_ context.Context, o Order) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is := m.mu.orders[o.Node+"/"+o.Slug]; is.Process == o.Process && is.Sweep == o.Sweep {
		delete(m.mu.orders, o.Node+"/"+o.Slug)
	}
	return nil
}

// Pause implements [Control].
func (m *Memory) Pause(_ context.Context, p Pause, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.paused[p.Slug] = paused{p, time.Now().Add(ttl)}
	return nil
}

// Unpause implements [Control].
func (m *Memory) Unpause(_ context.Context, slug string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.paused, slug)
	return nil
}

// Set implements [Control].
func (m *Memory) Set(_ context.Context, c Change) error {
	if err := c.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.change = c
	return nil
}
