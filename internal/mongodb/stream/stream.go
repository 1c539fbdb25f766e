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

// maxUnknown bounds how often in a row an error of no known meaning is taken for transient.
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
	tried  []string // members that were asked for a lost position since the stream last got on

	patience context.Context //nolint:containedctx // outlives by a little the context of Next, with which it is made once
	cursor   *mongo.ChangeStream
	position change.Position // everything up to here has been handed out; zero before the first opening at "now"
	fresh    bool            // the cursor has yet to give out the empty reply of its opening, which proves nothing
	byTime   bool            // open by operation time next, because the token was refused
	proven   bool            // the position is known to be in the log, so progress counts
	suspect  bool            // opened in a way that does not prove that nothing was left out; the next reply says so
	ladder   ladder          // how much of an event is shown
	skipping bool            // the position is behind an event that was left out, of which nothing has been told yet
	ended    bool            // an invalidate has ended the cursor, which an opening by time would bring again
	exact    bool            // open behind a token though the oplog cannot be looked at
	lenient  bool            // images are asked for as far as they are there
	parts    assembly
	opened   int       // openings that the cursor has behind it, the driver's own included
	failures int       // in a row, since the last reply
	unknown  int       // of those, with a code of no known meaning
	refused  time.Time // since when the user's credentials are not accepted, zero while they are
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

// read asks the open cursor once. Without a reply and an error it is to be asked again, or to be
// opened again.
func (st *stream) read(ctx context.Context) (*oplog.Reply, error) {
	got := st.cursor.TryNext(st.waiting(ctx))
	at := time.Now()
	st.noteProgress(at)
	resumed := st.gate.opened != st.opened // by the driver itself
	if resumed {
		st.source.metrics.opened.Add(float64(st.gate.opened - st.opened))
		st.opened, st.fresh, st.proven = st.gate.opened, true, false
		st.sweep(ctx)
	}
	switch err := st.cursor.Err(); {
	case err != nil:
		return nil, err
	case resumed && !st.mayStay():
		st.close()
		return nil, nil //nolint:nilnil // to be opened again
	case got:
		return st.collect(at)
	case st.cursor.ID() == 0:
		st.close() // after an invalidate; the position is the invalidate's, which startAfter goes on behind
		st.ended = true
	case st.fresh:
		st.fresh = false
	default:
		return st.quiet(ctx, at)
	}
	return nil, nil //nolint:nilnil // to be asked again
}

// mayStay reports whether a cursor may be kept that the driver has resumed by itself, at the last
// token that it saw. Between two fragments it may not: the server may split the event differently
// now. Where the oplog cannot be looked at it may not either: whether the token is still there
// cannot be proven, while the server checks a time.
func (st *stream) mayStay() bool { return !st.parts.pending && !st.source.client.Blind() }

// noteProgress notes how far the stream, and with it the slowest shard, is behind the cluster.
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

// waiting returns the context for waiting in the driver. One that ends inside a wait leaves the
// cursor behind on the server, so this one ends only when the server has not answered for a while
// after ctx has ended.
func (st *stream) waiting(ctx context.Context) context.Context {
	if st.patience == nil {
		patience, cancel := context.WithCancelCause(context.WithoutCancel(context.WithValue(ctx, gateKey{}, &st.gate)))
		context.AfterFunc(ctx, func() {
			time.AfterFunc(2*st.source.cfg.MaxAwait, func() { cancel(context.Cause(ctx)) })
		})
		st.patience = patience
	}
	return st.patience
}

// collect makes a reply of the events of one batch, of which the cursor stands at the first.
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
	// An event has come, so the server has found what it was to resume after.
	st.fresh, st.proven = false, true
	st.gotOn(position)
	// A server that has more than fits into a reply fills it. Of several shards one may have more
	// of the same time.
	reply.Drained = st.endsTime(reply)
	st.reach(reply, position)
	return reply, nil
}

// endsTime reports whether no event of the last one's time follows a reply. Of a transaction only
// an empty reply tells that.
func (st *stream) endsTime(reply *oplog.Reply) bool {
	n := len(reply.Events)
	if n == 0 || reply.Size >= cutReply || st.source.client.Sharded() || st.parts.pending || st.ladder.view != whole {
		return false
	}
	last, err := change.Parse(reply.Events[n-1])
	if err != nil {
		return false
	}
	_, _, within := last.Transaction()
	return !within
}

// cutReply is a size in bytes that replies which were cut off do not stay below: MongoDB fills them
// up to 16 MiB, and one event may not fit.
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

// reach moves the position on. While an event is not whole it stays before the first fragment,
// where a reopened stream begins.
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
		reply.Events = nil // there is nothing in them
		if at := st.ladder.large; !at.IsZero() {
			st.leaveOut(at)
			return
		}
	}
	st.position = change.Later(st.position, to.Clone())
	reply.End = st.position
	reply.Unproven, st.suspect = st.suspect, false
	st.climb(st.ladder.next(reply.Size, st.position.Time))
}

// given lets the ladder look at what the cursor has given. What is later than a large event is not
// handed out here: the position is then before it.
func (st *stream) given(reply *oplog.Reply, to change.Position) change.Position {
	for i, raw := range reply.Events {
		e, err := change.Parse(raw)
		if err == nil && !st.ladder.gives(&e) { // the lane will say so of an event that cannot be read
			reply.Events = reply.Events[:i]
			return change.At(e.Time())
		}
	}
	return to
}

// quiet makes an empty reply, whose progress counts only when it may be believed.
func (st *stream) quiet(ctx context.Context, at time.Time) (*oplog.Reply, error) {
	reply := &oplog.Reply{At: at, Drained: !st.source.client.Sharded()}
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

// failed decides what becomes of a stream that broke: without an error it is to be opened again.
func (st *stream) failed(ctx context.Context, err error) error {
	between := st.parts.pending
	st.close()
	st.source.metrics.failures.Inc()
	class, at := mongodb.Classify(err), timeIn(err)
	err = discreet{err}
	st.source.failing(err)
	switch {
	case errors.Is(err, oplog.ErrPositionLost):
		return st.gone(ctx, err)
	case class == mongodb.BadToken && between:
		return nil // what the server refuses is a fragment's token, at which the driver has resumed
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
	case class == mongodb.Credentials && st.hopes(time.Now()): // somebody may be changing the password
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

// hopes reports whether credentials that are not accepted now may be soon.
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

// open opens the cursor at the position, and goes on trying until the context ends or the error is
// final.
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
	// An empty first reply brings a post-batch token before the first event.
	opts := options.ChangeStream().SetBatchSize(0).SetMaxAwaitTime(src.cfg.MaxAwait).SetComment(src.client.Application())
	src.ask(opts, st.lenient)
	if st.position.IsZero() {
		// "Now" is an operation time too, so that nothing is between the question and the opening.
		now, err := st.at.client.Now(ctx)
		if err != nil {
			return err
		}
		st.position = change.At(now.Next())
	} else if err := st.reaches(ctx); err != nil {
		return err // what is lost already costs the server no opening
	}
	st.exact = st.byToken() && src.client.Blind()
	if st.byToken() {
		opts.SetStartAfter(bson.Raw(st.position.Token))
	} else {
		opts.SetStartAtOperationTime(&bson.Timestamp{T: st.position.Time.T, I: st.position.Time.I})
	}
	var cursor *mongo.ChangeStream
	err := src.cfg.Guard(func() (err error) {
		cursor, err = src.watch(context.WithValue(ctx, gateKey{}, &st.gate), st.at.pool, src.pipeline(st.ladder.view), opts)
		return err
	})
	if err != nil {
		return fmt.Errorf("open a change stream: %w", err)
	}
	src.metrics.opened.Inc()
	st.cursor, st.opened, st.fresh, st.proven, st.suspect = cursor, st.gate.opened, true, false, src.client.Blind()
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

// byToken reports whether the stream is opened behind its position's token, else by its time. Where
// the oplog cannot be looked at it is opened by time, which the server checks, unless that would
// bring the invalidate again that has ended the cursor.
func (st *stream) byToken() bool {
	return st.position.Token != nil && !st.byTime && st.ladder.view == whole && (st.ended || !st.source.client.Blind())
}

// prove finds out whether the position is in the log: the log's first entry, read after the
// opening, is not younger, and the server's own time is not older. It is asked right after an
// opening, and again after the first empty answer, because the server looks for the position only
// when it is first read from. Where the oplog cannot be looked at, the server itself checks a
// stream that is opened by time; for one that is not, another one is.
func (st *stream) prove(ctx context.Context) error {
	if st.exact {
		if err := st.source.holds(ctx, st.at, st.position.Time); err != nil {
			return err
		}
	}
	return st.reaches(ctx)
}

// reaches finds out whether the position is in the log, as far as that can be told without opening
// a stream.
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

// outside says how the position stands outside of the log's reach, nil where it does not.
func outside(reach mongodb.Reach, p change.Position) error {
	switch {
	case reach.First.Compare(p.Time) > 0:
		return fmt.Errorf("the position is of %s, the oplog begins at %s", p.Time, reach.First)
	case reach.Behind(p.Time):
		return fmt.Errorf("the position is of %s, the server is at %s only", p.Time, reach.Last)
	}
	return nil
}

// lost makes the error for a position that the server has refused, with what the log holds instead.
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

// close closes the cursor on the server too, within a bounded time. Where that fails, or the driver
// has given the cursor up before, its id is kept.
func (st *stream) close() {
	st.parts = assembly{} // an event begins with its first fragment when the stream is opened again
	if st.cursor == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), mongodb.CloseTimeout)
	defer cancel()
	id, broken := st.cursor.ID(), st.cursor.Err() != nil
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
