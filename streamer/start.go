package streamer

import (
	"context"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
)

// A StartPolicy says where a subscriber without a saved position begins.
type StartPolicy int

// The policies.
const (
	StartResume   StartPolicy = iota // nowhere: it is rejected with the fault SessionUnknown
	StartNow                         // with new changes
	StartEarliest                    // with the oldest change in the oplog
	StartTime                        // at a time
	StartSnapshot                    // with new changes, and the current documents of its subscriptions
)

// ahead returns the fault LogAhead for a place that is later than MongoDB's own time.
func (n *Node) ahead(ctx context.Context, p delivery.Place) error {
	from := p.From()
	reach, err := n.cfg.Range.Recently(ctx)
	if err == nil && reach.Ahead(from) {
		reach, err = n.cfg.Range.Now(ctx) // the answer may be older than the position
	}
	if err == nil && reach.Ahead(from) {
		return fault.Newf(fault.LogAhead, "the session is to begin at %s, MongoDB is at %s", from.Time, reach.Last)
	}
	return nil
}

// openable returns the place of a position, without its token where that is of streams with another
// filter.
func (n *Node) openable(at change.Position, fingerprint string) delivery.Place {
	if fingerprint != n.cfg.Fingerprint && !at.IsProgress() {
		return delivery.Place{Ref: at.Ref()}
	}
	return delivery.Place{At: at}
}
