package oplog_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/oplog"
)

// A scripted source has streams that give their replies and are then refused, but for the last one.
type scripted struct {
	streams [][][]changetest.Event
	opened  int
}

func (s *scripted) Open(_ context.Context, from change.Position) (oplog.Stream, error) {
	s.opened++
	return &scriptedStream{source: s, base: from, replies: s.streams[s.opened-1]}, nil
}

func (s *scripted) reach() (first, last change.Timestamp) {
	return change.Timestamp{T: 1000, I: 1}, change.Timestamp{T: 1001, I: 1}
}

type scriptedStream struct {
	source  *scripted
	base    change.Position
	replies [][]changetest.Event
}

func (s *scriptedStream) Base() change.Position { return s.base }
func (s *scriptedStream) Close()                {}

func (s *scriptedStream) Next(ctx context.Context) (oplog.Reply, error) {
	if len(s.replies) == 0 && s.source.opened < len(s.source.streams) {
		return oplog.Reply{}, fmt.Errorf("scripted: %w", oplog.ErrPositionLost)
	}
	if len(s.replies) == 0 {
		<-ctx.Done()
		return oplog.Reply{}, context.Cause(ctx)
	}
	reply := oplog.Reply{At: time.Now(), Size: 1}
	for _, e := range s.replies[0] {
		reply.Events, reply.End = append(reply.Events, e.Bytes()), e.Position()
	}
	s.replies = s.replies[1:]
	return reply, nil
}

// Events of shards that have one time and place come in another order with tokens of another
// version. Each of them is read once by those that read along, and those that come back at any of
// them miss none.
func TestOrdersOfTwoVersionsMeet(t *testing.T) {
	at := change.Timestamp{T: 1000, I: 5}
	event := func(version int, id int64) changetest.Event {
		return changetest.Event{Version: version, ID: id, Time: at}
	}
	last := changetest.Event{ID: 99, Time: change.Timestamp{T: 1000, I: 6}}
	for _, versions := range [][2]int{{1, 2}, {2, 1}} {
		synctest.Test(t, func(t *testing.T) {
			before, after := versions[0], versions[1]
			source := &scripted{streams: [][][]changetest.Event{
				{{event(before, 3), event(before, 5)}},
				{{event(after, 1), event(after, 3)}, {event(after, 4), event(after, 5), event(after, 6)}},
				{{event(after, 1), event(after, 3), event(after, 4), event(after, 5)}, {event(after, 6), event(after, 7)}, {last}},
			}}
			l, end := begin(t, oplog.Config{Dedup: &dedup.Config{}}, source, source.reach, change.At(at))
			defer end()
			c := l.Cursor(oplog.Start{Position: change.At(at), Live: true})
			want := []change.Position{
				event(before, 3).Position(), event(before, 5).Position(), event(after, 1).Position(), event(after, 4).Position(),
				event(after, 6).Position(), event(after, 7).Position(), last.Position(),
			}
			if err := same(read(t, c, len(want)), want); err != nil {
				t.Errorf("%v: %v", versions, err)
			}
			// A position of an event covers no other event of its head whose token is of another
			// version.
			for _, version := range versions {
				for id := range int64(7) {
					again, seen := l.Cursor(oplog.Start{Position: event(version, id+1).Position()}), make(map[change.Ref]bool)
					for !seen[last.Position().Ref()] {
						for _, e := range next(t, again) {
							seen[e.at.Ref()] = true
						}
					}
					for _, later := range []int64{1, 3, 4, 5, 6, 7} {
						if later > id+1 && !seen[event(1, later).Position().Ref()] {
							t.Errorf("%v: whoever is at event %d of version %d misses event %d", versions, id+1, version, later)
						}
					}
					again.Close()
				}
			}
			for i, start := range want[:len(want)-1] { // who has read it here has read what came before it here
				again, seen := l.Cursor(oplog.Start{Position: start}), make(map[change.Ref]bool)
				for !seen[last.Position().Ref()] {
					for _, e := range next(t, again) {
						seen[e.at.Ref()] = true
					}
				}
				for j, p := range want[i+1:] {
					if !seen[p.Ref()] {
						t.Errorf("%v: whoever has read up to entry %d misses entry %d", versions, i, i+1+j)
					}
				}
				again.Close()
			}
		})
	}
}

// Streams with other options split a large event elsewhere, or not at all.
func TestFragmentsOfOneEventAreOneChange(t *testing.T) {
	at := change.Timestamp{T: 1000, I: 5}
	for _, fragments := range [][2]int{{0, 1}, {0, 3}, {2, 0}, {2, 1}, {2, 3}} {
		synctest.Test(t, func(t *testing.T) {
			event := func(i, fragment int) changetest.Event {
				return changetest.Event{Version: 2, ID: int64(i), Index: uint64(i), Time: at, Fragment: fragment}
			}
			source := &scripted{streams: [][][]changetest.Event{
				{{event(1, 0), event(2, fragments[0])}}, {{event(1, 0), event(2, fragments[1]), event(3, 0)}},
			}}
			l, end := begin(t, oplog.Config{Dedup: &dedup.Config{}}, source, source.reach, change.At(at))
			defer end()
			c := l.Cursor(oplog.Start{Position: change.At(at), Live: true})
			want := []change.Position{event(1, 0).Position(), event(2, fragments[0]).Position(), event(3, 0).Position()}
			if err := same(read(t, c, 3), want); err != nil {
				t.Errorf("%v: %v", fragments, err)
			}
		})
	}
}
