package oplog

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/wire"
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
func (s *stream) seek(e *Entry, invalidate bool, fragment int32) (bool, error) {
	if s.resume == nil {
		return true, nil
	}
	if e.TS == s.resume.TS && e.txnIndex() > s.resume.TxnOpIndex && !s.env.Log.Release().Since(R60) {
		return false, wire.Errorf(50792, "Invalid resumeToken: txnOpIndex was skipped")
	}
	switch s.compare(e, invalidate, fragment) {
	case found:
		s.resume = nil
	case surpassed:
		id := s.identity(e, invalidate, s.env.Log.Release().tokenVersion())
		id.Fragment = fragment
		return false, wire.Errorf(wire.ChangeStreamFatalError, "cannot resume stream; the resume token was not found. %s", doc.Compact(id.Document()))
	case earlier, needsSplit:
		// The token's event, or another fragment, is still to come.
	}
	return false, nil
}

// compare orders an event and the client's token as the server does.
func (s *stream) compare(e *Entry, invalidate bool, fragment int32) status {
	t := s.resume
	switch {
	case e.TS != t.TS || t.Type != TokenEvent || e.txnIndex() > t.TxnOpIndex:
		return surpassed
	case e.txnIndex() < t.TxnOpIndex:
		return earlier
	case invalidate != t.FromInvalidate:
		return sooner(!invalidate)
	}
	own := s.identity(e, invalidate, t.Version)
	if c := own.compareUUIDs(*t); c != 0 {
		return sooner(c < 0 && s.env.Log.Release().Since(R60))
	}
	if c := own.compareIdentifiers(*t); c != 0 {
		return sooner(c < 0)
	}
	switch {
	case fragment == NoFragment && t.Fragment != NoFragment:
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
func (s *stream) identity(e *Entry, invalidate bool, version int32) Token {
	t := Token{
		TS: e.TS, Version: version, Type: TokenEvent, TxnOpIndex: e.txnIndex(), FromInvalidate: invalidate, Fragment: NoFragment,
	}
	if e.kind != DropDatabase {
		t.UUID = e.ns.UUID
	}
	key, crud := doc.Field(e.Event, "documentKey")
	switch {
	case version < 2 && crud:
		t.Identifier = key.Data
	case version >= 2:
		id, _ := doc.Field(key.Data, "_id")
		t.Identifier = identifier(e.kind, id, description(e))
	}
	return t
}

func description(e *Entry) bsoncore.Document {
	if e.Detail == nil {
		return nil
	}
	return e.Detail.description
}
