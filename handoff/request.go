package handoff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// A Request is an operator's directive to move a partition to a node.
type Request struct {
	Partition change.Partition
	To, By    string
	// AllowOlder lets it go to a node of an older version.
	AllowOlder bool
	// For is how long the directive lives, and how long Run waits. After that the partition stays
	// where it is.
	For time.Duration
	// Confirm is called with the owner's name after the checks and before anything is written; an
	// error ends the request. nil is yes.
	Confirm func(from string) error
	// Progress is called with every step as it is seen. Optional.
	Progress func(Step)
}

// A Step is an observed step of a handoff, and its time after the request.
type Step struct {
	AfterMS int64  `json:"after_ms"`
	Text    string `json:"text"`
}

// A Result is the outcome of a Request.
type Result struct {
	Partition change.Partition `json:"partition"`
	From      string           `json:"from"`
	To        string           `json:"to"`
	By        string           `json:"by"`
	Plan      uint64           `json:"plan"`  // that assigned it
	Epoch     string           `json:"epoch"` // of the term there
	TookMS    int64            `json:"took_ms"`
	Steps     []Step           `json:"steps"`
}

// A pending is a Request under way.
type pending struct {
	Request

	cluster Cluster
	started time.Time
	done    Result
	pin     cluster.Pin
	// requested says that the directive may be in the store.
	requested bool

	beat  int64     // of the recipient's heartbeat, as last seen
	heard time.Time // when that was
}

// Run writes the directive and returns when the target serves the partition, or with the fault that
// says why it will not. A directive that failed is withdrawn, also when the context ends.
func (r Request) Run(ctx context.Context, c Cluster) (Result, error) {
	w := r.pending(c)
	err := w.write(ctx)
	if err != nil && !w.requested {
		return w.done, err
	}
	if err == nil {
		w.report("requested")
		err = w.wait(ctx)
	}
	if err != nil {
		withdrawing, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
		defer cancel()
		return w.done, errors.Join(err, c.Directives.Unpin(withdrawing, r.Partition, w.pin))
	}
	w.done.TookMS = time.Since(w.started).Milliseconds()
	return w.done, nil
}

// Write writes the directive if the handoff is possible, and does not wait for it.
func (r Request) Write(ctx context.Context, c Cluster) error { return r.pending(c).write(ctx) }

func (r Request) pending(c Cluster) *pending {
	w := &pending{Request: r, cluster: c, started: time.Now()}
	w.done = Result{Partition: r.Partition, To: r.To, By: r.By, Steps: []Step{}}
	w.pin = cluster.Pin{To: r.To, By: r.By, At: w.started.UTC()}
	return w
}

// write writes the directive if the handoff is possible. After an error with requested the
// directive may have been written.
func (w *pending) write(ctx context.Context) error {
	if err := w.validate(ctx); err != nil {
		return err
	}
	if w.Confirm != nil {
		if err := w.Confirm(w.done.From); err != nil {
			return err
		}
	}
	err := w.cluster.Directives.Pin(ctx, w.Partition, w.pin, w.For)
	if errors.Is(err, cluster.ErrPinned) {
		return fault.New(fault.HandoffMoving, err)
	}
	w.requested = true
	return err
}

// validate refuses an impossible handoff. It waits for a heartbeat of the recipient, because a
// member without heartbeats may be detached.
func (w *pending) validate(ctx context.Context) error {
	return w.cluster.watch(ctx, func(v cluster.View) (over bool, err error) {
		owner, err := w.check(v, w.silentFor(v), w.cluster.silenceLimit())
		if err != nil {
			return true, err
		}
		w.done.From = owner.Node
		return w.heard.After(w.started), nil
	})
}

// silentFor notes heartbeats of the recipient and returns the time since the last one. The first
// one seen may be old.
func (w *pending) silentFor(v cluster.View) time.Duration {
	now := time.Now()
	m, there := memberOf(v, w.To)
	switch {
	case !there:
	case w.beat == 0:
		w.beat = m.Beat
		w.heard = w.started
	case m.Beat != w.beat:
		w.beat = m.Beat
		w.heard = now
	}
	return now.Sub(cmp.Or(w.heard, now))
}

func (w *pending) report(format string, args ...any) {
	s := Step{AfterMS: time.Since(w.started).Milliseconds(), Text: fmt.Sprintf(format, args...)}
	w.done.Steps = append(w.done.Steps, s)
	if w.Progress != nil {
		w.Progress(s)
	}
}

// wait returns when the target serves the partition.
func (w *pending) wait(ctx context.Context) error {
	until := time.Now().Add(w.For)
	planned := false
	return w.cluster.watch(ctx, func(v cluster.View) (over bool, err error) {
		switch silent := w.silentFor(v); {
		case serves(v, w.To, w.Partition):
			w.done.Epoch = v.Owners[w.Partition].Epoch.String()
			w.report("node %s serves it", w.To)
			return true, nil
		case absent(v, w.To):
			return true, fault.Newf(fault.HandoffDead, "node %q has left the cluster", w.To)
		case silent >= w.cluster.silenceLimit():
			return true, fault.Newf(fault.HandoffDetached, "node %q has sent no heartbeat for %s", w.To, silent.Round(time.Second))
		case time.Now().After(until):
			return true, w.timeoutError(v, planned)
		}
		if v.Plan.Owner(w.Partition) != w.To {
			return false, nil
		}
		if planned = true; w.done.Plan != v.Plan.Version {
			w.done.Plan = v.Plan.Version
			w.report("plan %d assigns it to node %s", v.Plan.Version, w.To)
		}
		return false, nil
	})
}

func absent(v cluster.View, node string) bool {
	_, there := memberOf(v, node)
	return !there
}

// timeoutError says why the handoff took too long.
func (w *pending) timeoutError(v cluster.View, planned bool) error {
	switch {
	case v.Leader == "":
		return fault.Newf(fault.HandoffAbandoned, "the cluster has no leader, after %s", w.For)
	case !planned:
		return fault.Newf(fault.HandoffAbandoned,
			"the leader has not assigned it to node %q within %s: the node has just joined or fails checks, or other partitions are moving", w.To, w.For)
	default:
		return fault.Newf(fault.HandoffAbandoned, "plan %d assigns it to node %q, which does not serve it after %s", w.done.Plan, w.To, w.For)
	}
}
