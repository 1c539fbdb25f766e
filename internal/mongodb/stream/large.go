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

// An event above 16 MiB ends every stream that reads it, and the whole reply that would contain it
// is lost. If the server can split the event, it comes in fragments, unless a single field is too
// large for a fragment. Otherwise the stream goes down a ladder, one opening per rung:
//
//	whole ──► alone: one event a reply ──► without the update's description ──► keys only ──► its name ──► step over it and say so
//
// The server's message does not identify the event reliably: it cuts the token, or has none. So the
// stream reads the events before it again, with one event a reply. The event that fails then is the
// next one. The stream shows it, and all events of the same time, with fewer fields and marked as
// incomplete. Events of a later time are read by a stream that shows everything and is opened at
// that time: it does not read the large event again. A stream opened after the event's token could,
// because a server may read that event once more.

// A view says how much of each event a stream shows, and how many events a reply has.
type view int

const (
	whole         view = iota
	alone              // everything, one event a reply
	noDescription      // one event without updateDescription, which repeats the full document's fields
	keysOnly           // one event, only the fields that routing needs
	nameOnly           // one event's token, to learn its time: from the event, or from the error message, which begins with the token
	stepOver           // nothing: the stream skips the event
)

// one reports whether each reply has one event.
func (v view) one() bool { return v != whole }

// less reports whether events lack something.
func (v view) less() bool { return v > alone }

// splits reports whether the server splits events. With keys only, a single part can be large, and
// the server's message must name it.
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

// A ladder is the state of a stream that has met an event that is too large. The zero value is a
// stream that has met none. Below the top, streams are opened by time, so that they read the events
// before the large one again.
type ladder struct {
	view   view
	until  change.Timestamp // alone: the large event is not later than this; zero if unknown
	budget int              // alone: the large event follows within this many bytes of other events
	seen   change.Position  // the last event that the cursor returned: the large event is the next one
	large  change.Timestamp // below alone: the time of the large event, zero until it arrives
}

const (
	// mostBefore bounds the bytes before a large event in the reply that it ended: a server puts 16
	// MiB into one.
	mostBefore = 17 << 20
	// nearby is how many bytes after a large event the stream still expects another one. Large
	// events often come together, and this saves an opening.
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

// gives notes an event that the cursor returned, and reports whether this stream returns it too:
// not if it is later than the large event.
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

// passed reports whether the time is later than the large event.
func (l *ladder) passed(at change.Timestamp) bool {
	return l.view.less() && !l.large.IsZero() && at.Compare(l.large) > 0
}

// next returns the rung after a reply of size bytes that has brought the stream to the time at.
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

// climb moves the stream to another rung. The stream is reopened if the new rung shows more or less
// of an event.
func (st *stream) climb(to ladder) {
	from := st.ladder
	st.ladder = to
	switch {
	case st.cursor == nil, from.view == to.view:
	case from.view.less() || to.view.less():
		st.gate.last = time.Time{} // each large event costs a bounded number of openings, and all readers wait for them
		st.close()
	default:
		st.cursor.SetBatchSize(0)
	}
}

// less takes the stream one rung down. at is the time of the event that was too large, zero if the
// server does not report it. At the bottom of the ladder the stream skips the event and all later
// events of the same time.
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

// leaveOut continues after all events of the time. Some of them are skipped.
func (st *stream) leaveOut(at change.Timestamp) {
	st.close()
	st.position = change.At(at.Next())
	st.skipping = true
	st.ladder = ladder{view: alone, budget: nearby}
}

// skipped makes the reply that takes the place of a skipped event. The stream is open after it.
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

// timeIn returns the time of the event that an error is about, zero if the error does not contain
// it. A BSONObjectTooLarge message quotes the event's first element, the token, with at least its
// first 150 digits.
func timeIn(err error) change.Timestamp {
	found := quoted.FindStringSubmatch(err.Error())
	if found == nil {
		return change.Timestamp{}
	}
	token, err := bson.Marshal(bson.D{{Key: "_data", Value: found[1]}})
	if err != nil {
		return change.Timestamp{}
	}
	position, _ := change.ParseToken(token) // another format has no time
	return position.Time
}

// quoted matches a token's _data in an error message.
var quoted = regexp.MustCompile(`_data: ?\\*"([0-9A-F]{18,})(?:\.\.\.)?\\*"`)

// A discreet error does not show the tokens that a server's message quotes: they contain documents'
// keys.
type discreet struct{ error }

func (e discreet) Error() string { return quoted.ReplaceAllString(e.error.Error(), `_data: "…"`) }

func (e discreet) Unwrap() error { return e.error }
