package notice

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/health"
)

// WebhookConfig configures a Webhook.
type WebhookConfig struct {
	// URL is the receiver's URL. Required.
	URL string
	// Secret is the signing key. Required.
	Secret string
	// Cluster and Node are the names in each delivery.
	Cluster, Node string
	// Timeout bounds an attempt. Defaults to 5 s.
	Timeout time.Duration
	// Attempts bounds the attempts of a delivery. Defaults to 8, about a minute.
	Attempts int
	// Window is the interval of summaries, Burst the number of notices of each severity that are
	// sent individually in it. Default to 1 min and 10.
	Window time.Duration
	Burst  int
	// Queue bounds the queued deliveries. Defaults to 100.
	Queue int
	// Lowest is the lowest severity to send. Defaults to Info.
	Lowest Severity
	// Transport sends the requests. Defaults to a private one that uses the proxy of the
	// environment.
	Transport http.RoundTripper
	// Logger logs failed deliveries. Defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// A Delivery is the body of a request: a notice or a summary.
type Delivery struct {
	// ID identifies the delivery, the same for every attempt.
	ID      string   `json:"delivery"`
	Cluster string   `json:"cluster"`
	Node    string   `json:"node"`
	Notice  *Notice  `json:"notice,omitempty"`
	Summary *Summary `json:"summary,omitempty"`
}

// A Webhook sends the notices of a board.
type Webhook struct {
	cfg     WebhookConfig
	board   *Board
	client  *http.Client
	metrics webhookMetrics
	queue   chan Delivery
	posting *health.Loop
}

// NewWebhook returns a Webhook.
func NewWebhook(cfg WebhookConfig, board *Board) *Webhook {
	cfg.Timeout, cfg.Attempts = cmp.Or(cfg.Timeout, 5*time.Second), cmp.Or(cfg.Attempts, 8)
	cfg.Window, cfg.Burst = cmp.Or(cfg.Window, time.Minute), cmp.Or(cfg.Burst, 10)
	cfg.Queue, cfg.Lowest = cmp.Or(cfg.Queue, 100), cmp.Or(cfg.Lowest, Info)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: cfg.Timeout,
			MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		}
	}
	s := &Webhook{cfg: cfg, board: board, queue: make(chan Delivery, cfg.Queue), posting: health.NewLoop()}
	s.client = &http.Client{
		Transport: cfg.Transport, Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.metrics = newWebhookMetrics(cfg.Registerer, func() float64 { return float64(len(s.queue)) })
	return s
}

// Age returns for how long an attempt has taken longer than it may.
func (s *Webhook) Age() time.Duration { return s.posting.Age() }

// closing bounds the shutdown.
const closing = 5 * time.Second

// Run sends until the context ends, and then attempts the queued deliveries once more, within
// WebhookConfig.Timeout and at most five seconds.
func (s *Webhook) Run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var delivering sync.WaitGroup
	delivering.Go(func() { s.runDelivering(ctx, hard) })
	s.runThrottling(ctx)
	limit := time.AfterFunc(min(s.cfg.Timeout, closing), cancel)
	defer limit.Stop()
	delivering.Wait()
}

// runThrottling follows the board and queues deliveries until the context ends; then it closes the
// queue.
func (s *Webhook) runThrottling(ctx context.Context) {
	defer close(s.queue)
	t := newThrottle(s.cfg.Window, s.cfg.Burst)
	for last := uint64(0); ; {
		wait := ctx
		cancel := context.CancelFunc(func() {})
		if !t.ends.IsZero() {
			wait, cancel = context.WithDeadlineCause(ctx, t.ends, errWindow)
		}
		notices, missed, err := s.board.Follow(wait, last)
		cancel()
		if missed > 0 {
			s.metrics.missed.Add(float64(missed))
			t.miss(time.Now(), missed)
		}
		for _, n := range notices {
			last = n.ID
			s.take(t, n)
		}
		now := time.Now()
		isStopped := ctx.Err() != nil && err != nil
		isDue := !t.ends.IsZero() && !now.Before(t.ends)
		if isStopped || isDue {
			s.summarise(t, now)
		}
		if isStopped {
			return
		}
	}
}

// errWindow ends the wait for notices at the end of a window.
var errWindow = errors.New("the window has ended")

// take queues a notice, or counts it.
func (s *Webhook) take(t *throttle, n Notice) {
	if n.Relayed || n.Channel == Audit || rank(n.Level) < rank(s.cfg.Lowest) {
		return
	}
	if t.single(time.Now(), n) && s.offer(Delivery{Notice: &n}) {
		return
	}
	s.metrics.summarised.Inc()
	t.count(n)
}

// summarise ends the window and queues its summary. If the queue is full, the summary is kept for
// the next window.
func (s *Webhook) summarise(t *throttle, now time.Time) {
	began := t.began
	summary, ok := t.summary(now)
	switch {
	case !ok:
	case s.offer(Delivery{Summary: &summary}):
		t.sent()
	default:
		t.begin(now)
		t.began = began
	}
}

// offer queues a delivery unless the queue is full.
func (s *Webhook) offer(d Delivery) bool {
	d.ID = rand.Text()
	d.Cluster = s.cfg.Cluster
	d.Node = s.cfg.Node
	select {
	case s.queue <- d:
		return true
	default:
		return false
	}
}

// encode encodes a delivery. If a field cannot be encoded, the notice is sent without its fields.
func encode(d Delivery) []byte {
	body, err := json.Marshal(d)
	if err != nil {
		n := *d.Notice
		n.Fields = map[string]any{"error": err.Error()}
		d.Notice = &n
		body, _ = json.Marshal(d) //nolint:errchkjson // text and numbers only
	}
	return body
}
