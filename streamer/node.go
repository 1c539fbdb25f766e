package streamer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
)

// ErrStopping says that the node takes no more sessions or terms.
var ErrStopping = errors.New("the node is stopping")

// NodeConfig configures a Node.
type NodeConfig struct {
	// Origin is what the first start wrote. Required.
	Origin checkpoint.Origin
	// Fingerprint names what the log's streams are opened with.
	Fingerprint string
	// By names this node in its checkpoints.
	By string
	// Namespaces are those that the log's streams watch; empty means everything. They go into what subscribers hear of a rewind.
	Namespaces []string
	// Range tells how far MongoDB's oplog goes. Required.
	Range *oplog.Range
	// Board takes notices; nil for none.
	Board *notice.Board
	// Policy says when checkpoints are saved.
	Policy checkpoint.Policy
	// LagThreshold is the lag above which a partition is lagging. Defaults to 30 s.
	LagThreshold time.Duration
	// Overlap is how long a stop goes on serving exclusive subscribers, which find another node meanwhile; zero where there is none.
	Overlap time.Duration
	// FlushTimeout bounds how long a stop waits for shared subscribers to acknowledge. Defaults to 10 s.
	FlushTimeout time.Duration
	// CheckpointTimeout bounds a save. Defaults to 5 s.
	CheckpointTimeout time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// Checkpoints is where a node keeps checkpoints.
type Checkpoints interface {
	checkpoint.Store
	checkpoint.Claimer
	checkpoint.GapKeeper
}

// A Node serves subscribers from its reading of the log, keeps their checkpoints, and knows how the partitions do that it owns.
type Node struct {
	cfg    NodeConfig
	hub    *Hub
	log    *oplog.Log
	store  Checkpoints
	writer *checkpoint.Writer
	logger *slog.Logger
	begun  time.Time
	gone   chan struct{} // holds one signal: an exclusive subscriber has left

	lifetime context.Context //nolint:containedctx // of the node, made by New and ended by Run
	stop     context.CancelCauseFunc

	serving chan struct{} // holds one while terms come or go, which a claim and a handoff may both bring
	mu      struct {
		sync.Mutex
		consumers map[change.Partition]*consumer
		exclusive map[string]*Exclusive // by name
		shared    []*Shared
		stopping  bool
	}
}

// NewNode makes a Node of a hub over a log. Serve gives it terms, Run moves it.
func NewNode(cfg NodeConfig, hub *Hub, log *oplog.Log, store Checkpoints) *Node {
	cfg.LagThreshold = cmp.Or(cfg.LagThreshold, 30*time.Second)
	cfg.FlushTimeout = cmp.Or(cfg.FlushTimeout, 10*time.Second)
	cfg.CheckpointTimeout = cmp.Or(cfg.CheckpointTimeout, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	n := &Node{
		cfg: cfg, hub: hub, log: log, store: store, logger: cfg.Logger, begun: time.Now(), gone: make(chan struct{}, 1), serving: make(chan struct{}, 1),
		writer: checkpoint.NewWriter(checkpoint.WriterConfig{
			Policy: cfg.Policy, SaveTimeout: cfg.CheckpointTimeout, Fingerprint: cfg.Fingerprint, By: cfg.By, Partitions: cfg.Origin.Partitions,
			Logger: cfg.Logger, Registerer: cfg.Registerer,
		}, store, store),
	}
	n.lifetime, n.stop = context.WithCancelCause(context.Background())
	n.mu.consumers, n.mu.exclusive = make(map[change.Partition]*consumer), make(map[string]*Exclusive)
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(gauges{n.Status, n.Subscribers})
	}
	return n
}

// Lost hears of a loss that a reader of the log has found: it goes into the gap log before any checkpoint passes it, and operators are told.
// It does not block.
func (n *Node) Lost(l oplog.Loss) {
	g := checkpoint.Gap{
		From: l.From, To: l.To, Reason: string(l.Reason), Namespaces: l.Namespaces, Fingerprint: n.cfg.Fingerprint, Found: l.Found, By: n.cfg.By,
	}
	if l.Reason != gap.Renamed { // the log has everything
		n.writer.Lost(g)
	}
	n.cfg.Board.Post(lostNotice(l))
}

// Heard takes an answer of MongoDB on how far its oplog goes: what is about to leave it catches up first, and quiet checkpoints keep up.
func (n *Node) Heard(reach gap.Reach, floor change.Timestamp) {
	n.log.SetReach(reach, floor)
	n.writer.SetReach(reach.Length())
}

// Run serves until the context ends, and then stops softly; or until the log fails for good.
func (n *Node) Run(ctx context.Context) error {
	stopped := context.AfterFunc(ctx, func() { n.beginStop(nil) })
	defer stopped()
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	wg.Go(func() {
		if err := n.runLog(background); err != nil {
			n.beginStop(err)
		}
	})
	wg.Go(func() {
		if err := n.hub.Run(background); err != nil {
			n.beginStop(err)
		}
	})
	wg.Go(func() { n.writer.Run(background) })
	wg.Go(func() { n.cfg.Range.Run(background) })
	wg.Go(func() { n.runPulse(background) })

	<-n.lifetime.Done()
	err := context.Cause(n.lifetime) //nolint:contextcheck // the cause of the end, not a context to work under
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	overlap := n.cfg.Overlap
	if err != nil {
		overlap = 0 // the log is not read any more
	}
	n.partWith(overlap)
	return errors.Join(err, n.shutdown(context.WithoutCancel(ctx)))
}

// runLog opens the log where the shared subscribers are and reads it until the context ends.
func (n *Node) runLog(ctx context.Context) error {
	reach, err := n.cfg.Range.Recently(ctx)
	if err != nil {
		return nil //nolint:nilerr // only the context's end makes it give up
	}
	var starts []change.Position
	for _, s := range n.sharedSubscribers() {
		for _, at := range s.session.Standing().Partitions {
			starts = append(starts, at)
		}
	}
	return n.log.Run(ctx, oplog.TailStart(starts, reach.Last))
}

// beginStop takes no more sessions and terms, and tells exclusive subscribers, so that they go on elsewhere at once. A nil cause is a planned
// stop.
func (n *Node) beginStop(cause error) {
	n.mu.Lock()
	n.mu.stopping = true
	n.mu.Unlock()
	for _, e := range n.exclusives() {
		e.session.Notify(Notice{
			Kind: "shutting_down", Text: "The node stops: connect to another one.", Code: fault.NodeStopping, At: time.Now(),
		})
	}
	n.stop(cause)
}

// partWith serves exclusive subscribers until they have left, or for so long, and ends the sessions of those that are still there.
func (n *Node) partWith(within time.Duration) {
	over := time.NewTimer(within)
	defer over.Stop()
	for waiting := true; waiting && len(n.exclusives()) > 0; {
		select {
		case <-n.gone:
		case <-over.C:
			waiting = false
		}
	}
	for _, e := range n.exclusives() {
		e.session.Close(fault.Newf(fault.NodeStopping, "the node stops"))
	}
}

// shutdown waits for what was handed to shared subscribers to be acknowledged, saves the last checkpoints, and closes the sessions.
func (n *Node) shutdown(ctx context.Context) error {
	flush, cancel := context.WithTimeout(ctx, n.cfg.FlushTimeout)
	defer cancel()
	for _, s := range n.sharedSubscribers() {
		if left := s.drain(flush); left > 0 {
			n.logger.Warn("not everything was acknowledged in time; the rest is redelivered after the restart", "subscriber", s.name, "events", left)
		}
	}
	save, cancel := context.WithTimeout(ctx, n.cfg.CheckpointTimeout)
	defer cancel()
	err := n.writer.Flush(save, checkpoint.ReasonFinal)
	n.hub.Stop(fault.Newf(fault.NodeStopping, "the node stops"))
	if err != nil {
		return fmt.Errorf("save the last checkpoints: %w", err)
	}
	return nil
}

// Failing reports whether checkpoints cannot be saved.
func (n *Node) Failing() bool { return n.writer.Failing() }

// Uptime returns for how long the node has been there.
func (n *Node) Uptime() time.Duration { return time.Since(n.begun) }

// Hub returns the node's hub.
func (n *Node) Hub() *Hub { return n.hub }

func (n *Node) exclusives() (all []*Exclusive) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.mu.exclusive {
		all = append(all, e)
	}
	return all
}

func (n *Node) sharedSubscribers() []*Shared {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.shared)
}
