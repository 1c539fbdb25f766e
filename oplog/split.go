package oplog

import (
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/gap"
)

// A splitter converts replies to slots and drops repeated events. It must not be used concurrently.
type splitter struct {
	partitioner change.Partitioner
	keep        func(*change.Event) bool
	watched     []string
	window      *dedup.Window // nil if disabled
	detector    *gap.Detector
	end         change.Position // up to which the reader has read
	held        *slot           // events after end that have no position after it, because their tokens are of another version

	landing change.Timestamp // where cluster time had jumped to when a stretch was last read again

	repeated, duplicates, jumps, rescanned int // of the last reply
}

// eventOverhead estimates the memory of an event in addition to its bytes in the reply.
const eventOverhead = 96

// split parses the events of a reply. again means that cluster time jumped without a proof of
// continuity: the reply is discarded, and the log must be read again from the current end. An error
// wraps change.ErrEvent.
func (s *splitter) split(r Reply) (slots []*slot, again bool, err error) {
	s.repeated, s.duplicates, s.jumps, s.rescanned = 0, 0, 0, 0
	cut := &cutter{reply: r, slot: newSlot(len(r.Events)), from: s.end}
	if s.held != nil {
		cut.slot = s.held
	}
	end := s.end
	looked := false
	if r.Loss != nil {
		end = s.pass(cut, r.Loss, r.Told)
	}
	for _, raw := range r.Events {
		e, err := change.Parse(raw)
		if err != nil {
			return nil, false, fmt.Errorf("split reply: %w", err)
		}
		p := e.Position()
		if s.passed(p, end) {
			s.repeated++
			continue
		}
		if !looked && s.jumped(p, r.Unproven) {
			s.landing = p.Time
			return nil, true, nil
		}
		if p.Time.Compare(s.landing) <= 0 {
			s.rescanned++
		}
		looked = true
		before := end
		end = change.Later(end, p)
		if s.window != nil && s.window.Seen(&e, r.At) {
			s.duplicates++
			continue
		}
		s.add(cut, &e, before)
	}
	if !looked && s.jumped(r.End, r.Unproven) {
		s.landing = r.End.Time
		return nil, true, nil
	}
	end = change.Later(end, r.End)
	if len(r.Events) > 0 {
		end = end.Clone() // must not keep the reply alive
	}
	s.end = end
	s.detector.Reached(end)
	slots, s.held = cut.rest(end)
	return slots, false, nil
}

// add adds an event to the slot, unless nothing of it is kept. before is the position before the
// event. A skipped event becomes a loss, and a rename onto a watched collection follows one.
func (s *splitter) add(cut *cutter, e *change.Event, before change.Position) {
	if e.Op() == change.OpSkipped {
		cut.at(before)
		at := e.Position().Clone()
		cut.slot.loss = &Loss{From: before.Clone(), To: at, Reason: gap.Poison, Found: time.Now()}
		cut.at(at)
		return
	}
	cut.slot.events = append(cut.slot.events, *e)
	last := &cut.slot.events[len(cut.slot.events)-1] // not e, so that e does not escape to the heap
	if s.keep != nil && !s.keep(last) {
		cut.slot.events = cut.slot.events[:len(cut.slot.events)-1]
		return
	}
	if last.Op() == change.OpRename {
		if loss := renamedOnto(last, before.Clone(), s.watched); loss != nil {
			cut.before(loss)
		}
	}
	cut.slot.partitions = append(cut.slot.partitions, s.partition(&cut.slot.events[len(cut.slot.events)-1]))
}

// pass adds the loss of a reply, unless the reader has passed it, and returns the position after
// it.
func (s *splitter) pass(cut *cutter, loss *Loss, told bool) change.Position {
	if loss.From.Compare(loss.To) != 0 && !loss.To.After(s.end) {
		s.repeated++
		return s.end
	}
	end := change.Later(s.end, loss.To)
	cut.at(s.end)
	cut.slot.loss = loss
	cut.slot.told = told
	cut.at(end)
	s.detector.Reset(end)
	return end
}

// passed reports whether the reader has passed an event, as far as the tokens tell. The window
// decides on those that cannot be compared.
func (s *splitter) passed(event, end change.Position) bool {
	if event.Time == end.Time && !event.Comparable(end) {
		return false
	}
	return !event.After(end)
}

// jumped reports whether the progress to the position must not be accepted yet.
func (s *splitter) jumped(to change.Position, unproven bool) bool {
	if to.IsZero() {
		return false
	}
	_, found, jumped := s.detector.Progress(to, !unproven)
	if jumped {
		s.jumps++
	}
	return found
}

// partition returns the partition of an event.
func (s *splitter) partition(e *change.Event) uint16 {
	if p, keyed := s.partitioner.Of(e); keyed {
		return uint16(p)
	}
	return everyPartition
}

// begin sets the end at which reading begins, or continues after a loss, which includes the held
// entries.
func (s *splitter) begin(to change.Position) {
	s.end = to
	s.held = nil
	s.detector.Reset(to)
}

// A cutter cuts a reply into slots at losses between its events.
type cutter struct {
	reply Reply
	done  []*slot
	slot  *slot
	from  change.Position // the end of the slot before
}

func newSlot(events int) *slot {
	return &slot{events: make([]change.Event, 0, events), partitions: make([]uint16, 0, events)}
}

// at ends the slot at a position, unless it is empty, and begins the next one. Cursors tell slots
// by their ends, so one that would not end after its predecessor stays open, unless it has a loss.
func (c *cutter) at(end change.Position) {
	n := len(c.slot.events)
	if c.slot.loss == nil && (n == 0 || !end.After(c.from)) {
		return
	}
	c.slot.end = end.Clone()
	c.slot.size += int64(n) * eventOverhead
	c.done = append(c.done, c.slot)
	c.from = c.slot.end
	c.slot = newSlot(cap(c.slot.events) - n)
}

// before inserts a loss right before the last event.
func (c *cutter) before(loss *Loss) {
	last := c.slot.events[len(c.slot.events)-1]
	c.slot.events = c.slot.events[:len(c.slot.events)-1]
	c.at(loss.To)
	c.slot.loss = loss
	c.slot.events = append(c.slot.events, last)
}

// rest ends the last slot and returns all slots, and the entries held for the next reply because it
// does not end after them. The last one is charged with the reply's memory, which is freed with the
// last slot.
func (c *cutter) rest(end change.Position) (slots []*slot, held *slot) {
	c.at(end)
	if len(c.slot.events) > 0 {
		held = c.slot
		held.size += int64(c.reply.Size)
		return c.done, held
	}
	if n := len(c.done); n > 0 {
		last := c.done[n-1]
		last.end = change.Later(last.end, end)
		last.size += int64(c.reply.Size)
	}
	return c.done, nil
}
