package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Change is one change event, delivered for one matching subscription.
type Change struct {
	Subscription string
	// Partition is the partition of the document. With AllPartitions set the change has no document
	// (drop, rename, dropDatabase, invalidate) and Partition has no meaning. Such a change is
	// handled once, after everything before it in every partition and before everything after it.
	Partition     uint32
	AllPartitions bool
	Format        Format
	// Snapshot says that Data is not a change but a document of a snapshot: an event with the
	// operationType snapshot and the fullDocument. It is not older than the changes of the document
	// before it. Documents that were read together share an ID.
	Snapshot bool
	// Data is the change event in Format. A handler may keep it but must not modify it, because
	// other subscriptions may share the bytes. It shares memory with its batch (about 256 KiB):
	// clone it to keep a few changes for a long time.
	Data []byte

	place place
	more  bool // of its place: in another form, or for another subscription
}

// ID returns the identifier of the change. It is the same for every delivery, node and
// subscription, so that a program can use it to deduplicate what one subscription gets. It consists
// of letters, digits, - and _.
func (c *Change) ID() string { return base64.RawURLEncoding.EncodeToString(c.place[:]) }

// Op returns the event's operationType: insert, update, replace, delete, drop, …; "" if Data cannot
// be parsed.
func (c *Change) Op() string {
	if c.Format == JSON {
		return opOfJSON(c.Data)
	}
	return opOfBSON(c.Data)
}

// Namespace returns the database and the collection of the change; coll is "" for a change of a
// database, and both are for a change of neither, or if Data cannot be parsed.
func (c *Change) Namespace() (db, coll string) {
	if c.Format == JSON {
		var ns struct{ DB, Coll string }
		if json.Unmarshal(fieldOfJSON(c.Data, "ns"), &ns) != nil {
			return "", ""
		}
		return ns.DB, ns.Coll
	}
	_, ns := fieldOfBSON(c.Data, "ns")
	db, _ = stringOf(fieldOfBSON(ns, "db"))
	coll, _ = stringOf(fieldOfBSON(ns, "coll"))
	return db, coll
}

// Key returns the key of the document: its _id as text, the same for all _ids that MongoDB
// considers equal (docs/concepts.md#keys). Nodes send it with changes in JSON. It is "" in BSON,
// whose documentKey has the _id, and for a change without a document.
func (c *Change) Key() (key string) {
	if c.Format != JSON || json.Unmarshal(fieldOfJSON(c.Data, "key"), &key) != nil {
		return ""
	}
	return key
}

// ClusterTime returns when the change was made, by MongoDB's clock and to the second; the zero Time
// if Data cannot be parsed. Changes of one second are ordered by their delivery.
func (c *Change) ClusterTime() time.Time {
	if seconds, _ := c.Timestamp(); seconds != 0 {
		return time.Unix(int64(seconds), 0)
	}
	return time.Time{}
}

// Timestamp returns the cluster time of the change: the second, by MongoDB's clock, and the ordinal
// within it. The changes of a document have growing ones, but those of one transaction share it.
// Both are 0 if Data cannot be parsed.
func (c *Change) Timestamp() (seconds, ordinal uint32) {
	if c.Format == JSON {
		var at struct {
			Timestamp struct{ T, I uint32 } `json:"$timestamp"`
		}
		if json.Unmarshal(fieldOfJSON(c.Data, "clusterTime"), &at) != nil {
			return 0, 0
		}
		return at.Timestamp.T, at.Timestamp.I
	}
	if kind, at := fieldOfBSON(c.Data, "clusterTime"); kind == 0x11 && len(at) == 8 {
		return binary.LittleEndian.Uint32(at[4:]), binary.LittleEndian.Uint32(at)
	}
	return 0, 0
}

// ErrNoDocument is returned by Decode for a change that does not carry its document: a delete, a
// change of a whole collection, or an update while the nodes' mongodb.full_document is default.
var ErrNoDocument = errors.New("the change does not carry its document")

// Decode decodes the document after the change as encoding/json does; numbers in an any are
// json.Number, so that no digit is lost. Dates, ObjectIds and decimals are relaxed Extended JSON,
// for example {"$date": "2026-01-31T12:00:00Z"}. It takes changes in JSON only: a program that asks
// for BSON has a driver, which decodes Data.
func (c *Change) Decode(document any) error {
	if c.Format != JSON {
		return errors.New("decode change: it is BSON: decode Data with the driver, or subscribe with Format JSON")
	}
	text := fieldOfJSON(c.Data, "fullDocument")
	if text == nil || string(text) == "null" {
		return ErrNoDocument
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(document); err != nil {
		return fmt.Errorf("decode change %s: %w", c.ID(), err)
	}
	return nil
}

// A Handler processes a change. The client acknowledges the change when it returns nil and retries
// when it returns an error. The handlers of one partition are called one at a time. The context
// ends when Run is about to return.
type Handler func(context.Context, Change) error

// A Delivery is a change received from a channel. The receiver calls Done exactly once.
type Delivery struct {
	Change
	done chan<- error
}

// Done reports the outcome of the change: nil acknowledges it, an error retries it. Done never
// blocks; only the first call counts.
func (d *Delivery) Done(err error) {
	select {
	case d.done <- err:
	default:
	}
}

// Channel returns a handler that sends changes to a channel and waits until the receiver calls
// Done. At most one change of each partition is outstanding.
func Channel(to chan<- Delivery) Handler {
	return func(ctx context.Context, c Change) error {
		done := make(chan error, 1)
		select {
		case to <- Delivery{c, done}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Poison is a change or a notice whose handler has failed Config.Attempts times.
type Poison struct {
	Change   *Change // nil for a notice
	Notice   Notice  // nil for a change
	Attempts int
	Err      error // the last error
}

// A Decision says whether Run continues without a change that cannot be handled or a subscription
// that was rejected.
type Decision int

// The decisions.
const (
	Stop Decision = iota // Run returns a HandlerError, and the change is redelivered to the next Run; or Run returns the node's Error
	Skip                 // the change counts as handled; the subscription is removed
)
