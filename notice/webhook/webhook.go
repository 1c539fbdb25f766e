package webhook

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

	"github.com/mongostream/streamer/notice"
)

// Config configures a Sender.
type Config struct {
	// URL is where to post. Required.
	URL string
	// Secret is what deliveries are signed with. Required.
	Secret string
	// Cluster is the name of the cluster in each delivery, Node that of the node.
	Cluster, Node string
	// Timeout bounds an attempt. Defaults to 5 s.
	Timeout time.Duration
	// Attempts is how often a delivery is tried. Defaults to 8, which takes about a minute.
	Attempts int
	// Window is the time in which at most one summary is sent, and Burst the notices of each severity that go singly in it. Default to
	// 1 min and 10.
	Window time.Duration
	Burst  int
	// Queue bounds the deliveries that wait. Defaults to 100.
	Queue int
	// Lowest is the least severity that is sent. Defaults to notice.Info.
	Lowest notice.Severity
	// Transport carries the requests. Defaults to one of the Sender's own, which uses the proxy of the environment.
	Transport http.RoundTripper
	// Logger hears of deliveries that fail. Defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// A Delivery is the body of a request. It has either a notice or a summary of several.
type Delivery struct {
	// ID names the delivery, each time it is tried.
	ID      string         `json:"delivery"`
	Cluster string         `json:"cluster"`
	Node    string         `json:"node"`
	Notice  *notice.Notice `json:"notice,omitempty"`
	Summary *Summary       `json:"summary,omitempty"`
}

// A Sender sends what is posted on a board.
type Sender struct {
	cfg     Config
	board   *notice.Board
	client  *http.Client
	metrics metrics
	queue   chan Delivery
}

// New makes a Sender.
func New(cfg Config, board *notice.Board) *Sender {
	cfg.Timeout, cfg.Attempts = cmp.Or(cfg.Timeout, 5*time.Second), cmp.Or(cfg.Attempts, 8)
	cfg.Window, cfg.Burst = cmp.Or(cfg.Window, time.Minute), cmp.Or(cfg.Burst, 10)
	cfg.Queue, cfg.Lowest = cmp.Or(cfg.Queue, 100), cmp.Or(cfg.Lowest, notice.Info)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: cfg.Timeout,
			MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		}
	}
	s := &Sender{cfg: cfg, board: board, queue: make(chan Delivery, cfg.Queue)}
	s.client = &http.Client{
		Transport: cfg.Transport, Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.metrics = newMetrics(cfg.Registerer, func() float64 { return float64(len(s.queue)) })
	return s
}

// closing bounds what a stop may take.
const closing = 5 * time.Second

// Run sends until the context ends; what waits then is tried once more, all within Config.Timeout and five seconds.
func (s *Sender) Run(ctx context.Context) {
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

// runThrottling follows the board and puts into the queue what is to be sent, until the context ends; then it closes the queue.
func (s *Sender) runThrottling(ctx context.Context) {
	defer close(s.queue)
	t := newThrottle(s.cfg.Window, s.cfg.Burst)
	for last := uint64(0); ; {
		wait, cancel := ctx, context.CancelFunc(func() {})
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
		if now := time.Now(); ctx.Err() != nil && err != nil || !t.ends.IsZero() && !now.Before(t.ends) {
			s.summarise(t, now)
		}
		if ctx.Err() != nil && err != nil {
			return
		}
	}
}

// errWindow ends the waiting for notices with the window.
var errWindow = errors.New("the window has ended")

// take sends a notice by itself, or counts it.
func (s *Sender) take(t *throttle, n notice.Notice) {
	if n.Relayed || rank(n.Level) < rank(s.cfg.Lowest) {
		return
	}
	if t.single(time.Now(), n.Level) && s.offer(Delivery{Notice: &n}) {
		return
	}
	s.metrics.summarised.Inc()
	t.count(n)
}

// summarise ends the window, and sends what it has held back. Where the queue is full that stays for the next.
func (s *Sender) summarise(t *throttle, now time.Time) {
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

// offer puts a delivery into the queue, unless that is full.
func (s *Sender) offer(d Delivery) bool {
	d.ID, d.Cluster, d.Node = rand.Text(), s.cfg.Cluster, s.cfg.Node
	select {
	case s.queue <- d:
		return true
	default:
		return false
	}
}

// encode writes a delivery. A particular that JSON has no form for costs the notice its particulars.
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
