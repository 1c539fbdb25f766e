package kafka

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mongostream/streamer/sink"
)

// A parcel is used again once all of its records are acknowledged, not earlier, and never if one
// has failed: the client may still have it. Texts of long keys are not kept.
func TestOnlyAcknowledgedParcelsAreUsedAgain(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, test := range map[string]struct {
		outcomes []error
		text     int
		again    bool
	}{
		"acknowledged":                {[]error{nil}, textOf, true},
		"with a tombstone":            {[]error{nil, nil}, textOf, true},
		"failed":                      {[]error{away}, textOf, false},
		"the tombstone has failed":    {[]error{nil, away}, textOf, false},
		"only the tombstone has not":  {[]error{away, nil}, textOf, false},
		"acknowledged, of a long key": {[]error{nil}, 1 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := New(Config{Topic: "changes", Losses: "losses"})
			if err != nil {
				t.Fatal(err)
			}
			to := made.(*Target) //nolint:forcetypeassert // without transactions
			p := to.parcel()
			p.text = make([]byte, 1, test.text)
			p.record.Topic = "changes"
			m := &sink.Message{}
			reported := 0
			sink.Report(m, func(error) { reported++ })
			p.outcome.m, p.outcome.gate, p.outcome.target, p.outcome.left = m, &sink.Gate{}, to, len(test.outcomes)
			for i, outcome := range test.outcomes {
				if p.record.Topic == "" || reported > 0 {
					t.Errorf("after %d outcomes the parcel is over", i)
				}
				p.outcome.report(&kgo.Record{Topic: "changes"}, outcome)
			}
			if again := p.record.Topic == ""; again != test.again || reported != 1 {
				t.Errorf("it is used again: %t, %d reports", again, reported)
			}
		})
	}
}
