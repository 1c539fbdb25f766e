package retention

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// replySize is about how many bytes of changes a reply has.
const replySize = 1 << 20

// A stream reads MongoDB, and the chain while MongoDB lacks the next changes.
type stream struct {
	source *Source
	scope  oplog.Scope // of the segments' lanes that are read; nil is everything
	base   change.Position
	mongo  oplog.Stream // nil while segments are read
	joins  bool         // it continues in MongoDB where the chain ends

	at      change.Timestamp // everything earlier was returned
	lost    change.Timestamp // where MongoDB was left, because it has rejected that
	entered change.Timestamp // where reading of the segment began
	header  Header           // of the segment that is read, or was read last
	reader  *segmentReader   // nil between segments
	decoder *zstd.Decoder
	reached bool         // the changes before at have been skipped
	losses  []queuedLoss // to be returned
	damaged []oplog.Loss // to be returned once their span is over
	ahead   []entry      // read, but not returned: at most one
	failed  error        // to be returned after the losses: the store has not answered for too long
}

// A queuedLoss is a loss to be returned; told says that a segment has it.
type queuedLoss struct {
	oplog.Loss

	told bool
}

// Base implements oplog.Stream.
func (s *stream) Base() change.Position { return s.base }

// Close implements oplog.Stream.
func (s *stream) Close() {
	if s.mongo != nil {
		s.mongo.Close()
	}
	s.release()
}

// release ends the reading of the chain.
func (s *stream) release() {
	if s.decoder != nil {
		s.decoder.Close()
		s.decoder = nil
		s.source.cache.exit()
	}
}

// Next implements oplog.Stream.
func (s *stream) Next(ctx context.Context) (oplog.Reply, error) {
	if s.mongo != nil {
		reply, err := s.mongo.Next(ctx)
		if err == nil || !errors.Is(err, oplog.ErrPositionLost) {
			s.note(reply)
			return reply, err
		}
		first, outlives, askErr := s.source.outlives(ctx, change.At(s.at), err)
		if !outlives {
			return reply, errors.Join(err, askErr)
		}
		if found, findErr := s.begin(ctx, first); findErr != nil || !found {
			return reply, errors.Join(err, findErr)
		}
		s.source.cfg.Logger.Info("continuing in the retained log", "from", s.at.String(), "segment", s.header.Number)
		s.mongo.Close()
		s.mongo = nil
		s.lost = s.at
	}
	return s.fromChain(ctx)
}

// note records how far MongoDB's replies have come.
func (s *stream) note(reply oplog.Reply) {
	end := reply.End.Time
	if n := len(reply.Events); n > 0 && end.IsZero() {
		if e, err := change.Parse(reply.Events[n-1]); err == nil { // else the reader of the log says so
			end = e.Time()
		}
	}
	s.at = later(s.at, end)
}

func later(t, u change.Timestamp) change.Timestamp {
	if u.Compare(t) > 0 {
		return u
	}
	return t
}

// begin finds the segment of the stream's place; found is false where the chain does not have it,
// or begins later than both the place and the oplog: the reader of the log then continues in
// MongoDB, which may have more, and finds what it has.
func (s *stream) begin(ctx context.Context, oplogFirst change.Timestamp) (found bool, err error) {
	var h Header
	err = s.source.ask(ctx, func(ctx context.Context) error {
		h, found, err = s.source.chain().find(ctx, s.at)
		return err
	})
	if err != nil || !found {
		return false, err
	}
	if h.From.Compare(later(s.at, oplogFirst)) > 0 { // also if the oplog's beginning is unknown
		return false, nil
	}
	if h.From.Compare(s.at) > 0 {
		s.lose(s.at, h.From, gap.HistoryLost, nil)
	}
	s.enter(h)
	return true, nil
}

// lose queues a loss of all namespaces, or some.
func (s *stream) lose(from, to change.Timestamp, reason gap.Reason, namespaces []string) {
	s.queue(false, oplog.Loss{From: change.At(from), To: change.At(to), Reason: reason, Namespaces: namespaces, Found: time.Now()})
}

func (s *stream) queue(told bool, losses ...oplog.Loss) {
	for _, l := range losses {
		s.losses = append(s.losses, queuedLoss{l, told})
	}
}

// enter makes a segment the one to read.
func (s *stream) enter(h Header) {
	if s.decoder == nil {
		s.decoder = newDecoder()
		s.source.cache.enter()
	}
	chain := s.source.chain()
	s.header = h
	s.reached = false
	s.entered = later(h.From, s.at)
	s.reader = newSegmentReader(chain.store, chain.segment(h.Number), h, s.decoder, s.source.cache)
	s.reader.scope = s.scope
}

// enterAgain reads a segment that was rewritten meanwhile from the stream's place on.
func (s *stream) enterAgain(ctx context.Context) error {
	var h Header
	err := s.source.ask(ctx, func(ctx context.Context) (err error) {
		h, _, err = s.source.chain().Header(ctx, s.header.Number)
		return err
	})
	s.ahead = s.ahead[:0] // damaged stretches stay: some are of the segments before, if they were cut
	switch {
	case unreadable(err):
		s.drop(err)
		return nil
	case err != nil:
		return s.giveUp(ctx, err)
	}
	s.enter(h)
	return nil
}

// fromChain returns the next reply of the chain, or of MongoDB after its end.
func (s *stream) fromChain(ctx context.Context) (oplog.Reply, error) {
	for {
		if len(s.losses) > 0 {
			return s.nextLoss(), nil
		}
		if s.failed != nil {
			return oplog.Reply{}, s.failed
		}
		if s.reader == nil {
			ended, err := s.step(ctx)
			switch {
			case err != nil:
				return oplog.Reply{}, err
			case ended && len(s.damaged) > 0:
				s.tellDamaged()
			case ended:
				return s.join(ctx)
			}
			continue
		}
		reply, err := s.read(ctx)
		isEmpty := reply.Loss == nil && len(reply.Events) == 0 && reply.End.IsZero()
		if err != nil || !isEmpty {
			return reply, err
		}
	}
}

// endsWith reports whether two losses, none of them a mere place, end at the same place.
func (l *queuedLoss) endsWith(other *queuedLoss) bool {
	arePlaces := l.From.Compare(l.To) == 0 || other.From.Compare(other.To) == 0
	return l.To.Compare(other.To) == 0 && !arePlaces
}

// nextLoss returns the queued loss that ends first. Losses that end at the same place become one,
// because the reader of the log passes over a loss that ends where it has been.
func (s *stream) nextLoss() oplog.Reply {
	slices.SortStableFunc(s.losses, func(a, b queuedLoss) int { return a.To.Compare(b.To) })
	first := s.losses[0]
	rest := s.losses[1:]
	for len(rest) > 0 && first.endsWith(&rest[0]) {
		first = first.and(&rest[0])
		rest = rest[1:]
	}
	s.losses = rest
	s.at = later(s.at, first.To.Time)
	return oplog.Reply{Loss: &first.Loss, Told: first.told, Retained: true, At: time.Now()}
}

// and returns the loss of both.
func (l *queuedLoss) and(other *queuedLoss) queuedLoss {
	both := *l
	both.From = change.Earlier(l.From, other.From)
	both.told = l.told && other.told
	if l.Reason != other.Reason {
		both.Reason = gap.Damaged
		if l.Reason == gap.HistoryLost || other.Reason == gap.HistoryLost {
			both.Reason = gap.HistoryLost
		}
	}
	if len(l.Namespaces) == 0 || len(other.Namespaces) == 0 {
		both.Namespaces = nil
	} else {
		both.Namespaces = slices.Concat(l.Namespaces, other.Namespaces)
		slices.Sort(both.Namespaces)
		both.Namespaces = slices.Compact(both.Namespaces)
	}
	return both
}

// read returns the next changes of the segment. At its end the reply has the segment's end.
func (s *stream) read(ctx context.Context) (oplog.Reply, error) {
	reply := oplog.Reply{Retained: true, At: time.Now()}
	var buffer []byte
	for {
		e, ok, err := s.peek(ctx)
		switch {
		case errors.Is(err, errRewritten):
			s.note(reply)
			return reply, s.enterAgain(ctx)
		case unreadable(err):
			s.drop(err)
			return reply, nil
		case err != nil:
			s.note(reply)
			return reply, s.giveUp(ctx, err)
		case !ok:
			s.leave(&reply)
			return reply, nil
		case e.loss != nil && len(reply.Events) > 0, len(reply.Events) > 0 && reply.Size+len(e.raw) > replySize:
			s.note(reply)
			return reply, nil // first the changes before it
		}
		s.ahead = s.ahead[:0]
		if e.loss != nil {
			if e.loss.To.Time.Compare(s.entered) >= 0 {
				return s.stored(e), nil
			}
			continue
		}
		if overdue := s.place(e.raw); len(overdue) > 0 {
			s.queue(false, overdue...)
			s.ahead = append(s.ahead, e)
			s.note(reply)
			return reply, nil
		}
		if !s.reached || !s.source.keeps(e.raw) {
			continue
		}
		if buffer == nil {
			buffer = make([]byte, 0, max(replySize, len(e.raw)))
		}
		at := len(buffer)
		buffer = append(buffer, e.raw...)
		reply.Events = append(reply.Events, buffer[at:len(buffer):len(buffer)])
		reply.Size = len(buffer)
	}
}

// stored returns a loss of the segment, or nothing, where damaged spans end before it or with it:
// they are queued, and it follows.
func (s *stream) stored(e entry) oplog.Reply {
	overdue := s.overdue(e.loss.To.Time)
	s.queue(false, overdue...)
	e.loss.Found = time.Now() // new to the readers
	switch {
	case slices.ContainsFunc(overdue, func(l oplog.Loss) bool { return l.To.Compare(e.loss.To) == 0 }):
		s.queue(true, *e.loss)
	case len(overdue) > 0:
		s.ahead = append(s.ahead, e)
	default:
		s.at = later(s.at, e.loss.To.Time)
		return oplog.Reply{Loss: e.loss, Told: true, Retained: true, At: time.Now()}
	}
	return oplog.Reply{Retained: true, At: time.Now()}
}

// keeps reports whether the node reads a change.
func (s *Source) keeps(raw []byte) bool {
	if s.cfg.Keep == nil {
		return true
	}
	e, err := change.Parse(raw)
	return err != nil || s.cfg.Keep(&e) // the reader of the log reports an event that cannot be parsed
}

// peek returns the next entry of the segment, which is opened if necessary.
func (s *stream) peek(ctx context.Context) (e entry, ok bool, err error) {
	if len(s.ahead) > 0 {
		return s.ahead[0], true, nil
	}
	if s.reader.footer == nil {
		if err := s.source.ask(ctx, func(ctx context.Context) error { return s.reader.open(ctx, s.at) }); err != nil {
			return e, false, err
		}
	}
	if e, ok, err = s.reader.next(ctx); err != nil {
		err = s.source.ask(ctx, func(ctx context.Context) error {
			e, ok, err = s.reader.next(ctx)
			return err
		})
	}
	for _, l := range s.reader.damaged { // again those of a segment that was rewritten
		if !slices.ContainsFunc(s.damaged, func(known oplog.Loss) bool { return sameLoss(&known, &l) }) {
			s.damaged = append(s.damaged, l)
		}
	}
	s.reader.damaged = nil
	if ok && err == nil {
		s.ahead = append(s.ahead[:0], e)
	}
	return e, ok, err
}

// sameLoss reports whether two damaged spans are the same loss, whenever they were found.
func sameLoss(a, b *oplog.Loss) bool {
	return a.Reason == b.Reason && a.From.Time == b.From.Time && a.To.Time == b.To.Time && slices.Equal(a.Namespaces, b.Namespaces)
}

// place notes how far a change is, and returns the losses whose spans end before it.
func (s *stream) place(raw []byte) (overdue []oplog.Loss) {
	if s.reached && len(s.damaged) == 0 {
		return nil
	}
	e, err := change.Parse(raw)
	if err != nil {
		return nil // the reader of the log says so
	}
	s.reached = s.reached || e.Time().Compare(s.entered) >= 0
	return s.overdue(e.Time())
}

// overdue returns the damaged spans that end at a time or before, and forgets them.
func (s *stream) overdue(t change.Timestamp) (ended []oplog.Loss) {
	kept := s.damaged[:0]
	for _, l := range s.damaged {
		if l.To.Time.Compare(t) <= 0 {
			ended = append(ended, l)
		} else {
			kept = append(kept, l)
		}
	}
	s.damaged = kept
	return ended
}

// drop gives up the rest of the segment, which is damaged or was deleted. If it was cut, changes of
// its last time may follow.
func (s *stream) drop(err error) {
	reason := gap.Damaged
	if errors.Is(err, ErrNotFound) {
		reason = gap.HistoryLost
	}
	h := s.header
	from := later(s.entered, s.at)
	if h.Cut {
		s.damaged = append(s.damaged, oplog.Loss{From: change.At(from), To: change.At(h.To.Next()), Reason: reason, Found: time.Now()})
	} else {
		s.queue(false, s.overdue(h.To)...)
		s.lose(from, h.To, reason, nil)
	}
	s.reader = nil
}

// leave ends the segment. Damaged spans that are not part of the next segment, and missing
// coverage, become losses before its end.
func (s *stream) leave(reply *oplog.Reply) {
	h := s.header
	if !h.Cut {
		s.queue(false, s.damaged...)
		s.damaged = nil
	}
	if namespaces, lacks := h.Coverage.Lacks(s.source.cfg.Coverage); lacks {
		from := s.entered
		if h.Cut { // more of this time may follow, so the loss has no length
			from = h.To
		}
		s.lose(from, h.To, gap.Unread, namespaces)
	}
	if len(s.losses) == 0 && !h.Cut {
		reply.End = change.At(h.To)
	}
	s.at = h.To
	s.reader = nil
}

// step enters the next segment; ended is true where there is none.
func (s *stream) step(ctx context.Context) (ended bool, err error) {
	var next Header
	var found bool
	if err = s.source.ask(ctx, func(ctx context.Context) error {
		next, found, err = s.source.chain().after(ctx, &s.header)
		return err
	}); err != nil {
		return false, s.giveUp(ctx, err)
	}
	if !found {
		return true, nil
	}
	if !s.header.precedes(&next) {
		s.queue(false, s.overdue(next.From)...)
		if next.From.Compare(s.at) >= 0 { // otherwise it has everything from there on
			s.lose(s.at, next.From, gap.HistoryLost, nil)
		}
	}
	s.enter(next)
	return false, nil
}

// giveUp makes the reader of the log continue in MongoDB, with a loss, where the store has not
// answered for too long. That loss begins at the stream's place; damaged spans come first.
func (s *stream) giveUp(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.tellDamaged()
	s.failed = errors.Join(oplog.ErrPositionLost, err)
	return nil
}

// tellDamaged queues a loss of the damaged spans that began before the stream's place, because
// reading continues in MongoDB there. It ends at that place, and is of all namespaces, because not
// all changes of the place's own time may have been read.
func (s *stream) tellDamaged() {
	from := s.at.Next()
	for _, l := range s.damaged {
		if l.From.Time.Compare(from) < 0 {
			from = l.From.Time
		}
	}
	if s.damaged = nil; from.Compare(s.at.Next()) < 0 {
		s.lose(from, s.at.Next(), gap.Damaged, nil)
	}
}

// join continues in MongoDB at the end of the chain, or has the reader of the log do that. If
// MongoDB does not have that either, there may be another segment meanwhile. A chain that ends
// within a transaction may end where MongoDB was left.
func (s *stream) join(ctx context.Context) (oplog.Reply, error) {
	if !s.joins && s.at == s.lost {
		return oplog.Reply{}, oplog.ErrPositionLost
	}
	if !s.joins {
		s.source.cfg.Logger.Info("read the retained log, continuing in MongoDB", "at", s.at.String())
		return oplog.Reply{}, oplog.ErrJoin
	}
	mongo, err := s.source.mongo.Open(ctx, change.At(s.at))
	if errors.Is(err, oplog.ErrPositionLost) {
		if ended, stepErr := s.step(ctx); stepErr == nil && !ended {
			return s.fromChain(ctx)
		}
	}
	if err != nil {
		return oplog.Reply{}, err
	}
	s.source.cfg.Logger.Info("read the retained log, continuing in MongoDB", "at", s.at.String())
	s.mongo = mongo
	s.release()
	return mongo.Next(ctx)
}
