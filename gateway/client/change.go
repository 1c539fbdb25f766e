package client

import (
	"context"
	"encoding/hex"

	"github.com/mongostream/streamer/gateway/client/event"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/client/partition"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A Position is a place in the log.
type Position = partition.Position

// Positions are where a gateway stands: one Position for each partition of a cluster. As JSON they can be kept anywhere.
type Positions = partition.Positions

// A Change is one change event, for one subscription that it matches.
type Change struct {
	Subscription string
	Partition    uint32
	// Position is where it stands.
	Position Position
	Format   Format
	// Data is the change event in the format. Handlers may keep it; other subscriptions may have the same bytes, so it must not be changed.
	Data []byte
}

// ID names the change: the same whenever and by whichever node it is delivered, and for each of its subscriptions. A program that must not
// do something twice remembers it.
func (c *Change) ID() string {
	b := hex.AppendEncode(nil, c.Position.Head)
	for _, hash := range c.Position.Hashes {
		b = hex.AppendEncode(append(b, '-'), hash)
	}
	return string(b)
}

// Op returns the event's operationType: insert, update, replace, delete, drop, …; "" if Data cannot be read.
func (c *Change) Op() string {
	if c.Format == JSON {
		return event.OpOfJSON(c.Data)
	}
	return event.OpOfBSON(c.Data)
}

func changeOf(p uint32, subscription string, e *streampb.Event) Change {
	c := Change{Subscription: subscription, Partition: p, Position: partition.Of(e.GetPosition()), Data: e.GetChange()}
	if e.GetFormat() == streampb.Format_FORMAT_JSON {
		c.Format = JSON
	}
	return c
}

// A Handler deals with a change. It returns nil when it has: then the change is acknowledged and does not come again. Handlers of one
// partition are called one after the other; the context ends when Run is to.
type Handler func(context.Context, Change) error

// A Delivery is a change that came through a channel. Whoever takes it calls Done once.
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

// Poison is what a handler, or OnNotice, has failed to deal with so often that somebody must decide.
type Poison struct {
	Change    *Change       // nil for a notice
	Notice    notice.Notice // nil for a change
	Partition uint32
	Attempts  int
	Err       error // the last
}

// A Decision says whether Run goes on without something: a change that cannot be handled, or a subscription that is refused.
type Decision int

// The decisions.
const (
	Stop Decision = iota // Run ends: with a HandlerError, and the change comes again when the program runs again; or with the node's Error
	Skip                 // the change counts as handled; the subscription is forgotten
)
