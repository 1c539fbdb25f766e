package move

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
	// Ask is asked, with the owner's name, when nothing stands against the handoff and before anything is written; an error ends it. nil is yes.
	Ask func(from string) error
	// Tell is told of every step as it is seen; nil for nobody.
	Tell func(Step)
}

// A Step is what was seen of a handoff, and when after it was asked for.
type Step struct {
	AfterMS int64  `json:"after_ms"`
	Text    string `json:"text"`
}

// A HandedOver is what became of a Handoff.
type HandedOver struct {
	Partition change.Partition `json:"partition"`
	From      string           `json:"from"`
	To        string           `json:"to"`
	By        string           `json:"by"`
	Plan      uint64           `json:"plan"`  // that gave it there
	Epoch     string           `json:"epoch"` // of the term there
	TookMS    int64            `json:"took_ms"`
	Steps     []Step           `json:"steps"`
}

// A wanted is a Handoff under way.
type wanted struct {
	Handoff

	cluster Cluster
	begun   time.Time
	done    HandedOver

	beat  int64     // of the recipient's heartbeat, as last seen
	heard time.Time // when that was
}

// Run asks for the handoff and returns when the partition is served where it is wished, or with the fault for which it will not be. A wish
// that came to nothing is taken back, also when the context ends.
func (h Handoff) Run(ctx context.Context, c Cluster) (HandedOver, error) {
	w := &wanted{Handoff: h, cluster: c, begun: time.Now()}
	w.done = HandedOver{Partition: h.Partition, To: h.To, By: h.By, Steps: []Step{}}
	if err := w.consider(ctx); err != nil {
		return w.done, err
	}
	if h.Ask != nil {
		if err := h.Ask(w.done.From); err != nil {
			return w.done, err
		}
	}
	pin := cluster.Pin{To: h.To, By: h.By, At: w.begun.UTC()}
	err := c.Wisher.Pin(ctx, h.Partition, pin, h.For)
	if errors.Is(err, cluster.ErrPinned) {
		return w.done, fault.New(fault.HandoffMoving, err)
	}
	if err == nil {
		w.tell("wished")
		err = w.wait(ctx)
	}
	if err != nil {
		giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawal)
		defer cancel()
		return w.done, errors.Join(err, c.Wisher.Unpin(giving, h.Partition, pin))
	}
	w.done.TookMS = time.Since(w.begun).Milliseconds()
	return w.done, nil
}

// consider refuses what cannot be. A node of which nothing is heard is found out by listening.
func (w *wanted) consider(ctx context.Context) error {
	return w.cluster.watch(ctx, func(v cluster.View) (over bool, err error) {
		owner, err := w.check(v, w.listen(v))
		if err != nil {
			return true, err
		}
		w.done.From = owner.Node
		return w.heard.After(w.begun), nil
	})
}

// listen notes heartbeats of the recipient, and returns for how long there was none. What stood when it began to listen may be old.
func (w *wanted) listen(v cluster.View) time.Duration {
	now := time.Now()
	s, there := seat(v, w.To)
	switch {
	case !there:
	case w.beat == 0:
		w.beat, w.heard = s.Beat, w.begun
	case s.Beat != w.beat:
		w.beat, w.heard = s.Beat, now
	}
	return now.Sub(cmp.Or(w.heard, now))
}

func (w *wanted) tell(format string, args ...any) {
	s := Step{AfterMS: time.Since(w.begun).Milliseconds(), Text: fmt.Sprintf(format, args...)}
	w.done.Steps = append(w.done.Steps, s)
	if w.Tell != nil {
		w.Tell(s)
	}
}

// wait returns when the partition is served where it is wished.
func (w *wanted) wait(ctx context.Context) error {
	until := time.Now().Add(w.For)
	planned := false
	return w.cluster.watch(ctx, func(v cluster.View) (over bool, err error) {
		switch silent := w.listen(v); {
		case serves(v, w.To, w.Partition):
			w.done.Epoch = v.Owners[w.Partition].Epoch.String()
			w.tell("node %s serves it", w.To)
			return true, nil
		case absent(v, w.To):
			return true, fault.Newf(fault.HandoffDead, "node %q is gone", w.To)
		case silent >= silence:
			return true, fault.Newf(fault.HandoffDetached, "nothing was heard of node %q for %s", w.To, silent.Round(time.Second))
		case time.Now().After(until):
			return true, w.expired(v, planned)
		}
		if v.Plan.Owner(w.Partition) != w.To {
			return false, nil
		}
		if planned = true; w.done.Plan != v.Plan.Version {
			w.done.Plan = v.Plan.Version
			w.tell("plan %d gives it to node %s", v.Plan.Version, w.To)
		}
		return false, nil
	})
}

func absent(v cluster.View, node string) bool {
	_, there := seat(v, node)
	return !there
}

// expired says why the time was not enough.
func (w *wanted) expired(v cluster.View, planned bool) error {
	switch {
	case v.Leader == "":
		return fault.Newf(fault.HandoffAbandoned, "nobody leads the cluster, after %s", w.For)
	case !planned:
		return fault.Newf(fault.HandoffAbandoned,
			"the leader has not given it to node %q within %s: the node takes nothing yet (it has just come, or fails checks), or other partitions move", w.To, w.For)
	default:
		return fault.Newf(fault.HandoffAbandoned, "plan %d gives it to node %q, which does not serve it after %s", w.done.Plan, w.To, w.For)
	}
}
