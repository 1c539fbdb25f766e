package admin

import (
	"context"
	"net/http"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

// Movable is what Operations need to rewind and delete subscribers.
type Movable struct {
	Store  Store
	Source Source
	// Recorded waits until posted notices are in the cluster's audit log.
	Recorded func(context.Context) error
	// Rewound has this node look where a subscriber was moved to.
	Rewound func(subscriber string)
}

// ServeRewindPlan answers GET requests for /v1/subscribers/rewind?subscriber=NAME&to=TIME with what
// such a rewind would do, a RewindPlan as JSON: 200, 409 if it would be refused, 403 to identities
// that may not operate.
func (o Operations) ServeRewindPlan() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !o.May(access.From(r.Context())) {
			o.forbid(w)
			return
		}
		plan, err := o.planRewind(r)
		if err != nil {
			o.refuse(w, r, err)
			return
		}
		answer(w, http.StatusOK, plan)
	})
}

// ServeRewind answers POST requests for /v1/subscribers/rewind?subscriber=NAME&to=TIME: the
// subscriber is moved back, and the nodes get a notice.
func (o Operations) ServeRewind() http.Handler {
	return o.serve(finishTimeout, func(r *http.Request, by string, record func(string, ...string)) error {
		plan, err := o.planRewind(r)
		if err != nil {
			return err
		}
		record("subscribers rewind", plan.Subscriber, "--to", plan.To.String())
		if err := o.recorded(r.Context()); err != nil {
			return err
		}
		written, err := plan.Apply(r.Context(), o.Movable.Store, by, "through a node")
		if len(written) > 0 {
			o.Board.Post(plan.Notice(written, by))
			o.Movable.Rewound(plan.Subscriber)
		}
		return err
	})
}

// ServeDelete answers POST requests for /v1/subscribers/delete?subscriber=NAME: its checkpoints and
// their history are deleted. A session of an exclusive subscriber ends with its next save. One of a
// shared subscriber continues and saves new checkpoints; without these it begins at the origin's
// start.
func (o Operations) ServeDelete() http.Handler {
	return o.serve(finishTimeout, func(r *http.Request, _ string, record func(string, ...string)) error {
		name, err := o.named(r)
		if err != nil {
			return err
		}
		record("subscribers delete", name)
		if err := o.recorded(r.Context()); err != nil {
			return err
		}
		return o.Movable.Store.Delete(r.Context(), name)
	})
}

// planRewind returns the plan of a request, unless it is refused.
func (o Operations) planRewind(r *http.Request) (*RewindPlan, error) {
	name, err := o.named(r)
	if err != nil {
		return nil, err
	}
	to, err := FindTarget(r.Context(), o.Movable.Source, r.URL.Query().Get("to"))
	if err != nil {
		return nil, err
	}
	plan, err := PlanRewind(r.Context(), o.Movable.Store, o.Movable.Source, name, nil, to)
	if err != nil {
		return nil, err
	}
	return plan, plan.Check()
}

// named returns the subscriber of a request, which must have a checkpoint, be it one that cannot be
// read.
func (o Operations) named(r *http.Request) (string, error) {
	name := r.URL.Query().Get("subscriber")
	if name == "" {
		return "", fault.Newf(fault.CommandBadArgument, "parameter subscriber: required")
	}
	_, err := looks(r.Context(), func(ctx context.Context) ([]checkpoint.Checkpoint, error) { return Find(ctx, o.Movable.Store, name) })
	if checkpoint.KindOf(err) == checkpoint.RowsOwn {
		err = nil
	}
	return name, err
}

// recorded waits until an operator's confirmation is in the audit log: without that nothing is
// executed.
func (o Operations) recorded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := o.Movable.Recorded(ctx); err != nil {
		return fault.Newf(fault.EtcdUnreachable, "%w: the audit log could not be written within %s", errUndone, recordTimeout)
	}
	return nil
}
