package oplog

import (
	"sort"
)

// Read returns entries from seq on: at least one, as many as lie together, at most some hundred. It returns
// none at the end, and ok false when seq is no longer in the log. Only committed entries are returned, unless
// all is set. The entries stay valid for ever.
func (l *Log) Read(seq uint64, all bool) (entries []Entry, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if seq < l.first {
		return nil, false
	}
	end := l.committed.Load()
	if all {
		end = l.next
	}
	if seq >= end {
		return nil, true
	}
	s := l.segments[l.segmentOf(seq)]
	return s.entries[seq-s.base : min(uint64(len(s.entries)), end-s.base)], true
}

// Seek returns the number of the first entry at or after the cluster time; for one beyond the end the number
// of the next entry to come.
func (l *Log) Seek(ts uint64) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i := sort.Search(len(l.segments), func(i int) bool {
		s := l.segments[i]
		return s.entries[len(s.entries)-1].TS >= ts
	})
	if i == len(l.segments) {
		return l.next
	}
	s := l.segments[i]
	j := sort.Search(len(s.entries), func(j int) bool { return s.entries[j].TS >= ts })
	return max(l.first, s.base+uint64(j))
}

// First is the oldest entry and its number.
func (l *Log) First() (Entry, uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return *l.at(l.first), l.first
}

// before is the number of the newest entry before seq, and that entry when the log still has it.
func (l *Log) before(seq uint64) (Entry, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if seq == 0 || seq-1 < l.first || seq > l.next {
		return Entry{}, false
	}
	return *l.at(seq - 1), true
}

// Has reports whether the entry is still in the log, or not written yet.
func (l *Log) Has(seq uint64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return seq >= l.first
}

// Next is the number that the next entry will get.
func (l *Log) Next() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.next
}

// Size is the number of entries and their bytes.
func (l *Log) Size() (entries, bytes int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int64(l.next - l.first), l.bytes
}

// MaxBytes is the bound of the log.
func (l *Log) MaxBytes() int64 { return l.config.MaxBytes }

// Release is the release of the log.
func (l *Log) Release() Release { return l.config.Release }

// Applied is the cluster time of the newest entry, Committed that of the newest majority-committed one.
func (l *Log) Applied() uint64 { return l.appliedTS.Load() }

// Committed is the cluster time of the newest majority-committed entry.
func (l *Log) Committed() uint64 { return l.committedTS.Load() }

// ClusterTime is the newest cluster time handed out.
func (l *Log) ClusterTime() uint64 { return l.clock.last.Load() }

// Waiting returns a channel that is closed once an entry numbered seq or later may be read, or when the
// majority point moves. It may close early; the caller looks again.
func (l *Log) Waiting(seq uint64, all bool) <-chan struct{} {
	l.wait.Lock()
	defer l.wait.Unlock()
	end := l.committed.Load()
	if all {
		end = l.written.Load()
	}
	if end > seq {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if l.wait.changed == nil {
		l.wait.changed = make(chan struct{})
	}
	return l.wait.changed
}

func (l *Log) wake() {
	l.wait.Lock()
	defer l.wait.Unlock()
	if l.wait.changed != nil {
		close(l.wait.changed)
		l.wait.changed = nil
	}
}
