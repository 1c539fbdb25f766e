package stream

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/oplog"
)

// An event above 16 MiB ends every stream that meets it, together with the reply that it was to
// come in. Where the server can split it, it comes in fragments, unless one field alone is too
// large for a fragment. Otherwise the stream goes down a ladder, one opening a rung:
//
//	whole ──► alone: one event a reply ──► without the update's description ──► keys only ──► its name ──► step over it and say so
//
// The server's message does not tell reliably which event it is about: it cuts the token, or has
// none. So what stands before it is read again with one event a reply. The one that fails then is
// the next one, and it is shown with less, marked as incomplete, together with what has the same
// time. What comes at a later time is left to a stream that shows all: opened at that time, it does
// not meet the event, while a server may look at an event again that a stream is opened behind.

// A view is how much of the events a stream shows, and in what portions.
type view int

const (
	whole         view = iota
	alone              // everything, one event a reply
	noDescription      // one event without updateDescription, which repeats what the full document has
	keysOnly           // one event's fields that routing needs
	nameOnly           // one event's token, to know its time: it comes, or the message that it does not come begins with it
	stepOver           // nothing: the event is left out
)

// one reports whether replies have one event.
func (v view) one() bool { return v != whole }

// less reports whether events lack something.
func (v view) less() bool { return v > alone }

// splits reports whether events are to be split. Of keys there is only one part that can be large,
// and the message that says so must name it.
func (v view) splits() bool { return v < keysOnly }

// routing are the fields of an event that routing needs.
//
//nolint:gochecknoglobals // a constant table
var routing = []string{"_id", "operationType", "clusterTime", "wallTime", "ns", "to", "documentKey", "lsid", "txnNumber"}

// project returns the $project stage of the view, nil for all.
func (v view) project() bson.D {
	switch v {
	case noDescription:
		return bson.D{{Key: "updateDescription", Value: 0}}
	case nameOnly:
		return bson.D{{Key: "_id", Value: 1}, {Key: "clusterTime", Value: 1}}
	case keysOnly, stepOver:
		var fields bson.D
		for _, name := range routing {
			fields = append(fields, bson.E{Key: name, Value: 1})
		}
		return fields
	case whole, alone:
	}
	return nil
}

// A ladder is where a stream stands because of an event that is too large. The zero value is a
// stream that has met none. Below the top, streams are opened by time, so that the events before
// the large one are seen again.
type ladder struct {
	view   view
	until  change.Timestamp // alone: the large event is not later; zero where that is not known
	budget int              // alone: the large event comes before so many bytes of others
	seen   change.Position  // what the cursor has given: the large event is the next one
	large  change.Timestamp // below alone: the time of the large event, zero before it has come
}

const (
	// mostBefore is what may come before a large event in the reply that it ended: a server puts 16
	// MiB into one.
	mostBefore = 17 << 20
	// nearby is how far behind a large event the next one is looked for: they often come together,
	// and an opening is saved then.
	nearby = 1 << 20
)

// fails returns the next rung down, because the server could not deliver an event. It is not later
// than until, if that is known.
func (l ladder) fails(until change.Timestamp) ladder {
	if l.view == whole {
		return ladder{view: alone, until: until, budget: mostBefore}
	}
	return ladder{view: min(l.view+1, stepOver), seen: l.seen}
}

// gives takes note of an event that the cursor has given, and reports whether it is to be handed
// out here: it is not where it is later than the large event.
func (l *ladder) gives(e *change.Event) bool {
	switch {
	case l.view == alone:
		l.seen = e.Position().Clone()
	case l.view.less() && l.large.IsZero() && e.Position().After(l.seen):
		l.large = e.Time()
	case l.passed(e.Time()):
		return false
	}
	return true
}

// passed reports whether what is of the time is later than the large event.
func (l *ladder) passed(at change.Timestamp) bool {
	return l.view.less() && !l.large.IsZero() && at.Compare(l.large) > 0
}

// next returns the rung after a reply of so many bytes, with which the stream has come to the time
// at.
func (l ladder) next(size int, at change.Timestamp) ladder {
	switch {
	case l.passed(at):
		return ladder{view: alone, budget: nearby}
	case l.view == alone:
		if l.budget -= size; l.budget <= 0 || !l.until.IsZero() && at.Compare(l.until) > 0 {
			return ladder{}
		}
	}
	return l
}

// climb moves the stream to another rung. It is opened anew where it is to show more or less.
func (st *stream) climb(to ladder) {
	from := st.ladder
	st.ladder = to
	switch {
	case st.cursor == nil, from.view == to.view:
	case from.view.less() || to.view.less():
		st.gate.last = time.Time{} // each event costs a bounded number of openings, which everybody waits for
		st.close()
	default:
		st.cursor.SetBatchSize(0)
	}
}

// less takes the stream one rung down. at is the time of the event that was too large, zero where
// the server does not tell it. At the bottom of the ladder the event is left out, and whatever else
// is of its time and comes after it.
func (st *stream) less(ctx context.Context, cause error, at change.Timestamp) error {
	st.source.metrics.tooLarge.Inc()
	if st.ladder.view == whole && at.IsZero() {
		if now, err := st.at.client.Now(ctx); err == nil {
			at = now // it has been written by now
		}
	}
	st.ladder = st.ladder.fails(at)
	st.gate.last = time.Time{} // as in climb
	logger := st.source.client.Logger()
	switch st.ladder.view {
	case noDescription, keysOnly, nameOnly:
		logger.Warn("an event is too large; it is shown with less", "keys_only", st.ladder.view >= keysOnly, "error", cause)
	case stepOver:
		if at.IsZero() || at.Compare(st.position.Time) < 0 {
			return fault.Newf(fault.LogPoisonEvent, "the event cannot be stepped over, because the server does not say which it is: %w", cause)
		}
		logger.Error("an event is too large even without anything but its key; it is left out", "error", cause)
		st.leaveOut(at)
	case whole, alone:
	}
	return nil
}

// leaveOut goes on behind everything of the time, of which something is left out.
func (st *stream) leaveOut(at change.Timestamp) {
	st.close()
	st.position, st.skipping, st.ladder = change.At(at.Next()), true, ladder{view: alone, budget: nearby}
}

// skipped makes the reply that holds the place of an event that was left out: the stream has been
// opened behind it.
func (st *stream) skipped() (oplog.Reply, error) {
	st.skipping = false
	if base, err := change.ParseToken(st.cursor.ResumeToken()); err == nil {
		st.position = change.Later(base.Clone(), st.position) // base, where they are equal: it has a token
	}
	if st.position.Token == nil {
		return oplog.Reply{}, fault.Newf(fault.LogPoisonEvent, "an event cannot be stepped over, because the server tells no place behind it")
	}
	event, err := bson.Marshal(bson.D{
		{Key: "_id", Value: bson.Raw(st.position.Token)}, {Key: "operationType", Value: change.SkippedName},
		{Key: "clusterTime", Value: bson.Timestamp{T: st.position.Time.T, I: st.position.Time.I}},
	})
	if err != nil {
		return oplog.Reply{}, fmt.Errorf("step over an event that is too large: %w", err)
	}
	return oplog.Reply{Events: [][]byte{event}, End: st.position, Size: len(event), At: time.Now()}, nil
}

// timeIn finds the time of the event that an error is about, zero where it does not tell: a message
// of BSONObjectTooLarge quotes the event's first element, the token, of which servers show at least
// the first 150 digits.
func timeIn(err error) change.Timestamp {
	found := quoted.FindStringSubmatch(err.Error())
	if found == nil {
		return change.Timestamp{}
	}
	token, err := bson.Marshal(bson.D{{Key: "_data", Value: found[1]}})
	if err != nil {
		return change.Timestamp{}
	}
	position, _ := change.ParseToken(token) // another format tells no time
	return position.Time
}

// quoted matches a token's _data in an error message.
var quoted = regexp.MustCompile(`_data: ?\\*"([0-9A-F]{18,})(?:\.\.\.)?\\*"`)

// A discreet error does not show the tokens that a server's message quotes: they contain documents'
// keys.
type discreet struct{ error }

func (e discreet) Error() string { return quoted.ReplaceAllString(e.error.Error(), `_data: "…"`) }

func (e discreet) Unwrap() error { return e.error }
