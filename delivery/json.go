package delivery

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
)

// AppendEvent appends a change event in the JSON form of server-sent events and sinks: an object
// with an opaque id and the partition instead of the resume token. The partition is null for an
// event without a document.
func AppendEvent[ID string | []byte](b []byte, id ID, e *Event, payload []byte) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, id...)
	b = append(b, `","partition":`...)
	if e.Keyless {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendUint(b, uint64(e.Partition), 10)
	}
	if len(payload) > len("{}") {
		b = append(b, ',')
	}
	return append(b, payload[1:]...)
}

// A loss is the JSON form of a Loss.
type loss struct {
	ID         string     `json:"id,omitempty"` // resumes after the loss
	Notice     Kind       `json:"notice"`
	Reason     string     `json:"reason"`
	Namespaces []string   `json:"namespaces,omitempty"` // none: everything that is watched
	Partitions partitions `json:"partitions,omitempty"` // none: all
	LostFrom   timestamp  `json:"lost_from"`
	LostTo     timestamp  `json:"lost_to"`
	Found      time.Time  `json:"found"`
	Advice     string     `json:"advice"`
	Generation uint64     `json:"generation,omitempty"`
}

// A snapshotMark is the JSON form of a SnapshotMark.
type snapshotMark struct {
	ID           string        `json:"id"`
	Subscription string        `json:"subscription"`
	State        SnapshotState `json:"state"`
	Reason       string        `json:"reason"`
	Read         uint64        `json:"read"`
	Estimated    uint64        `json:"estimated"`
	Namespaces   []string      `json:"namespaces,omitempty"` // none: all that the subscription selects
}

// AppendMark appends the state of a snapshot as a JSON object.
func AppendMark(b []byte, id string, m *SnapshotMark) []byte {
	text, err := json.Marshal(snapshotMark{
		ID: id, Subscription: m.Subscription, State: m.State, Reason: string(m.Reason), Read: m.Read, Estimated: m.Estimated, Namespaces: m.Namespaces,
	})
	if err != nil {
		panic("delivery: " + err.Error()) // plain values
	}
	return append(b, text...)
}

type partitions []change.Partition

// A timestamp is a cluster time as Extended JSON writes it.
type timestamp struct {
	Timestamp struct {
		T uint32 `json:"t"`
		I uint32 `json:"i"`
	} `json:"$timestamp"`
}

func newTimestamp(t change.Timestamp) (ts timestamp) {
	ts.Timestamp.T, ts.Timestamp.I = t.T, t.I
	return ts
}

// AppendLoss appends a loss as a JSON object. The id resumes after the loss; it may be empty.
func AppendLoss(b []byte, id string, l *Loss) []byte {
	text, err := json.Marshal(loss{
		ID: id, Notice: l.Kind, Reason: l.Reason, Namespaces: l.Namespaces, Partitions: l.Partitions, LostFrom: newTimestamp(l.From.Time), LostTo: newTimestamp(l.To.Time),
		Found: l.Found, Advice: l.Advice, Generation: l.Generation,
	})
	if err != nil {
		panic("delivery: " + err.Error()) // plain values
	}
	return append(b, text...)
}
