package streamer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/snapshot"
)

// A Request is the request of a connecting subscriber.
type Request struct {
	// Subscriber is its name, qualified by its identity; empty means no checkpoint.
	Subscriber string
	// Account identifies the identity of the peer: its sessions share what their filters may cost.
	// Empty means no limits.
	Account string
	// Process is the random ID of its process, Started its start time, By the identity of the peer.
	Process string
	Started time.Time
	By      string
	// Known says that At and Partitions are set: the subscriber's own positions, in the checkpoint
	// generation Generation.
	Known      bool
	At         delivery.Place
	Partitions map[change.Partition]delivery.Place
	Generation uint64
	// Stamp is the stamp of the snapshots that the subscriber has up to its own positions, if
	// Stamped. Without it, the positions decide.
	Stamp   uint32
	Stamped bool
	// Snapshots is their progress, if it is known.
	Snapshots []snapshot.Progress
	// Start applies without a saved position; Time is for StartTime. With StartSnapshot every
	// subscription without a recorded snapshot gets one, also if it is added later.
	Start StartPolicy
	Time  time.Time
	// Attached delivers only partitions that Attach names. Detachable says that the subscriber
	// handles delivery.Batch.Detached.
	Attached, Detachable bool
	// Readable says which namespaces the subscriber may know of. nil is all.
	Readable delivery.Readable
}

// Connect opens the session of a subscriber: at its own positions, else at its checkpoint, else at
// its start policy. It claims the name for the process; the previous process is disconnected unless
// it started later. The session ends with the context; the caller must then call Close.
func (n *Node) Connect(ctx context.Context, r Request, subscriptions []delivery.Subscription) (*Exclusive, error) {
	if err := checkName(r.Subscriber); err != nil {
		return nil, err
	}
	e := &Exclusive{
		node: n, name: r.Subscriber, gone: ctx.Done(), own: checkpoint.Claim{Process: r.Process, Started: r.Started, Node: n.cfg.By, By: r.By, Alone: !r.Attached},
	}
	e.snapshots = r.Start == StartSnapshot
	if err := e.fits(subscriptions); err != nil {
		return nil, err
	}
	if err := n.hub.Admit(ctx, r.Account); err != nil {
		return nil, err
	}
	stored, cfg, err := n.loadAndClaim(ctx, r, e, subscriptions)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // nobody would read it
		return nil, context.Cause(ctx)
	}
	if stored != nil {
		e.lapse = stored.Lapse
		cfg.Lapsed = n.unread([]checkpoint.Checkpoint{*stored}, []change.Position{cfg.Start.From()})
	}
	cfg.Generation, e.began = e.mu.generation, e.mu.generation
	e.anew = stored != nil && stored.Claim.Process != r.Process
	if e.missed != nil {
		e.missed.Generation = e.began
	}
	if e.session, err = n.hub.Open(ctx, cfg, subscriptions); err != nil {
		return nil, err
	}
	if e.mu.claim.Number > 0 { // before others see it
		var begins []checkpoint.Checkpoint
		if stored != nil {
			begins = append(begins, *stored)
		}
		e.keeper = n.writer.Keep(e, begins...)
	}
	before, err := n.enter(e)
	if err != nil {
		if e.keeper != nil {
			e.keeper.End()
		}
		e.session.Close(err)
		return nil, err
	}
	if e.claimLater != nil {
		go e.awaitStore() //nolint:contextcheck // it outlives the call
	}
	replaces := before != nil && !before.over()
	isClaimed := e.anew && e.mu.claim.Number > 0
	if isClaimed && (replaces || stored.Claim.Node != n.cfg.By) {
		e.session.Notify(takenOver(stored.Claim))
	}
	if before != nil {
		before.replaced(e.own)
	}
	return e, nil
}

// checkName refuses names that no client may have.
func checkName(subscriber string) error {
	if len(subscriber) > checkpoint.MaxName {
		return fault.Newf(fault.SessionBadRequest, "the subscriber, with its identity, must have at most %d bytes", checkpoint.MaxName)
	}
	if Reserved(subscriber) {
		return fault.Newf(fault.SessionBadRequest, "stdout and sink/… are the names of sinks: choose another one for the subscriber")
	}
	return nil
}

// takenOver is the notice about a name that another process had before.
func takenOver(from checkpoint.Claim) delivery.Notice {
	return delivery.Notice{
		Kind: notice.KindSubscriberReplaced, Code: fault.SessionReplaced, At: time.Now(),
		Text: "This process has taken the subscriber's name over from " + from.String() + ", which is disconnected if it still runs.",
	}
}

// missedRewind returns the rewind that a subscriber has missed whose own positions are from before
// it. Its generation is not known yet.
func (n *Node) missedRewind(r Request, to change.Position) *delivery.Loss {
	rewind := delivery.NewRewind(to, nil)
	rewind.Namespaces = n.cfg.Namespaces
	if r.Readable != nil {
		rewind.Namespaces, _ = r.Readable(n.cfg.Namespaces)
	}
	return rewind
}

// loadAndClaim loads the checkpoint of a subscriber, determines where its session begins, and
// claims its name. It repeats that if an operator rewinds the checkpoint in between, or another
// session saves snapshots.
func (n *Node) loadAndClaim(ctx context.Context, r Request, e *Exclusive, subscriptions []delivery.Subscription) (stored *checkpoint.Checkpoint, cfg delivery.SessionConfig, err error) {
	for moved := true; moved; {
		if ctx.Err() != nil {
			return nil, cfg, context.Cause(ctx)
		}
		unknown := false
		if stored, unknown, err = n.savedCheckpoint(ctx, r); err != nil {
			return nil, cfg, err
		}
		var read uint32
		if stored != nil {
			if err := n.pay(ctx, *stored, r.By); err != nil {
				return nil, cfg, err
			}
			read = delivery.Stamp(stored.Snapshots)
			stored.Snapshots = snapshot.Named(stored.Snapshots, idsOf(subscriptions))
		}
		if cfg, err = n.starts(ctx, r, stored, e); err != nil {
			return nil, cfg, err
		}
		cfg.Unknown = unknown
		if moved, err = n.claim(ctx, r, stored, read, cfg, e); err != nil {
			return nil, cfg, err
		}
	}
	return stored, cfg, nil
}

// savedCheckpoint loads the checkpoint of a subscriber. It returns nil if there is none. unknown
// says that loading has failed, and that the subscriber knows its own position.
func (n *Node) savedCheckpoint(ctx context.Context, r Request) (stored *checkpoint.Checkpoint, unknown bool, err error) {
	if r.Subscriber == "" {
		return nil, false, nil
	}
	saved, err := n.store.Load(ctx, r.Subscriber)
	switch {
	case checkpoint.KindOf(err) == checkpoint.RowsOwn && !r.Known:
		return nil, false, unsavable(r.Subscriber, err)
	case err != nil && !r.Known:
		return nil, false, fault.Newf(fault.CheckpointUnreadable, "load checkpoint of subscriber %q: %w", r.Subscriber, err)
	case err != nil: // it continues at its own position, without saving
		n.logger.Warn("loading checkpoint failed", "subscriber", r.Subscriber, "error", err)
		return nil, true, nil
	case len(saved) == 1 && !saved[0].Shared:
		return &saved[0], false, nil
	case len(saved) > 0:
		return nil, false, fault.Newf(fault.SessionBadRequest, "subscriber %q is shared and cannot connect", r.Subscriber)
	}
	return nil, false, nil
}

// starts determines where a session begins.
func (n *Node) starts(ctx context.Context, r Request, stored *checkpoint.Checkpoint, e *Exclusive) (cfg delivery.SessionConfig, err error) {
	cfg = delivery.SessionConfig{
		Subscriber: r.Subscriber, Identity: r.By, Account: r.Account, Attached: r.Attached, Detachable: r.Detachable, Snapshot: r.Start == StartSnapshot, Readable: r.Readable,
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.AnswerTimeout, fmt.Errorf("MongoDB has not answered for %s", n.cfg.AnswerTimeout))
	defer cancel()
	reach, err := n.cfg.Range.Recently(ctx)
	if err != nil {
		return cfg, fault.New(fault.MongoUnreachable, err)
	}
	e.missed = nil
	switch {
	case r.Known && (stored == nil || r.Generation >= stored.Generation):
		e.begin = BeginPositions
		cfg.Start = r.At
		cfg.Partitions = r.Partitions
		if stored != nil {
			cfg.Snapshots = n.ownProgress(r, *stored)
		}
	case stored != nil: // the number of partitions may have changed
		at := n.movedBack(ctx, r, *stored).Recounted(n.cfg.Origin.Partitions)
		e.begin = BeginCheckpoint
		cfg.Start = n.openable(at.Position, at.Fingerprint)
		cfg.Snapshots = at.Snapshots
		cfg.Partitions = make(map[change.Partition]delivery.Place, len(at.Positions))
		for p, position := range at.Positions {
			cfg.Partitions[p] = n.openable(position, at.Fingerprint)
		}
		if r.Known { // what it has not received, although it was sent, comes before that
			e.missed = n.missedRewind(r, cfg.Start.From())
			r.moveBack(&cfg)
			if !r.Stamped {
				cfg.Snapshots = n.ownProgress(r, *stored)
			}
		}
	default:
		e.begin = BeginStart
		var at change.Timestamp
		if at, cfg.Start.Begins, err = n.startTime(ctx, r, reach); err != nil {
			return cfg, err
		}
		cfg.Start.At = change.At(at)
	}
	for _, place := range cfg.Partitions {
		if err := n.ahead(ctx, place); err != nil {
			return cfg, err
		}
	}
	return cfg, n.ahead(ctx, cfg.Start)
}

// ownProgress returns the progress of a subscriber's snapshots at its own position: documents
// between that and its checkpoint were not received.
func (n *Node) ownProgress(r Request, stored checkpoint.Checkpoint) []snapshot.Progress {
	all := stored.Recounted(n.cfg.Origin.Partitions).Snapshots
	switch {
	case r.Stamped && len(r.Snapshots) > 0:
		return snapshot.Resumed(all, r.Snapshots)
	case r.Stamped && r.Stamp != delivery.Stamp(stored.Snapshots):
		return again(all, true)
	case !r.Stamped && r.before(stored) && r.Process == stored.Claim.Process:
		// It has acknowledged the ends that the checkpoint has; the position moved on without an
		// event.
		all = slices.Clone(all)
		for i, p := range all {
			if !p.Done {
				all[i] = again(all[i:i+1], false)[0]
			}
		}
	case !r.Stamped && r.before(stored):
		return r.had(all)
	}
	return all
}

// startTime returns the time at which a session begins by its start policy. reach is the extent of
// the log. begins says that the log begins there: the subscriber has missed nothing before it.
func (n *Node) startTime(ctx context.Context, r Request, reach gap.Reach) (at change.Timestamp, begins bool, err error) {
	earliest := func(reach gap.Reach) (change.Timestamp, bool, error) {
		first, err := n.log.Earliest(ctx, reach.Begins())
		if err != nil {
			return first, false, fault.New(fault.MongoUnreachable, err)
		}
		return first, true, nil
	}
	switch r.Start {
	case StartEarliest:
		if reach.Begins().IsZero() {
			return at, false, fault.Newf(fault.SessionBadRequest, "cannot determine the oldest oplog entry: use a start time")
		}
		return earliest(reach)
	case StartResume:
		return at, false, fault.Newf(fault.SessionUnknown, "subscriber %q has no saved position", r.Subscriber)
	case StartTime, StartNow, StartSnapshot:
	}
	now, err := n.cfg.Range.Now(ctx)
	switch {
	case err != nil:
		return at, false, fault.New(fault.MongoUnreachable, err)
	case r.Start == StartNow:
		return now.Last.Next(), false, nil
	case r.Start == StartSnapshot: // a later one is not reached while nothing happens. The newest change comes again, before the documents
		return now.Last, false, nil
	}
	at = now.At(r.Time)
	if now.Ahead(change.At(at)) {
		return at, false, fault.Newf(fault.SessionBadRequest, "the start %s is in the future: MongoDB is at %s", r.Time.UTC().Format(time.RFC3339), now.Last.Time().Format(time.RFC3339))
	}
	if now.Begins().Compare(at) > 0 {
		// The log never had this span for the subscriber, so there is no loss: the session begins
		// where the log does, and its client gets that start.
		return earliest(now)
	}
	return at, false, nil
}

// movedBack returns the checkpoint at which a subscriber begins whose own positions are from before
// a rewind or an import. It is the operator's position, if later progress of the checkpoint was
// only sent to the client, whose positions show that it did not arrive.
func (n *Node) movedBack(ctx context.Context, r Request, stored checkpoint.Checkpoint) checkpoint.Checkpoint {
	if !r.Known || !r.Stamped {
		return stored
	}
	if r.Stamp != delivery.Stamp(stored.Snapshots) {
		stored.Snapshots = again(stored.Snapshots, true)
	}
	history, err := n.store.History(ctx, stored.Key)
	if err != nil {
		n.logger.Warn("reading the history of a checkpoint failed", "subscriber", stored.Subscriber, "error", err)
	}
	for _, c := range history {
		if c.Generation == stored.Generation && (c.Reason == checkpoint.ReasonRewind || c.Reason == checkpoint.ReasonImport) {
			c.Snapshots = stored.Snapshots
			return c
		}
	}
	return stored
}

// moveBack moves a start back to the subscriber's own places, in the partitions in which these are
// earlier.
func (r Request) moveBack(cfg *delivery.SessionConfig) {
	of, at := cfg.Partitions, cfg.Start
	cfg.Start = earlierOf(at, r.At)
	cfg.Partitions = make(map[change.Partition]delivery.Place, len(of)+len(r.Partitions))
	for _, places := range []map[change.Partition]delivery.Place{of, r.Partitions} {
		for p := range places {
			cfg.Partitions[p] = earlierOf(placeIn(of, at, p), placeIn(r.Partitions, r.At, p))
		}
	}
}

func placeIn(of map[change.Partition]delivery.Place, rest delivery.Place, p change.Partition) delivery.Place {
	if place, elsewhere := of[p]; elsewhere {
		return place
	}
	return rest
}

// earlierOf returns the earlier of a stored place and a subscriber's own one. It returns the
// subscriber's own one where only the log knows their order.
func earlierOf(stored, own delivery.Place) delivery.Place {
	s, o := refOf(stored), refOf(own)
	if own.IsZero() || s == o || o.Compare(s) > 0 {
		return stored
	}
	return own
}

func refOf(p delivery.Place) change.Ref {
	if !p.At.IsZero() {
		return p.At.Ref()
	}
	return p.Ref
}

// before reports whether the subscriber's own position is earlier than the checkpoint in some
// partition.
func (r Request) before(c checkpoint.Checkpoint) bool { return r.earlier(c.Earliest().Ref()) }

// earlier reports whether the subscriber's own position is earlier than a place in some partition.
func (r Request) earlier(at change.Ref) bool {
	earlier := func(p delivery.Place) bool {
		own := refOf(p)
		return !own.IsZero() && own.Compare(at) < 0
	}
	if earlier(r.At) {
		return true
	}
	for _, place := range r.Partitions {
		if earlier(place) {
			return true
		}
	}
	return false
}

// had returns a subscriber's progress in snapshots at its own position, which is earlier than its
// checkpoint: those that were complete before it are complete, the others begin again.
func (r Request) had(all []snapshot.Progress) (had []snapshot.Progress) {
	for _, p := range all {
		switch {
		case p.Done && !p.At.IsZero() && !r.earlier(change.At(p.At.Next()).Ref()):
			had = append(had, p)
		case !p.Done:
			had = append(had, again([]snapshot.Progress{p}, false)...)
		}
	}
	return had
}

// again resets incomplete snapshots to their beginning, and complete ones if the subscriber has not
// had their end. It omits other complete ones, so that those with which a subscription begins
// restart as well.
func again(all []snapshot.Progress, complete bool) (begun []snapshot.Progress) {
	for _, p := range all {
		if complete || !p.Done {
			begun = append(begun, snapshot.Progress{Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason})
		}
	}
	return begun
}

// claim claims the subscriber's name and sets its generation. moved says that an operator has
// rewound the checkpoint since it was loaded, or that its snapshots are others: read is the stamp
// of those that were loaded. If the store is unavailable, a subscriber that knows its own position
// is accepted nevertheless.
func (n *Node) claim(ctx context.Context, r Request, stored *checkpoint.Checkpoint, read uint32, cfg delivery.SessionConfig, e *Exclusive) (moved bool, err error) {
	switch {
	case stored != nil:
		e.mu.generation = stored.Generation
	case r.Known:
		e.mu.generation = r.Generation
	}
	if r.Subscriber == "" {
		return false, nil
	}
	first := checkpoint.Checkpoint{
		Key: checkpoint.Key{Subscriber: r.Subscriber}, Position: cfg.Start.From(), Partitions: n.cfg.Origin.Partitions, Fingerprint: n.cfg.Fingerprint,
		Coverage:   n.cfg.Coverage.Bounded(),
		Snapshots:  cfg.Snapshots,
		Generation: e.mu.generation, At: time.Now(), By: n.cfg.By, Reason: checkpoint.ReasonBegin,
	}
	for p, place := range cfg.Partitions {
		if first.Positions == nil {
			first.Positions = make(map[change.Partition]change.Position)
		}
		first.Positions[p] = place.From()
	}
	if cfg.Unknown { // unfinished snapshots must not be saved as finished
		e.claimLater = func(ctx context.Context) error {
			if _, err := n.store.Load(ctx, e.name); err != nil {
				return err
			}
			_, err := n.store.ClaimName(ctx, e.own, first)
			return err
		}
		return false, nil
	}
	claimed, err := n.store.ClaimName(ctx, e.own, first)
	taken, isTaken := errors.AsType[*checkpoint.TakenError](err)
	switch {
	case errors.Is(err, checkpoint.ErrForeign):
		return false, fault.New(fault.AccessForbidden, err)
	case errors.Is(err, checkpoint.ErrNames):
		return false, fault.New(fault.AccessLimit, err)
	case isTaken:
		return false, fault.New(fault.SessionReplaced, taken)
	case errors.Is(err, checkpoint.ErrUnsavable), checkpoint.KindOf(err) == checkpoint.RowsOwn && !r.Known:
		return false, unsavable(r.Subscriber, err)
	case err != nil && !r.Known:
		return false, fault.Newf(fault.CheckpointUnreadable, "claim name of subscriber %q: %w", r.Subscriber, err)
	case err != nil:
		n.logger.Warn("claiming subscriber name failed, its checkpoint waits", "subscriber", r.Subscriber, "error", err)
		e.claimLater = func(ctx context.Context) error {
			_, err := n.store.ClaimName(ctx, e.own, first)
			return err
		}
		return false, nil
	}
	e.claimLater = nil
	// Another session, the last one before this, may have saved the start of a snapshot since the
	// checkpoint was loaded.
	moved = claimed.Generation > e.mu.generation || stored != nil && delivery.Stamp(claimed.Snapshots) != read
	e.mu.claim, e.mu.generation = claimed.Claim, claimed.Generation
	return moved, nil
}

// awaitStore claims the name of a subscriber that was accepted while the store was unreachable, and
// then closes its session: the subscriber reconnects at its own position, with its stored state,
// and is saved from then on.
func (e *Exclusive) awaitStore() {
	wait := retry.Backoff{First: time.Second, Longest: 15 * time.Second}
	for failures := 1; ; failures++ {
		if !e.session.Outlives(wait.After(failures)) {
			return
		}
		ctx, cancel := context.WithTimeout(e.node.lifetime, e.node.cfg.CheckpointTimeout)
		err := e.claimLater(ctx)
		cancel()
		taken, isTaken := errors.AsType[*checkpoint.TakenError](err)
		switch {
		case errors.Is(err, checkpoint.ErrForeign):
			e.session.Close(fault.New(fault.AccessForbidden, err))
			return
		case errors.Is(err, checkpoint.ErrNames):
			e.session.Close(fault.New(fault.AccessLimit, err))
			return
		case isTaken:
			e.session.Close(fault.New(fault.SessionReplaced, taken))
			return
		case err == nil:
			e.session.Close(fault.Newf(fault.SessionRenewed, "checkpoints of subscriber %q can be saved again: reconnect", e.name))
			return
		}
	}
}

// enter registers the subscriber under its name and returns the one that it replaces.
func (n *Node) enter(e *Exclusive) (before *Exclusive, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.stopping {
		return nil, fault.New(fault.NodeStopping, ErrStopping)
	}
	name := e.name
	if name == "" {
		name = fmt.Sprintf("\x00%p", e) // unique
	}
	before = n.mu.exclusive[name]
	n.mu.exclusive[name] = e
	return before, nil
}

// Reserved reports whether a name is that of a shared subscriber: a sink, or standard output. No
// client may connect under it, on any node, whether or not that has such a sink: the same name
// would have two checkpoints, and two series of each metric.
func Reserved(name string) bool { return name == "stdout" || strings.HasPrefix(name, "sink/") }
