package delivery

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
)

// AppendEvent appends a change event in the JSON form of server-sent events and sinks: an object
// with an opaque id, unless that is empty, and the partition instead of the resume token. The
// partition is null for an event without a document.
func AppendEvent(b []byte, id string, e *Event, payload []byte) []byte {
	b = AppendEventHead(b, id, e)
	if len(payload) > len("{}") {
		b = append(b, ',')
	}
	return append(b, payload[1:]...)
}

// AppendEventHead appends what AppendEvent has before the payload's fields, without a comma.
func AppendEventHead(b []byte, id string, e *Event) []byte {
	b = append(b, '{')
	if id != "" {
		b = append(append(append(b, `"id":"`...), id...), `",`...)
	}
	b = append(b, `"partition":`...)
	if e.Keyless {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendUint(b, uint64(e.Partition), 10)
	}
	return b
}

// A jsonLoss is the JSON form of a Loss.
type jsonLoss struct {
	ID         string             `json:"id,omitempty"` // resumes after the loss
	Notice     Kind               `json:"notice"`
	Reason     string             `json:"reason"`
	Namespaces []string           `json:"namespaces,omitempty"` // none: everything that is watched
	Partitions []change.Partition `json:"partitions,omitempty"` // none: all
	LostFrom   jsonTimestamp      `json:"lost_from"`
	LostTo     jsonTimestamp      `json:"lost_to"`
	Found      time.Time          `json:"found"`
	Advice     string             `json:"advice"`
	Generation uint64             `json:"generation,omitempty"`
}

// A jsonMark is the JSON form of a SnapshotMark.
type jsonMark struct {
	Subscription string        `json:"subscription"`
	State        SnapshotState `json:"state"`
	Reason       string        `json:"reason"`
	Read         uint64        `json:"read"`
	Estimated    uint64        `json:"estimated"`
	Namespaces   []string      `json:"namespaces,omitempty"` // none: all that the subscription selects
}

// AppendMark appends the state of a snapshot as a JSON object.
func AppendMark(b []byte, m *SnapshotMark) []byte {
	text, err := json.Marshal(jsonMark{
		Subscription: m.Subscription, State: m.State, Reason: string(m.Reason), Read: m.Read, Estimated: m.Estimated, Namespaces: m.Namespaces,
	})
	if err != nil {
		panic("delivery: " + err.Error()) // plain values
	}
	return append(b, text...)
}

// A jsonTimestamp is a cluster time as Extended JSON writes it.
type jsonTimestamp struct {
	Timestamp struct {
		T uint32 `json:"t"`
		I uint32 `json:"i"`
	} `json:"$timestamp"`
}

func newTimestamp(t change.Timestamp) (ts jsonTimestamp) {
	ts.Timestamp.T, ts.Timestamp.I = t.T, t.I
	return ts
}

// AppendLoss appends a loss as a JSON object. The id resumes after the loss; it may be empty.
func AppendLoss(b []byte, id string, l *Loss) []byte {
	text, err := json.Marshal(jsonLoss{
		ID: id, Notice: l.Kind, Reason: l.Reason, Namespaces: l.Namespaces, Partitions: l.Partitions, LostFrom: newTimestamp(l.From.Time), LostTo: newTimestamp(l.To.Time),
		Found: l.Found, Advice: l.Advice, Generation: l.Generation,
	})
	if err != nil {
		panic("delivery: " + err.Error()) // plain values
	}
	return append(b, text...)
}
