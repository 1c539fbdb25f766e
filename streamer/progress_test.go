package streamer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/streamer"
)

// Whatever happens in which order, progress without events (the log moves on, quietly or not) never carries a partition past an event
// that a session has yet to acknowledge, queued or handed out; a session that never acknowledges holds each mark before its first event;
// and where nothing is in flight the partition stands where the log does.
func TestProgressNeverOvertakesWhatIsQueued(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				do: rapid.SampledFrom([]string{"append", "append", "tick", "tick", "receive", "ack", "time"}).Draw(rt, "do"),
				n:  rapid.IntRange(1, 20).Draw(rt, "n"),
			}
		}), 1, 40).Draw(rt, "steps")
		mute := rapid.Int64Range(1, 9).Draw(rt, "mute") // the session that never acknowledges wants every so-manieth document
		var err error
		synctest.Test(t, func(t *testing.T) { err = overtake(t, steps, mute) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func overtake(t *testing.T, steps []step, mute int64) error {
	w := newWorld(t)
	p := w.begin(streamer.Config{Policy: checkpoint.Policy{Interval: time.Second}}, delivery.Config{CreditEvents: 30})
	defer func() { p.crash() }()
	synctest.Wait()
	silent := delivery.NewSession(delivery.Config{Wants: func(e *change.Event) bool {
		id, _ := e.ID().Int64()
		return id%mute == 0
	}})
	defer silent.Close()
	if err := p.node.Attach(silent); err != nil {
		return err
	}
	open := make(map[change.Partition][]change.Position) // what somebody has yet to acknowledge, in order
	muted := make(map[string]bool)                       // those that are never acknowledged
	var pending []*delivery.Batch
	total := 0
	check := func(at func() map[change.Partition]change.Position, what string) error {
		for q, position := range at() {
			if len(open[q]) > 0 && position.Compare(open[q][0]) >= 0 {
				return fmt.Errorf("partition %d: the %s %v passes %v, which was not acknowledged", q, what, position, open[q][0])
			}
		}
		return nil
	}
	standing := func() map[change.Partition]change.Position {
		all := make(map[change.Partition]change.Position)
		for _, s := range p.node.Status() {
			all[s.Partition] = s.Position
		}
		return all
	}
	marks := func() map[change.Partition]change.Position {
		all := make(map[change.Partition]change.Position)
		for _, m := range mustList(t, w) {
			all[m.Partition] = m.Position
		}
		return all
	}
	for _, s := range append(steps, step{do: "tick", n: 5}, step{do: "time", n: 20}) {
		switch s.do {
		case "append":
			for _, ev := range w.source.Append(inserts(s.n, int64(total))...) {
				e, _ := change.Parse(ev.Bytes())
				q, _ := change.NewPartitioner(partitions).Of(&e)
				open[q] = append(open[q], ev.Position())
				muted[string(ev.Position().Token)] = ev.ID%mute == 0
			}
			total += s.n
		case "tick":
			w.source.Tick(uint32(s.n))
		case "receive":
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			batches, _ := p.session.Receive(ctx)
			cancel()
			pending = append(pending, batches...)
		case "ack":
			for n := s.n; n > 0 && len(pending) > 0; n-- {
				b := pending[0]
				pending = pending[1:]
				rest := open[b.Partition][:0]
				for _, at := range open[b.Partition] {
					if at.After(b.To) || muted[string(at.Token)] {
						rest = append(rest, at)
					}
				}
				open[b.Partition] = rest
				p.session.Ack(b)
			}
		case "time":
			time.Sleep(time.Duration(s.n) * time.Second / 4)
		}
		synctest.Wait()
		if err := check(standing, "position"); err != nil {
			return fmt.Errorf("after %s: %w", s.do, err)
		}
		if err := check(marks, "mark"); err != nil {
			return fmt.Errorf("after %s: %w", s.do, err)
		}
	}
	_, end := w.source.Reach()
	for q, position := range standing() {
		if len(open[q]) == 0 && position.Time.Compare(end) < 0 {
			return fmt.Errorf("partition %d: nothing is in flight, and yet it stands at %v, the log at %v", q, position, end)
		}
	}
	return nil
}
