package streamer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/notice"
)

// A Begin says where a session began.
type Begin int

// Where a session can begin.
const (
	BeginPositions  Begin = iota + 1 // at the client's own positions
	BeginCheckpoint                  // at the subscriber's checkpoint
	BeginStart                       // at the start policy
)

// An Exclusive subscriber has its own session, at one node at a time unless partitions are attached
// to it.
type Exclusive struct {
	node    *Node
	name    string
	own     checkpoint.Claim // its claim, also while the store is unreachable
	gone    <-chan struct{}  // closed when its client has gone
	session *delivery.Session
	begin   Begin
	began   uint64             // the generation in which the session has begun
	anew    bool               // its checkpoint is that of another process
	missed  *delivery.Loss     // the rewind that it did not know of when it connected
	keeper  *checkpoint.Keeper // nil without a claim
	lapse   *checkpoint.Lapse  // which it gets in its stream

	snapshots bool                // every subscription begins with one
	kept      map[string]struct{} // the subscriptions that may have snapshots, which its checkpoint keeps

	claimLater func(context.Context) error // claims the name, if the store was unreachable; nil otherwise

	mu struct {
		sync.Mutex
		claim      checkpoint.Claim
		generation uint64
		moving     uint64                              // the generation that it moves to
		unread     map[change.Partition]delivery.Place // attached while the checkpoint could not be loaded, which is not saved meanwhile
	}
}

// Session returns the subscriber's session.
func (e *Exclusive) Session() *delivery.Session { return e.session }

// Begin returns where the session began.
func (e *Exclusive) Begin() Begin { return e.begin }

// Restarted reports whether the last process that claimed the name was another one.
func (e *Exclusive) Restarted() bool { return e.anew }

// Missed returns the rewind that the subscriber did not know when it connected with its own
// positions, nil if there is none. The transport must send it before anything else.
func (e *Exclusive) Missed() *delivery.Loss { return e.missed }

// Generation returns the generation of the subscriber's checkpoint in which the session began, 0
// without one. Batches carry their own: an operator may rewind the subscriber at any time, and its
// position is that of the earlier generation until it receives the rewind.
func (e *Exclusive) Generation() uint64 { return e.began }

// Ack acknowledges batches as Session.Ack does, and counts events for the checkpoint policy.
func (e *Exclusive) Ack(seq uint64) error {
	events, err := e.session.Ack(seq)
	if e.keeper != nil && events > 0 {
		e.keeper.Passed(events)
	}
	return err
}

// fits refuses subscriptions whose snapshots the subscriber's checkpoint cannot keep, whatever is
// left of them.
func (e *Exclusive) fits(subscriptions []delivery.Subscription) error {
	kept := make(map[string]struct{}, len(e.kept)+len(subscriptions))
	maps.Copy(kept, e.kept)
	for _, sub := range subscriptions {
		if e.snapshots || e.node.hub.HasSnapshots(sub) {
			kept[sub.ID] = struct{}{}
		}
	}
	if e.name == "" {
		return nil
	}
	if err := checkpoint.SnapshotsFit(slices.Collect(maps.Keys(kept))); err != nil {
		return unsavable(e.name, err)
	}
	e.kept = kept
	return nil
}

func idsOf(subscriptions []delivery.Subscription) []string {
	ids := make([]string, len(subscriptions))
	for i, sub := range subscriptions {
		ids[i] = sub.ID
	}
	return ids
}

// Subscribe adds subscriptions as Session.Subscribe does. Those whose snapshots the checkpoint
// could not keep are refused with the fault SessionTooWide. It must not be called concurrently.
func (e *Exclusive) Subscribe(subscriptions []delivery.Subscription) (change.Position, error) {
	if err := e.fits(subscriptions); err != nil {
		return change.Position{}, err
	}
	return e.session.Subscribe(subscriptions), nil
}

// Unsubscribe removes subscriptions as Session.Unsubscribe does. It must not be called
// concurrently.
func (e *Exclusive) Unsubscribe(ids []string) {
	for _, id := range ids {
		delete(e.kept, id)
	}
	e.session.Unsubscribe(ids)
}

// Close ends the session and saves the subscriber's checkpoint.
func (e *Exclusive) Close(ctx context.Context, cause error) {
	e.session.Close(cause)
	n := e.node
	if e.keeper != nil {
		save, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.CheckpointTimeout)
		defer cancel()
		if err := e.keeper.Save(save, checkpoint.ReasonFinal); err != nil {
			n.logger.Debug("saving last checkpoint failed", "subscriber", e.name, "error", err)
		}
		e.keeper.End()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, there := range n.mu.exclusive {
		if there == e {
			delete(n.mu.exclusive, name)
		}
	}
	wake.Notify(n.gone)
}

var _ checkpoint.Source = (*Exclusive)(nil)

// Progress implements checkpoint.Source.
func (e *Exclusive) Progress() []checkpoint.Progress {
	st := e.session.State()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.mu.unread) > 0 || st.At.IsZero() && len(st.Partitions) == 0 {
		return nil
	}
	return []checkpoint.Progress{{
		Checkpoint: checkpoint.Checkpoint{
			Key: checkpoint.Key{Subscriber: e.name}, Position: st.At, Positions: st.Partitions, Snapshots: st.Snapshots, Generation: st.Generation, Claim: e.mu.claim, Lapse: e.lapse,
			Losses: e.node.lossesOf(st),
		},
		Events: st.Acked,
	}}
}

// Refused implements checkpoint.Source.
func (e *Exclusive) Refused(_ checkpoint.Checkpoint, err error) {
	switch {
	case errors.Is(err, checkpoint.ErrRewound):
		go e.rewound()
	case checkpoint.KindOf(err) == checkpoint.RowsOwn:
		e.session.Close(unsavable(e.name, err))
	default:
		go e.replacedElsewhere()
	}
}

// unsavable returns the fault of a subscriber whose checkpoint cannot be read or saved, whatever
// the store does.
func unsavable(subscriber string, err error) error {
	if fault.Of(err) != "" { // of the stored one
		return fmt.Errorf("checkpoint of subscriber %q: %w", subscriber, err)
	}
	return fault.Newf(fault.SessionTooWide, "the checkpoint of subscriber %q cannot be saved: %w", subscriber, err)
}

// replacedElsewhere ends the session because another node has saved a claim of another process.
func (e *Exclusive) replacedElsewhere() {
	n := e.node
	ctx, cancel := context.WithTimeout(n.lifetime, n.cfg.CheckpointTimeout)
	defer cancel()
	saved, err := n.store.Load(ctx, e.name)
	if err != nil || len(saved) != 1 || saved[0].Shared { // deleted, or not to be read now
		e.session.Close(fault.Newf(fault.SessionReplaced, "subscriber %q connected elsewhere as another process, or its checkpoint was deleted", e.name))
		return
	}
	if saved[0].Claim.Process == e.own.Process { // it must not get the error that it has been replaced by itself
		e.session.Close(fault.Newf(fault.SessionRenewed, "subscriber %q has another session, at node %s: reconnect", e.name, saved[0].Claim.Node))
		return
	}
	e.replaced(saved[0].Claim)
}

// replaced ends the session because another process has the name, and tells operators, unless it is
// the same process, which has reconnected.
func (e *Exclusive) replaced(by checkpoint.Claim) {
	defer e.session.Close(fault.Newf(fault.SessionReplaced, "subscriber %q connected again and is now %s", e.name, by))
	n := e.node
	if e.over() || e.own.Process == by.Process || !n.told.Allow() {
		return
	}
	n.cfg.Board.Post(notice.Notice{
		Channel: notice.Health, Kind: notice.KindSubscriberReplaced, Level: notice.Warning,
		Text:   fmt.Sprintf("subscriber %s was %s and is now %s: the first is disconnected", e.name, e.own, by),
		Fields: map[string]any{"subscriber": e.name, "identity": by.By, "process": by.Process, "at_node": by.Node, "started_at": by.Started.Format(time.RFC3339)},
	})
}

// over reports whether the session has ended, or its client has gone.
func (e *Exclusive) over() bool {
	select {
	case <-e.gone:
		return true
	default:
		return e.session.Ended()
	}
}

// rewound moves the session to the position that an operator has set, and retries until it can be
// loaded: rejected checkpoints are not saved meanwhile.
func (e *Exclusive) rewound() {
	wait := retry.Backoff{First: time.Second, Longest: 15 * time.Second}
	for failures := 1; ; failures++ {
		err := e.goBack()
		if err == nil {
			return
		}
		e.node.logger.Warn("loading rewound checkpoint failed", "subscriber", e.name, "error", err)
		if !e.session.Outlives(wait.After(failures)) {
			return
		}
	}
}

// goBack moves the session to the position that an operator has set.
func (e *Exclusive) goBack() error {
	n := e.node
	ctx, cancel := context.WithTimeout(n.lifetime, n.cfg.CheckpointTimeout)
	defer cancel()
	saved, err := n.store.Load(ctx, e.name)
	switch {
	case err != nil:
		return err
	case len(saved) != 1: // deleted
		e.session.Close(fault.Newf(fault.SessionRenewed, "the checkpoint of subscriber %q is gone: reconnect", e.name))
		return nil
	}
	e.mu.Lock()
	behind := max(e.mu.generation, e.mu.moving) < saved[0].Generation
	e.mu.moving = max(e.mu.moving, saved[0].Generation)
	e.mu.Unlock()
	if !behind {
		return nil
	}
	n.cfg.Board.Post(rewoundNotice(saved[0]))
	e.session.Rewind(n.openable(saved[0].Earliest(), saved[0].Fingerprint).From(), saved[0].Generation, n.cfg.Namespaces)
	e.mu.Lock()
	e.mu.generation = max(e.mu.generation, saved[0].Generation) // later checkpoints belong to it
	e.mu.Unlock()
	return nil
}

// Rewound checks whether an operator has rewound a subscriber of this node. It returns at once.
func (n *Node) Rewound(subscriber string) {
	n.mu.Lock()
	e := n.mu.exclusive[subscriber]
	n.mu.Unlock()
	if e != nil {
		go e.rewound()
	}
	for _, s := range n.sharedSubscribers() {
		if s.name == subscriber {
			go s.rewound()
		}
	}
}

// Keep saves the progress of the subscriber's snapshots: an accepted snapshot stays pending from
// then on, even if the session or the node ends. It returns false if that is not certain, because
// the store does not answer or refuses the session, or because the session has ended, possibly
// after a save.
func (e *Exclusive) Keep(ctx context.Context) bool {
	if e.keeper == nil { // without a name there is nothing to come back to; with one, the store has not answered yet
		return e.name == "" && !e.session.Ended()
	}
	ctx, cancel := context.WithTimeout(ctx, e.node.cfg.CheckpointTimeout)
	defer cancel()
	if err := e.keeper.Save(ctx, checkpoint.ReasonInterval); err != nil {
		e.node.logger.Warn("saving what is left of snapshots failed", "subscriber", e.name, "error", err)
		return false
	}
	return !e.session.Ended() && !e.keeper.Refused()
}
