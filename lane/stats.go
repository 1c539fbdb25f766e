package lane

import "github.com/mongostream/streamer/lane/figure"

// Stats is what the Log looks like at one moment.
type Stats = figure.Stats

// Stats returns what the Log looks like now.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Open: l.tail.opened, Streams: 1 + len(l.catchups), Behind: len(l.behind), Paused: l.pausedFor != nil, Full: l.tail.full() || l.tail.waits,
		TailCursors: l.tail.members, TailBytes: l.tail.ring.Bytes(),
		End: l.tail.ring.End(), Moved: l.tail.moved, LastReply: l.tail.replied,
	}
	rearmost := l.tail.ring.End().Time
	note := func(c *Cursor) {
		if p := c.place(); !p.IsZero() && p.Time.Compare(rearmost) < 0 {
			rearmost = p.Time
		}
	}
	for _, c := range l.tail.cursors() {
		note(c)
	}
	for c := range l.behind {
		note(c)
	}
	for r := range l.catchups {
		s.CatchupCursors += r.members
		s.CatchupBytes += r.ring.Bytes()
		for _, c := range r.cursors() {
			note(c)
		}
	}
	s.Distance = l.tail.ring.End().Time.Time().Sub(rearmost.Time())
	return s
}
