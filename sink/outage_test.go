package sink

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/internal/breaker"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// A broken target refuses to answer while it is away.
type broken struct {
	Target

	away   atomic.Bool
	asked  atomic.Int64
	silent atomic.Bool // it reports no outcome
}

func (b *broken) Publish(_ context.Context, m *Message) {
	b.asked.Add(1)
	switch {
	case b.silent.Load():
	case b.away.Load():
		m.Done(errors.New("away"))
	default:
		m.Done(nil)
	}
}
func (b *broken) Flush() {}
func (b *broken) Close() {}

// publishing returns a sink with a batch of messages that a target has failed.
func publishing(target Target, cfg Config, messages int) *Sink {
	cfg.Metrics, cfg.Breaker = NewMetrics(nil), breaker.NewPanel(breaker.Config{Threshold: 1 << 30}).Breaker("sink", func(err error) bool { return err != nil })
	s := New(cfg, &streamer.Shared{}, target)
	f := &flight{seq: 1, left: messages}
	for range messages {
		f.messages = append(f.messages, &Message{flight: f, report: s.done})
	}
	s.mu.flights = append(s.mu.flights, f)
	return s
}

// A target that is away for an hour costs a line when it begins, one each minute and one at the
// end; and what counts as a retry is a message that is handed to it again, not what waits behind
// it.
func TestOutageIsToldOnceAndSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		target := &broken{}
		target.away.Store(true)
		s := publishing(target, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, 100)
		s.begin(s.mu.flights[0].messages[0])
		target.Publish(t.Context(), s.mu.flights[0].messages[0])
		time.AfterFunc(time.Hour, func() { target.away.Store(false) })
		if err := s.recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if n := len(lines); n < 50 || n > 62 || !strings.Contains(lines[0], "publishing failed") || !strings.Contains(lines[1], "still fails") || !strings.Contains(lines[n-1], "recovered") {
			t.Errorf("%d lines: %s … %s", n, lines[0], lines[n-1])
		}
		st := s.Status()
		if again := uint64(target.asked.Load()) - 100; st.Retried != again || st.Published != 100 {
			t.Errorf("%+v; %d were handed over again", st, again)
		}
	})
}

// A sink has recovered when its target has acknowledged something, not when an operator resumes it
// or nothing waits any more.
func TestRecoveredMeansAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := publishing(&broken{}, Config{Subscriber: "sink/out"}, 2)
		m := s.mu.flights[0].messages[0]
		s.begin(m)
		wait := func(d time.Duration) {
			time.Sleep(d)
			s.look(time.Now())
		}
		wait(time.Minute)
		silent := s.Status().Silent
		if silent == nil || time.Since(*silent) < time.Minute {
			t.Errorf("silent since %v", silent)
		}
		m.Done(ErrReplaced) // and dropped: its partition has moved away
		s.mu.failed = false
		wait(time.Second)
		s.Resume()
		wait(time.Second)
		if again := s.Status().Silent; again == nil || !again.Equal(*silent) {
			t.Errorf("silent since %v after a resumption, before since %v", again, silent)
		}
		s.begin(m)
		wait(time.Minute)
		if silent == nil || s.Status().Silent == nil {
			t.Fatal("without an acknowledgement the target is not silent any more")
		}
		m.Done(nil)
		wait(time.Second)
		if silent := s.Status().Silent; silent != nil {
			t.Errorf("silent since %v after an acknowledgement", silent)
		}
	})
}

// A target that acknowledges nothing is known to be silent in time, since the message that waits
// was handed to it. One that is slow by nature is so once; one that has refused a message answers.
func TestSilentTargetIsKnownInTime(t *testing.T) {
	for phase := time.Duration(0); phase < LookEvery; phase += LookEvery / 7 {
		synctest.Test(t, func(t *testing.T) {
			s := watched(t, phase)
			begun := time.Now()
			s.begin(s.mu.flights[0].messages[0])
			time.Sleep(SilentAfter + LookEvery)
			synctest.Wait()
			if st := s.Status(); st.Silent == nil || !st.Silent.Equal(begun) || st.State != Stalled {
				t.Errorf("%v after a look: %s, silent since %v, want %v", phase, st.State, st.Silent, begun)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := watched(t, 0)
		for i := range 5 {
			s.begin(s.mu.flights[0].messages[i])
			time.Sleep(4 * time.Second)
			if silent := s.Status().Silent; (silent == nil) != (i > 0) {
				t.Errorf("message %d to a slow target: silent since %v", i, silent)
			}
			s.mu.flights[0].messages[i].Done(nil)
		}
		s.mu.Lock()
		s.mu.slow, s.mu.failed, s.mu.moved = 0, true, time.Now()
		s.mu.Unlock()
		time.Sleep(2 * SilentAfter)
		if silent := s.Status().Silent; silent != nil {
			t.Errorf("silent since %v although it answers", silent)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := watched(t, 0)
		m, next := s.mu.flights[0].messages[0], s.mu.flights[0].messages[1]
		s.begin(m)
		m.Done(errors.New("away"))
		s.target.(*broken).silent.Store(true)
		s.repeat(t.Context(), []*Message{m})
		if st := s.Status(); st.State != Retrying || st.UnderWay != 1 || st.Error != "away" {
			t.Errorf("at the attempt after a failure: %+v", st)
		}
		m.Done(nil)
		s.begin(next)
		time.Sleep(SilentAfter + LookEvery)
		synctest.Wait()
		if st := s.Status(); st.State != Stalled || st.Error != "" {
			t.Errorf("silent after it had recovered: %+v", st)
		}
	})
}

// watched returns a sink so long after a look at its target.
func watched(t *testing.T, phase time.Duration) *Sink {
	s := publishing(&broken{}, Config{Subscriber: "sink/out"}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go s.watch(ctx)
	time.Sleep(phase)
	return s
}

// That a collection does not exist yet is told once for a sink, not by each node, or at each start.
func TestMissingCollectionIsToldOnce(t *testing.T) {
	board := notice.NewBoard(notice.Config{})
	for range 2 {
		s := publishing(&broken{}, Config{Name: "out", Board: board, CheckNamespaces: func(context.Context) ([]string, error) {
			return []string{"there is no collection shop.orders yet", "there is no database crm yet"}, nil
		}}, 1)
		s.checkNamespaces(t.Context())
	}
	posted, _ := board.Since(0)
	if len(posted) != 2 {
		t.Errorf("posted %+v", posted)
	}
	for _, n := range posted {
		if err := notice.Check(n); err != nil {
			t.Error(err)
		}
	}
}

// While the breaker is open nothing is tried, and nothing turns in a circle, whatever became of the
// first message: what waits behind another one is tried at once otherwise.
func TestOpenBreakerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &broken{}
		s := publishing(target, Config{Subscriber: "sink/out"}, 1)
		s.cfg.Breaker = breaker.NewPanel(breaker.Config{Threshold: 1}).Breaker("sink", func(err error) bool { return err != nil })
		if err := s.cfg.Breaker.Do(func() error { return errors.New("away") }); err == nil {
			t.Fatal("no error")
		}
		m := s.mu.flights[0].messages[0]
		s.begin(m)
		m.Done(ErrEarlier)
		ended := make(chan error, 1)
		go func() { ended <- s.recover(t.Context()) }()
		time.Sleep(time.Second) // which never passes while something turns in a circle
		if n := target.asked.Load(); n != 0 {
			t.Errorf("it is asked %d times", n)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A choosy target refuses one message, and has two destinations without an order if it is a router.
type choosy struct {
	broken

	bad *Message
}

func (c *choosy) Publish(ctx context.Context, m *Message) {
	if m.ID == c.bad.ID {
		m.Done(&RefusedError{Err: errors.New("bad"), Final: true})
		return
	}
	c.broken.Publish(ctx, m)
}

type router struct{ choosy }

func (r *router) Destination(m *Message) string { return m.Coll }

// A box takes dead letters, or fails.
type box struct {
	Target

	err   atomic.Pointer[error]
	taken atomic.Int64
}

func (b *box) Publish(_ context.Context, m *Message) {
	if err := b.err.Load(); err != nil {
		m.Done(*err)
		return
	}
	b.taken.Add(1)
	m.Done(nil)
}
func (b *box) Flush() {}

// A dead letter that cannot be written waits with what follows it, and is written when it can be:
// by itself, unless it is refused. Other destinations get their changes meanwhile.
func TestDeadLetterThatCannotBeWrittenWaits(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		state string
	}{
		"unreachable": {errors.New("away"), Waiting},
		"no right":    {&RefusedError{Err: errors.New("no topic"), Destination: true}, Waiting},
		"too large":   {&RefusedError{Err: errors.New("too large"), Final: true}, Halted},
		"unwanted":    {ErrGone, Halted},
	} {
		for _, routes := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				letters, one := &box{}, &choosy{}
				letters.err.Store(&c.err)
				var target Target = one
				if routes {
					r := &router{}
					target, one = r, &r.choosy
				}
				s := publishing(target, Config{DeadLetter: letters}, 4)
				all := s.mu.flights[0].messages
				for i, m := range all {
					m.ID = strconv.Itoa(i)
					m.Coll = []string{"bad", "bad", "good", "good"}[i]
				}
				one.bad = all[0]
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { s.publish(ctx, all); _ = s.run(ctx, nil) })
				wg.Go(func() { s.watch(ctx) })
				time.Sleep(time.Hour)
				st := s.Status()
				if st.State != c.state || !strings.Contains(st.Error, "write dead letter") || st.DeadLetters != 0 {
					t.Errorf("%s, router %t: %+v", name, routes, st)
				}
				if routes && c.state == Waiting && st.Published != 2 {
					t.Errorf("%s: %d of the other destination are published", name, st.Published)
				}
				letters.err.Store(nil)
				if c.state == Halted {
					s.Resume()
				}
				time.Sleep(time.Minute)
				if st := s.Status(); st.State != Publishing || st.DeadLetters != 1 || letters.taken.Load() != 1 || len(s.mu.flights) != 0 {
					t.Errorf("%s, router %t, after the dead letter could be written: %+v", name, routes, st)
				}
				cancel()
				wg.Wait()
			})
		}
	}
}

// A kiosk has several destinations without an order, one of which it refuses while it is there,
// after some time.
type kiosk struct{ router }

func (k *kiosk) Publish(ctx context.Context, m *Message) {
	if !k.away.Load() && m.Coll == "missing" {
		time.Sleep(2 * LookEvery)
		m.Done(&RefusedError{Err: errors.New("no topic"), Destination: true})
		return
	}
	k.broken.Publish(ctx, m)
}

// That the target refuses a destination does not say that it is silent, however often the sink
// tries it again. That the whole target is away is known beside it, and since when.
func TestWaitingDestinationDoesNotHideThatTheTargetIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &kiosk{}
		s := publishing(target, Config{Subscriber: "sink/out"}, 1)
		waits := s.mu.flights[0].messages[0]
		waits.Coll = "missing"
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { s.publish(ctx, []*Message{waits}); _ = s.run(ctx, nil) })
		wg.Go(func() { s.watch(ctx) })
		for range 1000 {
			time.Sleep(LookEvery / 7)
			if silent := s.Status().Silent; silent != nil {
				t.Fatalf("silent since %v, although it answers", silent)
			}
		}
		if st := s.Status(); st.State != Waiting || !strings.Contains(st.Error, "no topic") {
			t.Errorf("a destination is missing: %+v", st)
		}
		for s.rests() { // an attempt, which may end with an answer
			time.Sleep(LookEvery / 7)
		}
		target.away.Store(true)
		gone := time.Now()
		s.mu.Lock()
		next := &flight{seq: 2, left: 1}
		next.messages = []*Message{{flight: next, report: s.done}}
		s.mu.flights = append(s.mu.flights, next)
		s.mu.Unlock()
		s.publish(ctx, next.messages)
		for range 1000 {
			time.Sleep(LookEvery / 7)
			st := s.Status()
			if st.Silent == nil || st.Silent.Sub(gone) > tryEvery || st.State != Waiting || !strings.HasPrefix(st.Error, "away\n") || !strings.Contains(st.Error, "no topic") {
				t.Fatalf("after %v the whole target is away: %+v", time.Since(gone), st)
			}
		}
		target.away.Store(false)
		time.Sleep(time.Minute)
		if st := s.Status(); st.State != Waiting || st.Silent != nil || st.Published != 1 || strings.Contains(st.Error, "away") {
			t.Errorf("the target is back: %+v", st)
		}
		target.away.Store(true)
		time.Sleep(time.Minute)
		if s.Status().Silent == nil {
			t.Error("it is not known that the target is away again")
		}
		target.away.Store(false)
		time.Sleep(time.Minute)
		if st := s.Status(); st.State != Waiting || st.Silent != nil {
			t.Errorf("the target is back, and refuses what waits: %+v", st)
		}
	})
}

// A destination that waits for an operator is logged as halted, one that the sink tries again is
// not.
func TestLogSaysWhetherAnOperatorMustAct(t *testing.T) {
	for want, stop := range map[string]func(s *Sink, m *Message, err error){"sink halted": (*Sink).refuse, "what goes to a destination waits": (*Sink).wait} {
		var log bytes.Buffer
		s := publishing(&router{}, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, 1)
		m := s.mu.flights[0].messages[0]
		m.Coll = "orders"
		stop(s, m, errors.New("bad"))
		if text := log.String(); !strings.Contains(text, `msg="`+want) || !strings.Contains(text, "destination=orders") {
			t.Errorf("%s: %s", want, text)
		}
	}
}
