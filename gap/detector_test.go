package gap_test

import (
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
)

func at(seconds int) change.Position {
	return change.At(change.Timestamp{T: uint32(1_700_000_000 + seconds), I: 1})
}

func TestOnlyAnUnprovenJumpIsASpan(t *testing.T) {
	for name, c := range map[string]struct {
		from, to int
		proven   bool
		found    bool
		jumped   bool
	}{
		"events as they come":                       {0, 1, true, false, false},
		"an idle hour":                              {0, 3600, true, false, true},
		"six minutes of downtime, position found":   {0, 360, true, false, true},
		"a reply that spans hours":                  {0, 9 * 3600, true, false, true},
		"four minutes, unproven":                    {0, 240, false, false, false},
		"six minutes, unproven":                     {0, 360, false, true, true},
		"exactly the limit, unproven":               {0, 300, false, false, false},
		"a second beyond the limit, unproven":       {0, 301, false, true, true},
		"back, which a reader drops before it is a": {100, 0, false, false, false},
	} {
		d := gap.NewDetector(0, at(c.from))
		span, found, jumped := d.Progress(at(c.to), c.proven)
		if found != c.found || jumped != c.jumped {
			t.Errorf("%s: found %v, jumped %v", name, found, jumped)
		}
		if found && (span.From.Compare(at(c.from)) != 0 || span.To.Compare(at(c.to)) != 0 || span.Reason != gap.Jump) {
			t.Errorf("%s: %+v", name, span)
		}
	}
}

func TestSpanThatWasReadAgainIsAccepted(t *testing.T) {
	d := gap.NewDetector(time.Minute, at(0))
	if _, found, _ := d.Progress(at(600), false); !found {
		t.Fatal("the jump is not noticed")
	}
	// The lane has gone back and reads the same stretch from a new stream.
	if span, found, _ := d.Progress(at(600), false); found {
		t.Errorf("noticed again: %+v", span)
	}
	if _, found, _ := d.Progress(at(1200), false); !found {
		t.Error("the next jump is not noticed")
	}
}

func TestFirstProgressIsNoJump(t *testing.T) {
	d := gap.NewDetector(0, change.Position{})
	if _, found, jumped := d.Progress(at(0), false); found || jumped {
		t.Error("a jump from nowhere")
	}
	d.Reset(at(9000))
	if _, found, _ := d.Progress(at(9001), false); found {
		t.Error("a jump after a reset")
	}
}
