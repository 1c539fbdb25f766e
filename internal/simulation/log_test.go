package simulation

import (
	"context"
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// A source is the log as a process reads it.
type source struct {
	oplog.Source

	network *network
}

// Open implements [oplog.Source].
func (s source) Open(ctx context.Context, from change.Position) (oplog.Stream, error) {
	s.network.pass()
	opened, err := s.Source.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	return stream{opened, s.network}, nil
}

type stream struct {
	oplog.Stream

	network *network
}

// Next implements [oplog.Stream]: a process that stands still learns of a reply when it goes on.
func (s stream) Next(ctx context.Context) (oplog.Reply, error) {
	reply, err := s.Stream.Next(ctx)
	s.network.pass()
	return reply, err
}

// reach says how far the log goes.
func (w *world) reach(context.Context) (gap.Reach, error) {
	first, last := w.source.Reach()
	return gap.Reach{First: first, Last: last, Majority: last}, nil
}

// A track is the events of one unit of order, as they are in the log.
type track struct {
	positions []change.Position
	index     map[change.Ref]int
}

func newTrack() *track { return &track{index: map[change.Ref]int{}} }

func (t *track) add(at change.Position) {
	t.index[at.Ref()] = len(t.positions)
	t.positions = append(t.positions, at)
}

// upTo returns how many events are at or before the position.
func (t *track) upTo(at change.Position) int {
	n, _ := slices.BinarySearchFunc(t.positions, at, func(e, at change.Position) int {
		if e.After(at) {
			return 1
		}
		return -1
	})
	return n
}

// A tally is which events of a track somebody has acknowledged: the first n, and some after them.
type tally struct {
	n     int
	after map[int]bool
}

// add notes that the events from up to to have been acknowledged.
func (t *tally) add(from, to int) {
	if t.after == nil {
		t.after = map[int]bool{}
	}
	for i := max(from, t.n); i < to; i++ {
		t.after[i] = true
	}
	for t.after[t.n] {
		delete(t.after, t.n)
		t.n++
	}
}

// rewind forgets what was acknowledged after the first n events.
func (t *tally) rewind(n int) {
	if t.n <= n {
		return
	}
	t.n, t.after = n, nil
}
