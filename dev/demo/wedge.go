package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/supervisor"
)

// A wedge is a component of a node that was made to hang, and the result.
type wedge struct {
	Slug      string  `json:"slug"`
	AtSeconds float64 `json:"at_s"`
	// Restarted is how long after that it was restarted, Recovered until a sweep found that it
	// makes progress again.
	Restarted float64 `json:"restarted_s"`
	Recovered float64 `json:"recovered_s"`
	Restarts  int     `json:"restarts"`
}

// wedgeable are the components that can be made to hang, and the signal for each: only in a node of
// a demo.
func wedgeable() map[string]syscall.Signal {
	return map[string]syscall.Signal{"hub": syscall.SIGUSR1, "sink": syscall.SIGUSR2}
}

// wedgeSlug returns a wedgeable component's name at its node.
func wedgeSlug(component string) string {
	if component == "sink" {
		return "sink-" + sinkName
	}
	return component
}

// wedgeSettings are those of nodes whose components are wedged: a demo is short, and a slow machine
// is no reason to replace a process.
func wedgeSettings() []string {
	return []string{
		"STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=2s", "STREAMER_SUPERVISOR_STALL_AFTER=2s", "STREAMER_SUPERVISOR_MISSED_HEARTBEATS_TO_ALERT=10",
	}
}

// wedgeTimeout bounds how long a wedged component may take until it makes progress again.
const wedgeTimeout = time.Minute

// wedgeUntil is how long before the end a component is wedged last: changes must come that it does
// not process.
const wedgeUntil = 5 * time.Second

// wedgeAll makes one component after the other hang until the context ends, each at every node at
// most twice, and waits until the supervisor has restarted them.
func (d *demo) wedgeAll(ctx context.Context, f *fleet) (all []wedge, reports int, err error) {
	store := etcd.NewSupervisionStore(f.client, etcd.SupervisionConfig{})
	begun := time.Now()
	patient := context.WithoutCancel(ctx)
	for i := 0; i < 2*len(f.nodes)*len(d.wedged) && ctx.Err() == nil; i++ {
		_ = retry.Sleep(ctx, time.Second)
		if end, bounded := ctx.Deadline(); ctx.Err() != nil || bounded && time.Until(end) < wedgeUntil {
			break
		}
		n := f.nodes[i/len(d.wedged)%len(f.nodes)]
		component := d.wedged[i%len(d.wedged)]
		w := wedge{Slug: n.id + "/" + wedgeSlug(component), AtSeconds: time.Since(begun).Seconds()}
		before, err := store.Look(patient)
		if err != nil {
			return all, 0, err
		}
		if err := n.signal(wedgeable()[component]); err != nil {
			return all, 0, err
		}
		at := time.Now()
		waiting, cancel := context.WithTimeout(patient, wedgeTimeout)
		err = w.follow(waiting, store, before.Sweep, at)
		cancel()
		all = append(all, w)
		d.news.tell("wedge: %s stood still; restarted after %.1f s, makes progress after %.1f s", w.Slug, w.Restarted, w.Recovered)
		if err != nil {
			return all, 0, fmt.Errorf("%s: %w", w.Slug, err)
		}
	}
	written, err := store.Reports(patient, 1000)
	for _, r := range written {
		reports += r.Sweeps
	}
	return all, reports, err
}

// follow reads the reports until one says that the component makes progress again.
func (w *wedge) follow(ctx context.Context, store supervisor.Reader, after uint64, at time.Time) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		reports, err := store.Reports(ctx, 100)
		if err != nil {
			return err
		}
		slices.Reverse(reports)
		for _, r := range reports {
			if r.Sweep <= after {
				continue
			}
			after = r.Sweep
			for _, e := range r.Events {
				switch {
				case e.Slug != w.Slug:
				case e.Code == fault.SupervisorRestarted:
					w.Restarted = time.Since(at).Seconds()
					w.Restarts++
				case e.Code == fault.SupervisorRecovered && w.Restarts > 0:
					w.Recovered = time.Since(at).Seconds()
					return nil
				case e.Code == fault.SupervisorBudget:
					return errors.New("its restarts are used up")
				}
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for progress: %w", context.Cause(ctx))
		}
	}
}

// parseWedges reads the components to wedge.
func parseWedges(text string) (components []string, err error) {
	if text == "" {
		return nil, nil
	}
	for component := range strings.SplitSeq(text, ",") {
		if _, known := wedgeable()[component]; !known {
			return nil, fmt.Errorf("-wedge %q: only hub and sink can be wedged", component)
		}
		components = append(components, component)
	}
	return components, nil
}

// stall returns the wait function of a component in this process: it does not wait until the
// process gets its signal; then it waits for the end of the loop.
func stall(ctx context.Context, component string) func(context.Context) {
	var wedged atomic.Bool
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, wedgeable()[component])
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
				wedged.Store(true)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func(loop context.Context) {
		if wedged.CompareAndSwap(true, false) {
			<-loop.Done()
		}
	}
}
