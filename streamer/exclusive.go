package streamer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/snapshot"
)

// A StartPolicy says where a subscriber begins of which nothing is known.
type StartPolicy int

// The policies.
const (
	StartResume   StartPolicy = iota // nowhere: it is refused with the fault SessionUnknown
	StartNow                         // with what happens from now on
	StartEarliest                    // with the oldest change that MongoDB still has
	StartTime                        // at a time
)

// A Begin says where a session has begun.
type Begin int

// Where sessions begin.
const (
	BeginPositions  Begin = iota + 1 // at the client's own positions
	BeginCheckpoint                  // at the subscriber's checkpoint
	BeginStart                       // as its policy says
)

// A Request is what a subscriber that connects says of itself.
type Request struct {
	// Subscriber is its name, empty for one that wants no checkpoint.
	Subscriber string
	// Process is the random id of its process, Started when that started, By the identity of whoever connects.
	Process string
	Started time.Time
	By      string
	// Known says that At and Partitions are where the subscriber is by its own account, in the checkpoint's Generation.
	Known      bool
	At         Place
	Partitions map[change.Partition]Place
	Generation uint64
	// Start says where it begins if nothing is known; Time goes with StartTime.
	Start StartPolicy
	Time  time.Time
	// Attached has the session deliver the partitions that Attach names.
	Attached bool
}

// An Exclusive subscriber is one that has a session of its own, at one node at a time unless partitions are attached to it.
type Exclusive struct {
	node    *Node
	name    string
	session *Session
	begin   Begin
	began   uint64             // the generation in which the session has begun
	keeper  *checkpoint.Keeper // nil without a name

	mu struct {
		sync.Mutex
		claim      checkpoint.Claim
		generation uint64
		moving     uint64 // the generation that it goes to
	}
}

// Session returns the subscriber's session, Begin where it has begun.
func (e *Exclusive) Session() *Session { return e.session }

// Begin returns where the session has begun.
func (e *Exclusive) Begin() Begin { return e.begin }

// Generation returns that of the subscriber's checkpoint in which the session has begun, 0 where it has none. Batches say theirs: an operator may
// move the subscriber at any time, and it is where it was before until it is told.
func (e *Exclusive) Generation() uint64 { return e.began }

// Ack acknowledges batches as Session.Ack does, and counts them for the checkpoint.
func (e *Exclusive) Ack(seq uint64) error {
	events, err := e.session.ack(seq)
	if e.keeper != nil && events > 0 {
		e.keeper.Passed(events)
	}
	return err
}

// Connect begins the session of a subscriber: at its own positions, else at its checkpoint, else as its policy says. Its name is claimed for
// its process: the process that had it is closed, unless it started later. The session ends with the context; Close must be called then.
func (n *Node) Connect(ctx context.Context, r Request, subscriptions []Subscription) (*Exclusive, error) {
	e := &Exclusive{node: n, name: r.Subscriber}
	var stands *checkpoint.Checkpoint
	var cfg SessionConfig
	for moved := true; moved; { // as long as an operator moves the checkpoint between the reading and the claim
		var err error
		if stands, err = n.stands(ctx, r); err != nil {
			return nil, err
		}
		if cfg, err = n.starts(ctx, r, stands, e); err != nil {
			return nil, err
		}
		if moved, err = n.claim(ctx, r, stands, cfg, e); err != nil {
			return nil, err
		}
	}
	cfg.Generation, e.began = e.mu.generation, e.mu.generation
	var err error
	if e.session, err = n.hub.Open(ctx, cfg, subscriptions); err != nil {
		return nil, err
	}
	if err := n.enter(e); err != nil {
		e.session.Close(err)
		return nil, err
	}
	if e.mu.claim.Number > 0 {
		var begins []checkpoint.Checkpoint
		if stands != nil {
			begins = append(begins, *stands)
		}
		e.keeper = n.writer.Keep(e, begins...)
	}
	return e, nil
}

// stands reads the checkpoint of a subscriber, nil where there is none, or where it cannot be read and the subscriber knows itself where it is.
func (n *Node) stands(ctx context.Context, r Request) (*checkpoint.Checkpoint, error) {
	if r.Subscriber == "" {
		return nil, nil
	}
	saved, err := n.store.Load(ctx, r.Subscriber)
	switch {
	case err != nil && !r.Known:
		return nil, fault.Newf(fault.CheckpointUnreadable, "where subscriber %q is cannot be read: %w", r.Subscriber, err)
	case err != nil: // it says itself where it is; its checkpoint waits
		n.logger.Warn("a subscriber's checkpoint cannot be read", "subscriber", r.Subscriber, "error", err)
	case len(saved) == 1 && !saved[0].Shared:
		return &saved[0], nil
	case len(saved) > 0:
		return nil, fault.Newf(fault.SessionBadRequest, "subscriber %q is shared: a node serves it", r.Subscriber)
	}
	return nil, nil
}

// starts finds out where a session begins.
func (n *Node) starts(ctx context.Context, r Request, stands *checkpoint.Checkpoint, e *Exclusive) (cfg SessionConfig, err error) {
	cfg = SessionConfig{Subscriber: r.Subscriber, Attached: r.Attached}
	reach, err := n.cfg.Range.Recently(ctx)
	if err != nil {
		return cfg, fault.New(fault.MongoUnreachable, err)
	}
	switch {
	case r.Known && (stands == nil || r.Generation >= stands.Generation):
		e.begin, cfg.Start, cfg.Partitions = BeginPositions, r.At, r.Partitions
		if stands != nil {
			cfg.Snapshots = stands.Recounted(n.cfg.Origin.Partitions).Snapshots
			if r.before(*stands) { // a document that came in between came to nobody
				cfg.Snapshots = again(cfg.Snapshots)
			}
		}
	case stands != nil: // counted anew since, perhaps
		at := stands.Recounted(n.cfg.Origin.Partitions)
		e.begin, cfg.Start, cfg.Snapshots = BeginCheckpoint, Place{At: n.openable(at.Position, at.Fingerprint)}, at.Snapshots
		cfg.Partitions = make(map[change.Partition]Place, len(at.Positions))
		for p, position := range at.Positions {
			cfg.Partitions[p] = Place{At: n.openable(position, at.Fingerprint)}
		}
	default:
		e.begin = BeginStart
		switch r.Start {
		case StartEarliest:
			if reach.First.IsZero() {
				return cfg, fault.Newf(fault.SessionBadRequest, "the oldest entry of the oplog cannot be found here: give a time")
			}
			first, err := n.log.Earliest(ctx, reach.First)
			if err != nil {
				return cfg, fault.New(fault.MongoUnreachable, err)
			}
			cfg.Start, cfg.Earliest = Place{At: change.At(first)}, true
		case StartTime:
			cfg.Start = Place{At: change.At(change.Timestamp{T: uint32(r.Time.Unix()), I: 1})}
		case StartNow:
			reach, err := n.cfg.Range.Now(ctx)
			if err != nil {
				return cfg, fault.New(fault.MongoUnreachable, err)
			}
			cfg.Start = Place{At: change.At(reach.Last.Next())}
		case StartResume:
			return cfg, fault.Newf(fault.SessionUnknown, "nothing is known of where subscriber %q is", r.Subscriber)
		}
	}
	for _, place := range cfg.Partitions {
		if err := n.ahead(ctx, place); err != nil {
			return cfg, err
		}
	}
	return cfg, n.ahead(ctx, cfg.Start)
}

// before reports whether the subscriber is, by its own account, earlier than the checkpoint in some partition.
func (r Request) before(c checkpoint.Checkpoint) bool {
	at := c.Earliest().Ref()
	earlier := func(p Place) bool {
		own := p.Ref
		if !p.At.IsZero() {
			own = p.At.Ref()
		}
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

// again returns the snapshots as they are before they begin, but for complete ones: whoever wants those gets them again.
func again(all []snapshot.Progress) (begun []snapshot.Progress) {
	for _, p := range all {
		if !p.Done {
			begun = append(begun, snapshot.Progress{Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason})
		}
	}
	return begun
}

// aheadSlack is how far a position may be later than MongoDB's time, which different servers of a deployment tell a little differently.
const aheadSlack = 15 * time.Second

// ahead returns the fault LogAhead for a place that is later than MongoDB's own time.
func (n *Node) ahead(ctx context.Context, p Place) error {
	from := p.From()
	reach, err := n.cfg.Range.Recently(ctx)
	if err == nil && from.Time.Time().Sub(reach.Last.Time()) > aheadSlack {
		reach, err = n.cfg.Range.Now(ctx) // the answer may be older than the position
	}
	if err == nil && from.Time.Time().Sub(reach.Last.Time()) > aheadSlack {
		return fault.Newf(fault.LogAhead, "the session is to begin at %s, MongoDB is at %s", from.Time, reach.Last)
	}
	return nil
}

// openable returns the position, without its token where that is of streams with another filter.
func (n *Node) openable(at change.Position, fingerprint string) change.Position {
	if fingerprint != n.cfg.Fingerprint && !at.IsProgress() {
		return change.At(at.Time)
	}
	return at
}

// claim claims the subscriber's name, and knows its generation from then on. moved says that an operator has moved the checkpoint since it was
// read. A store that is away does not keep a subscriber out that knows itself where it is.
func (n *Node) claim(ctx context.Context, r Request, stands *checkpoint.Checkpoint, cfg SessionConfig, e *Exclusive) (moved bool, err error) {
	switch {
	case stands != nil:
		e.mu.generation = stands.Generation
	case r.Known:
		e.mu.generation = r.Generation
	}
	if r.Subscriber == "" {
		return false, nil
	}
	first := checkpoint.Checkpoint{
		Key: checkpoint.Key{Subscriber: r.Subscriber}, Position: cfg.Start.From(), Partitions: n.cfg.Origin.Partitions, Fingerprint: n.cfg.Fingerprint,
		Snapshots:  cfg.Snapshots,
		Generation: e.mu.generation, At: time.Now(), By: n.cfg.By, Reason: checkpoint.ReasonBegin,
	}
	for p, place := range cfg.Partitions {
		if first.Positions == nil {
			first.Positions = make(map[change.Partition]change.Position)
		}
		first.Positions[p] = place.From()
	}
	claimed, err := n.store.ClaimName(ctx, checkpoint.Claim{Process: r.Process, Started: r.Started, Node: n.cfg.By, By: r.By}, first)
	taken, isTaken := errors.AsType[*checkpoint.TakenError](err)
	switch {
	case isTaken:
		return false, fault.New(fault.SessionReplaced, taken)
	case err != nil && !r.Known:
		return false, fault.Newf(fault.CheckpointUnreadable, "the name of subscriber %q cannot be claimed: %w", r.Subscriber, err)
	case err != nil:
		n.logger.Warn("a subscriber's name cannot be claimed; its checkpoint is not saved", "subscriber", r.Subscriber, "error", err)
		return false, nil
	}
	moved = claimed.Generation > e.mu.generation
	e.mu.claim, e.mu.generation = claimed.Claim, claimed.Generation
	return moved, nil
}

// enter makes the subscriber the one of its name at this node, and closes the one that was.
func (n *Node) enter(e *Exclusive) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.stopping {
		return fault.New(fault.NodeStopping, ErrStopping)
	}
	name := e.name
	if name == "" {
		name = fmt.Sprintf("\x00%p", e) // no other's
	}
	if before := n.mu.exclusive[name]; before != nil {
		before.session.Close(fault.Newf(fault.SessionReplaced, "subscriber %q has connected again, as process %q", e.name, e.mu.claim.Process))
	}
	n.mu.exclusive[name] = e
	return nil
}

// Close ends the session and saves where the subscriber is.
func (e *Exclusive) Close(ctx context.Context, cause error) {
	e.session.Close(cause)
	n := e.node
	if e.keeper != nil {
		save, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.CheckpointTimeout)
		defer cancel()
		if err := e.keeper.Save(save, checkpoint.ReasonFinal); err != nil {
			n.logger.Debug("a subscriber's last checkpoint was not saved", "subscriber", e.name, "error", err)
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
	notify(n.gone)
}

var _ checkpoint.Source = (*Exclusive)(nil)

// Progress implements checkpoint.Source.
func (e *Exclusive) Progress() []checkpoint.Progress {
	st := e.session.Standing()
	e.mu.Lock()
	defer e.mu.Unlock()
	if st.At.IsZero() && len(st.Partitions) == 0 {
		return nil
	}
	return []checkpoint.Progress{{
		Checkpoint: checkpoint.Checkpoint{
			Key: checkpoint.Key{Subscriber: e.name}, Position: st.At, Positions: st.Partitions, Snapshots: st.Snapshots, Generation: st.Generation, Claim: e.mu.claim,
		},
		Events: st.Acked,
	}}
}

// Refused implements checkpoint.Source.
func (e *Exclusive) Refused(_ checkpoint.Checkpoint, err error) {
	if errors.Is(err, checkpoint.ErrRewound) {
		go e.rewound() //nolint:gosec // bounded by its own timeout
		return
	}
	e.session.Close(fault.Newf(fault.SessionReplaced, "subscriber %q has connected elsewhere, as another process", e.name))
}

// rewound goes where an operator has moved the subscriber.
func (e *Exclusive) rewound() {
	n := e.node
	ctx, cancel := context.WithTimeout(n.lifetime, n.cfg.CheckpointTimeout)
	defer cancel()
	saved, err := n.store.Load(ctx, e.name)
	if err != nil || len(saved) != 1 {
		n.logger.Warn("a rewound checkpoint cannot be read; the session is closed", "subscriber", e.name, "error", err)
		e.session.Close(fault.Newf(fault.CheckpointUnreadable, "subscriber %q was moved by an operator: connect again", e.name))
		return
	}
	e.mu.Lock()
	behind := max(e.mu.generation, e.mu.moving) < saved[0].Generation
	e.mu.moving = max(e.mu.moving, saved[0].Generation)
	e.mu.Unlock()
	if !behind {
		return
	}
	n.cfg.Board.Post(rewoundNotice(saved[0]))
	e.session.Rewind(n.openable(saved[0].Earliest(), saved[0].Fingerprint), saved[0].Generation, n.cfg.Namespaces)
	e.mu.Lock()
	e.mu.generation = max(e.mu.generation, saved[0].Generation) // from now on checkpoints are of it
	e.mu.Unlock()
}

// Rewound looks whether an operator has moved a subscriber of this node. It returns at once.
func (n *Node) Rewound(subscriber string) {
	n.mu.Lock()
	e := n.mu.exclusive[subscriber]
	n.mu.Unlock()
	if e != nil {
		go e.rewound() //nolint:gosec // bounded by its own timeout
	}
	for _, s := range n.sharedSubscribers() {
		if s.name == subscriber {
			go s.rewound()
		}
	}
}
