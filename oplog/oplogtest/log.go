package oplogtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/oplog"
)

// A Log is an append-only log of change events. Its zero value is ready.
type Log struct {
	// ReplyEvents bounds the events of one reply. Defaults to 100.
	ReplyEvents int
	// Strict rejects streams at the time of the oldest event, as MongoDB below 5.0 does.
	Strict bool
	// Wraps is how many of the oldest events are truncated just before a stream is opened at a
	// position; the last event stays.
	Wraps int
	// Delay is the delay of each reply with events.
	Delay time.Duration
	// LookUp returns an event as a stream that reads it now has it, as MongoDB looks up the
	// document of an update. It must not change the position. Optional.
	LookUp func(changetest.Event) changetest.Event

	mu      sync.Mutex
	hiding  bool // open streams do not see appended events
	events  []entry
	first   int // earlier events are truncated
	now     change.Timestamp
	changed chan struct{} // closed and replaced on every change
	open    int
	most    int
	opened  int
	fail    []error // errors that the next calls of Next return
	suspect bool    // the next reply is unproven
	stalled bool    // streams do not answer
}

// An entry is an event of the log.
type entry struct {
	hidden   int // from streams up to this number
	Time     change.Timestamp
	position change.Position
	bytes    []byte
	event    changetest.Event
}

var _ oplog.Source = (*Log)(nil)

// Append adds events at the end of the log. An event without a time gets the next increment of the
// log's clock.
func (l *Log) Append(events ...changetest.Event) []changetest.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		if events[i].Time.IsZero() {
			events[i].Time = change.Timestamp{T: max(l.now.T, 1000), I: l.now.I + 1}
		}
		l.now = events[i].Time
		hidden := 0
		if l.hiding {
			hidden = l.opened
		}
		l.events = append(l.events, entry{hidden, events[i].Time, events[i].Position(), events[i].Bytes(), events[i]})
	}
	l.wakeStreams()
	return events
}

// Tick advances the log's clock without an event.
func (l *Log) Tick(seconds uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = change.Timestamp{T: max(l.now.T, 1000) + seconds, I: 1}
	l.wakeStreams()
}

// Truncate removes all but the last keep events.
func (l *Log) Truncate(keep int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = max(l.first, len(l.events)-keep)
	l.wakeStreams()
}

// Streams returns the number of open streams, their maximum, and the total.
func (l *Log) Streams() (open, most, opened int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.most, l.opened
}

// FailNext makes the next call of Next on any stream return the error, and returns the number of
// pending failures.
func (l *Log) FailNext(err error) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = append(l.fail, err)
	l.wakeStreams()
	return len(l.fail)
}

// Reach returns the times of the oldest and the newest entry.
func (l *Log) Reach() (first, last change.Timestamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first < len(l.events) {
		return l.events[l.first].Time, l.now
	}
	return l.now, l.now
}

// Stall makes streams block until Stall(false).
func (l *Log) Stall(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = on
	l.wakeStreams()
}

// Hide hides events appended from now on from open streams.
func (l *Log) Hide(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hiding = on
}

// Suspect makes the next reply unproven.
func (l *Log) Suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspect = true
	l.wakeStreams()
}

// Open implements oplog.Source.
func (l *Log) Open(_ context.Context, from change.Position) (oplog.Stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &stream{log: l, base: from}
	if from.IsZero() {
		s.base = l.end()
		s.next = len(l.events)
	} else {
		l.first = max(l.first, min(l.first+l.Wraps, len(l.events)-1))
		for s.next < len(l.events) && !l.events[s.next].position.After(from) {
			s.next++
		}
		if from.Time.T > l.now.T {
			return nil, &oplog.LostError{Last: l.now, Err: fmt.Errorf("open at %s", from)}
		}
		strictly := l.Strict && l.first > 0 && l.first < len(l.events) && from.IsProgress() && from.Time.Compare(l.events[l.first].Time) <= 0
		if s.next < l.first || strictly {
			lost := &oplog.LostError{Last: l.now, Err: fmt.Errorf("open at %s", from)}
			if l.first < len(l.events) {
				lost.First = l.events[l.first].Time
			} else {
				lost.First = l.now
			}
			return nil, lost
		}
	}
	l.open++
	l.opened++
	s.number = l.opened
	l.most = max(l.most, l.open)
	return s, nil
}

// end returns the end of the log.
func (l *Log) end() change.Position {
	p := changetest.HighWater(l.now)
	if n := len(l.events); n > 0 {
		p = change.Later(p, l.events[n-1].position)
	}
	return p
}

// wakeStreams wakes waiting streams. The caller holds the mutex.
func (l *Log) wakeStreams() {
	if l.changed != nil {
		close(l.changed)
	}
	l.changed = make(chan struct{})
}

type stream struct {
	log    *Log
	number int // of those that were opened
	base   change.Position
	next   int
}

func (s *stream) Base() change.Position { return s.base }

// Next implements oplog.Stream: it waits up to a second for events.
func (s *stream) Next(ctx context.Context) (oplog.Reply, error) {
	deadline := time.NewTimer(time.Second)
	defer deadline.Stop()
	for {
		if err := s.awaitStall(ctx); err != nil {
			return oplog.Reply{}, err
		}
		reply, changed, err := s.read()
		if err != nil || len(reply.Events) > 0 || reply.Unproven {
			if d := s.log.Delay; d > 0 {
				deadline.Reset(d)
				select {
				case <-deadline.C:
				case <-ctx.Done():
				}
			}
			return reply, err
		}
		select {
		case <-changed:
		case <-deadline.C:
			return reply, nil
		case <-ctx.Done():
			return oplog.Reply{}, context.Cause(ctx)
		}
	}
}

// awaitStall waits while the log is stalled.
func (s *stream) awaitStall(ctx context.Context) error {
	for {
		s.log.mu.Lock()
		stalled, changed := s.log.stalled, s.log.changed
		s.log.mu.Unlock()
		if !stalled {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *stream) read() (oplog.Reply, <-chan struct{}, error) {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	if len(l.fail) > 0 {
		err := l.fail[0]
		l.fail = l.fail[1:]
		return oplog.Reply{}, nil, err
	}
	if s.next < l.first {
		return oplog.Reply{}, nil, fmt.Errorf("read: %w", oplog.ErrPositionLost)
	}
	reply := oplog.Reply{At: time.Now(), Unproven: l.suspect}
	l.suspect = false
	most := l.ReplyEvents
	if most == 0 {
		most = 100
	}
	for s.next < len(l.events) && len(reply.Events) < most {
		if s.number <= l.events[s.next].hidden {
			s.next++
			continue
		}
		b := bytes.Clone(l.events[s.next].bytes)
		if l.LookUp != nil {
			b = l.LookUp(l.events[s.next].event).Bytes()
		}
		reply.Events = append(reply.Events, b)
		reply.Size += len(b)
		reply.End = l.events[s.next].position
		s.next++
	}
	if s.next == len(l.events) {
		reply.End = l.end()
		reply.Drained = true
	}
	return reply, l.changed, nil
}

// Close implements oplog.Stream.
func (s *stream) Close() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.open--
}
