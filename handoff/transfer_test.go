package handoff_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/handoff/ledger"
)

func theDonor() ledger.Party     { return ledger.Party{Node: "a", Process: "a1"} }
func theRecipient() ledger.Party { return ledger.Party{Node: "b", Process: "b1"} }

func theRecord(phase ledger.Phase, revision int64) ledger.Record {
	return ledger.Record{Partition: p, From: theDonor(), To: theRecipient(), Epoch: change.Epoch{Incarnation: 1, Revision: 7}, Phase: phase, Revision: revision}
}

// sights are all that a side may see, in any order.
func sights() []ledger.Sight {
	own := func(of ledger.Party, revision uint64) roster.Owner {
		return roster.Owner{Node: of.Node, Process: of.Process, Epoch: change.Epoch{Incarnation: 1, Revision: revision}}
	}
	other := theRecord(ledger.Prepared, 40)
	other.To = ledger.Party{Node: "c", Process: "c1"}
	return []ledger.Sight{
		{Record: theRecord(ledger.Prepared, 10), Owner: own(theDonor(), 7)},
		{Record: theRecord(ledger.Prepared, 10), Owner: own(theDonor(), 7), Answer: ledger.Answer{To: 10, Revision: 11}},
		{Record: theRecord(ledger.Prepared, 10), Owner: own(theDonor(), 7), Answer: ledger.Answer{To: 10, Revision: 12, Refusal: "no"}},
		{Record: theRecord(ledger.Prepared, 10), Owner: own(theDonor(), 7), Answer: ledger.Answer{To: 9, Revision: 11}},
		{Record: theRecord(ledger.Prepared, 10), Owner: own(theDonor(), 7), Absent: true},
		{Record: theRecord(ledger.Switched, 20), Owner: own(theRecipient(), 20)},
		{Record: theRecord(ledger.Switched, 20), Owner: own(ledger.Party{Node: "c", Process: "c1"}, 30)},
		{Owner: own(theDonor(), 7)},
		{Owner: own(theRecipient(), 20)},
		{Owner: own(ledger.Party{Node: "c", Process: "c1"}, 30)},
		{},
		{Record: other, Owner: own(theDonor(), 7)},
	}
}

// Whatever a side sees, it does what it may only.
func TestStepsAreSafeWhateverIsSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := handoff.Config{Overlap: time.Duration(rapid.IntRange(0, 1).Draw(t, "overlap")) * time.Second}
		giving := rapid.Bool().Draw(t, "giving")
		transfer := handoff.NewTaking(cfg, theRecord(ledger.Prepared, 10))
		if giving {
			transfer = handoff.NewGiving(cfg, theRecord(ledger.Prepared, 10))
		}
		var now time.Duration
		var all []handoff.Action
		seen := handoff.Seen{Trusted: true}
		var ready, switched bool // what the side may know
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			actions, until := transfer.Step(now, seen)
			outcome, _ := transfer.Outcome()
			if outcome == "" && len(actions) == 0 && until <= now {
				t.Fatalf("at %s nothing is to be done until %s", now, until)
			}
			for i, a := range actions {
				switch {
				case (a == handoff.Switch || a == handoff.Serve) && !seen.Trusted:
					t.Fatalf("%s by a node that cannot be trusted", a)
				case a == handoff.Switch && (!ready || seen.Over != nil):
					t.Fatalf("switch: ready %t, over %v", ready, seen.Over)
				case a == handoff.DeliverOn && !switched:
					t.Fatal("deliver on without a switch")
				case a == handoff.Unseal && switched:
					t.Fatal("unseal after a switch")
				case slices.Contains([]handoff.Action{
					handoff.Look, handoff.Switch, handoff.Close, handoff.Accept, handoff.Refuse, handoff.Serve,
				}, a) && i < len(actions)-1:
					t.Fatalf("%s is not the last of %v", a, actions)
				}
			}
			all = append(all, actions...)
			if outcome != "" {
				if outcome == handoff.Stayed && switched || outcome == handoff.Moved && giving && !switched {
					t.Fatalf("%s, switched: %t, after %v", outcome, switched, all)
				}
				if again, _ := transfer.Step(now, handoff.Seen{Trusted: true}); len(again) > 0 {
					t.Fatalf("%v after the end", again)
				}
				return
			}
			now += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
			seen = handoff.Seen{
				Trusted: seen.Trusted && rapid.IntRange(0, 30).Draw(t, "trust") > 0, Stopping: seen.Stopping || rapid.IntRange(0, 30).Draw(t, "stop") == 0,
				Hinted: rapid.Bool().Draw(t, "hint"), Over: seen.Over,
			}
			if rapid.IntRange(0, 20).Draw(t, "over") == 0 {
				seen.Over = change.ErrTermLost
			}
			if !giving && rapid.IntRange(0, 3).Draw(t, "warmed") == 0 {
				seen.Warmed = true
				if rapid.IntRange(0, 3).Draw(t, "cold") == 0 {
					seen.WarmErr = errBroken
				}
			}
			if len(actions) == 0 {
				continue
			}
			seen.Did = actions[len(actions)-1]
			if rapid.IntRange(0, 2).Draw(t, "fails") == 0 {
				seen.Err = []error{errCut, ledger.ErrStale}[rapid.IntRange(0, 1).Draw(t, "how")]
			}
			switch {
			case seen.Err != nil:
			case seen.Did == handoff.Look:
				seen.Sight = rapid.SampledFrom(sights()).Draw(t, "sight")
				ready = seen.Sight.Ready()
				switched = switched || seen.Sight.Record.Phase == ledger.Switched
				if slices.Contains(all, handoff.Accept) && seen.Sight.Owner.Process == theRecipient().Process {
					switched = true
				}
			case seen.Did == handoff.Switch:
				seen.Sight.Record, switched = theRecord(ledger.Switched, 20), true
			}
		}
	})
}

// A side that is told nothing but failures ends all the same once its node's lease is gone.
func TestSidesEndWithTheirLease(t *testing.T) {
	for _, transfer := range []*handoff.Transfer{
		handoff.NewGiving(handoff.Config{}, theRecord(ledger.Prepared, 10)), handoff.NewTaking(handoff.Config{}, theRecord(ledger.Prepared, 10)),
	} {
		var now time.Duration
		var seen handoff.Seen
		for range 100 {
			seen.Trusted, seen.Err = true, errCut
			actions, until := transfer.Step(now, seen)
			seen = handoff.Seen{}
			if len(actions) > 0 {
				seen.Did = actions[len(actions)-1]
			}
			now = until
		}
		transfer.Step(now, handoff.Seen{})
		if outcome, why := transfer.Outcome(); outcome != handoff.Lost || !errors.Is(why, change.ErrTermLost) && why == nil {
			t.Errorf("ended %q: %v", outcome, why)
		}
	}
}

func TestConfigIsValidated(t *testing.T) {
	good := handoff.Config{Self: theDonor()}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := handoff.Config{Overlap: -1, CallTimeout: -1, Concurrency: -1}
	if err := bad.Validate(); err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 4 {
		t.Errorf("%v", err)
	}
}
