package delivery

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/snapshot"
)

// A SessionState is the state of a session.
type SessionState struct {
	// At is the position up to which everything is acknowledged; zero for a session with attached
	// partitions.
	At change.Position
	// Partitions are the partitions that are acknowledged further than At or less, or all attached
	// ones.
	Partitions map[change.Partition]change.Position
	// Events, Bytes and Losses are queued or sent and not acknowledged; a rewind and a rename lose
	// nothing.
	// Live says that the session is on the live path.
	Events, Bytes, Losses int
	Live                  bool
	// Owes returns the time since which the subscriber has acknowledged nothing although it got
	// events; zero if it owes nothing.
	Owes time.Time
	// Acked counts acknowledged events.
	Acked uint64
	// Lost are the losses of the subscriber alone that it has acknowledged in this session, oldest
	// first. Own counts those that it was sent.
	Lost []Loss
	Own  uint64
	// Snapshots is the progress of its snapshots, Leaving that of the partitions that leave:
	// documents that are read later are not delivered for them.
	Snapshots []snapshot.Progress
	Leaving   map[change.Partition][]snapshot.Progress
	// Generation is the checkpoint generation of the positions: a rewind raises it once all earlier
	// batches are acknowledged.
	Generation uint64
}

// State returns the state of the session.
func (s *Session) State() SessionState {
	attached := s.attached.Load()
	hub := s.hub.Position()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := SessionState{Live: s.mu.live, Acked: s.mu.acked, Events: s.mu.events, Bytes: s.mu.bytes, Owes: s.mu.owes, Partitions: make(map[change.Partition]change.Position)}
	st.Lost = slices.Clone(s.mu.lost)
	st.Own = s.mu.losses
	for _, b := range s.mu.unacked {
		if b.loss != nil && b.loss.Kind != Rewound && b.loss.Reason != string(gap.Renamed) {
			st.Losses++
		}
	}
	acked := s.mu.considered
	reading := s.mu.reading
	oldest := s.mu.last + 1
	st.Snapshots = s.mu.snapshots
	switch {
	case len(s.mu.unacked) > 0:
		first := s.mu.unacked[0]
		acked, reading, oldest, st.Snapshots = first.before, first.reading, first.seq, first.snapshots
	case s.mu.follows:
		acked = change.Later(hub, acked)
	}
	st.Generation = reading.generation
	if attached != nil {
		for p := range *attached {
			if a := s.mu.joined[p]; oldest <= a.seq {
				st.Partitions[p] = a.at
			} else {
				st.Partitions[p] = reading.reached(p, acked)
			}
			cut, leaves := s.mu.cuts[p]
			if leaves && st.Partitions[p].After(cut.at) {
				st.Partitions[p] = cut.at
			}
			if leaves && oldest > cut.seq {
				if st.Leaving == nil {
					st.Leaving = make(map[change.Partition][]snapshot.Progress)
				}
				st.Leaving[p] = cut.snapshots
			}
		}
		return st
	}
	st.At = change.Later(acked, reading.rest)
	for p := range reading.of {
		if at := reading.reached(p, acked); at.Compare(st.At) != 0 {
			st.Partitions[p] = at
		}
	}
	return st
}

// Cut ends the delivery of partitions with the last received batch, and returns its number. Neither
// their checkpoints nor the progress of snapshots in them pass it.
func (s *Session) Cut(partitions []change.Partition) (last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range partitions {
		s.cutAfter(p, s.mu.given)
	}
	return s.mu.given
}

// cutAfter ends the delivery of a partition with a batch. The caller holds the mutex.
func (s *Session) cutAfter(p change.Partition, last uint64) {
	end, reading, snapshots := s.mu.considered, s.mu.reading, s.mu.snapshots
	if i := slices.IndexFunc(s.mu.unacked, func(b unacked) bool { return b.seq > last }); i >= 0 {
		first := s.mu.unacked[i]
		end, reading, snapshots = first.before, first.reading, first.snapshots
	}
	at := reading.reached(p, end)
	// Batches from before the partition was attached, the last time, know another place of it.
	if a, has := s.mu.joined[p]; has && last <= a.seq {
		at = a.at
	}
	s.mu.cuts[p] = cut{attachment{at: at, seq: last}, snapshots}
}
