package devmongo

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// command is what a node does for one command name.
type command struct {
	// run appends the reply's elements.
	run func(ctx context.Context, r *request, b *doc.Builder) error
	// writes: it may have to wait for its write concern.
	writes bool
	// retryable: it may carry a transaction number outside of a transaction.
	retryable bool
	// transactional: it may run in a transaction.
	transactional bool
}

// run carries the command out.
func (r *request) run(ctx context.Context, cmd command, b *doc.Builder) error {
	if r.numbered {
		r.session.Lock()
		defer r.session.Unlock()
	}
	if err := r.served(cmd); err != nil {
		return err
	}
	if err := r.begin(cmd); err != nil {
		return err
	}
	if err := r.settle(ctx, cmd); err != nil {
		return err
	}
	before := r.oplog.Applied()
	if err := cmd.run(ctx, r, b); err != nil {
		if r.inTxn && cmd.transactional {
			r.session.Fail()
		}
		return err
	}
	if cmd.writes && !r.inTxn || r.name == "commitTransaction" {
		return r.concern(ctx, b, before)
	}
	return nil
}

// served refuses what the user may not do, and what a secondary does not do: writes, and reads whose client does not say that it may
// answer them.
func (r *request) served(cmd command) error {
	if r.db == "local" && (r.DenyLocal || r.Mongos) {
		return wire.Errorf(wire.Unauthorized, "not authorized on local to execute command %s", doc.Text(r.body))
	}
	if r.primary == "" {
		return nil
	}
	mode, _ := doc.Path(r.body, "$readPreference.mode")
	preference, _ := mode.StringValueOK()
	switch reads := r.name == "find" || r.name == "aggregate"; {
	case cmd.writes:
		return wire.Errorf(wire.NotPrimary, "not master")
	case reads && (preference == "" || preference == "primary"):
		return wire.Errorf(wire.NotPrimaryNoSecondaryOk, "not master and slaveOk=false")
	}
	return nil
}

// begin starts or continues what the transaction number stands for.
func (r *request) begin(cmd command) (err error) {
	switch {
	case !r.numbered || r.name == "commitTransaction" || r.name == "abortTransaction":
		return nil
	case r.inTxn && !cmd.transactional:
		return wire.Errorf(263, "Cannot run '%s' in a multi-document transaction.", r.name)
	case r.inTxn && r.starts:
		r.txn, err = r.session.Start(r.number)
	case r.inTxn:
		r.txn, err = r.session.Continue(r.number)
	case cmd.retryable:
		var own *oplog.Session
		own, err = r.session.Retryable(r.number)
		r.writer.Session = own
	default:
		return wire.Errorf(50768, "The '%s' command does not support retryable writes", r.name)
	}
	r.writer.Txn = r.txn
	return err
}

// patiently repeats f, one statement, while a transaction has locked what it needs.
func (r *request) patiently(ctx context.Context, f func() error) error {
	const lifetime = time.Minute // of a transaction
	for {
		err := f()
		busy, ok := errors.AsType[*store.Busy](err)
		if !ok {
			return err
		}
		wait := lifetime - busy.Age()
		expires := !r.limit.IsZero() && time.Until(r.limit) < wait
		if expires {
			wait = time.Until(r.limit)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-busy.Ended():
		case <-timer.C:
			if expires {
				return wire.Errorf(wire.MaxTimeMSExpired, "operation exceeded time limit")
			}
			r.store.Abort(busy.Txn)
		}
		timer.Stop()
	}
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
