package streamer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/plan"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/rescan"
	"github.com/mongostream/streamer/streamer/flight"
	"github.com/mongostream/streamer/streamer/status"
	"github.com/mongostream/streamer/streamer/survey"
)

// ErrStopping says that the node takes no more sessions or terms.
var ErrStopping = errors.New("the node is stopping")

// Config configures a Node.
type Config struct {
	// Origin is what the first start wrote. Required.
	Origin checkpoint.Origin
	// Fingerprint names what the log's streams are opened with.
	Fingerprint string
	// By names this node in its marks.
	By string
	// Namespaces are those that the log's streams watch; empty means everything. They go into what subscribers are told of a loss.
	Namespaces []string
	// Surveyor tells how far the log goes. Required.
	Surveyor survey.Surveyor
	// OnHistoryLost says what to do when the log no longer reaches back to a mark. Defaults to Resync.
	OnHistoryLost LossPolicy
	// MaxGap is the jump of cluster time that counts where continuity is unproven. Defaults to 5 minutes.
	MaxGap time.Duration
	// HeadRoomWarning and HeadRoomCritical are thresholds of the log time that a partition has left, as package survey defaults them.
	HeadRoomWarning, HeadRoomCritical time.Duration
	// Rescan says which documents are read again after a loss.
	Rescan rescan.Config
	// Board takes notices; nil for none.
	Board *notice.Board
	// Readers are subscribers that read the log by themselves; nil for none.
	Readers Readers
	// Dedup configures the lanes' windows; nil turns them off.
	Dedup *dedup.Config
	// Policy says when marks are saved.
	Policy checkpoint.Policy
	// FlushTimeout bounds how long a stop waits for acknowledgements. Defaults to 10 s.
	FlushTimeout time.Duration
	// CheckpointTimeout bounds a save. Defaults to 5 s.
	CheckpointTimeout time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// Readers are subscribers that read the log by themselves, beside the lanes.
type Readers interface {
	// Low returns how far the mark of a partition may go whose lane has come to progress. It must not block for long.
	Low(p change.Partition, progress change.Position) change.Position
	// Rewound says that an operator has moved a partition back.
	Rewound(p change.Partition, to change.Position)
	// Settle takes no more subscribers, waits for what is on its way to be acknowledged, and ends; at the latest when the context does. From then
	// on Low stays at the last acknowledgements.
	Settle(ctx context.Context)
}

// Marks is where a node keeps its marks.
type Marks interface {
	checkpoint.Store
	checkpoint.Claimer
	checkpoint.GapKeeper
}

// A Node runs the consumers of the terms that it is given.
type Node struct {
	cfg     Config
	log     *lane.Log
	marks   Marks
	manager *checkpoint.Manager
	logger  *slog.Logger
	metrics status.Counters
	begun   time.Time
	rescans *rescan.Runner

	sessions atomic.Pointer[[]*delivery.Session]
	survey   *survey.Survey
	drained  chan struct{} // holds one signal while the node waits for acknowledgements

	lifetime    context.Context //nolint:containedctx // the lifetime of the consumers, made by New and ended by Run
	stopReading context.CancelCauseFunc
	running     sync.WaitGroup

	left      flight.Stands // of sessions that outlive terms
	beginning sync.Mutex    // held while a term begins, which a claim and a handoff may both bring
	mu        struct {
		sync.Mutex
		consumers map[change.Partition]*Consumer
		stopping  bool
	}
}

// NewNode makes a Node. Serve gives it terms, Run moves it.
func NewNode(cfg Config, log *lane.Log, marks Marks) *Node {
	cfg.FlushTimeout = cmp.Or(cfg.FlushTimeout, 10*time.Second)
	cfg.CheckpointTimeout = cmp.Or(cfg.CheckpointTimeout, 5*time.Second)
	cfg.OnHistoryLost = cmp.Or(cfg.OnHistoryLost, Resync)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	n := &Node{
		cfg: cfg, log: log, marks: marks, logger: cfg.Logger, begun: time.Now(),
		manager: checkpoint.NewManager(checkpoint.ManagerConfig{
			Policy: cfg.Policy, SaveTimeout: cfg.CheckpointTimeout, Fingerprint: cfg.Fingerprint, By: cfg.By,
			Logger: cfg.Logger, Registerer: cfg.Registerer,
		}, marks),
		drained: make(chan struct{}, 1),
	}
	n.survey = survey.New(survey.Config{
		Surveyor: cfg.Surveyor, Warning: cfg.HeadRoomWarning, Critical: cfg.HeadRoomCritical, Heard: n.heard, Logger: cfg.Logger,
	})
	n.lifetime, n.stopReading = context.WithCancelCause(context.Background())
	n.mu.consumers = make(map[change.Partition]*Consumer)
	n.sessions.Store(&[]*delivery.Session{})
	n.metrics = status.NewCounters(cfg.Registerer, status.Gauges{Partitions: n.Status, Sessions: func() int { return len(n.attached()) }})
	n.rescans = rescan.NewRunner(cfg.Rescan, cfg.Origin.Partitions, n.logger)
	return n
}

// Run moves events until the context ends, and then stops softly; or until the log fails for good.
func (n *Node) Run(ctx context.Context) error {
	stopped := context.AfterFunc(ctx, func() { n.stop(nil) })
	defer stopped()
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	wg.Go(func() {
		if err := n.runLog(background); err != nil {
			n.stop(err)
		}
	})
	wg.Go(func() { _ = n.manager.Run(background) })
	wg.Go(func() { n.runPulse(background) })
	wg.Go(func() { n.survey.Run(background) })
	wg.Go(func() { _ = n.rescans.Run(background) })

	<-n.lifetime.Done()
	err := context.Cause(n.lifetime) //nolint:contextcheck // the cause of the end, not a context to work under
	n.running.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, n.shutdown(context.WithoutCancel(ctx)))
}

// heard takes an answer of the survey: what is about to be lost catches up first, and idle marks follow the log.
func (n *Node) heard(reach gap.Reach, floor change.Timestamp) {
	n.log.SetFloor(floor)
	n.manager.SetReach(reach.Length())
}

// runLog opens the log where the consumers stand and reads it until the context ends.
func (n *Node) runLog(ctx context.Context) error {
	reach, err := n.survey.Recently(ctx)
	if err != nil {
		return nil //nolint:nilerr // only the context's end makes it give up
	}
	var starts []change.Position
	for _, c := range n.consumers() {
		starts = append(starts, c.opened)
	}
	return n.log.Run(ctx, plan.Tail(starts, reach.Last))
}

// stop ends the reading of every consumer, and takes no more terms and sessions. A nil cause is a planned stop.
func (n *Node) stop(cause error) {
	n.mu.Lock()
	n.mu.stopping = true
	n.mu.Unlock()
	n.stopReading(cause)
}

// shutdown waits for what was delivered to be acknowledged, saves the last marks, and closes the sessions. Every session counts at
// its last acknowledgement: closing it releases nothing.
func (n *Node) shutdown(ctx context.Context) error {
	flush, cancel := context.WithTimeout(ctx, n.cfg.FlushTimeout)
	defer cancel()
	if n.cfg.Readers != nil {
		n.cfg.Readers.Settle(flush)
	}
	if left := n.drain(flush); left > 0 {
		n.logger.Warn("not everything was acknowledged in time; the rest is delivered again after the restart", "partitions", left)
	}
	save, cancel := context.WithTimeout(ctx, n.cfg.CheckpointTimeout)
	defer cancel()
	err := n.manager.Flush(save, checkpoint.ReasonFinal)
	for _, s := range n.attached() {
		s.Close()
	}
	if err != nil {
		return fmt.Errorf("save the last marks: %w", err)
	}
	return nil
}

// drain waits until nothing is in flight or the context ends, and returns how many partitions still have something.
func (n *Node) drain(ctx context.Context) (left int) {
	for {
		left = 0
		for _, c := range n.consumers() {
			if c.term.Err() == nil && c.inFlight() {
				left++
			}
		}
		if left == 0 {
			return 0
		}
		select {
		case <-n.drained:
		case <-ctx.Done():
			return left
		}
	}
}

// acked lets drain look again. It never blocks.
func (n *Node) acked() {
	select {
	case n.drained <- struct{}{}:
	default:
	}
}

// Attach gives a session to every consumer; it begins where they stand.
func (n *Node) Attach(s *delivery.Session) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.stopping {
		return ErrStopping
	}
	sessions := append(slices.Clone(*n.sessions.Load()), s)
	n.sessions.Store(&sessions)
	return nil
}

// Detach takes a session away that has left by itself. What it did not acknowledge no longer holds any mark.
func (n *Node) Detach(s *delivery.Session) {
	s.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	sessions := slices.DeleteFunc(slices.Clone(*n.sessions.Load()), func(t *delivery.Session) bool { return t == s })
	n.sessions.Store(&sessions)
	for _, c := range n.mu.consumers {
		c.detach(s)
	}
}

func (n *Node) attached() []*delivery.Session { return *n.sessions.Load() }

// Epoch returns the epoch of the node's term of a partition, zero where it has none.
func (n *Node) Epoch(p change.Partition) change.Epoch {
	if c := n.consumer(p); c != nil {
		return c.term.Epoch
	}
	return change.Epoch{}
}

// consumers returns the consumers in the order of their partitions.
func (n *Node) consumers() []*Consumer {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*Consumer, 0, len(n.mu.consumers))
	for _, c := range n.mu.consumers {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Consumer) int { return cmp.Compare(a.term.Partition, b.term.Partition) })
	return all
}
