package streamer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/oplog"
)

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

// runPulse measures rates until the context ends.
func (n *Node) runPulse(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		events := n.hub.Events()
		n.mu.Lock()
		for p, c := range n.mu.consumers {
			c.beat(events[p], now)
		}
		n.mu.Unlock()
		for _, s := range n.sharedSubscribers() {
			s.notifyFailure()
		}
		n.endUnacknowledged(now)
	}
}
