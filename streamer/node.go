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
	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
)

// ErrStopping says that the node is stopping and accepts no sessions or terms.
var ErrStopping = errors.New("node is stopping")

// NodeConfig configures a Node.
type NodeConfig struct {
	// Origin is the origin of the cluster, written at the first start. Required.
	Origin checkpoint.Origin
	// Fingerprint identifies the pipeline of the change streams.
	Fingerprint string
	// Coverage is the coverage of the change streams.
	Coverage change.Coverage
	// By is the name of this node in its checkpoints.
	By string
	// Namespaces are the watched namespaces, for rewind notices; empty means all.
	Namespaces []string
	// Range provides the extent of MongoDB's oplog. Required.
	Range *oplog.Range
	// Board receives notices. Optional.
	Board *notice.Board
	// Policy says when checkpoints are saved.
	Policy checkpoint.Policy
	// AnswerTimeout bounds how long a subscriber that connects waits for MongoDB. Defaults to 10 s.
	AnswerTimeout time.Duration
	// LagThreshold is the lag above which a partition is lagging. Defaults to 30 s.
	LagThreshold time.Duration
	// Overlap is how long a stopping node serves exclusive subscribers while they connect to
	// another node; zero if there is none.
	Overlap time.Duration
	// AckTimeout is the time after which a session of an exclusive subscriber that acknowledges
	// none of its changes ends with the fault SessionUnacknowledged; 0 means never.
	AckTimeout time.Duration
	// FlushTimeout bounds the wait for acknowledgements of shared subscribers at shutdown. Defaults
	// to 10 s.
	FlushTimeout time.Duration
	// CheckpointTimeout bounds a save. Defaults to 5 s.
	CheckpointTimeout time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// Checkpoints is the store of a node.
type Checkpoints interface {
	checkpoint.Store
	checkpoint.Claimer
	checkpoint.GapKeeper
}

// A Node serves subscribers from its log, saves their checkpoints, and reports the status of the
// partitions that it owns.
type Node struct {
	cfg    NodeConfig
	hub    *delivery.Hub
	log    *oplog.Log
	store  Checkpoints
	writer *checkpoint.Writer
	logger *slog.Logger
	begun  time.Time
	gone   chan struct{} // holds one signal: an exclusive subscriber has left

	restarts restarts
	told     *rate.Limiter // of notices about names

	lifetime context.Context //nolint:containedctx // of the node, made by New and ended by Run
	stop     context.CancelCauseFunc

	serving chan struct{} // held while terms are added or removed, by a claim or by a handoff
	mu      struct {
		sync.Mutex
		consumers map[change.Partition]*consumer
		served    map[change.Partition]bool // partitions that it serves or served before
		exclusive map[string]*Exclusive     // by name
		shared    []*Shared
		stopping  bool
	}
}

// NewNode returns a Node. Serve adds terms; Run runs it.
func NewNode(cfg NodeConfig, hub *delivery.Hub, log *oplog.Log, store Checkpoints) *Node {
	cfg.LagThreshold = cmp.Or(cfg.LagThreshold, 30*time.Second)
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, 10*time.Second)
	cfg.FlushTimeout = cmp.Or(cfg.FlushTimeout, 10*time.Second)
	cfg.CheckpointTimeout = cmp.Or(cfg.CheckpointTimeout, 5*time.Second)
	cfg.Coverage = *cfg.Coverage.Bounded()
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	n := &Node{
		cfg: cfg, hub: hub, log: log, store: store, logger: cfg.Logger, begun: time.Now(), gone: make(chan struct{}, 1), serving: make(chan struct{}, 1),
		told: rate.NewLimiter(1, 20),
		writer: checkpoint.NewWriter(checkpoint.WriterConfig{
			Policy: cfg.Policy, SaveTimeout: cfg.CheckpointTimeout, Fingerprint: cfg.Fingerprint, By: cfg.By, Partitions: cfg.Origin.Partitions,
			Coverage: cfg.Coverage,
			Logger:   cfg.Logger, Registerer: cfg.Registerer,
		}, store, store),
	}
	n.restarts = newRestarts()
	n.lifetime, n.stop = context.WithCancelCause(context.Background())
	n.mu.consumers, n.mu.served = make(map[change.Partition]*consumer), make(map[change.Partition]bool)
	n.mu.exclusive = make(map[string]*Exclusive)
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(gauges{n.Status, n.Subscribers}, n.restarts)
	}
	return n
}

// Lost records a loss that the tail has found in the gap log before any checkpoint passes it, and
// posts a notice. It does not block. What subscribers lose alone, because they come back too late,
// is kept in their own checkpoints.
func (n *Node) Lost(l oplog.Loss) {
	g := checkpoint.Gap{
		From: l.From, To: l.To, Reason: string(l.Reason), Namespaces: l.Namespaces, Fingerprint: n.cfg.Fingerprint, Found: l.Found, By: n.cfg.By,
	}
	if l.Reason != gap.Renamed { // nothing is missing
		n.writer.Lost(g)
	}
	n.cfg.Board.Post(lostNotice(l))
}

// rememberLosses passes the losses in the gap log to the hub: partitions that clients attach may
// come from a node that has met them.
func (n *Node) rememberLosses(ctx context.Context) {
	wait := retry.Backoff{First: time.Second, Longest: 30 * time.Second}
	for attempt := 1; ; attempt++ {
		gaps, err := n.store.Gaps(ctx)
		for _, g := range gaps { // with an error those that can be read
			n.remember(g, "")
		}
		if err == nil || fault.Of(err) == fault.CheckpointCorrupt || wait.Wait(ctx, attempt) != nil {
			return
		}
	}
}

// remember tells the hub of a loss that is kept: everybody's, or that of a subscriber.
func (n *Node) remember(g checkpoint.Gap, subscriber string) {
	n.hub.Remember(oplog.Loss{
		From: g.From, To: g.To, Reason: gap.Reason(g.Reason), Namespaces: g.Namespaces, Found: g.Found, Tail: subscriber == "",
	}, subscriber)
}

// lossesOf returns the losses of a subscriber alone, in the form in which its checkpoint keeps
// them.
func (n *Node) lossesOf(st delivery.SessionState) []checkpoint.Gap {
	kept := make([]checkpoint.Gap, len(st.Lost))
	for i, l := range st.Lost {
		kept[i] = checkpoint.Gap{From: l.From, To: l.To, Reason: l.Reason, Namespaces: l.Namespaces, Found: l.Found, By: n.cfg.By}
	}
	return kept
}

// Heard applies the current extent of the oplog: readers about to leave it are prioritized, and
// idle checkpoints are advanced.
func (n *Node) Heard(reach gap.Reach, floor change.Timestamp) {
	n.log.SetReach(reach, floor)
	n.writer.SetReach(reach.Length())
}

// Run serves until the context ends, and then shuts down gracefully; or until the log fails
// permanently.
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
	wg.Go(func() { n.rememberLosses(background) })
	wg.Go(func() { n.cfg.Range.Run(background) })
	wg.Go(func() { n.runPulse(background) })

	<-n.lifetime.Done()
	err := context.Cause(n.lifetime) //nolint:contextcheck // only the cause is used
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	overlap := n.cfg.Overlap
	if err != nil {
		overlap = 0 // the log is no longer read
	}
	n.drainExclusive(overlap)
	return errors.Join(err, n.shutdown(context.WithoutCancel(ctx)))
}

// runLog opens the log at the positions of the shared subscribers and reads it until the context
// ends.
func (n *Node) runLog(ctx context.Context) error {
	reach, err := n.cfg.Range.Recently(ctx)
	if err != nil {
		return nil //nolint:nilerr // it fails only when the context ends
	}
	var starts []change.Position
	for _, s := range n.sharedSubscribers() {
		for _, at := range s.session.State().Partitions {
			starts = append(starts, at)
		}
	}
	return n.log.Run(ctx, oplog.TailStart(starts, reach.Last))
}

// beginStop rejects new sessions and terms and notifies exclusive subscribers, so that they connect
// elsewhere at once. A nil cause means a planned stop.
func (n *Node) beginStop(cause error) {
	n.mu.Lock()
	n.mu.stopping = true
	n.mu.Unlock()
	for _, e := range n.exclusives() {
		e.session.Notify(delivery.Notice{
			Kind: "shutting_down", Text: "The node is stopping: connect to another node.", Code: fault.NodeStopping, At: time.Now(),
		})
	}
	n.stop(cause)
}

// drainExclusive serves exclusive subscribers until they have disconnected or the time is over, and
// closes the remaining sessions.
func (n *Node) drainExclusive(within time.Duration) {
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
		e.session.Close(fault.Newf(fault.NodeStopping, "node is stopping"))
	}
}

// shutdown waits for the acknowledgements of shared subscribers, saves the last checkpoints, and
// closes the sessions.
func (n *Node) shutdown(ctx context.Context) error {
	flush, cancel := context.WithTimeout(ctx, n.cfg.FlushTimeout)
	defer cancel()
	for _, s := range n.sharedSubscribers() {
		switch left := s.drain(flush); {
		case left > 0 && flush.Err() != nil:
			n.logger.Warn("flush timed out, unacknowledged events will be redelivered", "subscriber", s.name, "events", left)
		case left > 0: // it takes nothing now
			n.logger.Info("unacknowledged events will be redelivered", "subscriber", s.name, "events", left)
		}
	}
	save, cancel := context.WithTimeout(ctx, n.cfg.CheckpointTimeout)
	defer cancel()
	err := n.writer.Flush(save, checkpoint.ReasonFinal)
	n.Close()
	if err != nil {
		return fmt.Errorf("save the last checkpoints: %w", err)
	}
	return nil
}

// Close ends the sessions of a node that has never run, or not to its end, because nothing else
// would.
func (n *Node) Close() { n.hub.Stop(fault.Newf(fault.NodeStopping, "node is stopping")) }

// Failing reports whether saving checkpoints fails.
func (n *Node) Failing() bool { return n.writer.Failing() }

// CheckpointAge returns how long the checkpoint writer has made no progress although it had work.
func (n *Node) CheckpointAge() time.Duration { return n.writer.Age() }

// Uptime returns the time since NewNode.
func (n *Node) Uptime() time.Duration { return time.Since(n.begun) }

// Hub returns the node's hub.
func (n *Node) Hub() *delivery.Hub { return n.hub }

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

// Now returns the time of the newest entry of MongoDB's log.
func (n *Node) Now(ctx context.Context) (change.Timestamp, error) {
	reach, err := n.cfg.Range.Now(ctx)
	if err != nil {
		return change.Timestamp{}, fault.New(fault.MongoUnreachable, err)
	}
	return reach.Last, nil
}

// Reached reports whether everything of a time and before is before a position, or at it.
func (n *Node) Reached(t change.Timestamp, at change.Position) bool {
	switch at.Time.Compare(t) {
	case 1:
		return true
	case 0: // more of the time may follow
		end, drained := n.log.Drained()
		return at.Token != nil && at.IsProgress() || drained && at.Compare(end) >= 0
	}
	return false
}
