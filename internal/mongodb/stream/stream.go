package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/oplog"
)

// maxUnknown is how many errors without a known class in a row count as transient.
const maxUnknown = 5

// reopenAfter is the wait after a first failure.
const reopenAfter = 500 * time.Millisecond

// A stream is one change stream that reopens itself. It implements oplog.Stream and belongs to one
// goroutine.
type stream struct {
	source *Source
	base   change.Position
	gate   gate
	at     site     // where it is open, or will be
	tried  []string // members that have been asked for a lost position since the stream's last progress

	patience context.Context //nolint:containedctx // made once from the context of Next, and ends a little later
	cursor   *mongo.ChangeStream
	position change.Position // everything up to here has been returned; zero before the first opening at "now"
	fresh    bool            // the cursor has yet to return the empty reply of its opening, which proves nothing
	byTime   bool            // the next opening is by operation time, because the server refused the token
	proven   bool            // the position is known to be in the log, so progress counts
	suspect  bool            // the opening does not prove that nothing was skipped; the next reply says so
	ladder   ladder          // how much of an event is shown
	skipping bool            // the position is after a skipped event that has not been reported yet
	ended    bool            // an invalidate has ended the cursor; an opening by time would read the invalidate again
	exact    bool            // open after a token although the oplog cannot be read
	lenient  bool            // images are requested only where available
	parts    assembly
	opened   int       // openings up to this cursor, the driver's own included
	failures int       // in a row, since the last reply
	unknown  int       // of those, the errors without a known class
	refused  time.Time // when the server began to refuse the credentials, zero while it accepts them
}

func (st *stream) Base() change.Position { return st.base }

// Next implements oplog.Stream.
func (st *stream) Next(ctx context.Context) (oplog.Reply, error) {
	reply, err := st.next(ctx)
	return reply, st.source.slowDown(err)
}

func (st *stream) next(ctx context.Context) (oplog.Reply, error) {
	for {
		if ctx.Err() != nil {
			return oplog.Reply{}, context.Cause(ctx)
		}
		if st.cursor == nil {
			if err := st.open(ctx); err != nil {
				return oplog.Reply{}, err
			}
		}
		if st.skipping {
			return st.skipped()
		}
		reply, err := st.read(ctx)
		if err == nil && reply != nil {
			return *reply, nil
		}
		if err != nil {
			if err := st.failed(ctx, err); err != nil {
				return oplog.Reply{}, err
			}
		}
	}
}

// read asks the open cursor once. If it returns neither a reply nor an error, the caller calls it
// again, after an opening if the cursor is nil.
func (st *stream) read(ctx context.Context) (*oplog.Reply, error) {
	got := st.cursor.TryNext(st.waiting(ctx))
	at := time.Now()
	st.noteProgress(at)
	resumed := st.gate.opened != st.opened // by the driver itself
	if resumed {
		st.source.metrics.opened.Add(float64(st.gate.opened - st.opened))
		st.opened = st.gate.opened
		st.fresh = true
		st.proven = false
		st.sweep(ctx)
	}
	switch err := st.cursor.Err(); {
	case err != nil:
		return nil, err
	case resumed && !st.mayStay():
		st.close()
		return nil, nil //nolint:nilnil // the caller reopens the cursor
	case got:
		return st.collect(at)
	case st.cursor.ID() == 0:
		st.close() // after an invalidate; the position is the invalidate's, and startAfter continues after it
		st.ended = true
	case st.fresh:
		st.fresh = false
	default:
		return st.quiet(ctx, at)
	}
	return nil, nil //nolint:nilnil // the caller reads again
}

// mayStay reports whether the stream may keep a cursor that the driver itself has resumed at the
// last token that it saw. It may not between two fragments, because the server may split the event
// differently now. It may not where the oplog cannot be read either, because nothing proves that
// the oplog still has the token, whereas the server checks a time.
func (st *stream) mayStay() bool { return !st.parts.pending && !st.source.client.Blind() }

// noteProgress measures the lag of the stream, and so of the slowest shard.
func (st *stream) noteProgress(now time.Time) {
	if !st.source.client.Sharded() {
		return
	}
	p, err := change.ParseToken(st.cursor.ResumeToken())
	if err != nil {
		return
	}
	if took, reached := st.source.progress.note(st.gate.told, p.Time, now); reached {
		st.source.metrics.wait.Observe(took.Seconds())
	}
}

// waiting returns the context for waiting in the driver.
func (st *stream) waiting(ctx context.Context) context.Context {
	if st.patience == nil {
		st.patience, _ = st.patient(ctx, 2*st.source.cfg.MaxAwait)
	}
	return st.patience
}

// patient returns a context for a command of a cursor. One that ends before the server has answered
// leaves the cursor open there. So this one ends only when the server has not answered for a while
// after ctx ended.
func (st *stream) patient(ctx context.Context, while time.Duration) (patience context.Context, end func()) {
	patience, cancel := context.WithCancelCause(context.WithoutCancel(context.WithValue(ctx, gateKey{}, &st.gate)))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(while, func() { cancel(context.Cause(ctx)) })
	})
	return patience, func() {
		stop()
		cancel(nil)
	}
}

// collect makes a reply of the events of one batch. The cursor is at the first one.
func (st *stream) collect(at time.Time) (*oplog.Reply, error) {
	reply := &oplog.Reply{At: at, Events: make([][]byte, 0, 1+st.cursor.RemainingBatchLength())}
	for {
		if err := st.take(reply, st.cursor.Current); err != nil {
			return nil, err
		}
		if st.cursor.RemainingBatchLength() == 0 || !st.cursor.TryNext(st.patience) {
			break
		}
	}
	if err := st.cursor.Err(); err != nil {
		return nil, fmt.Errorf("read a batch: %w", err)
	}
	position, err := change.ParseToken(st.cursor.ResumeToken())
	if err != nil {
		return nil, fault.Newf(fault.LogTokenRefused, "read a resume token: %w", err)
	}
	// An event has arrived, so the server has found the position to resume after.
	st.fresh, st.proven = false, true
	st.gotOn(position)
	// A server fills a reply if it has more events than fit into it. With several shards, another
	// shard may have more events of the same time.
	reply.Drained = st.endsTime(reply)
	st.noteHeld(reply)
	st.reach(reply, position)
	return reply, nil
}

// endsTime reports whether no event with the time of the reply's last event follows. For a
// transaction only an empty reply shows that.
func (st *stream) endsTime(reply *oplog.Reply) bool {
	n := len(reply.Events)
	mayBeCut := reply.Size >= cutReply || st.parts.pending
	mayLackEvents := st.source.client.Sharded() || st.ladder.view != whole
	if n == 0 || mayBeCut || mayLackEvents {
		return false
	}
	last, err := change.Parse(reply.Events[n-1])
	if err != nil {
		return false
	}
	_, _, within := last.Transaction()
	return !within
}

// cutReply is the least size in bytes of a reply that was cut off: MongoDB fills replies up to 16
// MiB, and the next event may not fit.
const cutReply = 1 << 20

// take adds an event to a reply, or keeps a fragment until the event is whole.
func (st *stream) take(reply *oplog.Reply, event bson.Raw) error {
	reply.Size += len(event)
	if isFragment(event) {
		joined, err := st.parts.add(event)
		if err != nil || joined == nil {
			return err
		}
		event = joined
		reply.Size += len(event)
	} else {
		st.parts = assembly{}
	}
	if st.ladder.view.less() || st.lenient && st.source.cfg.Watch.lacks(event) {
		event = marked(event)
	}
	reply.Events = append(reply.Events, event)
	return nil
}

// reach advances the position. While an event is not whole, the position stays before its first
// fragment, where a reopened stream begins.
func (st *stream) reach(reply *oplog.Reply, to change.Position) {
	if st.parts.pending {
		if n := len(reply.Events); n > 0 {
			if e, err := change.Parse(reply.Events[n-1]); err == nil {
				to = e.Position()
			}
		} else {
			to = st.position
		}
	}
	if st.ladder.view.one() {
		to = st.given(reply, to)
	}
	if st.ladder.view == nameOnly {
		reply.Events = nil // they have no content
		if at := st.ladder.large; !at.IsZero() {
			st.leaveOut(at)
			return
		}
	}
	st.position = change.Later(st.position, to.Clone())
	reply.End = st.position
	reply.Unproven = st.suspect
	st.suspect = false
	st.climb(st.ladder.next(reply.Size, st.position.Time))
}

// given shows the ladder the events of the reply. It removes events that are later than a large
// event, and returns the position before them.
func (st *stream) given(reply *oplog.Reply, to change.Position) change.Position {
	for i, raw := range reply.Events {
		e, err := change.Parse(raw)
		if err == nil && !st.ladder.gives(&e) { // the lane reports an event that cannot be parsed
			reply.Events = reply.Events[:i]
			return change.At(e.Time())
		}
	}
	return to
}

// quiet makes an empty reply, whose progress counts only once the position is proven.
func (st *stream) quiet(ctx context.Context, at time.Time) (*oplog.Reply, error) {
	reply := &oplog.Reply{At: at, Drained: !st.source.client.Sharded()}
	st.noteHeld(reply)
	if !st.proven {
		if err := st.prove(ctx); err != nil {
			return nil, err
		}
		st.proven = true
	}
	position, err := change.ParseToken(st.cursor.ResumeToken())
	if err != nil {
		position = st.position
	}
	st.gotOn(position)
	if position.After(st.position) {
		st.reach(reply, position)
	}
	return reply, nil
}

// failed handles the error of a stream. A nil result means: open the stream again.
func (st *stream) failed(ctx context.Context, err error) error {
	between := st.parts.pending
	st.close()
	st.source.metrics.failures.Inc()
	class := mongodb.Classify(err)
	at := timeIn(err)
	err = discreet{err}
	st.source.failing(err)
	switch {
	case errors.Is(err, oplog.ErrPositionLost):
		return st.gone(ctx, err)
	case class == mongodb.BadToken && between:
		return nil // the server refuses the token of a fragment, at which the driver has resumed
	case class == mongodb.BadToken && !st.byTime && !st.position.IsZero():
		st.byTime = true
		return nil
	case class == mongodb.BadToken, class == mongodb.Lost:
		return st.gone(ctx, st.lost(ctx, err))
	case class == mongodb.Poison, errors.Is(err, errSequence):
		return st.less(ctx, err, at)
	case class == mongodb.NoImage && !st.lenient:
		st.relent(err)
		return nil
	case class == mongodb.Credentials && st.hopes(time.Now()): // an operator may be changing the password
	case class == mongodb.Credentials, class == mongodb.Fatal, class == mongodb.NoImage, errors.Is(err, change.ErrToken), errors.Is(err, mongo.ErrMissingResumeToken):
		return mongodb.AsFault(err)
	}
	st.comesHome()
	st.failures++
	if !mongodb.Passes(err) && !errors.Is(err, ErrNotTried) && class != mongodb.Credentials {
		if st.unknown++; st.unknown > maxUnknown {
			return mongodb.AsFault(err)
		}
	}
	if st.failures == 1 {
		st.source.client.Logger().Warn("change stream broke; it is opened again", "error", err)
	}
	return st.backOff(ctx)
}

// hopes reports whether refused credentials may still be accepted soon.
func (st *stream) hopes(now time.Time) bool {
	if st.refused.IsZero() {
		st.refused = now
	}
	return now.Sub(st.refused) < st.source.cfg.CredentialsTimeout
}

// backOff waits before the next attempt.
func (st *stream) backOff(ctx context.Context) error {
	st.source.resting.Add(1)
	defer st.source.resting.Add(-1)
	return retry.Backoff{First: reopenAfter, Longest: st.source.cfg.MaxBackoff}.Wait(ctx, st.failures)
}

// open opens the cursor at the position, and retries until the context ends or the error is final.
func (st *stream) open(ctx context.Context) error {
	for {
		err := st.openOnce(ctx)
		if err == nil {
			if st.failures > 0 {
				st.source.client.Logger().Info("change stream is open again", "failures", st.failures)
			}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := st.failed(ctx, err); err != nil {
			return err
		}
	}
}

func (st *stream) openOnce(ctx context.Context) error {
	src := st.source
	// An empty first reply has a post-batch token, which comes before the first event.
	opts := options.ChangeStream().SetBatchSize(0).SetMaxAwaitTime(src.cfg.MaxAwait).SetComment(src.client.Application())
	src.ask(opts, st.lenient)
	if st.position.IsZero() {
		// "Now" is an operation time too, so that no change falls between the question and the
		// opening.
		now, err := st.at.client.Now(ctx)
		if err != nil {
			return err
		}
		st.position = change.At(now.Next())
	} else if err := st.reaches(ctx); err != nil {
		return err // a position that is lost already costs the server no opening
	}
	st.exact = st.byToken() && src.client.Blind()
	if st.byToken() {
		opts.SetStartAfter(bson.Raw(st.position.Token))
	} else {
		opts.SetStartAtOperationTime(&bson.Timestamp{T: st.position.Time.T, I: st.position.Time.I})
	}
	patience, end := st.patient(ctx, min(2*src.cfg.MaxAwait, mongodb.CloseTimeout))
	defer end()
	var cursor *mongo.ChangeStream
	err := src.cfg.Guard(func() (err error) {
		cursor, err = src.watch(patience, st.at.pool, src.pipeline(st.ladder.view), opts)
		return err
	})
	if err != nil {
		return fmt.Errorf("open a change stream: %w", err)
	}
	src.metrics.opened.Inc()
	st.cursor = cursor
	st.opened = st.gate.opened
	st.fresh = true
	st.proven = false
	st.suspect = src.client.Blind()
	if st.ladder.view.one() {
		cursor.SetBatchSize(1)
		if st.ladder.view == alone {
			st.ladder.seen = change.At(st.position.Time)
		}
	}
	st.sweep(ctx)
	if err := st.prove(ctx); err != nil {
		st.close()
		return err
	}
	if base, err := change.ParseToken(cursor.ResumeToken()); err == nil {
		st.position = change.Later(st.position, base.Clone())
	}
	return nil
}

// byToken reports whether the stream is opened after its position's token; otherwise it is opened
// by time. Where the oplog cannot be read it is opened by time, which the server checks, unless
// that would read again the invalidate that has ended the cursor.
func (st *stream) byToken() bool {
	return st.position.Token != nil && !st.byTime && st.ladder.view == whole && (st.ended || !st.source.client.Blind())
}

// prove checks whether the position is in the oplog: the first entry, read after the opening, is
// not later, and the server's own time is not earlier. The stream calls it right after an opening,
// and again after the first empty reply, because the server looks for the position only at the
// first read. Where the oplog cannot be read, the server itself checks a stream that is opened by
// time; for a stream that is opened after a token, prove opens a second one by time.
func (st *stream) prove(ctx context.Context) error {
	if st.exact {
		if err := st.source.holds(ctx, st.at, st.position.Time); err != nil {
			return err
		}
	}
	return st.reaches(ctx)
}

// reaches checks whether the position is in the oplog, as far as possible without opening a stream.
func (st *stream) reaches(ctx context.Context) error {
	reach, err := st.at.client.Reach(ctx)
	if err != nil {
		return err
	}
	if err := outside(reach, st.position); err != nil {
		return &oplog.LostError{First: reach.First, Last: reach.Last, Err: err}
	}
	return nil
}

// outside returns an error that says why the position is outside the oplog's range, nil if it is
// inside.
func outside(reach mongodb.Reach, p change.Position) error {
	switch {
	case reach.First.Compare(p.Time) > 0:
		return fmt.Errorf("the position is of %s, the oplog begins at %s", p.Time, reach.First)
	case reach.Behind(p.Time):
		return fmt.Errorf("the position is of %s, the server is at %s only", p.Time, reach.Last)
	}
	return nil
}

// lost makes the error for a position that the server has refused, with the range of the oplog.
func (st *stream) lost(ctx context.Context, cause error) error {
	e := &oplog.LostError{Err: cause}
	if reach, err := st.at.client.Reach(ctx); err == nil {
		e.First = reach.First
		if reach.Behind(st.position.Time) {
			e.Last = reach.Last
		}
	}
	return e
}

// close closes the cursor, on the server too, within a bounded time. If that fails, or the driver
// has abandoned the cursor before, the gate keeps its id for sweep.
func (st *stream) close() {
	st.parts = assembly{} // an event begins with its first fragment when the stream is opened again
	if st.cursor == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), mongodb.CloseTimeout)
	defer cancel()
	id := st.cursor.ID()
	broken := st.cursor.Err() != nil
	if err := st.cursor.Close(ctx); err == nil && !broken {
		st.gate.ids = slices.DeleteFunc(st.gate.ids, func(known int64) bool { return known == id })
	}
	st.cursor = nil
}

// Close implements oplog.Stream.
func (st *stream) Close() {
	st.close()
	st.sweep(context.Background())
}
