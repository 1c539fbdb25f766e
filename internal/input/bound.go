package input

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
)

// MaxName bounds names and ids, in bytes.
const MaxName = 256

// A Kind is the set of characters that a text may contain.
type Kind int

// The kinds.
const (
	// Name is printable UTF-8 in one line: it becomes a key of a store, a label, a field of a log
	// line or of a notice.
	Name Kind = iota
	// Text is UTF-8 without the character 0: names of MongoDB, and expressions.
	Text
	// Bytes are any bytes.
	Bytes
	// Number is a decimal number in its one form: digits of ASCII, without a sign or leading zeros.
	// Fields of messages are no texts: their rows are for lists.
	Number
	// Message is not a text. Its rows are for lists.
	Message
)

// A Charge says how a text counts against its client's identity.
type Charge int

// The charges.
const (
	// Nothing: the node does not keep the text.
	Nothing Charge = iota
	// Memory: the node keeps it as long as the session or the subscription, and counts it against
	// the memory of an identity's filters (Cost).
	Memory
	// Checkpoint: the node also stores it with the subscriber.
	Checkpoint
)

// A Bound is a row of the table.
type Bound struct {
	Kind Kind
	// Bytes bounds one text.
	Bytes int
	// Count bounds the elements of a list; 0 is no list.
	Count int
	// Apart says that the elements are messages with separate answers, which are checked one by
	// one.
	Apart  bool
	Charge Charge
	// Code is the fault of a text that is too long. Defaults to SessionBadRequest.
	Code fault.Code
}

// The bounds that several rows share.
//
//nolint:gochecknoglobals // constants
var (
	named      = Bound{Kind: Name, Bytes: MaxName}
	kept       = Bound{Kind: Name, Bytes: MaxName, Charge: Memory}
	stored     = Bound{Kind: Name, Bytes: MaxName, Charge: Checkpoint}
	namespace  = Bound{Kind: Text, Bytes: 255, Charge: Memory} // MongoDB's limit (manual: "MongoDB Limits and Thresholds")
	operations = Bound{Kind: Name, Bytes: 32, Count: 64}
	expression = Bound{Kind: Text, Bytes: match.MaxSource, Charge: Memory, Code: fault.FilterTooLarge}
	position   = Bound{Kind: Bytes, Bytes: change.RefSize, Charge: Checkpoint, Code: fault.SessionBadPosition}
	eventID    = Bound{Kind: Name, Bytes: 8 << 10, Code: fault.SessionBadPosition} // within a snapshot it contains the remaining work
	word       = Bound{Kind: Name, Bytes: 64}
	number     = Bound{Kind: Number, Bytes: 20}
)

// check returns why a text of a client is refused, nil if it is accepted. The error does not
// contain the text.
func (b Bound) check(what string, text []byte) error {
	code := b.Code
	if len(text) > b.Bytes {
		if code == "" {
			code = fault.SessionBadRequest
		}
		return fault.Newf(code, "%s has %d bytes, at most %d are allowed", what, len(text), b.Bytes)
	}
	switch {
	case b.Kind == Bytes:
	case !utf8.Valid(text):
		return fault.Newf(fault.SessionBadRequest, "%s is not UTF-8", what)
	case b.Kind == Name && !printable(text), b.Kind == Text && strings.IndexByte(string(text), 0) >= 0:
		return fault.Newf(fault.SessionBadRequest, "%s has a character that is not allowed there", what)
	case b.Kind == Number && !IsNumber(string(text)):
		return fault.Newf(fault.SessionBadRequest, "%s is not a number like 7", what)
	}
	return nil
}

// printable reports whether valid UTF-8 has only characters that can be shown in one line.
func printable(text []byte) bool {
	for _, r := range string(text) {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// IsName reports whether a text may become a name: a key, a label, a field of a log line.
func IsName(text string) bool { return named.check("", []byte(text)) == nil }

// IsNumber reports whether a text is a number in its one form: what one node takes for 7, no other
// program may take for something else.
func IsNumber(text string) bool {
	n, err := strconv.ParseUint(text, 10, 64)
	return err == nil && strconv.FormatUint(n, 10) == text
}
