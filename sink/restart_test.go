package sink

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/streamer"
)

// A mute target acknowledges nothing, and counts how often it was closed.
type mute struct {
	Target

	closed int
}

func (m *mute) Publish(context.Context, *Message) {}
func (m *mute) Flush()                            {}
func (m *mute) Close()                            { m.closed++ }

func (m *mute) renew() (target, letters Target, err error) { return m, nil, nil }

// sending returns a sink that publishes batches of two messages each to a target.
func sending(target *mute, batches uint64) *Sink {
	s := New(Config{Metrics: NewMetrics(nil), Renew: target.renew}, &streamer.Shared{}, target)
	s.enter(func(error) {})
	for seq := uint64(1); seq <= batches; seq++ {
		f := &flight{seq: seq, left: 2}
		for range f.left {
			f.messages = append(f.messages, &Message{flight: f, report: s.done})
		}
		s.mu.flights = append(s.mu.flights, f)
		for _, m := range f.messages {
			s.begin(m)
		}
	}
	return s
}

// A sink is judged by what becomes of its oldest batch, beyond what the target may take, and only
// while it has to publish.
func TestSinkIsJudgedByItsOldestBatch(t *testing.T) {
	away := errors.New("away")
	for name, c := range map[string]struct {
		happens func(s *Sink, second int)
		want    time.Duration // after a minute, of which the target may take ten seconds for each outcome
	}{
		"nothing becomes of it": {func(*Sink, int) {}, 50 * time.Second},
		"only later batches are acknowledged": {func(s *Sink, second int) {
			if f := s.mu.flights[1+second%2]; f.left > 1 {
				f.messages[0].Done(nil)
			}
		}, 50 * time.Second},
		"its messages are acknowledged": {func(s *Sink, second int) {
			if second == 29 || second == 59 {
				s.mu.flights[0].messages[second/30].Done(nil)
			}
		}, 0},
		"the target is away, and attempts are made": {func(s *Sink, second int) {
			if s.mu.failed = true; second%12 == 0 {
				s.mu.step++
			}
		}, 0},
		"the target was away, and nothing is tried": {func(s *Sink, second int) {
			if second == 0 {
				s.mu.flights[0].messages[0].Done(away)
			}
		}, 45 * time.Second},
		"it is paused": {func(s *Sink, _ int) { s.mu.paused = true }, 0},
		"it is halted": {func(s *Sink, _ int) { s.mu.halted = away }, 0},
		"it has ended": {func(s *Sink, _ int) { s.enter(nil) }, 0},
		"a batch waits, and nothing is with the target": {func(s *Sink, _ int) {
			s.mu.flights, s.mu.underWay, s.mu.backlog = nil, 0, 1
		}, 59 * time.Second},
		"nothing waits": {func(s *Sink, _ int) { s.mu.flights, s.mu.underWay = nil, 0 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := sending(&mute{}, 3)
				s.Age()
				for second := range 60 {
					c.happens(s, second)
					s.Age() // components are looked at every second
					time.Sleep(time.Second)
				}
				if got := s.Age(); (got - c.want).Abs() > time.Second {
					t.Errorf("%s", got)
				}
			})
		})
	}
}

// What was under way before a restart is published again although the closed target reports nothing
// of it: a loop that has more batches to publish waits for the signal.
func TestRestartedSinkDoesNotWaitForItsOldTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sending(&mute{}, 2)
		if err := s.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.await(ctx); err != nil || !s.rests() {
			t.Errorf("%v", err)
		}
	})
}

// What was under way before a restart waits for another attempt, and late outcomes of the closed
// target change nothing.
func TestRestartedSinkForgetsItsOldTarget(t *testing.T) {
	target := &mute{}
	s := sending(target, 2)
	old := slices.Concat(s.mu.flights[0].messages, s.mu.flights[1].messages)
	old[1].Done(nil)
	if err := s.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Message{old[0], old[2], old[3]} {
		m.Done(nil)
	}
	st := s.Status()
	if target.closed != 1 || st.Published != 1 || st.State != Retrying || st.UnderWay != 0 || s.mu.ack != 0 {
		t.Errorf("%+v, closed %d times, acknowledged %d", st, target.closed, s.mu.ack)
	}
	for i, want := range []struct {
		state state
		left  int
	}{{waiting, 1}, {over, 1}, {waiting, 2}, {waiting, 2}} {
		f := s.mu.flights[i/2]
		if m := f.messages[i%2]; m.state != want.state || f.left != want.left {
			t.Errorf("message %d: %+v", i, m)
		}
	}
}

// What waits for a destination is tried again after a restart, before anything new is published:
// changes would overtake a loss otherwise.
func TestRestartedSinkPublishesFirstWhatHasWaited(t *testing.T) {
	s := sending(&mute{}, 1)
	waits, follows := s.mu.flights[0].messages[0], s.mu.flights[0].messages[1]
	waits.Op = OpLoss
	waits.Done(&RefusedError{Err: errors.New("no topic"), Destination: true})
	follows.Done(nil)
	s.wait(waits, waits.err)
	if first, _ := s.again(); first != nil || !s.rests() || s.Status().State != Waiting {
		t.Fatalf("before the restart: %+v", s.Status())
	}
	if err := s.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, again := s.again(); first == nil || first.Op != OpLoss || len(again) != 2 || !s.rests() || s.Status().State != Retrying {
		t.Errorf("%+v; %d messages are published again", s.Status(), len(again))
	}
}

// Where changes have destinations, of which none may take over a loss, nothing new is published
// while a loss waits, also if it is refused again after a restart.
func TestLossThatWaitsIsNotOvertaken(t *testing.T) {
	target := &mute{}
	s := sending(target, 1)
	s.target = &routed{target}
	s.cfg.Renew = func() (Target, Target, error) { return s.target, nil, nil }
	for restart := range 2 {
		loss := s.mu.flights[0].messages[0]
		loss.Op = OpLoss
		if restart == 0 {
			loss.Done(errors.New("no topic"))
			s.mu.flights[0].messages[1].Done(nil)
		}
		s.wait(loss, errors.New("no topic"))
		if first, _ := s.again(); first != nil || !s.rests() {
			t.Errorf("%d restarts: %v is published again, it rests %t", restart, first, s.rests())
		}
		if err := s.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A routed target has destinations.
type routed struct{ Target }

// Destination implements Router.
func (*routed) Destination(*Message) string { return "topic" }

// What an operator releases while other messages are published again is published, too, and before
// anything new.
func TestResumedSinkPublishesWhatWasReleasedMeanwhile(t *testing.T) {
	s := sending(&mute{}, 2)
	fails, waits := s.mu.flights[0].messages[0], s.mu.flights[1].messages[0]
	fails.Done(errors.New("away"))
	waits.Done(&RefusedError{Err: errors.New("no topic"), Destination: true})
	waits.state = parked
	_, again := s.again()
	if slices.Contains(again, waits) {
		t.Fatal("what waits is published again")
	}
	s.Resume()
	s.repeat(t.Context(), again)
	if _, again = s.again(); !slices.Contains(again, waits) || !s.rests() {
		t.Errorf("%d messages are published again, it rests %t", len(again), s.rests())
	}
}

// The memory of messages is used again once they are acknowledged, and never after a failure or a
// restart: the target may still have what it has not acknowledged.
func TestMemoryOfAcknowledgedMessagesIsUsedAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		fails func(*Sink, *Message)
		again bool
	}{
		{"acknowledged", func(*Sink, *Message) {}, true},
		{"failed", func(s *Sink, m *Message) {
			s.begin(m)
			m.Done(errors.New("away"))
			s.mu.failed = false // it is repeated
		}, false},
		{"restarted", func(s *Sink, _ *Message) {
			s.cfg.Renew = func() (Target, Target, error) { return &broken{}, nil, nil }
			if err := s.renew(t.Context()); err != nil {
				t.Error(err)
			}
			s.mu.failed = false
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := publishing(&broken{}, Config{}, 2)
			f := s.mu.flights[0]
			f.faults = s.fresh()
			used := &page{messages: make([]Message, 1, pageMessages), text: make([]byte, 1, pageBytes)}
			f.pages = []*page{used}
			s.encode.page = &page{}
			test.fails(s, f.messages[0])
			s.publish(t.Context(), f.messages)
			if len(s.mu.flights) > 0 {
				t.Fatal("the batch is not over")
			}
			if again := len(used.messages) == 0; again != test.again {
				t.Errorf("its memory is used again: %t", again)
			}
			if s.fresh(); (s.encode.page != nil) != test.again {
				t.Errorf("the next batch begins in the page of the last one: %t", !test.again)
			}
		})
	}
}

// Batches that are acknowledged one after the other need the memory of one.
func TestBatchesShareTheMemoryOfMessages(t *testing.T) {
	t.Parallel()
	e := newEncoder(Config{Cluster: "c", Name: "out", Format: Relaxed})
	pages := make(map[*page]bool)
	doc := changetest.Event{ID: 1}.Bytes()
	for range 100 {
		for range 2 * pageMessages {
			if _, err := e.message(&delivery.Event{}, "1", doc); err != nil {
				t.Fatal(err)
			}
			pages[e.page] = true
		}
		e.recycle(e.full)
		e.full = e.full[:0]
	}
	if len(pages) > 150 { // a pool may lose some; without it there would be 200
		t.Errorf("they have %d pages", len(pages))
	}
}
