package ring

import (
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Splitter turns replies into slots. It belongs to one goroutine.
type Splitter struct {
	partitioner change.Partitioner
	keep        func(*change.Event) bool
	end         change.Position // of the last slot: what stands before it is a repetition

	place  []change.Partition // per event of the current slot, everyPartition for those of no document
	counts []uint32           // per partition, zero between slots
	used   []change.Partition // partitions that occur in the current slot
}

// everyPartition marks an event of no document in splitter.place.
const everyPartition = change.MaxPartitions

// NewSplitter makes a Splitter for n partitions that begins behind the position. keep says which events are kept; nil keeps all.
func NewSplitter(n int, behind change.Position, keep func(*change.Event) bool) *Splitter {
	return &Splitter{end: behind, partitioner: change.NewPartitioner(n), keep: keep, counts: make([]uint32, n)}
}

// End returns the position up to which replies have been split.
func (s *Splitter) End() change.Position { return s.end }

// A Reply is what a Splitter splits.
type Reply struct {
	Events   [][]byte        // change events as BSON
	End      change.Position // the post-batch position, zero where there is none
	Size     int             // bytes of the reply
	At       time.Time       // when it arrived
	Unproven bool            // see Slot
}

// Split walks the events of a reply. It returns nil, and moves the end, where nothing is to be kept. Events at or before the end so
// far are repetitions, which are dropped and counted. An error wraps change.ErrEvent.
func (s *Splitter) Split(r Reply) (sl *Slot, repeated int, err error) {
	events := make([]change.Event, 0, len(r.Events))
	end := s.end
	for _, raw := range r.Events {
		e, err := change.Parse(raw)
		if err != nil {
			return nil, repeated, fmt.Errorf("split reply: %w", err)
		}
		p := e.Position()
		if !p.After(end) {
			repeated++
			continue
		}
		end = p
		events = append(events, e)
		if s.keep != nil && !s.keep(&events[len(events)-1]) { // not e, which would go to the heap for it, event by event
			events = events[:len(events)-1]
		}
	}
	end = change.Later(end, r.End)
	if len(r.Events) > 0 {
		end = end.Clone() // must not pin the reply when the slot is gone
	}
	s.end = end
	if len(events) == 0 && !r.Unproven {
		return nil, repeated, nil
	}
	sl = &Slot{Events: events, End: end, At: r.At, Unproven: r.Unproven}
	s.group(sl)
	sl.size = sl.bytes(r.Size)
	return sl, repeated, nil
}

// group sorts the slot's events by partition, by counting. An event of no document is every partition's, and noted once.
func (s *Splitter) group(sl *Slot) {
	s.place, s.used = s.place[:0], s.used[:0]
	for i := range sl.Events {
		p, keyed := s.partitioner.Of(&sl.Events[i])
		if keyed {
			s.count(p)
		} else {
			p = everyPartition
			sl.keyless = append(sl.keyless, uint32(i))
		}
		s.place = append(s.place, p)
	}
	slices.Sort(s.used)
	sl.groups = make([]group, len(s.used))
	sl.order = make([]uint32, len(sl.Events)-len(sl.keyless))
	sl.keyless = slices.Clip(sl.keyless)
	from := uint32(0)
	for i, p := range s.used {
		n := s.counts[p]
		sl.groups[i] = group{partition: p, from: from, to: from + n}
		s.counts[p] = from // from here on: where the partition's next index goes
		from += n
	}
	for i, p := range s.place {
		if p != everyPartition {
			sl.order[s.counts[p]] = uint32(i)
			s.counts[p]++
		}
	}
	for _, p := range s.used {
		s.counts[p] = 0
	}
}

func (s *Splitter) count(p change.Partition) {
	if s.counts[p] == 0 {
		s.used = append(s.used, p)
	}
	s.counts[p]++
}
