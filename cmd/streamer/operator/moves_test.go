package operator

import (
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/handoff"
)

func TestMovesAreShownShortly(t *testing.T) {
	list := &handoff.History{
		Recent:  []handoff.Ended{{From: "a", To: "c", Partitions: []change.Partition{1, 2, 3, 7, 9, 10}, HandedOver: 5, TookMS: 12, Plan: 4, Cause: "b joined"}},
		Pinned:  map[string]handoff.Directive{"10": {To: "b"}, "9": {To: "c"}},
		Drained: map[string]handoff.Directive{"node-10": {}, "node-2": {}, "a": {By: "ann", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)}},
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	writeMoves(w, list)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got := text.String()
	for _, want := range []string{"b joined", "node a drained", "partition 10 at b", "1-3,7,9-10", "12ms", "5 of 6", time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local).Format("2006-01-02 15:04:05 MST")} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Index(got, "partition 9 at") > strings.Index(got, "partition 10 at") {
		t.Errorf("not by number:\n%s", got)
	}
	if strings.Index(got, "node node-2 drained") > strings.Index(got, "node node-10 drained") {
		t.Errorf("nodes are not by number:\n%s", got)
	}
}
