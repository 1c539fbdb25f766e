package streamer

import (
	"time"

	"mongostream/change"
)

// recent is how far back in the log the tail itself is opened after a restart. Lanes that stand further back are served by
// catch-ups, and the tail is live at once.
const recent = time.Minute

// tailStart returns where the tail is opened: at the rearmost of the recent positions, so that a quick restart costs one stream;
// otherwise now.
func tailStart(starts []change.Position, now change.Timestamp) change.Position {
	tail := change.At(now)
	for _, p := range starts {
		if now.Time().Sub(p.Time.Time()) <= recent && tail.After(p) {
			tail = p
		}
	}
	return tail
}

// starts returns where streams are to be opened for the consumers.
func (n *Node) starts() (starts []change.Position) {
	for _, c := range n.consumers() {
		starts = append(starts, c.opened)
	}
	return starts
}
