package client

import (
	"context"
	"encoding/base64"
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
