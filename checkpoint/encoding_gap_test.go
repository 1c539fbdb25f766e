package checkpoint_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
)

func gapOf(from change.Position) checkpoint.Gap {
	return checkpoint.Gap{
		From:        from,
		To:          change.At(change.Timestamp{T: 1_700_000_900, I: 1}),
		Reason:      "history_lost",
		Namespaces:  []string{"shop.orders", "stock.*"},
		Fingerprint: "5f1e9a",
		Found:       time.Date(2024, time.May, 17, 8, 30, 0, 123_000_000, time.UTC),
		By:          "node-a",
	}
}

func TestStoredGapIsReadableByAPerson(t *testing.T) {
	g := gapOf(change.At(change.Timestamp{T: 1_700_000_000, I: 5}))
	text, err := checkpoint.EncodeGap(g)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"v":1,"from":{"t":1700000000,"i":5},"to":{"t":1700000900,"i":1},"reason":"history_lost",` +
		`"namespaces":["shop.orders","stock.*"],"fingerprint":"5f1e9a","found":"2024-05-17T08:30:00.123Z","by":"node-a"}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("the form has changed (-want +got):\n%s", diff)
	}
	got, err := checkpoint.DecodeGap("gap/x", []byte(want))
	if diff := cmp.Diff(g, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestGapOfUnknownBoundsComesBack(t *testing.T) {
	g := gapOf(change.Position{})
	g.To, g.Namespaces = change.Position{}, nil
	text, err := checkpoint.EncodeGap(g)
	if err != nil {
		t.Fatal(err)
	}
	got, err := checkpoint.DecodeGap("gap/x", text)
	if diff := cmp.Diff(g, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestDecodeGapRefuses(t *testing.T) {
	text, err := checkpoint.EncodeGap(gapOf(checkpointtest.Event(5)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, replacement string
		code             fault.Code
	}{
		"a newer version":          {`"v":1`, `"v":2`, fault.CheckpointNewer},
		"no reason":                {`"reason":"history_lost",`, ``, fault.CheckpointCorrupt},
		"another time than From's": {`"t":1700000000`, `"t":1700000001`, fault.CheckpointCorrupt},
		"a token that is none":     {`"to":{`, `"to":{"token":"AAAA",`, fault.CheckpointCorrupt},
		"half a gap":               {`"reason"`, ``, fault.CheckpointCorrupt},
	} {
		broken := strings.Replace(string(text), c.old, c.replacement, 1)
		g, err := checkpoint.DecodeGap("prefix/gap/x", []byte(broken))
		if fault.Of(err) != c.code || !strings.Contains(err.Error(), "prefix/gap/x") {
			t.Errorf("%s: %v, %v", name, g, err)
		}
	}
}
