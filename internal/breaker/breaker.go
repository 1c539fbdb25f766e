package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"github.com/mongostream/streamer/notice"
)

// ErrOpen says that the call was not made because the breaker is open.
var ErrOpen = errors.New("circuit breaker open")

// Config configures the breakers of a node.
type Config struct {
	// Threshold is how many failures in a row open a breaker. Defaults to 5.
	Threshold int
	// Timeout is how long an open breaker lets nothing pass. Defaults to 30 s.
	Timeout time.Duration
	// Board gets a notice for each change of state; nil for none.
	Board *notice.Board
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// A Panel makes the breakers of a node.
type Panel struct {
	cfg     Config
	metrics metrics
}

// NewPanel makes a Panel.
func NewPanel(cfg Config) *Panel {
	cfg.Threshold, cfg.Timeout = cmp.Or(cfg.Threshold, 5), cmp.Or(cfg.Timeout, 30*time.Second)
	return &Panel{cfg: cfg, metrics: newMetrics(cfg.Registerer)}
}

// A Breaker guards the calls to one dependency.
type Breaker struct {
	name    string
	panel   *Panel
	circuit *gobreaker.CircuitBreaker[struct{}]
	last    atomic.Pointer[error] // what failed last
	count   atomic.Int64          // failures in a row when it opened
	opened  atomic.Pointer[time.Time]
}

// Breaker makes a breaker. failure says which errors count against the dependency; nil counts all.
func (p *Panel) Breaker(name string, failure func(error) bool) *Breaker {
	p.metrics.states.WithLabelValues(name).Set(0)
	b := &Breaker{name: name, panel: p}
	if failure == nil {
		failure = func(err error) bool { return err != nil }
	}
	b.circuit = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name: name, MaxRequests: 1, Timeout: p.cfg.Timeout,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			b.count.Store(int64(c.ConsecutiveFailures))
			return int(c.ConsecutiveFailures) >= p.cfg.Threshold
		},
		IsSuccessful: func(err error) bool {
			if err == nil || !failure(err) {
				return true
			}
			b.last.Store(&err)
			return false
		},
		OnStateChange: b.changed,
	})
	return b
}

// changed reports a change of state. That something is wrong is for the verdict to say (package
// health): these are events.
func (b *Breaker) changed(name string, from, to gobreaker.State) {
	metrics := b.panel.metrics
	n := notice.Notice{Channel: notice.Breaker, Level: notice.Info, Fields: map[string]any{"breaker": name, "from": from.String(), "to": to.String()}}
	switch to {
	case gobreaker.StateClosed:
		metrics.states.WithLabelValues(name).Set(0)
		n.Kind = notice.KindBreakerClosed
		n.Text = fmt.Sprintf("%s answers again", name)
		n.Fields["was_open_seconds"] = time.Since(*b.opened.Swap(nil)).Seconds()
	case gobreaker.StateHalfOpen:
		metrics.states.WithLabelValues(name).Set(1)
		return // a probe is not worth a notice
	case gobreaker.StateOpen:
		metrics.states.WithLabelValues(name).Set(2)
		metrics.trips.WithLabelValues(name).Inc()
		now := time.Now()
		if !b.opened.CompareAndSwap(nil, &now) {
			return // a probe failed, which prolongs it
		}
		n.Kind = notice.KindBreakerOpened
		n.Text = fmt.Sprintf("%s fails and is left alone for %s", name, b.panel.cfg.Timeout)
		n.Fields["reason"] = (*b.last.Load()).Error()
		n.Fields["failure_count"] = b.count.Load()
	}
	b.panel.cfg.Board.Post(n)
}

// Do calls f unless the breaker is open; then it returns an error that wraps ErrOpen.
func (b *Breaker) Do(f func() error) error {
	_, err := b.circuit.Execute(func() (struct{}, error) { return struct{}{}, f() })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return fmt.Errorf("%s: %w", b.name, ErrOpen)
	}
	return err
}
