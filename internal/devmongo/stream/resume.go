package stream

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/profile"
	"github.com/mongostream/streamer/internal/devmongo/token"
)

// status is where an event stands to the token that the stream resumes after.
type status uint8

const (
	earlier    status = iota
	found             // it is the token's event
	needsSplit        // it is the event of which the token names a fragment
	surpassed         // it comes after the place where the token's event should have been
)

// seek compares an event with the resume point while that is looked for: it reports whether the event may pass.
func (s *Stream) seek(e *oplog.Entry, invalidate bool, fragment int32) (bool, error) {
	if s.resume == nil {
		return true, nil
	}
	if e.TS == s.resume.TS && e.TxnIndex() > s.resume.TxnOpIndex && !s.env.Release.Since(profile.R60) {
		return false, fault.New(50792, "Invalid resumeToken: txnOpIndex was skipped")
	}
	switch s.compare(e, invalidate, fragment) {
	case found:
		s.resume = nil
	case surpassed:
		id := s.identity(e, invalidate, s.env.Release.TokenVersion())
		id.Fragment = fragment
		return false, fault.New(fault.ChangeStreamFatalError, "cannot resume stream; the resume token was not found. %s", doc.Compact(id.Document()))
	case earlier, needsSplit:
		// The token's event, or another fragment, is still to come.
	}
	return false, nil
}

// compare orders an event and the client's token as the server does.
func (s *Stream) compare(e *oplog.Entry, invalidate bool, fragment int32) status {
	t := s.resume
	switch {
	case e.TS != t.TS || t.Type != token.Event || e.TxnIndex() > t.TxnOpIndex:
		return surpassed
	case e.TxnIndex() < t.TxnOpIndex:
		return earlier
	case invalidate != t.FromInvalidate:
		return sooner(!invalidate)
	}
	own := s.identity(e, invalidate, t.Version)
	if c := own.CompareUUIDs(*t); c != 0 {
		return sooner(c < 0 && s.env.Release.Since(profile.R60))
	}
	if c := own.CompareIdentifiers(*t); c != 0 {
		return sooner(c < 0)
	}
	switch {
	case fragment == token.NoFragment && t.Fragment != token.NoFragment:
		return needsSplit
	case fragment == t.Fragment:
		return found
	default:
		return sooner(fragment < t.Fragment)
	}
}

func sooner(yes bool) status {
	if yes {
		return earlier
	}
	return surpassed
}

// identity is the token of an entry's event, or of the invalidate event that follows it, in a version.
func (s *Stream) identity(e *oplog.Entry, invalidate bool, version int32) token.Token {
	t := token.Token{
		TS: e.TS, Version: version, Type: token.Event, TxnOpIndex: e.TxnIndex(), FromInvalidate: invalidate, Fragment: token.NoFragment,
	}
	if e.Kind != oplog.DropDatabase {
		t.UUID = e.NS.UUID
	}
	key, crud := doc.Field(e.Event, "documentKey")
	switch {
	case version < 2 && crud:
		t.Identifier = key.Data
	case version >= 2:
		id, _ := doc.Field(key.Data, "_id")
		t.Identifier = oplog.Identifier(e.Kind, id, description(e))
	}
	return t
}

func description(e *oplog.Entry) bsoncore.Document {
	if e.Detail == nil {
		return nil
	}
	return e.Detail.Description
}
