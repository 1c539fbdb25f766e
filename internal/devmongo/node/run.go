package node

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/store"
)

// Command is what a node does for one command name.
type Command struct {
	// Run appends the reply's elements.
	Run func(ctx context.Context, r *Request, b *doc.Builder) error
	// Writes: it may have to wait for its write concern.
	Writes bool
	// Retryable: it may carry a transaction number outside of a transaction.
	Retryable bool
	// Transactional: it may run in a transaction.
	Transactional bool
}

// Run carries the command out.
func (r *Request) Run(ctx context.Context, cmd Command, b *doc.Builder) error {
	if r.Numbered {
		r.Session.Lock()
		defer r.Session.Unlock()
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
	before := r.Oplog.Applied()
	if err := cmd.Run(ctx, r, b); err != nil {
		if r.InTxn && cmd.Transactional {
			r.Session.Fail()
		}
		return err
	}
	if cmd.Writes && !r.InTxn || r.Name == "commitTransaction" {
		return r.concern(ctx, b, before)
	}
	return nil
}

// served refuses what the user may not do, and what a secondary does not do: writes, and reads whose client does not say that it may
// answer them.
func (r *Request) served(cmd Command) error {
	if r.DB == "local" && (r.DenyLocal || r.Mongos) {
		return fault.New(fault.Unauthorized, "not authorized on local to execute command %s", doc.Text(r.Body))
	}
	if r.Primary == "" {
		return nil
	}
	mode, _ := doc.Path(r.Body, "$readPreference.mode")
	preference, _ := mode.StringValueOK()
	switch reads := r.Name == "find" || r.Name == "aggregate"; {
	case cmd.Writes:
		return fault.New(fault.NotPrimary, "not master")
	case reads && (preference == "" || preference == "primary"):
		return fault.New(fault.NotPrimaryNoSecondaryOk, "not master and slaveOk=false")
	}
	return nil
}

// begin starts or continues what the transaction number stands for.
func (r *Request) begin(cmd Command) (err error) {
	switch {
	case !r.Numbered || r.Name == "commitTransaction" || r.Name == "abortTransaction":
		return nil
	case r.InTxn && !cmd.Transactional:
		return fault.New(263, "Cannot run '%s' in a multi-document transaction.", r.Name)
	case r.InTxn && r.starts:
		r.Txn, err = r.Session.Start(r.Number)
	case r.InTxn:
		r.Txn, err = r.Session.Continue(r.Number)
	case cmd.Retryable:
		var own *oplog.Session
		own, err = r.Session.Retryable(r.Number)
		r.Writer.Session = own
	default:
		return fault.New(50768, "The '%s' command does not support retryable writes", r.Name)
	}
	r.Writer.Txn = r.Txn
	return err
}

// Patiently repeats f, one statement, while a transaction has locked what it needs.
func (r *Request) Patiently(ctx context.Context, f func() error) error {
	const lifetime = time.Minute // of a transaction
	for {
		err := f()
		busy, ok := errors.AsType[*store.Busy](err)
		if !ok {
			return err
		}
		wait := lifetime - busy.Age()
		expires := !r.Limit.IsZero() && time.Until(r.Limit) < wait
		if expires {
			wait = time.Until(r.Limit)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-busy.Ended():
		case <-timer.C:
			if expires {
				return fault.New(fault.MaxTimeMSExpired, "operation exceeded time limit")
			}
			r.Store.Abort(busy.Txn)
		}
		timer.Stop()
	}
}

// Pause waits, unless ctx ends before.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
