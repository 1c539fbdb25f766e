package sink

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mongostream/streamer/change"
)

// A Position says which messages of a partition are in a target, as a prefix of the messages that
// the partition's owners publish. Targets that can store it with their messages use it to skip
// messages that they have. They judge a repetition as a whole: message by message, or by age, a
// target could drop a newer state and accept an older one after it.
type Position struct {
	// Incarnation is the incarnation of the checkpoint. Messages under another one are repeated on
	// purpose, and never skipped.
	Incarnation string
	// Epoch is the epoch of the term under which the last message was published, Number the number
	// of the message in the term.
	Epoch  change.Epoch
	Number uint64
	// Ref is the place of the last message, Beside identifies the other messages of that place:
	// only the log knows the order of events whose heads are equal.
	Ref    change.Ref
	Beside []uint64
}

// maxBeside bounds the other messages of the last place that are remembered. Events with equal
// heads come from different shards, or from the same operation.
const maxBeside = 64

// IsZero reports whether no message is known to be in the target.
func (p Position) IsZero() bool { return p.Incarnation == "" && p.Ref.IsZero() && p.Number == 0 }

// Has reports whether a message is in the target. Snapshot documents of another owner are not: they
// are read after everything that the former owner may have published.
func (p Position) Has(m *Message) bool {
	switch {
	case p.IsZero() || p.Incarnation != m.Incarnation:
		return false
	case p.Epoch == m.Epoch:
		return m.Number <= p.Number
	case m.Snapshot:
		return false
	}
	order := m.Ref.Compare(p.Ref)
	return order < 0 || order == 0 && (m.Ref == p.Ref || slices.Contains(p.Beside, besideHash(m.Ref)))
}

// With returns the position after a message, which follows it.
func (p Position) With(m *Message) Position {
	next := Position{Incarnation: m.Incarnation, Epoch: m.Epoch, Number: m.Number, Ref: m.Ref}
	if p.Incarnation != m.Incarnation || p.Ref.IsZero() {
		return next
	}
	switch order := m.Ref.Compare(p.Ref); {
	case order < 0: // a document of a place that the changes have passed
		next.Ref, next.Beside = p.Ref, p.Beside
	case order == 0 && m.Ref != p.Ref:
		next.Beside = append(slices.Clone(p.Beside[max(0, len(p.Beside)-maxBeside+1):]), besideHash(p.Ref))
	case order == 0:
		next.Beside = p.Beside
	}
	return next
}

// besideHash identifies an event among the events with one head.
func besideHash(r change.Ref) uint64 {
	b := r.Append(nil)
	n := uint64(0)
	for _, octet := range b[len(b)-8:] {
		n = n<<8 | uint64(octet)
	}
	return n
}

// positionVersion is the first word of the text form.
const positionVersion = "1"

// AppendText appends the position as text of letters, digits and punctuation, of at most 1.5 kB.
func (p Position) AppendText(b []byte) []byte {
	b = fmt.Appendf(b, "%s %s %s %d %s", positionVersion, p.Incarnation, p.Epoch, p.Number, base64.RawURLEncoding.EncodeToString(p.Ref.Append(nil)))
	for _, hash := range p.Beside {
		b = strconv.AppendUint(append(b, ' '), hash, 36)
	}
	return b
}

// errPosition says that a text is no position.
var errPosition = errors.New("not a position of this version")

// ParsePosition reads what AppendText writes.
func ParsePosition(text string) (p Position, err error) {
	words := strings.Split(text, " ")
	if len(words) < 5 || words[0] != positionVersion {
		return p, errPosition
	}
	p.Incarnation = words[1]
	if _, err := fmt.Sscanf(words[2], "%d.%d", &p.Epoch.Incarnation, &p.Epoch.Revision); err != nil {
		return Position{}, fmt.Errorf("%w: epoch: %w", errPosition, err)
	}
	if p.Number, err = strconv.ParseUint(words[3], 10, 64); err != nil {
		return Position{}, fmt.Errorf("%w: number: %w", errPosition, err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(words[4])
	if err == nil {
		p.Ref, err = change.ParseRef(raw)
	}
	if err != nil {
		return Position{}, fmt.Errorf("%w: place: %w", errPosition, err)
	}
	for _, word := range words[5:] {
		hash, err := strconv.ParseUint(word, 36, 64)
		if err != nil {
			return Position{}, fmt.Errorf("%w: %w", errPosition, err)
		}
		p.Beside = append(p.Beside, hash)
	}
	return p, nil
}
