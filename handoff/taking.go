package handoff

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/handoff/ledger"
)

// take is the recipient's part of Step.
func (t *Transfer) take(now time.Duration, s Seen) []Action {
	if !s.Trusted || t.outOfTime(now) {
		return t.end(Lost, change.ErrTermLost, Drop)
	}
	if t.step == serving {
		return t.serving(now, s)
	}
	t.warm = t.warm || s.Warmed && s.WarmErr == nil
	if t.fresh {
		switch {
		case t.owned():
			t.epoch = t.sight.Owner.Epoch
			t.enter(serving, now, t.cfg.ServeTimeout)
			return []Action{Serve}
		case t.missed():
			return t.end(Lost, change.ErrTermLost, Drop)
		case !t.sight.Record.Same(t.record):
			return t.end(Stayed, fault.Newf(fault.HandoffAbandoned, "the donor has taken the record away"), Drop)
		}
		t.record = t.sight.Record
	}
	switch {
	case t.step == refusing:
		return t.refusing(now, s)
	case s.WarmErr != nil:
		return t.refuse(now, "it cannot be warmed: %w", s.WarmErr)
	case s.Stopping:
		return t.refuse(now, "the recipient stops")
	case t.late(now) && t.ready:
		return t.refuse(now, "the switch was not made in time")
	case t.late(now):
		return t.refuse(now, "it was not warm within %s", t.cfg.PrepareTimeout)
	case t.step == warming && t.warm:
		t.enter(accepting, now, t.cfg.PrepareTimeout)
		return t.accept()
	case t.step == accepting:
		return t.accepting(now, s)
	case t.step == answered && t.fresh && !t.sight.Ready():
		t.enter(accepting, now, t.cfg.PrepareTimeout) // the answer has gone with a lease
		return t.accept()
	}
	return nil
}

// owned reports whether the recipient was last seen to own the partition through this handoff. Its record may be gone already, but it
// cannot have been switched before the recipient said that it is ready.
func (t *Transfer) owned() bool {
	owner := t.sight.Owner
	through := t.sight.Record.Same(t.record) && t.sight.Record.Phase == ledger.Switched || t.ready && !t.sight.Record.Same(t.record)
	return through && owner.Process == t.record.To.Process && owner.Node == t.record.To.Node && owner.Epoch.Compare(t.record.Epoch) > 0
}

// missed reports whether the partition may have become the recipient's and somebody else's again, between two looks.
func (t *Transfer) missed() bool {
	if t.sight.Record.Same(t.record) {
		return t.sight.Record.Phase == ledger.Switched
	}
	return t.ready && t.sight.Owner.Epoch != t.record.Epoch
}

// accept says that the recipient is ready, from when on it may own the partition at any time.
func (t *Transfer) accept() []Action {
	t.ready = true
	return []Action{Accept}
}

// accepting sends the answer until it is known to have come.
func (t *Transfer) accepting(now time.Duration, s Seen) []Action {
	switch {
	case s.Did == Accept && s.Err == nil:
		t.enter(answered, now, t.cfg.PrepareTimeout+t.cfg.SwitchTimeout)
		t.lookAt = now
	case s.Did == Accept:
		return t.again(now)
	case now >= t.tryAt:
		return t.accept()
	}
	return nil
}

// refuse says that the recipient will not have the partition. Where it has said before that it is ready, it may own it until the
// refusal is known to have come.
func (t *Transfer) refuse(now time.Duration, format string, args ...any) []Action {
	why := fmt.Errorf(format, args...)
	t.refusal, t.why = why.Error(), fault.New(fault.HandoffAbandoned, why)
	t.enter(refusing, now, 0)
	return []Action{Refuse}
}

func (t *Transfer) refusing(now time.Duration, s Seen) []Action {
	switch {
	case s.Did == Refuse && s.Err == nil:
		return t.end(Stayed, nil, Drop)
	case s.Did == Refuse:
		return t.again(now)
	case now >= t.tryAt:
		return []Action{Refuse}
	}
	return nil
}

// serving begins to serve what the recipient owns, and gives it back where it cannot.
func (t *Transfer) serving(now time.Duration, s Seen) []Action {
	switch {
	case s.Did == Serve && s.Err == nil:
		t.why = nil
		return t.end(Moved, nil)
	case s.Did == Serve && errors.Is(s.Err, checkpoint.ErrFenced):
		return t.end(Lost, s.Err, Drop)
	case s.Did == Serve:
		t.why = s.Err
		return t.again(now)
	case t.fresh && t.sight.Owner.Epoch != t.epoch:
		return t.end(Lost, change.ErrTermLost, Drop)
	case t.late(now) || s.Stopping:
		t.why = fault.Newf(fault.HandoffUnserved, "the partition was given back: %w", cmp.Or(t.why, errors.New("the recipient stops")))
		return t.end(Lost, nil, Drop)
	case now >= t.tryAt:
		return []Action{Serve}
	}
	return nil
}
