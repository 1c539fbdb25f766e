package ack_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/ack"
	"github.com/mongostream/streamer/change"
)

func at(i int) change.Position { return change.At(change.Timestamp{T: 1, I: uint32(i)}) }

func TestLaneStandsAtItsSlowestSession(t *testing.T) {
	var tr ack.Tracker[string]
	check := func(progress, want int) {
		t.Helper()
		if got := tr.LowWater(at(progress)); got.Compare(at(want)) != 0 {
			t.Errorf("low water %v, want %d", got, want)
		}
	}
	check(3, 3)
	tr.Sent("a", at(3), at(5))
	check(5, 3)
	tr.Sent("b", at(7), at(9))
	check(9, 3)
	if err := tr.Acked("a", at(4)); err != nil {
		t.Error(err)
	}
	check(9, 4)
	if err := tr.Acked("a", at(5)); err != nil {
		t.Error(err)
	}
	check(9, 7)
	if err := tr.Acked("b", at(9)); err != nil {
		t.Error(err)
	}
	check(20, 20)
	// After a quiet stretch a session stands right before what it is sent, not at its last acknowledgement.
	tr.Sent("a", at(20), at(21))
	check(21, 20)
	tr.Remove("a")
	check(21, 21)
}

func TestAcknowledgingWhatWasNeverSentIsRefused(t *testing.T) {
	var tr ack.Tracker[int]
	if err := tr.Acked(1, at(1)); !errors.Is(err, ack.ErrNotSent) {
		t.Errorf("unknown session: %v", err)
	}
	tr.Sent(1, at(1), at(2))
	if err := tr.Acked(1, at(3)); !errors.Is(err, ack.ErrNotSent) {
		t.Errorf("beyond: %v", err)
	}
	if tr.LowWater(at(2)).Compare(at(1)) != 0 || tr.InFlight() != 1 {
		t.Error("a refused acknowledgement moved the lane")
	}
}

// The low water never passes an event that some session was sent and has not acknowledged, and never moves back while no session
// is sent anything before it.
func TestLowWaterNeverPassesWhatIsInFlight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr ack.Tracker[int]
		sent, acked := map[int][]int{}, map[int]int{}
		progress, low := 0, at(0)
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) { progress += rapid.IntRange(1, 3).Draw(t, "n") },
			"send": func(t *rapid.T) {
				s := rapid.IntRange(0, 3).Draw(t, "session")
				before := progress
				progress += rapid.IntRange(1, 3).Draw(t, "n")
				tr.Sent(s, at(before), at(progress))
				for i := before + 1; i <= progress; i++ {
					sent[s] = append(sent[s], i)
				}
			},
			"ack": func(t *rapid.T) {
				s := rapid.IntRange(0, 3).Draw(t, "session")
				to := rapid.IntRange(0, progress).Draw(t, "to")
				if tr.Acked(s, at(to)) == nil {
					acked[s] = max(acked[s], to)
				}
			},
			"": func(t *rapid.T) {
				now := tr.LowWater(at(progress))
				if low.After(now) {
					t.Fatalf("moved back from %v to %v", low, now)
				}
				low = now
				for s, events := range sent {
					for _, i := range events {
						if i > acked[s] && !at(i).After(low) {
							t.Fatalf("event %d of session %d is not acknowledged, but the lane stands at %v", i, s, low)
						}
					}
				}
			},
		})
	})
}
