package streamer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// receive takes what is there for a session, without acknowledging it.
func receive(t *testing.T, s *delivery.Session) (events, notices []*delivery.Batch) {
	t.Helper()
	synctest.Wait()
	for s.Outstanding() > 0 || len(notices) == 0 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		batches, err := s.Receive(ctx)
		cancel()
		if err != nil {
			return events, notices
		}
		for _, b := range batches {
			if b.Notice != nil {
				notices = append(notices, b)
			} else {
				events = append(events, b)
			}
		}
	}
	return events, notices
}

// Nodes stop for longer than the log reaches back: each partition records one gap and tells it once, with bounds that hold everything
// that was missed, and is live again at once. The mark stays before the notice until that is acknowledged, over a crash too.
func TestLostHistoryIsRecordedToldAndPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{}, delivery.Config{})
		seen := w.source.Append(inserts(40, 0)...)
		events, _ := receive(t, p.session)
		for _, b := range events {
			p.session.Ack(b)
		}
		p.stop()
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
		missed := w.source.Append(inserts(40, 40)...)
		w.source.Tick(10)
		later := w.source.Append(inserts(40, 80)...)
		w.source.Truncate(40)
		for round := range 3 { // twice killed before the notices are acknowledged
			board := notice.NewBoard(notice.Config{})
			p = w.begin(streamer.Config{Board: board}, delivery.Config{})
			begun := time.Now()
			_, notices := receive(t, p.session)
			if len(notices) != partitions {
				t.Fatalf("round %d: %d resync notices", round, len(notices))
			}
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("round %d: told after %v", round, took)
			}
			for _, b := range notices {
				if b.Notice.Kind != delivery.Resync || b.Notice.Reason != string(gap.HistoryLost) || b.Notice.Advice == "" {
					t.Errorf("notice %+v", b.Notice)
				}
				for _, ev := range missed {
					e, _ := change.Parse(ev.Bytes())
					if q, _ := change.NewPartitioner(partitions).Of(&e); q == b.Partition && (!ev.Position().After(b.From) || !b.To.After(ev.Position())) {
						t.Errorf("round %d: %v is outside of (%v, %v)", round, ev.Position(), b.From, b.To)
					}
				}
			}
			if posted, _ := board.Since(0); len(posted) != partitions || posted[0].Kind != "resync" {
				t.Errorf("round %d: %d notices to operators", round, len(posted))
			}
			for _, s := range p.node.Status() {
				if s.State != health.Stale {
					t.Errorf("round %d: partition %d is %s", round, s.Partition, s.State)
				}
			}
			time.Sleep(time.Minute) // rounds of marks
			for _, m := range mustList(t, w) {
				if m.Position.After(seen[len(seen)-1].Position()) {
					t.Errorf("round %d: the mark %v passes a notice that was not acknowledged", round, m.Position)
				}
			}
			if round < 2 {
				p.crash()
			} else {
				for _, b := range notices {
					p.session.Ack(b)
				}
			}
		}
		synctest.Wait()
		for _, s := range p.node.Status() {
			if s.State == health.Stale {
				t.Errorf("partition %d is still stale", s.Partition)
			}
		}
		p.stop()
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
		if gaps, _ := w.marks.Gaps(t.Context()); len(gaps) != partitions {
			t.Errorf("%d gap entries", len(gaps))
		}
		for _, m := range mustList(t, w) {
			if later[0].Position().After(m.Position) && m.Position.Time.Compare(later[0].Time) < 0 {
				t.Errorf("partition %d: the mark is at %v", m.Partition, m.Position)
			}
		}
	})
}

func mustList(t *testing.T, w *world) []checkpoint.Mark {
	t.Helper()
	marks, err := w.marks.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return marks
}

// lose makes a world whose log no longer reaches back to where its marks are.
func lose(t *testing.T) *world {
	w := newWorld(t)
	w.source.Append(inserts(40, 0)...)
	w.source.Tick(10)
	w.source.Append(inserts(40, 40)...)
	w.source.Truncate(40)
	return w
}

func TestEventsBehindALossComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lose(t)
		p := w.begin(streamer.Config{}, delivery.Config{})
		events, notices := receive(t, p.session)
		last := map[change.Partition]change.Position{}
		for _, b := range notices {
			last[b.Partition] = b.To
		}
		n := 0
		for _, b := range events {
			if last[b.Partition].After(b.From) {
				t.Errorf("partition %d: a batch from %v after %v", b.Partition, b.From, last[b.Partition])
			}
			last[b.Partition] = b.To
			n += len(b.Events)
		}
		if n != 40 {
			t.Errorf("%d events", n)
		}
		p.crash()
	})
}

func TestHaltLeavesThePartitionAndItsMarkAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lose(t)
		p := w.begin(streamer.Config{OnHistoryLost: streamer.Halt}, delivery.Config{})
		time.Sleep(time.Minute)
		status := p.node.Status()
		for _, s := range status {
			if s.State != health.Failed || fault.Of(s.Failure) != fault.LogHistoryLost {
				t.Errorf("partition %d is %s: %v", s.Partition, s.State, s.Failure)
			}
		}
		if gaps, _ := w.marks.Gaps(t.Context()); len(status) != partitions || len(gaps) != partitions || len(mustList(t, w)) != 0 {
			t.Errorf("%d partitions, %d gap entries, %d marks", len(status), len(gaps), len(mustList(t, w)))
		}
		p.stop()
		if err := <-p.done; err != nil || len(mustList(t, w)) != 0 {
			t.Errorf("%v, %d marks", err, len(mustList(t, w)))
		}
	})
}

func TestNoMarkPassesALossThatIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lose(t)
		w.marks.fail = errors.New("away")
		p := w.begin(streamer.Config{}, delivery.Config{})
		time.Sleep(time.Minute)
		if n := p.session.Outstanding(); n != 0 {
			t.Errorf("%d events delivered", n)
		}
		for _, m := range mustList(t, w) {
			if m.Position.After(change.At(w.origin.Start)) {
				t.Errorf("partition %d: the mark has moved to %v", m.Partition, m.Position)
			}
		}
		for _, s := range p.node.Status() {
			if s.State != health.Recovering {
				t.Errorf("partition %d is %s", s.Partition, s.State)
			}
		}
		w.marks.mu.Lock()
		w.marks.fail = nil
		w.marks.mu.Unlock()
		time.Sleep(10 * time.Second)
		if events, notices := receive(t, p.session); len(notices) != partitions || len(events) == 0 {
			t.Errorf("%d notices, %d batches", len(notices), len(events))
		}
		p.crash()
	})
}

// A jump of cluster time of which nothing proves that it was quiet is read again, once, and nothing is lost or told.
func TestSuspectJumpIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{}, delivery.Config{})
		w.source.Append(inserts(20, 0)...)
		synctest.Wait()
		w.source.Tick(3600)
		w.source.Suspect()
		w.source.Append(inserts(20, 20)...)
		seen := map[string]int{}
		for range 10 {
			events, notices := receive(t, p.session)
			if len(notices) > 0 {
				t.Errorf("a quiet hour was told as %+v", notices[0].Notice)
			}
			for _, b := range events {
				for i := range b.Events {
					seen[string(b.Events[i].Token())]++
				}
				p.session.Ack(b)
			}
		}
		if len(seen) != 40 {
			t.Errorf("%d of 40 events", len(seen))
		}
		for _, n := range seen {
			if n != 1 {
				t.Errorf("an event came %d times", n)
			}
		}
		if gaps, _ := w.marks.Gaps(t.Context()); len(gaps) != 0 {
			t.Errorf("recorded %+v", gaps)
		}
		if _, _, opened := w.source.Streams(); opened < 2 {
			t.Error("nothing was read again")
		}
		p.crash()
	})
}

// A position that is ahead of MongoDB belongs to a log that is no more. Nothing goes on from there without a person.
func TestPositionAheadOfTheServerStopsThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.source.Append(inserts(20, 0)...)
		future := changetest.Event{ID: 1, Time: change.Timestamp{T: 999_999, I: 1}}.Position()
		term := change.Term{Partition: 2, Epoch: change.Epoch{Incarnation: 1, Revision: 0}, Context: t.Context()}
		term.Epoch.Revision = 1
		if _, err := w.marks.Claim(t.Context(), []change.Term{term}); err != nil {
			t.Fatal(err)
		}
		mark := checkpoint.Mark{Partition: 2, Position: future, Fingerprint: "f", Epoch: term.Epoch, At: time.Now()}
		if err := w.marks.Save(t.Context(), []checkpoint.Mark{mark})[0]; err != nil {
			t.Fatal(err)
		}
		w.revision = 1
		p := w.begin(streamer.Config{}, delivery.Config{})
		time.Sleep(30 * time.Second)
		for _, s := range p.node.Status() {
			if want := s.Partition == 2; (s.State == health.Failed) != want || want && fault.Of(s.Failure) != fault.LogAhead {
				t.Errorf("partition %d is %s: %v", s.Partition, s.State, s.Failure)
			}
		}
		m, err := w.marks.Load(t.Context(), 2)
		if err != nil || m.Position.Compare(future) != 0 {
			t.Errorf("the mark is at %v, %v", m.Position, err)
		}
		if gaps, _ := w.marks.Gaps(t.Context()); len(gaps) != 1 || gaps[0].Reason != string(gap.AheadOfServer) {
			t.Errorf("recorded %+v", gaps)
		}
		p.crash()
	})
}

// An event that MongoDB cannot deliver leaves one gap entry and a notice in its place; what stands around it comes as ever.
func TestSkippedEventIsToldInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{}, delivery.Config{})
		w.source.Append(inserts(20, 0)...)
		place := w.source.Append(changetest.Event{Op: change.SkippedName, Keyless: true})[0].Position()
		w.source.Append(inserts(20, 20)...)
		events, notices := receive(t, p.session)
		n := 0
		for _, b := range events {
			n += len(b.Events)
			for i := range b.Events {
				if b.Events[i].Op() != change.OpInsert {
					t.Errorf("delivered %v", b.Events[i].Op())
				}
			}
			if place.After(b.From) && b.To.After(place) {
				t.Errorf("a batch from %v to %v stands over the place of the notice", b.From, b.To)
			}
		}
		if n != 40 || len(notices) != partitions {
			t.Errorf("%d events, %d notices", n, len(notices))
		}
		for _, b := range notices {
			if b.Notice.Reason != string(gap.Poison) || b.To.Compare(place) != 0 {
				t.Errorf("%+v up to %v", b.Notice, b.To)
			}
		}
		gaps, _ := w.marks.Gaps(t.Context())
		for _, g := range gaps {
			if g.From.Compare(place) != 0 || g.Reason != string(gap.Poison) {
				t.Errorf("recorded %+v", g)
			}
		}
		if len(gaps) == 0 {
			t.Error("nothing is recorded")
		}
		p.crash()
	})
}

func TestStateIsConcludedFromEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		told := make(chan struct{})
		p := w.begin(streamer.Config{Surveyor: silent{surveyor{w.source}, told}}, delivery.Config{})
		state := func() health.Status { return p.node.Status()[0].State }
		if s := p.node.Status()[0]; s.Lag != nil {
			t.Errorf("a lag of %v before anything is known", *s.Lag)
		}
		close(told)
		time.Sleep(6 * time.Second)
		if state() != health.Idle {
			t.Errorf("with nothing to do: %s", state())
		}
		w.source.Append(inserts(40, 0)...)
		events, _ := receive(t, p.session)
		for _, b := range events {
			p.session.Ack(b)
		}
		if state() != health.Healthy {
			t.Errorf("after events: %s", state())
		}
		w.source.Stall(true)
		w.source.Tick(1000)
		time.Sleep(20 * time.Second)
		if state() != health.Lagging {
			t.Errorf("behind: %s, %v", state(), p.node.Status()[0].Lag)
		}
		time.Sleep(20 * time.Second)
		if state() != health.Stuck {
			t.Errorf("without an answer: %s", state())
		}
		w.source.Stall(false)
		time.Sleep(10 * time.Second)
		if s := state(); s != health.Healthy && s != health.Idle {
			t.Errorf("in the end: %s", s)
		}
		p.crash()
	})
}

func TestUnsavedEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{Policy: checkpoint.Policy{MaxUnsaved: 20}}, delivery.Config{})
		stop := make(chan struct{})
		seen := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				batches, _ := p.session.Receive(ctx)
				cancel()
				for _, b := range batches {
					seen += len(b.Events)
					p.session.Ack(b)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		synctest.Wait()
		w.marks.Refuse(errors.New("away"))
		w.source.Append(inserts(1000, 0)...)
		time.Sleep(30 * time.Second)
		held := 0
		for _, s := range p.node.Status() {
			held += int(s.Events)
			if s.Events > 20+delivery.MaxBatchEvents {
				t.Errorf("partition %d has passed %d events without a mark", s.Partition, s.Events)
			}
		}
		if held == 1000 {
			t.Error("nothing was held back")
		}
		w.marks.Refuse(nil)
		time.Sleep(3 * time.Minute)
		close(stop)
		<-done
		if seen != 1000 {
			t.Errorf("%d of 1000 events", seen)
		}
		p.crash()
	})
}
