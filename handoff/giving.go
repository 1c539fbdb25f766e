package handoff

import (
	"cmp"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/handoff/ledger"
)

// give is the donor's part of Step.
func (t *Transfer) give(now time.Duration, s Seen) []Action {
	if !s.Trusted || t.outOfTime(now) {
		return t.giveUp(s)
	}
	t.deposed = t.deposed || t.fresh && t.sight.Record.Phase != ledger.Switched && !t.owning()
	if t.deposed && s.Over == nil {
		s.Over = change.ErrTermLost // whoever ends the term has not yet
	}
	switch t.step {
	case switching:
		return t.switching(now, s)
	case abandoning:
		return t.abandoning(now, s)
	case overlapping:
		if t.late(now) || s.Stopping {
			t.enter(closing, now, 0)
			return []Action{Stop, Close}
		}
		return nil
	case closing:
		return t.closing(now, s)
	default:
		return t.preparing(now, s)
	}
}

// giveUp ends the donor's part when its lease has, or may have: nothing that it does counts any more. What stands in the ledger under
// its lease goes with that.
func (t *Transfer) giveUp(s Seen) []Action {
	switch t.step {
	case overlapping, closing:
		return t.end(Moved, nil, Stop)
	default:
		return t.end(Lost, cmp.Or(s.Over, error(change.ErrTermLost)))
	}
}

// preparing waits for the recipient.
func (t *Transfer) preparing(now time.Duration, s Seen) []Action {
	if t.fresh {
		switch {
		case !t.sight.Record.Same(t.record):
			return t.gone(s)
		case t.sight.Record.Phase == ledger.Switched:
			return t.overlap(now, t.sight.Record)
		case t.sight.Refused() != "":
			return t.abandon(now, "the recipient refused: %s", t.sight.Refused())
		case t.sight.Absent:
			return t.abandon(now, "the recipient is gone")
		case t.sight.Ready() && s.Over == nil:
			t.enter(switching, now, t.cfg.SwitchTimeout)
			return t.attempt()
		}
	}
	switch {
	case s.Over != nil:
		return t.abandon(now, "the donor's term is over: %w", s.Over)
	case s.Stopping:
		return t.abandon(now, "the donor stops")
	case t.late(now):
		return t.abandon(now, "the recipient was not ready within %s", t.cfg.PrepareTimeout)
	}
	return nil
}

// attempt sends a switch of what was last seen.
func (t *Transfer) attempt() []Action {
	t.record, t.answer = t.sight.Record, t.sight.Answer
	return []Action{Switch}
}

// owning reports whether the donor was last seen to own the partition, as it did when the handoff began.
func (t *Transfer) owning() bool {
	return t.sight.Owner.Process == t.record.From.Process && t.sight.Owner.Epoch == t.record.Epoch
}

// switching decides what became of a switch that was sent, and sends it again where nothing has.
func (t *Transfer) switching(now time.Duration, s Seen) []Action {
	if s.Did == Switch {
		if s.Err == nil {
			return t.overlap(now, s.Sight.Record)
		}
		t.why = s.Err
		return t.again(now)
	}
	if t.fresh {
		switch {
		case !t.sight.Record.Same(t.record):
			return t.gone(s)
		case t.sight.Record.Phase == ledger.Switched:
			return t.overlap(now, t.sight.Record)
		case t.sight.Refused() != "":
			return t.abandon(now, "the recipient refused: %s", t.sight.Refused())
		case s.Over != nil:
			return t.abandon(now, "the donor's term is over: %w", s.Over)
		case t.sight.Absent:
			return t.abandon(now, "the recipient is gone")
		case !t.late(now) && !s.Stopping && now >= t.tryAt && t.sight.Ready():
			return t.attempt()
		}
	}
	switch {
	case s.Stopping:
		return t.abandon(now, "the donor stops")
	case t.late(now):
		return t.abandon(now, "the switch was not made within %s: %w", t.cfg.SwitchTimeout, cmp.Or(t.why, errors.New("the recipient is gone")))
	case t.tryAt != 0 && now >= t.tryAt:
		t.tryAt, t.lookAt = 0, now
	}
	return nil
}

// abandon takes the record away. Until that is known to be done the switch may still be, if one was sent.
func (t *Transfer) abandon(now time.Duration, format string, args ...any) []Action {
	t.why = fault.Newf(fault.HandoffAbandoned, format, args...)
	t.enter(abandoning, now, 0)
	return []Action{Close}
}

func (t *Transfer) abandoning(now time.Duration, s Seen) []Action {
	switch {
	case s.Did == Close && s.Err == nil && s.Over != nil:
		return t.end(Lost, s.Over, TellStays)
	case s.Did == Close && s.Err == nil:
		return t.end(Stayed, nil, Unseal, TellStays)
	case s.Did == Close:
		return t.again(now)
	case t.fresh && !t.sight.Record.Same(t.record):
		return t.gone(s)
	case t.fresh && t.sight.Record.Phase == ledger.Switched:
		return t.overlap(now, t.sight.Record)
	case t.fresh:
		t.record = t.sight.Record
	}
	if now >= t.tryAt {
		return []Action{Close}
	}
	return nil
}

// gone ends a handoff whose record somebody else has taken away, before the switch: a switched one is taken away by its donor only.
func (t *Transfer) gone(s Seen) []Action {
	if s.Over != nil {
		return t.end(Lost, s.Over, TellStays)
	}
	return t.end(Stayed, fault.Newf(fault.HandoffAbandoned, "somebody took the record away"), Unseal, TellStays)
}

// overlap begins when the recipient owns the partition.
func (t *Transfer) overlap(now time.Duration, record ledger.Record) []Action {
	t.why = nil
	t.record = record
	if t.cfg.Overlap == 0 {
		t.enter(closing, now, 0)
		return []Action{Stop, TellMoved, Close}
	}
	t.enter(overlapping, now, t.cfg.Overlap)
	return []Action{DeliverOn, TellMoved}
}

// closing takes the record away. Where that cannot be done it goes with the donor's lease.
func (t *Transfer) closing(now time.Duration, s Seen) []Action {
	switch {
	case s.Did == Close && (s.Err == nil || errors.Is(s.Err, ledger.ErrStale)):
		return t.end(Moved, nil)
	case s.Did == Close:
		t.tryAt = now + pause
	case now >= t.tryAt:
		return []Action{Close}
	}
	t.lookAt = now + lookEvery
	return nil
}
