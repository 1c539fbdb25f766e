package oplog

import (
	"time"
)

// merge is a router's knowledge of its shards, and of the config servers, which come last. It
// returns an event when every other shard has reported a later time. It asks a shard with a
// getMore, which ends with an event or after the client's wait, and asks again when it has returned
// the shard's events.
//
// There is one log: that of a shard is its entries in it.
type merge struct {
	shards []remote
	looked uint64        // entries before this number have been looked at for news
	await  time.Duration // of the getMore under way
}

// remote is one shard.
type remote struct {
	promised uint64    // it has reported everything before this cluster time
	news     uint64    // number after the newest event that it has, reported or not
	told     uint64    // number after the newest event that it has reported
	due      time.Time // when it answers without news; zero while it is not asked
}

// maxAwait bounds a router's wait for a shard: where there are several it wants to hear of each now
// and then.
const maxAwait = time.Second

// newMerge makes the merge of a stream that starts at a time; nil where one shard is all there is.
func newMerge(log *Log, start uint64) *merge {
	if log.Shards() == 0 {
		return nil
	}
	m := &merge{shards: make([]remote, log.Shards()+1), looked: log.Seek(start)}
	for i := range m.shards {
		m.shards[i].promised = start
	}
	return m
}

// ask asks the shards whose events were returned: those before the number next.
func (m *merge) ask(now time.Time, next uint64) {
	for i := range m.shards {
		if r := &m.shards[i]; r.due.IsZero() && r.told <= next {
			r.due = now.Add(m.await)
		}
	}
}

// hear takes the answers that have come until now.
func (m *merge) hear(s *Stream, now time.Time) {
	log := s.env.Log
	for {
		entries, ok := log.Read(m.looked, false)
		if !ok || len(entries) == 0 {
			break // the stream detects losses
		}
		for i := range entries {
			m.looked++
			if e := &entries[i]; e.TS >= s.start.ts && s.wanted(e) {
				m.shards[e.Shard].news = m.looked
			}
		}
	}
	for i := range m.shards {
		r := &m.shards[i]
		switch news := r.news > r.told; {
		case r.due.IsZero():
		case news:
			r.told = r.news
			r.due = time.Time{}
			r.promised = max(r.promised, log.committedOn(i))
		case !now.Before(r.due):
			r.promised = max(r.promised, log.committedOn(i))
			r.due = now.Add(m.await)
		}
	}
}

// passes reports whether the entry of a number may be returned: its shard has reported it, and each
// of the others has reported a later time, or a later event.
func (m *merge) passes(e *Entry, seq uint64) bool {
	for i := range m.shards {
		r := &m.shards[i]
		if r.told <= seq && (i == int(e.Shard) || r.promised <= e.TS) {
			return false
		}
	}
	return true
}

// reached is the time before which everything has been reported.
func (m *merge) reached() uint64 {
	least := m.shards[0].promised
	for _, r := range m.shards {
		least = min(least, r.promised)
	}
	return least
}

// Await says how long a getMore waits, and asks the shards.
func (s *Stream) Await(d time.Duration) {
	if s.merge != nil {
		s.merge.await = min(d, maxAwait)
		s.merge.ask(time.Now(), s.seq)
	}
}

// Due is when a shard answers although it has no news: the next look is due then. Zero where there
// is nothing to wait for.
func (s *Stream) Due() (due time.Time) {
	if s.merge == nil {
		return due
	}
	for _, r := range s.merge.shards {
		if !r.due.IsZero() && (due.IsZero() || r.due.Before(due)) {
			due = r.due
		}
	}
	return due
}
