package client

import (
	"context"
	"encoding/base64"
)

// A Change is one change event, for one subscription that it matches.
type Change struct {
	Subscription string
	// Partition is that of the document. A drop, rename, dropDatabase or invalidate is of no document, and concerns AllPartitions: its
	// handler is called once, after everything before it has been handled in every partition, and before anything after it.
	Partition     uint32
	AllPartitions bool
	Format        Format
	// Data is the change event in the format. Handlers may keep it, but must not change it, because other subscriptions may have the same
	// bytes. It shares memory with its batch, up to 256 KiB or so: who keeps few changes for long clones it.
	Data []byte

	place place
}

// ID names the change: it is the same whenever and by whichever node the change is delivered, and for each of its subscriptions. A program
// that must not do something twice remembers it. It has letters, digits, - and _.
func (c *Change) ID() string { return base64.RawURLEncoding.EncodeToString(c.place[:]) }

// Op returns the event's operationType: insert, update, replace, delete, drop, …; "" if Data cannot be read.
func (c *Change) Op() string {
	if c.Format == JSON {
		return opOfJSON(c.Data)
	}
	return opOfBSON(c.Data)
}

// A Handler deals with a change. It returns nil when it has: then the change is acknowledged and does not come again. Handlers of one
// partition are called one after the other; the context ends when Run is to.
type Handler func(context.Context, Change) error

// A Delivery is a change that came through a channel. The receiver calls Done once.
type Delivery struct {
	Change
	done chan<- error
}

// Done says that the change has been dealt with, or that it must be tried again. It never blocks; only the first call counts.
func (d *Delivery) Done(err error) {
	select {
	case d.done <- err:
	default:
	}
}

// Channel returns a handler that sends changes to a channel and waits until each is Done. At most one of each partition is on its way.
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

// Poison is what a handler, or OnNotice, has failed on so often that somebody must decide.
type Poison struct {
	Change   *Change // nil for a notice
	Notice   Notice  // nil for a change
	Attempts int
	Err      error // the last
}

// A Decision says whether Run goes on without something: a change that cannot be handled, or a subscription that is refused.
type Decision int

// The decisions.
const (
	Stop Decision = iota // Run ends: with a HandlerError, and the change comes again when the program runs again; or with the node's Error
	Skip                 // the change counts as handled; the subscription is forgotten
)
