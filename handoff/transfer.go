package handoff

import (
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/handoff/ledger"
)

// A Side is one of the two of a handoff.
type Side string

// The sides.
const (
	Giving Side = "giving"
	Taking Side = "taking"
)

// An Outcome is how a handoff ended for a side. The empty Outcome is that of one which has not.
type Outcome string

// The outcomes.
const (
	// Moved: the recipient owns the partition, and serves it where the side is its own: since the switch, or since it claimed what a donor
	// that is gone had begun to give it.
	Moved Outcome = "moved"
	// Stayed: the switch was not made and never will be.
	Stayed Outcome = "stayed"
	// Lost: the side's own membership or term ended on the way, or it gave the partition back. Whoever claims it next goes on.
	Lost Outcome = "lost"
)

// An Action is what a side is to do.
type Action string

// The actions. Those that may fail come last in what Step returns, and at most one at a time.
const (
	Look  Action = "look"  // read the ledger; may fail
	Close Action = "close" // take the record away; may fail

	TellMoving Action = "tell moving"
	TellMoved  Action = "tell moved"
	TellStays  Action = "tell stays"
	Switch     Action = "switch" // seal and switch; may fail
	Unseal     Action = "unseal"
	DeliverOn  Action = "deliver on"
	Stop       Action = "stop"

	Warm   Action = "warm"   // begin to; Seen.Warmed tells of its end
	Accept Action = "accept" // answer that it is ready; may fail
	Refuse Action = "refuse" // answer why it is not, also in the place of an earlier answer; may fail
	Serve  Action = "serve"  // adopt the term, claim the mark and serve; may fail
	Drop   Action = "drop"
)

// Seen is what a side knows when it decides.
type Seen struct {
	// Did is the last of the actions that were done since the last Step, if any, Err how it failed, and Sight what Look read,
	// or the record that Switch wrote.
	Did   Action
	Err   error
	Sight ledger.Sight
	// Hinted says that something may have changed in the ledger.
	Hinted bool
	// Warmed says that the warming has ended, WarmErr how.
	Warmed  bool
	WarmErr error
	// Over is why the donor's term is over, nil while it lives.
	Over error
	// Trusted says that the node's lease can be relied on.
	Trusted bool
	// Stopping says that the node stops.
	Stopping bool
}

// A step is where a side stands.
type step string

const (
	preparing   step = "preparing"
	switching   step = "switching"
	overlapping step = "overlapping"
	closing     step = "closing"
	abandoning  step = "abandoning"

	warming   step = "warming"
	accepting step = "accepting"
	answered  step = "answered"
	refusing  step = "refusing"
	serving   step = "serving"
)

// A Transfer is one side of one handoff. It is used by one goroutine.
type Transfer struct {
	cfg    Config
	side   Side
	record ledger.Record
	begun  bool

	step     step
	since    time.Duration // the reading of the clock when the step began
	deadline time.Duration
	lookAt   time.Duration // the reading at which the ledger is looked at next
	tryAt    time.Duration // the reading before which what failed is not tried again
	stopBy   time.Duration // the reading at which a stopping node gives up; 0 while it does not stop
	sight    ledger.Sight
	fresh    bool // sight has not been judged yet

	answer  ledger.Answer // the one that the switch names
	deposed bool          // the donor was seen to own the partition no more, without having given it away
	epoch   change.Epoch  // the recipient's, once it owns the partition
	warm    bool          // the recipient is warm
	ready   bool          // it has said so, or may have
	refusal string        // why it will not have the partition

	outcome Outcome
	why     error
	spent   map[step]time.Duration
}

// NewGiving makes the donor's side of a handoff that stands in the ledger, NewTaking the recipient's. The configuration is that of the
// side's Desk.
func NewGiving(cfg Config, r ledger.Record) *Transfer { return newTransfer(cfg, Giving, preparing, r) }

// NewTaking is described with NewGiving.
func NewTaking(cfg Config, r ledger.Record) *Transfer { return newTransfer(cfg, Taking, warming, r) }

func newTransfer(cfg Config, side Side, first step, r ledger.Record) *Transfer {
	return &Transfer{cfg: cfg.withDefaults(), side: side, step: first, record: r, spent: make(map[step]time.Duration)}
}

// Step decides, at a reading of the clock, what is to be done next. The actions are to be done in order, and Step is to be called again
// then; where there are none, at until, or earlier with whatever is seen. It decides nothing after an Outcome, which may come with
// last actions.
func (t *Transfer) Step(now time.Duration, s Seen) (actions []Action, until time.Duration) {
	if t.outcome != "" {
		return nil, now
	}
	if !t.begun {
		t.begun, t.since, t.deadline, t.lookAt = true, now, now+t.cfg.PrepareTimeout, now
		switch {
		case t.side == Taking:
			return []Action{Warm, Look}, now
		case s.Over == nil:
			return []Action{TellMoving, Look}, now
		default:
			return []Action{Look}, now
		}
	}
	if s.Stopping && t.stopBy == 0 {
		t.stopBy = now + closeTimeout
	}
	if s.Hinted {
		t.lookAt = now
	}
	if s.Did == Look {
		t.fresh, t.lookAt = s.Err == nil, now+pause
		if t.fresh {
			t.sight, t.lookAt = s.Sight, now+lookEvery
		}
	}
	if t.side == Giving {
		actions = t.give(now, s)
	} else {
		actions = t.take(now, s)
	}
	t.fresh = false
	if t.outcome != "" {
		t.spent[t.step] += now - t.since
		return actions, now
	}
	if len(actions) == 0 && t.step != overlapping && now >= t.lookAt {
		actions = []Action{Look}
	}
	return actions, t.next(now)
}

// next is when Step wants to be called again if nothing happens before.
func (t *Transfer) next(now time.Duration) time.Duration {
	until := now + lookEvery
	for _, at := range []time.Duration{t.deadline, t.lookAt, t.tryAt, t.stopBy} {
		if at > now {
			until = min(until, at)
		}
	}
	return until
}

// Outcome returns how the handoff ended for the side, and why it did not go as it should; the empty Outcome while it goes on.
func (t *Transfer) Outcome() (Outcome, error) { return t.outcome, t.why }

// enter begins a step, which is to end in so much time; 0 is no deadline.
func (t *Transfer) enter(next step, now, within time.Duration) {
	t.spent[t.step] += now - t.since
	t.step, t.since, t.deadline, t.tryAt = next, now, 0, 0
	if within > 0 {
		t.deadline = now + within
	}
}

// late reports whether the step has taken too long.
func (t *Transfer) late(now time.Duration) bool { return t.deadline != 0 && now >= t.deadline }

// outOfTime reports whether a stopping node has no more time.
func (t *Transfer) outOfTime(now time.Duration) bool { return t.stopBy != 0 && now >= t.stopBy }

// end ends the side's part.
func (t *Transfer) end(o Outcome, why error, last ...Action) []Action {
	t.outcome = o
	if t.why == nil {
		t.why = why
	}
	return last
}

// again puts off what has failed, and has the ledger looked at first.
func (t *Transfer) again(now time.Duration) []Action {
	t.tryAt, t.lookAt = now+pause, now
	return nil
}
