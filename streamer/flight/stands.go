package flight

import (
	"sync"

	"github.com/mongostream/streamer/change"
)

// Stands keep how far sessions had acknowledged partitions whose terms have ended. The zero Stands know nothing.
type Stands struct {
	mu struct {
		sync.Mutex
		left map[change.Partition]stand
	}
}

type stand struct {
	at         change.Position
	generation uint64 // of the marks
}

// Leave notes where a partition's term has ended, which began at a mark of the generation.
func (s *Stands) Leave(p change.Partition, at change.Position, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.left == nil {
		s.mu.left = make(map[change.Partition]stand)
	}
	s.mu.left[p] = stand{at, generation}
}

// Take forgets where the last term of a partition has ended, and returns it: zero where nobody knows, or where the marks are of another
// generation now.
func (s *Stands) Take(p change.Partition, generation uint64) change.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.mu.left[p]
	delete(s.mu.left, p)
	if last.generation != generation {
		return change.Position{}
	}
	return last.at
}
