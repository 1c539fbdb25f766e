package delivery

import (
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/snapshot"
)

// Wait implements snapshot.Sessions: the reader waits until its session may get a page.
func (l *loop) Wait(r *reader) {
	s := r.Who.session
	l.waiting[s] = append(l.waiting[s], r)
}

// retryChanged resumes the scans, and offers them the readers of sessions that have changed.
func (l *loop) retryChanged() {
	l.scanner.Wake()
	changed, over := l.retries.take()
	for s := range changed {
		l.offerAgain(s)
	}
	if over { // of however many sessions
		l.scanner.Forget()
	}
}

// resume resumes the scans, and offers them a session's readers that wait.
func (l *loop) resume(s *Session) {
	l.scanner.Wake()
	l.offerAgain(s)
}

// offerAgain offers the readers of a session that waited.
func (l *loop) offerAgain(s *Session) {
	waiting := l.waiting[s]
	delete(l.waiting, s)
	for _, r := range waiting {
		l.scanner.Offer(r)
	}
}

// resumeAll does so for all sessions.
func (l *loop) resumeAll() {
	l.scanner.Wake()
	for _, s := range slices.Collect(maps.Keys(l.waiting)) {
		l.offerAgain(s)
	}
}

// deliverPages hands over the pages whose time the Hub has reached.
func (l *loop) deliverPages() {
	if l.awaited {
		l.awaited = false
		l.resumeAll()
	}
	l.beginListed()
	l.scanner.Place(l.place())
}

// RestartSnapshots reads the pages again that are being read. It does not wait.
func (h *Hub) RestartSnapshots() { h.reads.Restart() }

// SnapshotAge returns for how long the page that has taken longest has been read.
func (h *Hub) SnapshotAge() time.Duration { return h.reads.Age() }

// mayResume wakes a session that waits for memory. It never blocks.
func (s *Session) mayResume() {
	s.stir()
	s.hub.retries.change(s)
}

// place returns how far the Hub has considered the log.
func (l *loop) place() snapshot.Place { return snapshot.Place{At: l.at, Drained: l.drained} }
