package streamer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/snapshot"
)

// A Shared subscriber is served by all nodes together, each for the partitions that it owns: a
// sink.
type Shared struct {
	node    *Node
	name    string
	session *delivery.Session
	keeper  *checkpoint.Keeper
	placing chan struct{} // holds one while partitions are attached where the store says, or moved there
	told    atomic.Bool   // operators know that the subscriber is not served
	stalled atomic.Bool   // nothing is acknowledged before an operator acts
	start   StartPolicy   // of partitions without a checkpoint; zero means the origin
	from    time.Time     // of StartTime
	passed  chan struct{} // holds one signal: something was acknowledged, or it stalls

	documents []snapshot.Progress // of its subscriptions, before anything was read
	looksUp   bool                // one of their filters reads documents that are looked up

	mu struct {
		sync.Mutex
		terms       map[change.Partition]change.Term
		generations map[change.Partition]uint64
		begun       map[change.Partition]checkpoint.Beginning
		lapses      map[change.Partition]*checkpoint.Lapse // told
		unread      map[change.Partition]change.Term       // their checkpoints cannot be read
		unreadable  error                                  // why the last of them cannot
		received    []receivedBatch
		acked       map[change.Partition]uint64 // events

		// incarnations are those of the checkpoints: of a partition that is attached before
		// anything of it is received, of one that is rewound while placing is held.
		incarnations map[change.Partition]string
	}
}

// A receivedBatch is one that was received and is not acknowledged yet.
type receivedBatch struct {
	seq        uint64
	partitions []change.Partition // of its events
}

var _ checkpoint.Source = (*Shared)(nil)

// Share opens the session of a shared subscriber. It gets partitions when the node gets their
// terms. Call it before the first Serve.
func (n *Node) Share(ctx context.Context, name string, subscriptions []delivery.Subscription) (*Shared, error) {
	s := &Shared{node: n, name: name, placing: make(chan struct{}, 1), passed: make(chan struct{}, 1)}
	s.mu.terms, s.mu.generations = make(map[change.Partition]change.Term), make(map[change.Partition]uint64)
	s.mu.acked, s.mu.begun = make(map[change.Partition]uint64), make(map[change.Partition]checkpoint.Beginning)
	s.mu.unread = make(map[change.Partition]change.Term)
	s.mu.incarnations, s.mu.lapses = make(map[change.Partition]string), make(map[change.Partition]*checkpoint.Lapse)
	for _, sub := range subscriptions {
		s.documents = append(s.documents, snapshot.Progress{Subscription: sub.ID, Filter: delivery.FilterHash(sub.Program), Reason: snapshot.Start})
		s.looksUp = s.looksUp || sub.Program.LooksUp()
	}
	var err error
	if s.session, err = n.hub.Open(ctx, delivery.SessionConfig{Subscriber: name, Attached: true, Owner: true}, subscriptions); err != nil {
		return nil, err
	}
	s.keeper = n.writer.Keep(s)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.shared = append(n.mu.shared, s)
	return s, nil
}

// Receive returns the next batches. It blocks until there are some, and while too many acknowledged
// events are not saved. The caller must call Prune for each batch right before it hands the batch
// over.
func (s *Shared) Receive(ctx context.Context) ([]*delivery.Batch, error) {
	for room := s.keeper.Room(); room != nil && !s.session.Ended(); room = s.keeper.Room() {
		select {
		case <-room:
		case <-s.session.Done():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	batches, _, err := s.session.Receive(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range batches {
		if b.Loss != nil && b.Loss.Own {
			s.node.cfg.Board.Post(lossNotice(s.name, b.Loss))
		}
		r := receivedBatch{seq: b.Seq, partitions: make([]change.Partition, len(b.Events))}
		for i := range b.Events {
			r.partitions[i] = b.Events[i].Partition
		}
		s.mu.received = append(s.mu.received, r)
	}
	return batches, err
}

// Prune removes events whose terms have ended from a batch.
func (s *Shared) Prune(b *delivery.Batch) { s.session.Prune(b) }

// Ack acknowledges batches up to seq.
func (s *Shared) Ack(seq uint64) error {
	events, err := s.session.Ack(seq)
	if err != nil {
		return err
	}
	s.mu.Lock()
	n := 0
	for ; n < len(s.mu.received) && s.mu.received[n].seq <= seq; n++ {
		for _, p := range s.mu.received[n].partitions {
			s.mu.acked[p]++
		}
	}
	s.mu.received = slices.Delete(s.mu.received, 0, n)
	s.mu.Unlock()
	s.keeper.Passed(events) // the progress has them by now
	wake.Notify(s.passed)
	return nil
}

// Session returns the subscriber's session at this node.
func (s *Shared) Session() *delivery.Session { return s.session }

// attach serves partitions from their checkpoints or, without one, from the origin. They are the
// node's since a time or earlier.
func (s *Shared) attach(ctx context.Context, terms []change.Term, since time.Time) error {
	select {
	case s.placing <- struct{}{}:
		defer func() { <-s.placing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	terms, claimed, err := s.claim(ctx, terms)
	if err != nil {
		return fmt.Errorf("attach %s: %w", s.name, err)
	}
	if len(terms) == 0 {
		return nil
	}
	logBegins, err := s.begin(ctx, terms, claimed)
	if err != nil {
		return fmt.Errorf("begin %s: %w", s.name, err)
	}
	places, err := s.places(ctx, claimed, logBegins)
	if err != nil { // it cannot be served; the others can
		s.session.Close(err)
		return nil
	}
	left := unfinished(claimed)
	if err := s.succeed(ctx, left, since); err != nil {
		return err
	}
	s.mu.Lock() // before: nothing of these partitions is handed over under terms that have ended
	for i, c := range claimed {
		s.mu.incarnations[c.Partition] = incarnation(terms[i], c)
	}
	s.mu.Unlock()
	s.tellUnread(claimed)
	s.session.Owe(left)
	held := make(map[change.Partition]change.Term, len(terms))
	for _, t := range terms {
		held[t.Partition] = t
	}
	if err := s.session.Attach(places, held, rewindOf(moved(claimed))); err != nil {
		return err
	}
	if s.session.Ended() { // it has not moved: its acknowledgements are saved under the former terms and generations, or not at all
		return nil
	}
	s.adopt(terms, claimed)
	return nil
}

// places returns where partitions begin: at their checkpoints, some of which may be at the time at
// which the log begins.
func (s *Shared) places(ctx context.Context, claimed []checkpoint.Checkpoint, logBegins change.Timestamp) (map[change.Partition]delivery.Place, error) {
	n := s.node
	places := make(map[change.Partition]delivery.Place, len(claimed))
	for _, c := range claimed {
		at := n.openable(c.Position, c.Fingerprint)
		at.Begins = !logBegins.IsZero() && c.Position.Compare(change.At(logBegins)) == 0
		if err := n.ahead(ctx, at); err != nil {
			return nil, fmt.Errorf("partition %d: %w", c.Partition, err)
		}
		places[c.Partition] = at
	}
	return places, nil
}

// unfinished returns the snapshots that former owners of partitions have not finished.
func unfinished(claimed []checkpoint.Checkpoint) (left []snapshot.Progress) {
	for _, c := range claimed {
		for _, p := range delivery.Unread(c.Snapshots) {
			p.Partitions = []change.Partition{c.Partition}
			left = append(left, p)
		}
	}
	return left
}

// moved returns the checkpoints that an operator has moved, and after which the subscriber has
// acknowledged nothing.
func moved(claimed []checkpoint.Checkpoint) (moved []checkpoint.Checkpoint) {
	for _, c := range claimed {
		if c.Reason == checkpoint.ReasonRewind || c.Reason == checkpoint.ReasonImport {
			moved = append(moved, c)
		}
	}
	return moved
}

// adopt saves the partitions' progress under these terms from now on.
func (s *Shared) adopt(terms []change.Term, claimed []checkpoint.Checkpoint) {
	for i, t := range terms {
		if c := claimed[i]; !c.Position.IsZero() {
			c.Epoch = t.Epoch
			s.keeper.Stands(c)
		}
	}
	s.mu.Lock() // not before: deliveries under the former term are not acknowledged under this one
	for i, t := range terms {
		delete(s.mu.unread, t.Partition)
		s.mu.terms[t.Partition] = t
		s.mu.generations[t.Partition] = claimed[i].Generation
		s.mu.begun[t.Partition] = claimed[i].Began
		s.mu.lapses[t.Partition] = claimed[i].Lapse
	}
	s.mu.Unlock()
	s.keeper.Placed()
}

// succeed makes what depends on the time of reading follow everything that former owners may have
// delivered: documents of the partitions' unfinished snapshots, and of its own, and the documents
// that are looked up for its filters. It is called before the session gets partitions.
func (s *Shared) succeed(ctx context.Context, left []snapshot.Progress, since time.Time) error {
	reads := len(left) > 0 || len(delivery.Unread(s.session.Snapshots())) > 0
	if !reads && !s.looksUp {
		return nil
	}
	reach, err := s.node.cfg.Range.Now(ctx)
	if err != nil {
		return fmt.Errorf("find the end of what was delivered before: %w", err)
	}
	end := reach.Last
	end.T += uint32(reach.Slack.Seconds())
	if reads {
		s.session.DocumentsFrom(end)
	}
	if s.looksUp {
		s.session.Reread(since, end)
	}
	return nil
}

// detach stops serving partitions.
func (s *Shared) detach(partitions []change.Partition) {
	_ = s.session.Detach(partitions) // cannot fail: the session has attached partitions
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range partitions {
		delete(s.mu.terms, p)
		delete(s.mu.unread, p)
		delete(s.mu.generations, p)
	}
}

// drain stops reading, waits until everything is acknowledged or the context ends, and returns the
// number of unacknowledged events.
func (s *Shared) drain(ctx context.Context) (left int) {
	s.session.Pause(ctx)
	for {
		if left = s.session.State().Events; left == 0 || s.stalled.Load() {
			return left
		}
		select {
		case <-s.passed:
		case <-s.session.Done():
			return left
		case <-ctx.Done():
			return left
		}
	}
}

// Progress implements checkpoint.Source.
func (s *Shared) Progress() []checkpoint.Progress {
	s.mu.Lock()
	terms, generations, acked, begun := maps.Clone(s.mu.terms), maps.Clone(s.mu.generations), maps.Clone(s.mu.acked), maps.Clone(s.mu.begun)
	lapses := maps.Clone(s.mu.lapses)
	s.mu.Unlock()
	st := s.session.State() // after the generations, which are raised when the session has moved
	all := make([]checkpoint.Progress, 0, len(st.Partitions))
	left := delivery.Unread(st.Snapshots)
	losses := s.node.lossesOf(st)
	for p, at := range st.Partitions {
		term, there := terms[p]
		if !there || term.Err() != nil {
			continue
		}
		left := left
		if cut, leaves := st.Leaving[p]; leaves {
			left = delivery.Unread(cut)
		}
		all = append(all, checkpoint.Progress{
			Checkpoint: checkpoint.Checkpoint{
				Key: checkpoint.Key{Subscriber: s.name, Shared: true, Partition: p}, Position: at, Generation: generations[p], Epoch: term.Epoch, Snapshots: left,
				Began: begun[p], Lapse: lapses[p], Losses: losses,
			},
			Events: acked[p],
		})
	}
	return all
}

// Refused implements checkpoint.Source.
func (s *Shared) Refused(c checkpoint.Checkpoint, err error) {
	switch {
	case errors.Is(err, checkpoint.ErrRewound):
		go s.rewound()
	case checkpoint.KindOf(err) == checkpoint.RowsOwn: // which is tried again
	default:
		s.node.fenced(c.Partition, c.Epoch, err)
	}
}

// rewound moves the session to the position that an operator has set, and retries until it can be
// loaded: rejected checkpoints are not saved meanwhile.
func (s *Shared) rewound() {
	n := s.node
	wait := retry.Backoff{First: time.Second, Longest: 30 * time.Second}
	for attempt := 1; ; attempt++ {
		err := s.goBack()
		if err == nil {
			return
		}
		n.logger.Warn("loading rewound checkpoints failed", "subscriber", s.name, "error", err)
		if wait.Wait(n.lifetime, attempt) != nil {
			return
		}
	}
}

// goBack moves the session to the position that an operator has set.
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
	if err != nil && checkpoint.KindOf(err) != checkpoint.RowsOwn { // one that cannot be read is in the way of no other
		return err
	}
	places, held := make(map[change.Partition]delivery.Place), make(map[change.Partition]change.Term)
	var moved []checkpoint.Checkpoint
	s.mu.Lock()
	for _, c := range saved {
		if term, there := s.mu.terms[c.Partition]; there && s.mu.generations[c.Partition] < c.Generation {
			moved = append(moved, c)
			places[c.Partition] = n.openable(c.Position, c.Fingerprint)
			held[c.Partition] = term
		}
	}
	s.mu.Unlock()
	if len(places) == 0 {
		return nil
	}
	s.tellUnread(moved)
	_ = s.session.Attach(places, held, rewindOf(moved)) // partitions are attached to it
	if s.session.Ended() {
		return nil
	}
	n.cfg.Board.Post(rewoundNotice(moved[0]))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range moved { // only now: the previous position belongs to the previous generation
		if p := c.Partition; s.mu.terms[p].Epoch == held[p].Epoch {
			s.mu.generations[p], s.mu.begun[p] = c.Generation, c.Began
			s.mu.incarnations[p] = incarnation(held[p], c)
			s.mu.lapses[p] = c.Lapse
		}
	}
	return nil
}

// incarnation returns the incarnation of a checkpoint under a term: in the origin's incarnation of
// the term, because the node may have read the origin before an adoption.
func incarnation(t change.Term, c checkpoint.Checkpoint) string {
	return c.Incarnation(t.Epoch.Incarnation)
}

// failed returns why the subscriber is no longer served, nil while it is.
func (s *Shared) failed() error {
	switch cause := s.session.Cause(); fault.Of(cause) {
	case fault.LogHistoryLost, fault.LogAhead:
		return cause
	default:
		return nil
	}
}

// notifyFailure logs, once, that the subscriber is not served any more.
func (s *Shared) notifyFailure() {
	if err := s.failed(); err != nil && !s.told.Swap(true) {
		s.node.logger.Warn("subscriber stopped", "subscriber", s.name, "error", err)
	}
}

// rewindOf returns the rewind notice for moved checkpoints, nil if there are none.
func rewindOf(moved []checkpoint.Checkpoint) *delivery.Loss {
	if len(moved) == 0 {
		return nil
	}
	to := moved[0].Position
	partitions := make([]change.Partition, len(moved))
	for i, c := range moved {
		partitions[i] = c.Partition
		if to.After(c.Position) {
			to = c.Position
		}
	}
	slices.Sort(partitions)
	return delivery.NewRewind(to, partitions)
}
