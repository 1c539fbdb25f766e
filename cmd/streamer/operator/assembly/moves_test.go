package assembly_test

import (
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cmd/streamer/operator/assembly"
	"github.com/mongostream/streamer/handoff/ledger"
	"github.com/mongostream/streamer/internal/admin/move"
)

func TestMovesAreShownShortly(t *testing.T) {
	list := &move.List{
		Running: []move.Running{{Partition: 3, From: "a", To: "b", Phase: ledger.Switched}},
		Recent: []move.Recent{{Digest: ledger.Digest{
			From: "a", To: "c", Outcome: "stayed", Why: "the recipient refused", Partitions: []change.Partition{1, 2, 3, 7, 9, 10}, LongestMS: 12,
		}}},
		Pinned: map[string]move.Wished{"10": {To: "b"}, "9": {To: "c"}}, Drained: map[string]move.Wished{"a": {By: "ann"}},
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	assembly.WriteMoves(w, list)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got := text.String()
	for _, want := range []string{"switched", "node a has nothing", "partition 10 at b", "1-3,7,9-10", "12 ms", "stayed: the recipient refused"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Index(got, "partition 9 at") > strings.Index(got, "partition 10 at") {
		t.Errorf("not by number:\n%s", got)
	}
}
