package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/oplog"
)

// A session writes segments one after the other, from the head that it has found. It must not be
// used concurrently.
type session struct {
	w      *Writer
	cursor *oplog.Cursor
	head   Header // zero before the first segment of a chain
	next   uint64 // number
	from   change.Timestamp
	fresh  bool // the chain is empty, and from unknown

	// Until seen, the last stored change has not been met again, and everything up to it is
	// skipped.
	seen bool
	last change.Ref

	draft *draft
	begun time.Time // of the draft's first entry
	lost  time.Time // of the draft's last loss that another node may not have

	limits limits    // of the draft
	now    time.Time // when they were read
}

func newSession(w *Writer, head Head, found bool) *session {
	s := &session{w: w, head: head.Header, next: head.Next, from: head.To, fresh: !found, draft: newDraft(w.encoder)}
	start := oplog.Start{}
	if found {
		if _, lacks := w.cfg.Coverage.Lacks(head.Coverage); lacks {
			s.head.Last = nil // a node that reads less may not read that change, neither now nor after a restart
		}
		s.last = s.head.LastRef()
		s.seen = s.last.IsZero()
		start.Position = change.At(s.from)
		if !s.seen {
			start.Position = change.At(s.last.Time())
		}
	} else {
		s.seen = true
	}
	s.cursor = w.log.Cursor(start)
	return s
}

func (s *session) close() { s.cursor.Close() }

// run writes until the context ends, another node has written, or the history is another one.
func (s *session) run(ctx context.Context) error {
	const tick = time.Second // to end segments in an idle log
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		b, err := s.cursor.Poll()
		if errors.Is(err, oplog.ErrAhead) {
			return fmt.Errorf("%w: %w", ErrHistory, err)
		}
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if b != nil {
			if err := s.consider(ctx, b); err != nil {
				return err
			}
			if s.seen {
				s.w.report(nil)
			}
			continue
		}
		s.refresh()
		if err := s.endQuietly(ctx); err != nil {
			return err
		}
		timer.Reset(tick)
		select {
		case <-s.cursor.Signal():
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// refresh reads the clock and the limits: once a batch, because a change is cheap.
func (s *session) refresh() { s.limits, s.now = s.w.limits(), time.Now() }

// consider adds a batch to the draft, and ends segments where that is due.
func (s *session) consider(ctx context.Context, b *oplog.Batch) error {
	s.refresh()
	if s.fresh {
		s.from = s.cursor.Position().Time.Next()
		s.fresh = false
	}
	if loss := b.Loss(); loss != nil {
		if err := s.addLoss(loss); err != nil {
			return err
		}
	}
	for i := range b.Len() {
		if err := s.add(ctx, b.Event(i)); err != nil {
			return err
		}
	}
	end := b.End()
	if !s.seen && end.Time.Compare(s.last.Time()) > 0 {
		return s.otherHistory()
	}
	if end.IsProgress() && end.Time.Compare(s.draft.time) > 0 && end.Time.Compare(s.from) > 0 {
		s.draft.cut = end.Time
	}
	return s.endQuietly(ctx)
}

// otherHistory is the error where the last stored change is missing.
func (s *session) otherHistory() error {
	return fmt.Errorf("%w: the last change of segment %d, at %s, is not there", ErrHistory, s.head.Number, s.last.Time())
}

// addLoss adds a loss of the log. One without a length is made again from the event after it.
func (s *session) addLoss(l *oplog.Loss) error {
	if !s.seen && l.To.Time.Compare(s.last.Time()) > 0 {
		s.seen = true // nobody can tell
	}
	if l.From.Compare(l.To) == 0 || l.To.Time.Compare(s.from) <= 0 {
		return nil
	}
	kept := *l
	if kept.From.Time.Compare(s.from) < 0 {
		kept.From = change.At(s.from)
	}
	s.begin()
	if l.Reason != gap.Poison {
		s.lost = s.now
	}
	s.draft.time = later(s.draft.time, kept.To.Time)
	return s.draft.addLoss(&kept)
}

// begin records when the draft got its first entry.
func (s *session) begin() {
	if s.draft.empty() {
		s.begun = s.now
	}
}

// add adds a change that is not stored yet. A segment may end before it if its time is a new one.
func (s *session) add(ctx context.Context, e *change.Event) error {
	if !s.seen {
		switch ref := e.Position().Ref(); {
		case ref == s.last:
			s.seen = true
		case e.Time().Compare(s.last.Time()) > 0:
			return s.otherHistory()
		}
		return nil
	}
	if e.Time().Compare(s.from) < 0 {
		return nil
	}
	if e.Time().Compare(s.draft.time) > 0 && s.limits.due(s.draft, s.begun, s.lost, s.now) {
		if err := s.end(ctx, e.Time(), false); err != nil {
			return err
		}
	}
	if s.limits.full(s.draft) {
		if err := retry.Sleep(ctx, time.Until(s.lost.Add(s.limits.patience))); err != nil { // nothing is read meanwhile
			return err
		}
		if err := s.end(ctx, s.draft.time, true); err != nil {
			return err
		}
	}
	s.begin()
	if s.draft.add(e) {
		return nil
	}
	at := e.Position().Clone()
	return s.draft.addLoss(&oplog.Loss{From: change.At(e.Time()), To: at, Reason: gap.Poison, Found: time.Now()})
}

// endQuietly ends a segment that is due at a point of progress after its last change.
func (s *session) endQuietly(ctx context.Context) error {
	at := s.draft.cut
	switch {
	case !s.seen, at.Compare(s.draft.time) <= 0, at.Compare(s.from) <= 0:
		return nil
	case s.limits.due(s.draft, s.begun, s.lost, s.now), s.draft.empty() && s.limits.quiet(s.from, at):
		return s.end(ctx, at, false)
	}
	return nil
}

// end writes the draft as the segment up to a time, and begins the next one.
func (s *session) end(ctx context.Context, to change.Timestamp, cut bool) error {
	cfg := s.w.cfg
	raw := s.draft.raw
	segment, h, err := s.draft.encode(Header{
		Number: s.next, Previous: s.head.ID, PreviousNumber: s.head.Number, From: s.from, To: to, Cut: cut, Last: s.head.Last,
		Coverage: cfg.Coverage, Writer: cfg.Node, Version: cfg.Version,
	})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.w.commit(ctx, segment, &h); err != nil {
		return err
	}
	s.w.report(nil)
	s.w.metrics.written(&h, raw, time.Since(began))
	if s.head.Writer != "" && s.head.Writer != cfg.Node {
		cfg.Logger.Info("took over the retained log", "from", s.head.Writer, "segment", h.Number)
	}
	cfg.Logger.Debug("segment written", "segment", h.Number, "from", h.From.String(), "to", h.To.String(), "events", h.Events, "bytes", h.Size)
	s.head = h
	s.next = h.Number + 1
	s.from = to
	s.draft = s.draft.next()
	s.lost = time.Time{}
	s.w.expire(ctx)
	s.refresh() // writing may have taken long
	return nil
}
