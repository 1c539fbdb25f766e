package streamer

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// unread returns the loss of a subscriber whose checkpoints a stream moved past changes that it did
// not read and that this node reads, nil if there is none. At are the subscriber's places by
// checkpoint: one that is no later than where the stretch begins has lost nothing.
func (n *Node) unread(checkpoints []checkpoint.Checkpoint, at []change.Position) *oplog.Loss {
	var loss *oplog.Loss
	for i, c := range checkpoints {
		namespaces, from, some := c.Lost(n.cfg.Coverage)
		if !some || at[i].Time.Compare(from) <= 0 {
			continue
		}
		if loss == nil {
			loss = &oplog.Loss{From: change.At(from), To: at[i], Reason: gap.Unread, Namespaces: slices.Clone(namespaces), Found: time.Now()}
			continue
		}
		if loss.From.Time.Compare(from) > 0 {
			loss.From = change.At(from)
		}
		loss.To = change.Later(loss.To, at[i])
		if len(namespaces) == 0 || len(loss.Namespaces) == 0 {
			loss.Namespaces = nil // all
			continue
		}
		loss.Namespaces = append(loss.Namespaces, namespaces...)
		slices.Sort(loss.Namespaces)
		loss.Namespaces = slices.Compact(loss.Namespaces)
	}
	return loss
}

// tellUnread has what checkpoints missed come before anything of their partitions, which are
// attached next.
func (s *Shared) tellUnread(checkpoints []checkpoint.Checkpoint) {
	at := make([]change.Position, len(checkpoints))
	for i, c := range checkpoints {
		at[i] = c.Position
	}
	if loss := s.node.unread(checkpoints, at); loss != nil {
		s.session.Lapsed(*loss)
	}
}
