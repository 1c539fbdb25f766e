package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
)

// An Encoder writes events as subscribers of text see them: MongoDB's change event as a JSON object, with the partition and an
// opaque id in the place of the resume token.
type Encoder struct {
	issuer      issuer
	partitioner change.Partitioner
	object      func(b []byte, e *change.Event) ([]byte, error)
	scratch     []byte
}

// NewEncoder makes an Encoder of a cluster of so many partitions. object appends the event as a JSON object without its token, in one line.
// An Encoder belongs to one goroutine.
func NewEncoder(cluster string, partitions int, object func([]byte, *change.Event) ([]byte, error)) *Encoder {
	return &Encoder{issuer: newIssuer(cluster, partitions), partitioner: change.NewPartitioner(partitions), object: object}
}

// ID appends the id of a position.
func (c *Encoder) ID(b []byte, p change.Position) []byte { return c.issuer.write(b, p) }

// errNotOneLine says that an event was not written as a JSON object in one line: as it is it could pass for other events.
var errNotOneLine = errors.New("not a JSON object in one line")

// Event appends the event, in one line. The partition of an event of no document is null.
func (c *Encoder) Event(b []byte, e *change.Event) ([]byte, error) {
	object, err := c.object(c.scratch[:0], e)
	if err != nil {
		return b, fmt.Errorf("encode event: %w", err)
	}
	c.scratch = object
	if len(object) < len("{}") || object[0] != '{' || bytes.ContainsAny(object, "\r\n") {
		return b, fmt.Errorf("encode event: %w", errNotOneLine)
	}
	b = append(b, `{"id":"`...)
	b = c.ID(b, e.Position())
	b = append(b, `","partition":`...)
	if p, keyed := c.partitioner.Of(e); keyed {
		b = strconv.AppendUint(b, uint64(p), 10)
	} else {
		b = append(b, "null"...)
	}
	if len(object) > len("{}") {
		b = append(b, ',')
	}
	return append(b, object[1:]...), nil
}

// A loss is what subscribers of text are told when changes may have been missed.
type loss struct {
	ID string `json:"id"` // resumes behind the loss
	// Notice is its kind; Partition the one that it is about, null for all.
	Notice     delivery.Kind     `json:"notice"`
	Partition  *change.Partition `json:"partition"`
	Reason     string            `json:"reason"`
	Namespaces []string          `json:"namespaces,omitempty"` // none: everything that is watched
	LostFrom   timestamp         `json:"lost_from"`
	LostTo     timestamp         `json:"lost_to"`
	Found      time.Time         `json:"found"`
	Advice     string            `json:"advice"`
}

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

// Notice appends a notice about what stood between the positions; the partition is nil where it concerns all.
func (c *Encoder) Notice(b []byte, n *delivery.Notice, p *change.Partition, from, to change.Position) []byte {
	text, err := json.Marshal(loss{
		ID: string(c.ID(nil, to)), Notice: n.Kind, Partition: p, Reason: n.Reason, Namespaces: n.Namespaces,
		LostFrom: newTimestamp(from.Time), LostTo: newTimestamp(to.Time), Found: n.Found, Advice: n.Advice,
	})
	if err != nil {
		panic("gateway: " + err.Error()) // plain values
	}
	return append(b, text...)
}
