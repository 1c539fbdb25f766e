package operator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/mongostream/streamer/handoff"
)

// writeMoves writes past handoffs and present directives for people.
func writeMoves(t *tabwriter.Writer, l *handoff.History) {
	if len(l.Pinned)+len(l.Drained) == 0 {
		fmt.Fprintln(t, "No directives.")
	} else {
		fmt.Fprintln(t, "REQUESTED\tBY\tAT")
	}
	for _, node := range slices.SortedFunc(maps.Keys(l.Drained), natural) {
		fmt.Fprintf(t, "node %s drained\t%s\t%s\n", node, l.Drained[node].By, formatTime(l.Drained[node].At))
	}
	for _, p := range slices.SortedFunc(maps.Keys(l.Pinned), natural) {
		fmt.Fprintf(t, "partition %s at %s\t%s\t%s\n", p, l.Pinned[p].To, l.Pinned[p].By, formatTime(l.Pinned[p].At))
	}
	if len(l.Recent) == 0 {
		return
	}
	fmt.Fprintln(t, "\nENDED\tFROM\tTO\tPARTITIONS\tHANDED OVER\tTOOK\tPLAN\tCAUSE")
	for _, r := range l.Recent {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d of %d\t%s\t%d\t%s\n", formatTime(r.At), r.From, cmp.Or(r.To, "-"), formatRanges(r.Partitions), r.HandedOver, len(r.Partitions),
			formatDuration(time.Duration(r.TookMS)*time.Millisecond), r.Plan, r.Cause)
	}
}
