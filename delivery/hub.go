package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/snapshot"
)

// Config configures a Hub.
type Config struct {
	// Partitions is N. Required.
	Partitions int
	// Halt ends sessions affected by a loss of history with the fault LogHistoryLost, instead of
	// reporting the loss to them.
	Halt bool
	// CreditEvents and CreditBytes bound the events of a session that are queued or sent and not
	// acknowledged. Default to 65536 and 16 MiB. One reply of MongoDB may exceed them.
	CreditEvents, CreditBytes int
	// QueueBytes bounds what all sessions together have queued or sent and not acknowledged, in
	// bytes of memory; see fair.Memory. 0 means no bound.
	QueueBytes int
	// Bookmark is the interval at which idle sessions receive their position. Defaults to 15 s. In
	// an oplog of less than 2 minutes it is at most 5 s, so that positions do not leave it.
	Bookmark time.Duration
	// Snapshots reads the documents of snapshots. Optional. SnapshotRate bounds the documents read;
	// nil means no limit.
	Snapshots    snapshot.Source
	SnapshotRate *rate.Limiter
	// SnapshotPage is how many documents are read at a time. Defaults to 512.
	SnapshotPage int
	// Covers reports whether changes of a namespace are read, of some collection with an empty
	// Coll, of some database with an empty DB. Subscriptions to other namespaces, and reads of
	// their documents, are refused. nil covers all.
	Covers func(change.Namespace) bool
	// Kinds returns the kinds of databases and collections, as far as they are known. A
	// subscription to a namespace without changes is refused; a subscriber to one that does not
	// exist yet gets a notice. Optional.
	Kinds func(context.Context, []change.Namespace) (map[change.Namespace]change.NamespaceKind, error)
	// Range is the extent of the oplog. Required for Page; without it no oplog is short.
	Range *oplog.Range
	// Recover are collections whose documents every subscription of them gets again after a loss.
	Recover []change.Namespace
	// Stall is called before each turn of the loop, and delays it. It is for demonstrations of a
	// hub that hangs; nil otherwise. It must return when its context ends.
	Stall func(ctx context.Context)
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
	// Tracer records snapshots. Optional.
	Tracer trace.Tracer
}

// A Hub serves the log to sessions. Any goroutine may call its methods; a loop is its other half.
type Hub struct {
	cfg      Config
	log      *oplog.Log
	metrics  metrics
	memory   *fair.Memory
	accounts *fair.Accounts
	compiler *match.Compiler
	turns    *snapshot.Turns
	reads    *snapshot.Reads
	retries  *retries
	spares   spares
	kinds    kinds

	commands chan func(*loop) // for the loop
	poked    chan struct{}    // holds one signal: a live session has mail
	stopped  chan struct{}    // closed when Run has returned
	loops    sync.WaitGroup   // of sessions and listings
	lastKey  atomic.Uint64    // of subscriptions
	pulse    pulse

	mu struct {
		sync.Mutex
		at       change.Position
		sessions map[*Session]struct{}
		mail     []*Session
		events   []uint64
		closing  error              // why new sessions are refused
		restart  context.CancelFunc // ends the loop that runs
		losses   []rememberedLoss   // recent ones, oldest first
	}
}

// A pulse says whether the loop makes progress.
type pulse struct {
	turns   atomic.Uint64
	turning *health.Loop
	behind  health.Progress // of the caller of Age
}

// New returns a Hub of a log.
func New(cfg Config, log *oplog.Log) *Hub {
	cfg.CreditEvents = cmp.Or(cfg.CreditEvents, 65536)
	cfg.CreditBytes = cmp.Or(cfg.CreditBytes, 16<<20)
	cfg.Bookmark = cmp.Or(cfg.Bookmark, 15*time.Second)
	cfg.SnapshotPage = cmp.Or(cfg.SnapshotPage, 512)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	h := &Hub{
		cfg: cfg, log: log, memory: fair.NewMemory(cfg.QueueBytes), accounts: fair.NewAccounts(), compiler: match.NewCompiler(programBytes),
		turns: snapshot.NewTurns(cfg.SnapshotRate), reads: snapshot.NewReads(), retries: newRetries(),
		commands: make(chan func(*loop)), poked: make(chan struct{}, 1), stopped: make(chan struct{}),
		pulse: pulse{turning: health.NewLoop()},
	}
	h.mu.sessions = make(map[*Session]struct{})
	h.mu.events = make([]uint64, cfg.Partitions)
	h.metrics = newMetrics(cfg.Registerer, h.Load, h.accounts.Strain)
	return h
}

// programBytes bounds the programs that are remembered for subscriptions to come.
const programBytes = 32 << 20

// A loop is the half of a Hub that only the goroutine of Run may touch. Functions that have a loop
// are called by that goroutine; others go through Hub.do.
type loop struct {
	*Hub

	start         func(func(context.Context)) // runs a function concurrently with the loop; its context ends with Run
	at            change.Position             // everything up to here has been considered on the live path; zero while unknown
	drained       bool                        // the log had nothing more there, so that no event of its time follows
	index         *match.Index                // subscriptions of the live sessions
	subscriptions map[match.ID]*Subscription
	live          map[*Session]*stream
	leavers       leavers  // of the live sessions
	events        []uint64 // by partition, since the start
	costs         costs

	// Of the current event and reply.
	writer  Writer
	found   []match.ID
	getting []*stream            // sessions that receive the current event, for the subscriptions in stream.matched
	touched map[*stream]struct{} // by the current reply
	bound   bool                 // a loss has the position of the current event: a session that has got it cannot leave before it
	pending int                  // bytes in open batches of the current reply, which the budget does not count yet

	// Of snapshots.
	scanner  *snapshot.Scanner[*Subscription]
	unlisted map[change.Namespace][]listing // that wait for the collections; there is a key while these are listed
	listings []listing                      // that wait for the Hub to reach their time
	waiting  map[*Session][]*reader         // until their sessions may get a page
	awaited  bool                           // one of them waits because its session is later than the Hub
}

// A rememberedLoss is a loss of late. The loser is that of Session.loser.
type rememberedLoss struct {
	*oplog.Loss

	loser string
}

// A listing is the collections of a subscription's snapshot.
type listing struct {
	sub         *Subscription
	collections []snapshot.Collection
	at          change.Timestamp
	losses      int // that the subscription knew when the listing began
}

// costs are the costs of the live path, as the Hub's loop measures them.
type costs struct {
	*fair.Live

	asked   *Subscription // whose filter is being evaluated
	granted int           // for that
	refused []*stream     // that leave before the current event
}

func (h *Hub) newLoop(running context.Context) *loop {
	l := &loop{
		Hub: h, start: func(f func(context.Context)) { h.loops.Go(func() { f(running) }) },
		index: &match.Index{}, subscriptions: make(map[match.ID]*Subscription), leavers: make(leavers), live: make(map[*Session]*stream),
		events: make([]uint64, h.cfg.Partitions), touched: make(map[*stream]struct{}), waiting: make(map[*Session][]*reader), unlisted: make(map[change.Namespace][]listing), costs: costs{Live: fair.NewLive(h.accounts)},
	}
	l.scanner = snapshot.NewScanner(running, snapshot.Config[*Subscription]{
		Source: h.cfg.Snapshots, Sessions: l, Turns: h.turns, Reads: h.reads, Logger: h.cfg.Logger,
		Do:        func(ctx context.Context, f func()) bool { return h.do(ctx, func(*loop) { f() }) },
		Documents: func(readers int) int { return min(h.cfg.SnapshotPage, h.memory.Events(readers)) },
	})
	return l
}

// Restart ends the loop and starts a new one: every live session leaves the live path at its place,
// and loses nothing. It does not wait, and has no effect on a loop that hangs.
func (h *Hub) Restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.restart != nil {
		h.mu.restart()
	}
}

// Age returns how long the loop has made no progress although it had work. Only one goroutine may
// call it.
func (h *Hub) Age() time.Duration {
	end := h.log.End()
	at := h.Position()
	return max(h.pulse.turning.Age(), h.pulse.behind.Age(h.pulse.turns.Load(), end.After(at), time.Now()))
}

// do calls a function in the loop between two replies and waits for it. It returns false if the Hub
// has stopped or the context ends first.
func (h *Hub) do(ctx context.Context, f func(*loop)) bool {
	did := make(chan struct{})
	select {
	case h.commands <- func(l *loop) { f(l); close(did) }:
		<-did
		return true
	case <-h.stopped:
		return false
	case <-ctx.Done():
		return false
	}
}

// poke asks the loop to check a session's mailbox.
func (h *Hub) poke(s *Session) {
	h.mu.Lock()
	h.mu.mail = append(h.mu.mail, s)
	h.mu.Unlock()
	wake.Notify(h.poked)
}

// Position returns the position up to which the Hub has considered the log.
func (h *Hub) Position() change.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.at
}

// Stop closes the sessions with the error and refuses new ones.
func (h *Hub) Stop(cause error) {
	h.mu.Lock()
	if h.mu.closing == nil {
		h.mu.closing = cause
	}
	sessions := slices.Collect(maps.Keys(h.mu.sessions))
	h.mu.Unlock()
	for _, s := range sessions {
		s.Close(cause)
	}
}

// Sessions returns the sessions.
func (h *Hub) Sessions() []*Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.mu.sessions))
}

// fail reports an error of a subscription to its session.
func (h *Hub) fail(sub *Subscription, err error) {
	h.metrics.failed.Inc()
	sub.failed.Add(err)
}

// Events returns the number of events by partition since the start.
func (h *Hub) Events() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]uint64(nil), h.mu.events...)
}

// Load returns the current load.
func (h *Hub) Load() (l Load) {
	l.Ready = !h.Position().IsZero()
	l.Held = h.memory.Bytes()
	for _, s := range h.Sessions() {
		s.mu.Lock()
		if s.mu.live {
			l.Live++
		} else {
			l.CatchingUp++
		}
		l.Bytes += s.mu.bytes
		for _, p := range s.mu.snapshots {
			if !p.Done {
				l.Snapshots++
			}
		}
		s.mu.Unlock()
	}
	return l
}
