package stream

import (
	"fmt"
	"regexp"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/lane"
)

// An event above 16 MiB stops every stream that meets it. Where the server can split it, it comes in fragments. Otherwise the stream is
// opened with less to show, one step at a time, until the event fits; a stream that shows less runs only until it has passed the event,
// so that none meets it twice.
//
//	whole ──► without the update's description ──► keys only ──► step over it and say so

// A view is how much of an event a stream shows.
type view int

const (
	whole         view = iota
	noDescription      // without updateDescription, which repeats what the full document has
	keysOnly           // what routing needs
	stepOver           // nothing: the event is left out
)

// routing are the fields of an event that routing needs.
//
//nolint:gochecknoglobals // a constant table
var routing = []string{"_id", "operationType", "clusterTime", "wallTime", "ns", "to", "documentKey", "lsid", "txnNumber"}

// project returns the $project stage of the view, nil for all.
func (v view) project() bson.D {
	switch v {
	case noDescription:
		return bson.D{{Key: "updateDescription", Value: 0}}
	case keysOnly, stepOver:
		var fields bson.D
		for _, name := range routing {
			fields = append(fields, bson.E{Key: name, Value: 1})
		}
		return fields
	case whole:
	}
	return nil
}

// less deals with an event that was too large for the stream as it is: the next opening shows less. At the end of the ladder the event
// is left out; its token stands in the server's message.
func (st *stream) less(cause error) (*lane.Reply, error) {
	st.source.metrics.tooLarge.Inc()
	token, position, err := tokenIn(cause)
	st.large = position.Time
	if st.view++; st.view < stepOver {
		st.source.client.Logger().Warn("an event is too large; the stream shows less until it has passed it", "keys_only", st.view == keysOnly, "error", cause)
		return nil, nil //nolint:nilnil // the stream is opened again and goes on
	}
	if err != nil || !position.After(st.position) {
		return nil, fault.Newf(fault.LogPoisonEvent, "the event cannot be stepped over, because the server does not say which it is: %w", cause)
	}
	event, err := bson.Marshal(bson.D{
		{Key: "_id", Value: token}, {Key: "operationType", Value: change.SkippedName},
		{Key: "clusterTime", Value: bson.Timestamp{T: position.Time.T, I: position.Time.I}},
	})
	if err != nil {
		return nil, fmt.Errorf("step over an event that is too large: %w", err)
	}
	st.view, st.position = whole, position
	return &lane.Reply{Events: [][]byte{event}, End: position, Size: len(event)}, nil
}

// tokenIn finds the token of the event that a BSONObjectTooLarge error is about: the message quotes its first element.
func tokenIn(err error) (token bson.Raw, position change.Position, failure error) {
	found := quoted.FindStringSubmatch(err.Error())
	if found == nil {
		return nil, position, change.ErrToken
	}
	token, failure = bson.Marshal(bson.D{{Key: "_data", Value: found[1]}})
	if failure == nil {
		position, failure = change.ParseToken(token)
	}
	return token, position, failure
}

// quoted matches a token's _data in an error message.
var quoted = regexp.MustCompile(`_id: ?\{ ?_data: ?\\*"([0-9A-F]{18,})\\*"`)

// showAll ends a stream that shows less as soon as it has passed the event for which it does: what comes at a later time is left to a
// stream that shows all. Where the server did not say which event that is, it is taken to be the first to come.
func (st *stream) showAll(reply *lane.Reply, to change.Position) (until change.Position) {
	until = to
	for i, raw := range reply.Events {
		e, err := change.Parse(raw)
		if err != nil {
			continue // the lane will say so
		}
		if st.large.IsZero() {
			st.large = e.Time()
		}
		if e.Time().Compare(st.large) > 0 {
			reply.Events, until = reply.Events[:i], change.At(e.Time())
			break
		}
	}
	if !st.large.IsZero() && until.Time.Compare(st.large) > 0 {
		st.close()
		st.view = whole
	}
	return until
}
