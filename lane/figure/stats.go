package figure

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// Stats is what a log looks like at one moment.
type Stats struct {
	Open                        bool // the tail is open
	Streams                     int  // readers open or being opened
	TailCursors, CatchupCursors int
	Behind                      int // cursors that stand behind every ring
	TailBytes, CatchupBytes     int64
	// Distance is the log time between the tail's end and the rearmost cursor.
	Distance time.Duration
	// End is the position up to which the tail has read; Moved is when it last moved, LastReply when the tail last had an answer. Both are
	// no earlier than when the tail went on that had waited.
	End              change.Position
	Moved, LastReply time.Time
	// Paused says that the tail waits for a catch-up, Full that it waits for those who read it: MongoDB is not asked meanwhile.
	Paused, Full bool
}
