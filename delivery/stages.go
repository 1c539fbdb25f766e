package delivery

import "time"

// noteQueued observes that a batch is queued, and returns when that was; zero if it has no events.
func (s *stream) noteQueued(b *Batch) (now time.Time) {
	if len(b.Events) == 0 {
		return now
	}
	now = time.Now()
	if !b.came.IsZero() {
		s.hub.metrics.stages.hub.Observe(now.Sub(b.came).Seconds())
	}
	return now
}

// noteWritten observes that a batch has been written to a client. The caller holds the mutex.
func (s *Session) noteWritten(b *unacked) {
	if b.queued.IsZero() || !b.written.IsZero() {
		return
	}
	b.written = time.Now()
	s.hub.metrics.stages.transport.Observe(b.written.Sub(b.queued).Seconds())
}

// noteAcked observes that a batch is acknowledged: by its client, or by a transport that does so
// once it is written.
func (s *Session) noteAcked(b *unacked, now time.Time) {
	switch {
	case b.queued.IsZero():
	case b.written.IsZero():
		s.hub.metrics.stages.transport.Observe(now.Sub(b.queued).Seconds())
	default:
		s.hub.metrics.stages.acknowledgement.Observe(now.Sub(b.written).Seconds())
	}
}
