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
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/snapshot"
)

// A Shared subscriber is one that all nodes serve together, each the partitions that it owns: standard output, or a sink.
type Shared struct {
	node    *Node
	name    string
	session *Session
	keeper  *checkpoint.Keeper
	placing chan struct{} // holds one while partitions are attached where the store says, or moved there

	mu struct {
		sync.Mutex
		terms       map[change.Partition]change.Term
		generations map[change.Partition]uint64
		counted     []uint64        // by partition, how many events have passed that are all acknowledged
		counting    []uint64        // how many had passed at until: they are counted once everything up to there is acknowledged
		until       change.Position // zero before the first
	}
}

var _ checkpoint.Source = (*Shared)(nil)

// Share begins the session of a shared subscriber, which gets partitions as the node gets their terms. It is called before the first Serve.
func (n *Node) Share(ctx context.Context, name string, subscriptions []Subscription) (*Shared, error) {
	s := &Shared{node: n, name: name, placing: make(chan struct{}, 1)}
	s.mu.terms, s.mu.generations = make(map[change.Partition]change.Term), make(map[change.Partition]uint64)
	var err error
	if s.session, err = n.hub.Open(ctx, SessionConfig{Subscriber: name, Attached: true, Owner: true}, subscriptions); err != nil {
		return nil, err
	}
	s.keeper = n.writer.Keep(s)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.shared = append(n.mu.shared, s)
	return s, nil
}

// Receive returns the next batches. It blocks until there are some, and while too much that was acknowledged is not saved. Right before one
// is handed over, Prune must take out what is the node's no more.
func (s *Shared) Receive(ctx context.Context) ([]*Batch, error) {
	for room := s.keeper.Room(); room != nil && !s.session.over(); room = s.keeper.Room() {
		select {
		case <-room:
		case <-s.session.Done():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	batches, _, err := s.session.Receive(ctx)
	return batches, err
}

// Prune takes the events out of a batch whose terms are over.
func (s *Shared) Prune(b *Batch) { s.session.Prune(b) }

// Ack acknowledges the batches up to one.
func (s *Shared) Ack(seq uint64) error {
	events, err := s.session.ack(seq)
	s.keeper.Passed(events)
	return err
}

// Session returns the subscriber's session at this node.
func (s *Shared) Session() *Session { return s.session }

// attach has the subscriber served in partitions, from its checkpoints or, where it has none, from the origin.
func (s *Shared) attach(ctx context.Context, terms []change.Term) error {
	n := s.node
	select {
	case s.placing <- struct{}{}:
		defer func() { <-s.placing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	claimed, err := n.store.ClaimTerms(ctx, s.name, terms)
	if err != nil {
		return fmt.Errorf("claim the checkpoints of %s: %w", s.name, err)
	}
	places, held := make(map[change.Partition]Place, len(terms)), make(map[change.Partition]change.Term, len(terms))
	for i, t := range terms {
		at := n.openable(claimed[i].Position, claimed[i].Fingerprint)
		if at.IsZero() {
			at = change.At(n.cfg.Origin.Start)
		}
		if err := n.ahead(ctx, Place{At: at}); err != nil {
			return err
		}
		places[t.Partition], held[t.Partition] = Place{At: at}, t
	}
	var left []snapshot.Progress
	for _, c := range claimed {
		left = together(left, unread(c.Snapshots))
	}
	if err := s.session.Attach(places, held); err != nil {
		return err
	}
	if len(left) > 0 {
		s.session.owes(left)
	}
	s.mu.Lock() // not before: what was handed over under the term before is not acknowledged under this one
	defer s.mu.Unlock()
	for i, t := range terms {
		s.mu.terms[t.Partition], s.mu.generations[t.Partition] = t, claimed[i].Generation
	}
	return nil
}

// detach has the subscriber served in partitions no longer.
func (s *Shared) detach(partitions []change.Partition) {
	_ = s.session.Detach(partitions) // partitions are attached to it
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range partitions {
		delete(s.mu.terms, p)
		delete(s.mu.generations, p)
	}
}

// drain has nothing more read, waits until what was handed over is acknowledged or the context ends, and returns how many events are not.
func (s *Shared) drain(ctx context.Context) (left int) {
	s.session.Pause()
	for {
		if left = s.session.Standing().Events; left == 0 {
			return 0
		}
		select {
		case <-s.node.hub.acked:
		case <-s.session.Done():
			return left
		case <-ctx.Done():
			return left
		}
	}
}

// Progress implements checkpoint.Source.
func (s *Shared) Progress() []checkpoint.Progress {
	events, hub := s.node.hub.Events(), s.node.hub.position() // in this order: these events are not after that
	s.mu.Lock()
	terms, generations := maps.Clone(s.mu.terms), maps.Clone(s.mu.generations)
	s.mu.Unlock()
	st := s.session.Standing() // after the generations, which are raised when the session has moved
	s.mu.Lock()
	events = s.count(st, events, hub)
	s.mu.Unlock()
	all, left := make([]checkpoint.Progress, 0, len(st.Partitions)), unread(st.Snapshots)
	for p, at := range st.Partitions {
		term, there := terms[p]
		if !there || term.Err() != nil {
			continue
		}
		all = append(all, checkpoint.Progress{
			Checkpoint: checkpoint.Checkpoint{
				Key: checkpoint.Key{Subscriber: s.name, Shared: true, Partition: p}, Position: at, Generation: generations[p], Epoch: term.Epoch, Snapshots: left,
			},
			Events: events[p],
		})
	}
	return all
}

// count returns how many events of each partition count as acknowledged, of those that have passed at the hub. What has passed and is not
// acknowledged must not: its acknowledgement would move the checkpoint without any event later, which is saved seldom. Under the mutex.
func (s *Shared) count(st Standing, events []uint64, hub change.Position) []uint64 {
	if !st.Live { // the hub's events are not the session's
		return events
	}
	if s.mu.counted == nil {
		s.mu.counted, s.mu.counting, s.mu.until = make([]uint64, len(events)), events, hub
	}
	counted, all := slices.Clone(s.mu.counted), true
	for p, at := range st.Partitions {
		if s.mu.until.After(at) {
			all = false
		} else {
			counted[p] = s.mu.counting[p]
		}
	}
	s.mu.counted = counted
	if all {
		s.mu.counting, s.mu.until = events, hub
	}
	return counted
}

// Refused implements checkpoint.Source.
func (s *Shared) Refused(c checkpoint.Checkpoint, err error) {
	if errors.Is(err, checkpoint.ErrRewound) {
		go s.rewound() //nolint:gosec // bounded by its own timeout
		return
	}
	s.node.fenced(c.Partition, c.Epoch, err)
}

// rewound goes where an operator has moved the subscriber, as soon as that can be read: a checkpoint that was refused is not saved before.
func (s *Shared) rewound() {
	n := s.node
	wait := retry.Backoff{First: time.Second, Longest: 30 * time.Second}
	for attempt := 1; ; attempt++ {
		err := s.goBack()
		if err == nil {
			return
		}
		n.logger.Warn("rewound checkpoints cannot be read", "subscriber", s.name, "error", err)
		if wait.Wait(n.lifetime, attempt) != nil {
			return
		}
	}
}

// goBack goes where an operator has moved the subscriber.
func (s *Shared) goBack() error {
	n := s.node
	select {
	case s.placing <- struct{}{}:
		defer func() { <-s.placing }()
	case <-n.lifetime.Done():
		return nil
	}
	ctx, cancel := context.WithTimeout(n.lifetime, n.cfg.CheckpointTimeout)
	defer cancel()
	saved, err := n.store.Load(ctx, s.name)
	if err != nil {
		return err
	}
	places, held := make(map[change.Partition]Place), make(map[change.Partition]change.Term)
	generations := make(map[change.Partition]uint64)
	var moved checkpoint.Checkpoint // one of them
	s.mu.Lock()
	for _, c := range saved {
		if term, there := s.mu.terms[c.Partition]; there && s.mu.generations[c.Partition] < c.Generation {
			moved, generations[c.Partition] = c, c.Generation
			places[c.Partition], held[c.Partition] = Place{At: n.openable(c.Position, c.Fingerprint)}, term
		}
	}
	s.mu.Unlock()
	if len(places) == 0 {
		return nil
	}
	n.cfg.Board.Post(rewoundNotice(moved))
	_ = s.session.Attach(places, held) // partitions are attached to it
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, generation := range generations { // not before: where it was is of the generation before
		if s.mu.terms[p].Epoch == held[p].Epoch {
			s.mu.generations[p] = generation
		}
	}
	return nil
}

// failed returns why the subscriber is not served any more, nil while it is.
func (s *Shared) failed() error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	switch cause := s.session.mu.cause; fault.Of(cause) {
	case fault.LogHistoryLost, fault.LogAhead:
		return cause
	default:
		return nil
	}
}

func rewoundNotice(c checkpoint.Checkpoint) notice.Notice {
	return notice.Notice{
		Channel: notice.Resync, Kind: notice.KindRewound, Level: notice.Warning,
		Text:   fmt.Sprintf("an operator has moved subscriber %s back to %s: what follows is redelivered", c.Subscriber, c.Earliest().Time),
		Fields: map[string]any{"subscriber": c.Subscriber, "generation": c.Generation},
	}
}
