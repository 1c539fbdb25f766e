package record_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/fault"
)

func gapOf(from change.Position) checkpoint.Gap {
	return checkpoint.Gap{
		Partition:   7,
		From:        from,
		To:          change.At(change.Timestamp{T: 1_700_000_900, I: 1}),
		Reason:      "history_lost",
		Namespaces:  []string{"shop.orders", "stock.*"},
		Fingerprint: "5f1e9a",
		Epoch:       change.Epoch{Incarnation: 2, Revision: 4711},
		Found:       time.Date(2024, time.May, 17, 8, 30, 0, 123_000_000, time.UTC),
		By:          "node-a",
		Rescan: map[string]checkpoint.RescanState{
			"shop.orders": {After: []byte{5, 0, 0, 0, 0}},
			"shop.items":  {Done: true},
		},
	}
}

func TestStoredGapIsReadableByAPerson(t *testing.T) {
	g := gapOf(change.At(change.Timestamp{T: 1_700_000_000, I: 5}))
	value, err := record.EncodeGap(g, 64)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"v":1,"n":64,"partition":7,"from":{"t":1700000000,"i":5},"to":{"t":1700000900,"i":1},"reason":"history_lost",` +
		`"namespaces":["shop.orders","stock.*"],"fingerprint":"5f1e9a","epoch":"2.4711","found":"2024-05-17T08:30:00.123Z","by":"node-a",` +
		`"rescan":{"shop.items":{"done":true},"shop.orders":{"after":"BQAAAAA=","done":false}}}`
	if diff := cmp.Diff(want, string(value)); diff != "" {
		t.Errorf("the form has changed (-want +got):\n%s", diff)
	}
	got, err := record.DecodeGap("gap/x", 64, []byte(want))
	if diff := cmp.Diff(g, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestGapOfUnknownBoundsComesBack(t *testing.T) {
	g := gapOf(change.Position{})
	g.To, g.Namespaces, g.Rescan = change.Position{}, nil, nil
	value, err := record.EncodeGap(g, 64)
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.DecodeGap("gap/x", 64, value)
	if diff := cmp.Diff(g, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// An entry from before the partitions were counted anew says of how many its partition was one, however often it is written.
func TestGapOfAnotherCountSaysSo(t *testing.T) {
	g := gapOf(checkpointtest.Event(5))
	for range 2 {
		value, err := record.EncodeGap(g, 64)
		if err != nil {
			t.Fatal(err)
		}
		if g, err = record.DecodeGap("gap/x", 24, value); err != nil || g.Of != 64 {
			t.Errorf("%+v, %v", g, err)
		}
	}
}

func TestDecodeGapRefuses(t *testing.T) {
	value, err := record.EncodeGap(gapOf(checkpointtest.Event(5)), 64)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, replacement string
		code             fault.Code
	}{
		"a newer version":          {`"v":1`, `"v":2`, fault.CheckpointNewer},
		"no partition count":       {`"n":64`, `"n":0`, fault.CheckpointCorrupt},
		"a partition beyond":       {`"partition":7`, `"partition":64`, fault.CheckpointCorrupt},
		"no reason":                {`"reason":"history_lost",`, ``, fault.CheckpointCorrupt},
		"no epoch":                 {`"epoch":"2.4711",`, ``, fault.CheckpointCorrupt},
		"another time than From's": {`"t":1700000000`, `"t":1700000001`, fault.CheckpointCorrupt},
		"a token that is none":     {`"to":{`, `"to":{"token":"AAAA",`, fault.CheckpointCorrupt},
		"half a gap":               {`"reason"`, ``, fault.CheckpointCorrupt},
	} {
		broken := strings.Replace(string(value), c.old, c.replacement, 1)
		g, err := record.DecodeGap("prefix/gap/x", 64, []byte(broken))
		if fault.Of(err) != c.code || !strings.Contains(err.Error(), "prefix/gap/x") {
			t.Errorf("%s: %v, %v", name, g, err)
		}
	}
}
