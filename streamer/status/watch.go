package status

import (
	"time"

	"github.com/mongostream/streamer/notice"
)

// A Watch notices when reading gets stuck and when it goes on. Its zero value has seen nothing stuck.
type Watch struct {
	stuck time.Time // since when, zero while reading goes on
}

// Look returns what operators are to be told now, nil where that is nothing.
func (w *Watch) Look(l Log, partitions int) *notice.Notice {
	stuck := l.Evidence().Stuck
	switch {
	case stuck && w.stuck.IsZero():
		w.stuck = l.Now
		return &notice.Notice{
			Channel: notice.Health, Kind: notice.KindStuck, Level: notice.Critical,
			Text:   "nothing is read: MongoDB does not answer, refuses to be read, or answers without anything although its log moves",
			Fields: map[string]any{"last_reply": l.Tail.LastReply, "partitions": partitions},
		}
	case !stuck && !w.stuck.IsZero():
		since := w.stuck
		w.stuck = time.Time{}
		return &notice.Notice{
			Channel: notice.Health, Kind: notice.KindReading, Level: notice.Info,
			Text:   "what MongoDB's log holds is read again",
			Fields: map[string]any{"was_stuck_seconds": int(l.Now.Sub(since).Seconds())},
		}
	}
	return nil
}
