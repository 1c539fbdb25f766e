package fanout

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout/trail"
	"github.com/mongostream/streamer/gateway/tally"
	"github.com/mongostream/streamer/gateway/wire"
	logs "github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/match"
)

// Open begins a session with its whole set of subscriptions. It is closed with its context.
func (h *Hub) Open(ctx context.Context, cfg SessionConfig, subscriptions []Subscription) (*Session, error) {
	if err := h.Err(); err != nil {
		return nil, err
	}
	s := &Session{
		hub: h, cfg: cfg, received: make(chan struct{}, 1), stirred: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.mu.subscriptions = make(map[string]*Subscription)
	s.mu.byKey = make(map[match.ID]*Subscription)
	s.mu.trails = trail.NewSet(h.cfg.Partitions, h.cfg.Epoch, func(p change.Partition) *trail.Trail {
		if have, ok := cfg.Have[p]; ok {
			return trail.NewKnown(trail.Known{Place: have, Stood: cfg.Stood[p]}, cfg.Owned)
		}
		return trail.New(cfg.Start, cfg.Owned)
	})
	s.mu.trails.Welcome(cfg.Lost)
	s.mu.index = &match.Index{}
	s.mu.position = cfg.Start
	s.Subscribe(subscriptions)
	s.signal()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.draining {
		return nil, fault.Newf(fault.NodeStopping, "the node stops")
	}
	h.mu.sessions[s], h.mu.moved = struct{}{}, true
	if cfg.Owned { // nothing is read again before it attaches to something
		s.mu.Lock()
		s.mu.position = change.Later(h.at(), cfg.Start).Clone()
		s.mu.Unlock()
	}
	h.reading.Go(func() { s.run(ctx) })
	return s, nil
}

// Subscribe adds subscriptions, or replaces those with the same ids, and returns the position behind which they hold.
func (s *Session) Subscribe(subscriptions []Subscription) (from change.Position) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range subscriptions {
		sub := &subscriptions[i]
		s.remove(sub.ID)
		h.mu.last++
		sub.session, sub.key, sub.ids, sub.failed = s, h.mu.last, []string{sub.ID}, tally.New(sub.tell)
		s.mu.subscriptions[sub.ID], s.mu.byKey[sub.key] = sub, sub
		s.mu.index.Add(sub.key, sub.Program)
		h.index.Add(sub.key, sub.Program)
		h.mu.subscriptions[sub.key] = sub
	}
	if s.live {
		return change.Later(h.at(), s.from)
	}
	return s.mu.position
}

// tell tells the session that the filter failed.
func (sub *Subscription) tell(text string, last error) {
	sub.session.Tell(Notice{Kind: "filter_failed", Text: text, Subscription: sub.ID, Code: fault.Of(last), At: time.Now()})
}

// Unsubscribe removes subscriptions. Ids that there are not change nothing.
func (s *Session) Unsubscribe(ids []string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.remove(id)
	}
}

// remove forgets a subscription. Under both mutexes.
func (s *Session) remove(id string) {
	if sub := s.mu.subscriptions[id]; sub != nil {
		s.mu.index.Remove(sub.key)
		s.hub.index.Remove(sub.key)
		delete(s.hub.mu.subscriptions, sub.key)
		delete(s.mu.subscriptions, id)
		delete(s.mu.byKey, sub.key)
	}
}

// Subscriptions returns their number.
func (s *Session) Subscriptions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.subscriptions)
}

// tryJoin is how often a session that has read everything tries to join the live path.
const tryJoin = 200 * time.Millisecond

// run reads for the session while it is off the live path, until it is over.
func (s *Session) run(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.done:
			cancel(ErrClosed)
		case <-ctx.Done():
		}
	}()
	for refused := 0; ; {
		moved, err := s.readOn(ctx, refused > 1)
		if moved {
			refused = 0
		}
		switch {
		case err == nil:
			err = s.parked(ctx) // on the live path, or without credit
		case errors.Is(err, logs.ErrPositionLost):
			if refused++; refused > maxRefused {
				err = fault.New(fault.LogHistoryLost, err)
				break
			}
			err = nil
		}
		if err != nil {
			s.Close(err)
			return
		}
	}
}

// maxRefused is how often in a row the log may refuse a session's position, although it should have it, before the session is let go. The
// second time the position is given up.
const maxRefused = 3

// parked waits until the session is off the live path and has credit.
func (s *Session) parked(ctx context.Context) error {
	for {
		select {
		case <-s.stirred:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.hub.mu.Lock()
		live := s.live
		s.hub.mu.Unlock()
		s.mu.Lock()
		ready := !live && s.hasRoom()
		s.mu.Unlock()
		if ready {
			return nil
		}
	}
}

// readOn reads with a cursor of the session's own, until the session is on the live path or has no credit. With onward it gives its position
// up where the log refuses it.
func (s *Session) readOn(ctx context.Context, onward bool) (moved bool, err error) {
	s.mu.Lock()
	at, rewinds := s.mu.position, s.mu.rewinds
	s.mu.Unlock()
	cursor := s.hub.log.All(logs.Start{Position: at, Onward: onward})
	defer cursor.Close()
	w := wire.Writer{JSON: s.hub.cfg.JSON}
	var matched []match.ID
	for {
		if reached := cursor.Position(); reached.After(at) {
			at = reached.Clone()
		}
		joined, current := s.hub.join(s, at, rewinds)
		if !current {
			s.stir()
		}
		if joined || !current {
			return moved, nil
		}
		wait, cancel := context.WithTimeout(ctx, tryJoin)
		batch, err := cursor.Next(wait)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return moved, context.Cause(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			continue
		default:
			lost, ok := errors.AsType[*logs.LostError](err)
			if !ok || lost.Onward.IsZero() {
				return moved, err
			}
			if !s.passLoss(lost.Onward, rewinds) {
				s.stir()
				return moved, nil
			}
			moved, at = true, lost.Onward
			continue
		}
		moved, at = true, batch.End().Clone()
		more := false
		if matched, more = s.take(batch, rewinds, &w, matched); !more {
			s.stir()
			return moved, nil
		}
	}
}

// take queues what the session wants of a reply; more is false where it has no credit left, or has been moved meanwhile.
func (s *Session) take(batch *logs.Batch, rewinds int, w *wire.Writer, matched []match.ID) (_ []match.ID, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.rewinds != rewinds {
		return matched, false
	}
	var touched []change.Partition
	var subscriptions []*Subscription
	for i := range batch.Len() {
		e := batch.Event(i)
		if e.Op() == change.OpSkipped {
			s.aside(e, false)
			continue
		}
		matched = s.mu.index.Match(e, matched[:0], func(id match.ID, err error) { s.hub.failed(s.mu.byKey[id], err) })
		if e.Op() == change.OpRename {
			s.aside(e, len(matched) > 0)
		}
		if len(matched) == 0 {
			continue
		}
		w.Next(e)
		subscriptions = subscriptions[:0]
		for _, id := range matched {
			subscriptions = append(subscriptions, s.mu.byKey[id])
		}
		touched = s.hub.queue(s, e, subscriptions, w, touched)
	}
	s.mu.position = batch.End().Clone()
	s.mu.trails.Reached(touched, s.mu.position)
	s.signal()
	return matched, s.hasCredit()
}

// passLoss tells the subscriber what the log no longer holds, and moves the session to where reading goes on; it is false where the session
// has been moved meanwhile. A session that begins with the earliest change has lost nothing before that.
func (s *Session) passLoss(to change.Position, rewinds int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.rewinds != rewinds {
		return false
	}
	if !s.cfg.Earliest || s.mu.position.Compare(s.cfg.Start) != 0 {
		s.hub.metrics.lost.Inc()
		s.mu.trails.Lose(delivery.HistoryLost(s.hub.cfg.Namespaces), to)
		s.signal()
	}
	s.mu.position = to
	return true
}
