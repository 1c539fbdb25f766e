package notice

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Channel groups notices by what they are about.
type Channel string

// The channels.
const (
	Health      Channel = "service_health"
	Resync      Channel = "service_resync"
	Breaker     Channel = "circuit_breaker"
	Degradation Channel = "degradation"
)

// A Severity says how much a notice matters.
type Severity string

// The severities.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// A Notice is one message.
type Notice struct {
	// ID numbers the notices of one board, from 1. Post sets it.
	ID      uint64   `json:"id"`
	Channel Channel  `json:"channel"`
	Kind    string   `json:"kind"` // such as resync, breaker_opened, recovered
	Level   Severity `json:"severity"`
	// At is when it happened. Post sets it where it is zero.
	At   time.Time `json:"at"`
	Node string    `json:"node"`
	// Text says in one sentence what happened and what to do.
	Text string `json:"text"`
	// Fields are particulars by snake_case names; no payloads, tokens or secrets.
	Fields map[string]any `json:"fields,omitempty"`
	// Past says that it is from the cluster's history: it was posted before this process looked there first.
	Past bool `json:"past,omitempty"`
	// Relayed says that another process posted it, and tells of it in its own way.
	Relayed bool `json:"-"`
}

// Config configures a Board.
type Config struct {
	// Node names the node in every notice.
	Node string
	// Keep is how many notices are kept. Defaults to 1000.
	Keep int
	// Logger gets every notice that is posted here. Defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// A Board takes notices and lets readers follow them.
type Board struct {
	cfg     Config
	metrics metrics

	mu struct {
		sync.Mutex
		kept    []Notice
		last    uint64
		changed chan struct{} // closed and replaced with each notice
	}
}

// NewBoard makes an empty board.
func NewBoard(cfg Config) *Board {
	cfg.Keep = cmp.Or(cfg.Keep, 1000)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	b := &Board{cfg: cfg, metrics: newMetrics(cfg.Registerer)}
	b.mu.changed = make(chan struct{})
	return b
}

// Post adds a notice and writes it to the log. It never blocks. A nil board discards.
func (b *Board) Post(n Notice) {
	if b == nil {
		return
	}
	n.Node, n.Past, n.Relayed = b.cfg.Node, false, false
	if n.At.IsZero() {
		n.At = time.Now()
	}
	b.add(n)
	b.metrics.posted.WithLabelValues(string(n.Channel), string(n.Level)).Inc()
	b.log(n)
}

// Relay adds what other processes have posted, with their nodes and times. It is in their logs, and not in this one's. It never blocks.
func (b *Board) Relay(notices ...Notice) {
	for i := range notices {
		notices[i].Relayed = true
	}
	b.add(notices...)
}

// add numbers notices and keeps them.
func (b *Board) add(notices ...Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range notices {
		b.mu.last++
		n.ID = b.mu.last
		b.mu.kept = append(b.mu.kept, n)
	}
	if over := len(b.mu.kept) - b.cfg.Keep; over > 0 {
		b.mu.kept = slices.Delete(b.mu.kept, 0, over)
	}
	close(b.mu.changed)
	b.mu.changed = make(chan struct{})
}

// log writes the notice to the log.
func (b *Board) log(n Notice) {
	log := b.cfg.Logger.Info
	switch n.Level {
	case Warning:
		log = b.cfg.Logger.Warn
	case Critical:
		log = b.cfg.Logger.Error
	case Info:
	}
	args := []any{"text", n.Text, "channel", string(n.Channel), "kind", n.Kind}
	for _, name := range slices.Sorted(maps.Keys(n.Fields)) {
		args = append(args, name, n.Fields[name])
	}
	log("notice", args...)
}

// Since returns the kept notices after the one with the id, oldest first, and how many before them are kept no more.
func (b *Board) Since(id uint64) (notices []Notice, missed uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since(id)
}

func (b *Board) since(id uint64) (notices []Notice, missed uint64) {
	i, _ := slices.BinarySearchFunc(b.mu.kept, id+1, func(n Notice, id uint64) int { return cmp.Compare(n.ID, id) })
	notices = slices.Clone(b.mu.kept[i:])
	if len(notices) > 0 && notices[0].ID > id+1 {
		missed = notices[0].ID - id - 1
	}
	return notices, missed
}

// Follow waits until there are notices after the one with the id, and returns them as Since does. It returns the context's cause when
// that ends first.
func (b *Board) Follow(ctx context.Context, id uint64) (notices []Notice, missed uint64, err error) {
	for {
		b.mu.Lock()
		notices, missed = b.since(id)
		changed := b.mu.changed
		b.mu.Unlock()
		if len(notices) > 0 {
			return notices, missed, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}
