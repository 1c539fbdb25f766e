package streamer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
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
	// Away returns since when MongoDB cannot be read, zero while it can, as all who show the node
	// judge it. Optional.
	Away func() time.Time
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
	Origin(ctx context.Context) (checkpoint.Origin, error)
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

// A consumer is the state of an owned partition.
type consumer struct {
	term  change.Term
	begun uint64 // events of the partition before the term

	counted uint64        // events at the last measurement
	rate    atomic.Uint64 // events a second, as bits of a float
	last    atomic.Int64  // time of the last event, rounded to seconds, in Unix nanoseconds
}

// consumer returns the consumer of a partition, nil if there is none.
func (n *Node) consumer(p change.Partition) *consumer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.consumers[p]
}
