package plan

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// recent is how far back in the log the tail itself is opened after a restart. Lanes that stand further back are served by
// catch-ups, and the tail is live at once.
const recent = time.Minute

// Tail returns where the tail is opened for cursors that begin at starts: at the rearmost of the recent ones, so that a quick restart
// costs one stream; otherwise now.
func Tail(starts []change.Position, now change.Timestamp) change.Position {
	tail := change.At(now)
	for _, p := range starts {
		if now.Time().Sub(p.Time.Time()) <= recent && tail.After(p) {
			tail = p
		}
	}
	return tail
}
