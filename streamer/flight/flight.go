package flight

import (
	"sync"

	"github.com/mongostream/streamer/ack"
	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
)

// A Flight is what is on its way to the sessions of one partition. The zero Flight is empty.
type Flight struct {
	mu struct {
		sync.Mutex
		tracker ack.Tracker[*delivery.Session]
	}
}

// Sent notes a batch as on its way to a session, or has it noted as the caller does for what has no place in the log; false says that the
// session has left. A session that leaves afterwards is forgotten with the batch.
func (f *Flight) Sent(s *delivery.Session, b *delivery.Batch, otherwise func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s.Closed():
		return false
	case b.Rescan:
		otherwise()
	default:
		f.mu.tracker.Sent(s, b.From, b.To)
	}
	return true
}

// Acked takes an acknowledgement. One of what was not sent is an error.
func (f *Flight) Acked(s *delivery.Session, to change.Position) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.tracker.Acked(s, to)
}

// Left forgets a session, and has the caller forget what it has noted of it.
func (f *Flight) Left(s *delivery.Session, otherwise func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.tracker.Remove(s)
	otherwise()
}

// LowWater returns up to where everything has been acknowledged, of what has been read up to progress.
func (f *Flight) LowWater(progress change.Position) change.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.tracker.LowWater(progress)
}

// Empty reports whether nothing is on its way.
func (f *Flight) Empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.tracker.InFlight() == 0
}
