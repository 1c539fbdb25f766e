package oplog

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// Stats is a snapshot of the state of a Log.
type Stats struct {
	Open                        bool // the tail is open
	Streams                     int  // of MongoDB, open or being opened
	Retained                    int  // catch-ups that read the retained log
	TailCursors, CatchupCursors int
	Waiting                     int // cursors without a reader
	TailBytes, CatchupBytes     int64
	// Distance is the log time between the tail's end and the earliest cursor.
	Distance time.Duration
	// End is the position up to which the tail has read, Moved when it last advanced, LastReply
	// when the tail last received a reply. The times are not before the end of the last pause.
	End              change.Position
	Moved, LastReply time.Time
	// Paused says that the tail waits for a catch-up, Full that it waits for its readers. MongoDB
	// is not queried meanwhile.
	Paused, Full bool
}

// Stats returns the current state.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Open: l.tail.reading, Streams: 1 + l.count(false), Retained: l.count(true), Waiting: len(l.waiting), Paused: l.pausedFor != nil, Full: l.tail.full() || l.tail.waits,
		TailCursors: len(l.tail.cursors), TailBytes: l.tail.ring.bytes(),
		End: l.tail.ring.end, Moved: l.tail.moved, LastReply: l.tail.replied,
	}
	rearmost := l.tail.ring.end.Time
	note := func(cursors map[*Cursor]struct{}) {
		for c := range cursors {
			if p := c.place(); !p.IsZero() && p.Time.Compare(rearmost) < 0 {
				rearmost = p.Time
			}
		}
	}
	note(l.tail.cursors)
	note(l.waiting)
	for r := range l.catchups {
		s.CatchupCursors += len(r.cursors)
		s.CatchupBytes += r.ring.bytes()
		note(r.cursors)
	}
	s.Distance = l.tail.ring.end.Time.Time().Sub(rearmost.Time())
	return s
}
