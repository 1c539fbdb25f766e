package streamer_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// A refusing log says that it reaches back and yet refuses what refuses names, once a second at most.
type refusing struct {
	*lanetest.Log

	refuses func(from change.Position) bool
	read    func() error // why the next reply is refused, nil where it is not
	refused atomic.Int64
}

func (r *refusing) lost() error {
	r.refused.Add(1)
	time.Sleep(time.Second)
	return &lane.LostError{First: change.Timestamp{T: 1}, Err: errors.New("refused")}
}

func (r *refusing) Open(ctx context.Context, from change.Position) (lane.Stream, error) {
	if r.refuses(from) {
		return nil, r.lost()
	}
	stream, err := r.Log.Open(ctx, from)
	return &refusingStream{Stream: stream, of: r}, err
}

type refusingStream struct {
	lane.Stream

	of *refusing
}

func (s *refusingStream) Next(ctx context.Context) (lane.Reply, error) {
	if s.of.read != nil {
		if err := s.of.read(); err != nil {
			return lane.Reply{}, err
		}
	}
	return s.Stream.Next(ctx)
}

// A far surveyor tells of a log that reaches back to everything.
type far struct{ surveyor }

func (f far) Survey(ctx context.Context) (gap.Reach, error) {
	reach, err := f.surveyor.Survey(ctx)
	reach.First = change.Timestamp{T: 1}
	return reach, err
}

// A position that MongoDB refuses for good although its log has it is lost up to now: that is recorded and told, once, and the
// partition goes on.
func TestPositionThatIsRefusedForGoodIsToldAndPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		missed := w.source.Append(inserts(20, 0)...)
		w.source.Tick(200)
		old := func(from change.Position) bool { return !from.IsZero() && from.Time.T <= 1100 }
		source := &refusing{Log: w.source, refuses: old}
		w.open = source
		board := notice.NewBoard(notice.Config{})
		p := w.begin(streamer.Config{Board: board, Surveyor: far{surveyor{w.source}}}, delivery.Config{})
		time.Sleep(time.Minute)
		_, notices := receive(t, p.session)
		gaps, err := w.marks.Gaps(t.Context())
		if err != nil || len(gaps) != partitions || len(notices) != partitions {
			t.Fatalf("%d gaps, %d notices, %v", len(gaps), len(notices), err)
		}
		for i, b := range notices {
			if b.Notice.Kind != delivery.Resync || b.Notice.Reason != string(gap.Refused) || gaps[i].Reason != string(gap.Refused) {
				t.Errorf("notice %+v, gap %+v", b.Notice, gaps[i])
			}
			for _, e := range missed {
				if !e.Position().After(b.From) || !b.To.After(e.Position()) || !e.Position().After(gaps[i].From) || !gaps[i].To.After(e.Position()) {
					t.Errorf("%v is outside of (%v, %v)", e.Position(), b.From, b.To)
				}
			}
		}
		for _, s := range p.node.Status() {
			if s.State != health.Stale {
				t.Errorf("partition %d is %s", s.Partition, s.State)
			}
		}
		for _, b := range notices {
			p.session.Ack(b)
		}
		// Four refusals for each partition, which may share them.
		if refused := source.refused.Load(); refused > 4*partitions {
			t.Errorf("refused %d times", refused)
		}
		w.source.Append(inserts(20, 20)...)
		events, _ := receive(t, p.session)
		count := 0
		for _, b := range events {
			count += len(b.Events)
			p.session.Ack(b)
		}
		if count != 20 {
			t.Errorf("%d events after the loss", count)
		}
		for _, s := range p.node.Status() {
			if s.State != health.Healthy {
				t.Errorf("partition %d is %s", s.Partition, s.State)
			}
		}
		p.stop()
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
	})
}

// Where every span that is given up is followed by another one, a person must look.
func TestRecoveryWithoutProgressEndsThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.source.Append(inserts(20, 0)...)
		w.source.Tick(200)
		answers := 0
		w.open = &refusing{Log: w.source, refuses: func(from change.Position) bool { return !from.IsZero() }, read: func() error {
			if answers++; answers%5 != 0 { // the tail reads, and loses what it has read
				return nil
			}
			w.source.Tick(100)
			return &lane.LostError{First: change.Timestamp{T: 1}, Err: errors.New("refused")}
		}}
		p := w.begin(streamer.Config{Surveyor: far{surveyor{w.source}}}, delivery.Config{})
		time.Sleep(10 * time.Minute)
		for _, s := range p.node.Status() {
			if s.State != health.Failed || fault.Of(s.Failure) != fault.LogNoProgress {
				t.Errorf("partition %d is %s: %v", s.Partition, s.State, s.Failure)
			}
		}
		if gaps, err := w.marks.Gaps(t.Context()); err != nil || len(gaps) == 0 || len(gaps) > 4*partitions {
			t.Errorf("%d gaps, %v", len(gaps), err)
		}
		p.crash()
	})
}

// A server that refuses everything says nothing about what its log has: the partitions are stuck, operators hear of it, and nothing is
// given up.
func TestServerThatRefusesEverythingIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var closed atomic.Bool
		source := &refusing{Log: w.source, refuses: func(change.Position) bool { return closed.Load() }}
		source.read = func() error {
			if closed.Load() {
				return source.lost()
			}
			return nil
		}
		w.open = source
		board := notice.NewBoard(notice.Config{})
		p := w.begin(streamer.Config{Board: board}, delivery.Config{})
		w.source.Append(inserts(20, 0)...)
		time.Sleep(10 * time.Second)
		want := func(when string, states ...health.Status) {
			t.Helper()
			for _, s := range p.node.Status() {
				if !slices.Contains(states, s.State) {
					t.Errorf("%s: partition %d is %s", when, s.Partition, s.State)
				}
			}
		}
		want("before", health.Healthy)
		closed.Store(true)
		for range 40 {
			w.source.Tick(1)
			w.source.Append(inserts(1, 100)...)
			time.Sleep(time.Second)
		}
		want("refused for 40 s", health.Stuck)
		if posted, _ := board.Since(0); len(posted) != 1 || posted[0].Kind != notice.KindStuck || notice.Check(posted[0]) != nil {
			t.Errorf("operators were told %+v", posted)
		}
		if refused := source.refused.Load(); refused > 45 {
			t.Errorf("refused %d times", refused)
		}
		closed.Store(false)
		time.Sleep(5 * time.Second)
		events, notices := receive(t, p.session)
		count := 0
		for _, b := range events {
			count += len(b.Events)
			p.session.Ack(b)
		}
		want("open again", health.Healthy)
		gaps, _ := w.marks.Gaps(t.Context())
		if count != 60 || len(notices) != 0 || len(gaps) != 0 {
			t.Errorf("%d events, %d notices, %d gaps", count, len(notices), len(gaps))
		}
		if posted, _ := board.Since(0); len(posted) != 2 || posted[1].Kind != notice.KindReading || notice.Check(posted[1]) != nil {
			t.Errorf("operators were told %+v", posted)
		}
		p.crash()
	})
}
