package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	for _, node := range sortedKeys(l.Drained) {
		fmt.Fprintf(t, "node %s drained\t%s\t%s\n", node, l.Drained[node].By, formatLocal(l.Drained[node].At))
	}
	for _, p := range sortedKeys(l.Pinned) {
		fmt.Fprintf(t, "partition %s at %s\t%s\t%s\n", p, l.Pinned[p].To, l.Pinned[p].By, formatLocal(l.Pinned[p].At))
	}
	if len(l.Recent) == 0 {
		return
	}
	fmt.Fprintln(t, "\nENDED\tFROM\tTO\tPARTITIONS\tHANDED OVER\tTOOK\tPLAN\tCAUSE")
	for _, r := range l.Recent {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d of %d\t%d ms\t%d\t%s\n", formatLocal(r.At), r.From, cmp.Or(r.To, "-"), formatRanges(r.Partitions), r.HandedOver, len(r.Partitions),
			r.TookMS, r.Plan, r.Cause)
	}
}

func formatLocal(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// sortedKeys returns the keys in their order, numbers by their size.
func sortedKeys(m map[string]handoff.Directive) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		x, errX := strconv.Atoi(a)
		y, errY := strconv.Atoi(b)
		if errX == nil && errY == nil {
			return cmp.Compare(x, y)
		}
		return strings.Compare(a, b)
	})
	return keys
}
