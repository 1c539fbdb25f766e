package admin

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

// A Handoff is an operator's wish that a partition be handed over to a node.
type Handoff struct {
	Partition change.Partition
	To, By    string
	// AllowOlder lets it go to a node of an older version.
	AllowOlder bool
	// For is how long it is wished, and waited for, at most. The partition stays where it is when that is over.
	For time.Duration
	// Confirm is asked, with the owner's name, when nothing stands against the handoff and before anything is written; an error ends it. nil is yes.
	Confirm func(from string) error
	// Progress is told of every step as it is seen; nil for nobody.
	Progress func(HandoffStep)
}

// A HandoffStep is what was seen of a handoff, and when after it was asked for.
type HandoffStep struct {
	AfterMS int64  `json:"after_ms"`
	Text    string `json:"text"`
}

// A HandoffResult is what became of a Handoff.
type HandoffResult struct {
	Partition change.Partition `json:"partition"`
	From      string           `json:"from"`
	To        string           `json:"to"`
	By        string           `json:"by"`
	Plan      uint64           `json:"plan"`  // that gave it there
	Epoch     string           `json:"epoch"` // of the term there
	TookMS    int64            `json:"took_ms"`
	Steps     []HandoffStep    `json:"steps"`
}

// A pendingHandoff is a Handoff under way.
type pendingHandoff struct {
	Handoff

	cluster Cluster
	started time.Time
	done    HandoffResult
	pin     cluster.Pin
	// requested says that the directive may be in the store.
	requested bool

	beat  int64     // of the recipient's heartbeat, as last seen
	heard time.Time // when that was
}

// Run asks for the handoff and returns when the partition is served where it is wished, or with the fault for which it will not be. A wish
// that came to nothing is taken back, also when the context ends.
func (h Handoff) Run(ctx context.Context, c Cluster) (HandoffResult, error) {
	w := h.pending(c)
	err := w.request(ctx)
	if err != nil && !w.requested {
		return w.done, err
	}
	if err == nil {
		w.report("requested")
		err = w.wait(ctx)
	}
	if err != nil {
		giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
		defer cancel()
		return w.done, errors.Join(err, c.Directives.Unpin(giving, h.Partition, w.pin))
	}
	w.done.TookMS = time.Since(w.started).Milliseconds()
	return w.done, nil
}

// pending returns the handoff before it is requested.
func (h Handoff) pending(c Cluster) *pendingHandoff {
	w := &pendingHandoff{Handoff: h, cluster: c, started: time.Now()}
	w.done = HandoffResult{Partition: h.Partition, To: h.To, By: h.By, Steps: []HandoffStep{}}
	w.pin = cluster.Pin{To: h.To, By: h.By, At: w.started.UTC()}
	return w
}

// request writes the directive if nothing stands against it. After an error with requested the directive may have been written.
func (w *pendingHandoff) request(ctx context.Context) error {
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

// validate refuses an impossible handoff. It waits for a heartbeat of the recipient, because a member without heartbeats may be detached.
func (w *pendingHandoff) validate(ctx context.Context) error {
	return w.cluster.watch(ctx, func(v cluster.View) (over bool, err error) {
		owner, err := w.check(v, w.silentFor(v), w.cluster.silenceLimit())
		if err != nil {
			return true, err
		}
		w.done.From = owner.Node
		return w.heard.After(w.started), nil
	})
}

// silentFor notes heartbeats of the recipient and returns the time since the last one. The first one seen may be old.
func (w *pendingHandoff) silentFor(v cluster.View) time.Duration {
	now := time.Now()
	s, there := seat(v, w.To)
	switch {
	case !there:
	case w.beat == 0:
		w.beat, w.heard = s.Beat, w.started
	case s.Beat != w.beat:
		w.beat, w.heard = s.Beat, now
	}
	return now.Sub(cmp.Or(w.heard, now))
}

func (w *pendingHandoff) report(format string, args ...any) {
	s := HandoffStep{AfterMS: time.Since(w.started).Milliseconds(), Text: fmt.Sprintf(format, args...)}
	w.done.Steps = append(w.done.Steps, s)
	if w.Progress != nil {
		w.Progress(s)
	}
}

// wait returns when the partition is served where it is wished.
func (w *pendingHandoff) wait(ctx context.Context) error {
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
	_, there := seat(v, node)
	return !there
}

// timeoutError says why the time was not enough.
func (w *pendingHandoff) timeoutError(v cluster.View, planned bool) error {
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
