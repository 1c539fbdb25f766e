package ack

import (
	"errors"

	"github.com/mongostream/streamer/change"
)

// ErrNotSent says that a session acknowledged what it was never sent.
var ErrNotSent = errors.New("acknowledged what was not sent")

// A Tracker keeps where each session of one lane stands. S identifies sessions. The zero Tracker has none.
type Tracker[S comparable] struct {
	sessions map[S]*standing
}

// A standing is what one session has been sent and has acknowledged; equal positions mean nothing in flight.
type standing struct {
	acked, sent change.Position
}

// Sent notes that events up to the position to have been handed to the session, and that it has nothing to miss between its
// last one and before. The tracker keeps the positions.
func (t *Tracker[S]) Sent(s S, before, to change.Position) {
	if t.sessions == nil {
		t.sessions = make(map[S]*standing)
	}
	st := t.sessions[s]
	if st == nil {
		st = &standing{}
		t.sessions[s] = st
	}
	if st.acked.Compare(st.sent) >= 0 {
		st.acked = before
	}
	st.sent = to
}

// Acked notes that the session has acknowledged everything up to the position. An acknowledgement before an earlier one changes
// nothing; one beyond what was sent is refused with ErrNotSent and changes nothing either.
func (t *Tracker[S]) Acked(s S, to change.Position) error {
	st := t.sessions[s]
	if st == nil || to.After(st.sent) {
		return ErrNotSent
	}
	st.acked = change.Later(st.acked, to)
	return nil
}

// Remove forgets a session: what it has in flight no longer holds the lane.
func (t *Tracker[S]) Remove(s S) { delete(t.sessions, s) }

// InFlight returns how many sessions have something in flight.
func (t *Tracker[S]) InFlight() (n int) {
	for _, st := range t.sessions {
		if st.sent.After(st.acked) {
			n++
		}
	}
	return n
}

// LowWater returns the position up to which every session has acknowledged, which is the lane's own progress when nothing is in
// flight.
func (t *Tracker[S]) LowWater(progress change.Position) change.Position {
	low := progress
	for _, st := range t.sessions {
		if st.sent.After(st.acked) && low.After(st.acked) {
			low = st.acked
		}
	}
	return low
}
