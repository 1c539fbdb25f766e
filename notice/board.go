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

// A Channel groups notices by topic.
type Channel string

// The channels.
const (
	Health      Channel = "service_health"
	Resync      Channel = "service_resync"
	Breaker     Channel = "circuit_breaker"
	Degradation Channel = "degradation"
	Audit       Channel = "audit" // connections and the operations of operators; never sent to gateways or webhooks
)

// A Severity is the importance of a notice.
type Severity string

// The severities.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// A Notice is one message.
type Notice struct {
	// ID numbers the notices of a board, from 1. Post sets it.
	ID      uint64   `json:"id"`
	Channel Channel  `json:"channel"`
	Kind    string   `json:"kind"` // such as resync, breaker_opened, recovered
	Level   Severity `json:"severity"`
	// At is when it happened. Post sets it if it is zero.
	At   time.Time `json:"at"`
	Node string    `json:"node"`
	// Text says in one sentence what happened and what to do.
	Text string `json:"text"`
	// Fields are details with snake_case names; no payloads, tokens or secrets.
	Fields map[string]any `json:"fields,omitempty"`
	// Past says that the notice is from the cluster's history and was posted before this process
	// loaded it.
	Past bool `json:"past,omitempty"`
	// Relayed says that another process posted the notice, and logs and sends it.
	Relayed bool `json:"-"`
}

// Config configures a Board.
type Config struct {
	// Node is the name of the node in notices.
	Node string
	// Keep is the number of notices kept of each History. Defaults to 1000.
	Keep int
	// Logger logs each notice posted here. Defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// A Board keeps recent notices and lets readers follow them.
type Board struct {
	cfg     Config
	metrics metrics

	mu struct {
		sync.Mutex
		kept    []Notice
		last    uint64
		posted  tally         // so far
		changed chan struct{} // closed and replaced with each notice
	}
}

// NewBoard returns an empty board.
func NewBoard(cfg Config) *Board {
	cfg.Keep = cmp.Or(cfg.Keep, 1000)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	b := &Board{cfg: cfg, metrics: newMetrics(cfg.Registerer)}
	b.mu.changed = make(chan struct{})
	return b
}

// Post adds and logs a notice. It never blocks. A nil board discards it.
func (b *Board) Post(n Notice) {
	if b == nil {
		return
	}
	n.Node = b.cfg.Node
	n.Past = false
	n.Relayed = false
	if n.At.IsZero() {
		n.At = time.Now()
	}
	b.add(n)
	b.metrics.posted.WithLabelValues(string(n.Channel), string(n.Level)).Inc()
	b.log(n)
}

// Relay adds notices that other processes have posted, with their nodes and times. It does not log
// them. It never blocks.
func (b *Board) Relay(notices ...Notice) {
	for i := range notices {
		notices[i].Relayed = true
	}
	b.add(notices...)
}

// add numbers and keeps notices.
func (b *Board) add(notices ...Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range notices {
		b.mu.last++
		n.ID = b.mu.last
		b.mu.kept = append(b.mu.kept, n)
		b.mu.posted.add(n)
	}
	b.mu.kept, _ = newest(b.mu.kept, b.cfg.Keep)
	close(b.mu.changed)
	b.mu.changed = make(chan struct{})
}

// last returns the ID of the newest notice.
func (b *Board) last() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.last
}

// log writes the notice to the log: its sentence is the message.
func (b *Board) log(n Notice) {
	log := b.cfg.Logger.Info
	switch n.Level {
	case Warning:
		log = b.cfg.Logger.Warn
	case Critical:
		log = b.cfg.Logger.Error
	case Info:
	}
	args := []any{"channel", string(n.Channel), "kind", n.Kind}
	for _, name := range slices.Sorted(maps.Keys(n.Fields)) {
		args = append(args, name, n.Fields[name])
	}
	log(n.Text, args...)
}

// Since returns the kept notices after id, oldest first, and how many before them have been
// dropped.
func (b *Board) Since(id uint64) (notices []Notice, missed uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since(id)
}

func (b *Board) since(id uint64) (notices []Notice, missed uint64) {
	i, _ := slices.BinarySearchFunc(b.mu.kept, id+1, func(n Notice, id uint64) int { return cmp.Compare(n.ID, id) })
	notices = slices.Clone(b.mu.kept[i:])
	if len(notices) > 0 {
		missed = b.mu.last - id - uint64(len(notices))
	}
	return notices, missed
}

// Follow waits until there are notices after id and returns them as Since does. If the context ends
// first, it returns its cause.
func (b *Board) Follow(ctx context.Context, id uint64) (notices []Notice, missed uint64, err error) {
	notices, missed, _, err = b.follow(ctx, id)
	return notices, missed, err
}

// follow is Follow, and counts the posts up to the last of the notices.
func (b *Board) follow(ctx context.Context, id uint64) (notices []Notice, missed uint64, posted tally, err error) {
	for {
		b.mu.Lock()
		notices, missed = b.since(id)
		posted = b.mu.posted
		changed := b.mu.changed
		b.mu.Unlock()
		if len(notices) > 0 {
			return notices, missed, posted, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, tally{}, context.Cause(ctx)
		}
	}
}

// A tally counts notices of this process: all of them, and those of operators.
type tally struct{ all, operated uint64 }

// tallied counts notices.
func tallied(notices []Notice) (t tally) {
	t.add(notices...)
	return t
}

// add counts notices, without those of other processes.
func (t *tally) add(notices ...Notice) {
	for _, n := range notices {
		if n.Relayed {
			continue
		}
		t.all++
		if n.History() == Operations {
			t.operated++
		}
	}
}
