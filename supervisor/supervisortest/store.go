package supervisortest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/supervisor"
)

// Store is the suite. Both stores belong to one cluster of their own; they may be one.
func Store(t *testing.T, a, b supervisor.Store) {
	t.Helper()
	ctx := t.Context()
	begin := func(s supervisor.Store, process string) uint64 {
		t.Helper()
		sweep, err := s.Begin(ctx, "node-"+process, process)
		if err != nil {
			t.Fatal(err)
		}
		return sweep
	}
	commit := func(process string, sweep uint64, joined bool) supervisor.Commit {
		return supervisor.Commit{Report: supervisor.Report{Process: process, Sweep: sweep, By: "node-" + process, Sweeps: 1}, Joined: joined}
	}
	look := func(s supervisor.Store) supervisor.Standing {
		t.Helper()
		standing, err := s.Look(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return standing
	}
	if standing := look(a); standing.Sweep != 0 || len(standing.Used) > 0 || len(standing.Paused) > 0 {
		t.Errorf("a new store says %+v", standing)
	}

	// Reports, orders and charges are one write.
	first := begin(a, "a")
	c := commit("a", first+1, false)
	c.Orders = []supervisor.Order{{Node: "x/y", Process: "p", Slug: "x/y/sink/k", What: "sink/k", Level: supervisor.Lane, Sweep: first + 1}}
	c.Charges = []string{"x/y/sink/k", "x/y/process"}
	for range 2 { // the second changes nothing
		if err := a.Commit(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	standing := look(b)
	isCommitted := standing.Sweep == first+1 && standing.By == "node-a"
	if !isCommitted || standing.Used["x/y/sink/k"] != 1 || standing.Used["x/y/process"] != 1 {
		t.Errorf("%+v", standing)
	}
	if reports, err := b.Reports(ctx, 10); err != nil || len(reports) != 1 || reports[0].Sweep != first+1 {
		t.Errorf("%v, %+v", err, reports)
	}

	// A report that is joined takes the place of the one before it.
	for i, joined := range []bool{true, false, true} {
		if err := a.Commit(ctx, commit("a", first+2+uint64(i), joined)); err != nil {
			t.Fatal(err)
		}
	}
	reports, err := b.Reports(ctx, 10)
	isJoined := len(reports) == 2 && reports[0].Sweep == first+4 && reports[1].Sweep == first+2
	if err != nil || !isJoined {
		t.Errorf("%v, %+v", err, reports)
	}
	if reports, err = b.Reports(ctx, 1); err != nil || len(reports) != 1 || reports[0].Sweep != first+4 {
		t.Errorf("%v, %+v", err, reports)
	}

	// An order is found by its node, and gone when it is done.
	orders, err := b.Next(ctx, "x/y")
	isOrdered := len(orders) == 1 && orders[0].What == "sink/k" && orders[0].Process == "p"
	if err != nil || !isOrdered {
		t.Fatalf("%v, %+v", err, orders)
	}
	later := orders[0]
	later.Sweep--
	for _, o := range []supervisor.Order{later, orders[0], orders[0]} {
		if err := b.Done(ctx, o); err != nil {
			t.Error(err)
		}
		if o == later {
			if orders, err := a.Next(ctx, "x/y"); err != nil || len(orders) != 1 {
				t.Errorf("an order was removed as another one: %v, %+v", err, orders)
			}
		}
	}
	waiting, cancel := context.WithCancel(ctx)
	cancel()
	if orders, _ := b.Next(waiting, "x/y"); len(orders) > 0 {
		t.Errorf("%+v", orders)
	}

	// Whoever begins deposes who swept before, whose orders are nobody's.
	if sweep := begin(b, "b"); sweep != first+4 {
		t.Errorf("begins after sweep %d", sweep)
	}
	late := commit("a", first+5, false)
	late.Orders, late.Charges = c.Orders, c.Charges
	if err := a.Commit(ctx, late); !errors.Is(err, supervisor.ErrDeposed) {
		t.Errorf("who was deposed is told %v", err)
	}
	if standing := look(a); standing.Used["x/y/sink/k"] != 1 || standing.Sweep != first+4 {
		t.Errorf("%+v", standing)
	}
	if err := b.Commit(ctx, commit("b", first+5, false)); err != nil {
		t.Error(err)
	}

	// Pauses and changes.
	p := supervisor.Pause{Slug: "x/y/hub", By: "me", Until: time.Now().Add(time.Hour).UTC().Truncate(time.Second)}
	if err := a.Pause(ctx, p, time.Hour); err != nil {
		t.Fatal(err)
	}
	if standing := look(b); len(standing.Paused) != 1 || standing.Paused[0] != p {
		t.Errorf("%+v", standing.Paused)
	}
	for range 2 {
		if err := b.Unpause(ctx, p.Slug); err != nil {
			t.Error(err)
		}
	}
	misses, no := 5, false
	if err := a.Set(ctx, supervisor.Change{Misses: &misses, By: "me"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Set(ctx, supervisor.Change{PageOnFailure: &no}); fault.Of(err) != fault.ParameterLocked {
		t.Errorf("a locked setting is changed: %v", err)
	}
	if standing := look(b); len(standing.Paused) > 0 || standing.Change.Misses == nil || *standing.Change.Misses != 5 {
		t.Errorf("%+v", standing)
	}
}
