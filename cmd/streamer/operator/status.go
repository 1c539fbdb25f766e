package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/retry"
)

func statusCommand() *cobra.Command {
	var output string
	var plan, handoffs, exitCode, all, watch bool
	var client nodeClient
	cmd := &cobra.Command{
		Use: "status", Short: "Show the health of a running node, or with --plan the state of its cluster", Args: Args(cobra.NoArgs),
		Long: `Show the health of a running node.

With --plan and --handoffs, no node is asked: the state of the cluster is read from the etcd that the nodes' configuration names (-f, or the
environment). --plan shows the members with their own health reports, the leader, and for each partition the planned owner, the current one,
and the reason. --handoffs shows recent handoffs, and the directives of operators.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckOutput(output); err != nil {
				return err
			}
			if handoffs {
				o := command{file: client.file, output: output}
				return o.run(cmd, nil, showHandoffs(&o))
			}
			if plan {
				return showPlan(cmd.Context(), cmd.OutOrStdout(), client.file, output, os.Environ())
			}
			return look(cmd.Context(), cmd.OutOrStdout(), watch, func(w io.Writer) error {
				report, err := readHealth(cmd.Context(), &client)
				if err != nil {
					return err
				}
				if err := printResult(w, output, report, func(t *tabwriter.Writer) { writeReport(t, report, all) }); err != nil {
					return err
				}
				if exitCode && report.Status != health.Healthy {
					return badResult{fmt.Errorf("node %s is %s", quoted(report.Node), report.Status)}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&plan, "plan", false, "show members, leader, plan and owners")
	cmd.Flags().BoolVar(&handoffs, "handoffs", false, "show recent handoffs and directives")
	cmd.Flags().BoolVar(&all, "all", false, "show every partition, not only the worst")
	watchFlag(cmd, &watch)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 unless the node is healthy")
	cmd.MarkFlagsMutuallyExclusive("plan", "handoffs", "exit-code", "watch")
	cmd.Flags().StringVarP(&client.file, "file", "f", "",
		"configuration of the node: its http.listen is the address; with --plan and --handoffs, where its etcd is")
	client.addFlags(cmd)
	for _, store := range []string{"plan", "handoffs"} { // which ask no node
		cmd.MarkFlagsMutuallyExclusive(store, "address")
		cmd.MarkFlagsMutuallyExclusive(store, "context")
	}
	OutputFlag(cmd, &output)
	return cmd
}

// readHealth reads a node's health report. An unhealthy node answers, too.
func readHealth(ctx context.Context, client *nodeClient) (report health.Report, err error) {
	status, err := client.get(ctx, healthPath, &report)
	if err == nil && report.Status == "" {
		err = client.unreachable(fmt.Errorf("it answers %d, without a health report", status))
	}
	return report, err
}

// latency shows how long the stages took, in the order of a change's way; empty for none.
func latency(r health.Report) string {
	var parts []string
	for _, stage := range []struct{ name, where string }{
		{"mongodb", "in MongoDB"}, {"hub", "in the node"}, {"transport", "to clients and targets"}, {"acknowledgement", "until acknowledged"},
	} {
		if took, measured := r.Stages[stage.name]; measured {
			parts = append(parts, fmt.Sprintf("%s %s", seconds(took).Round(10*time.Microsecond), stage.where))
		}
	}
	return strings.Join(parts, ", ")
}

// writeReport writes a report for people.
func writeReport(t *tabwriter.Writer, r health.Report, all bool) {
	fmt.Fprintf(t, "node\t%s: %s\ncluster\t%s\nversion\t%s\nup for\t%s\n", r.Node, r.Status, r.Cluster, r.Version, formatDuration(seconds(r.Uptime)))
	if took := latency(r); took != "" {
		fmt.Fprintf(t, "latency\t%s (means of %s)\n", took, formatDuration(admin.HistoryEvery))
	}
	fmt.Fprintln(t)
	if m := r.Membership; m != nil {
		writeMembership(t, m)
	}
	writeProblems(t, r.Problems)
	shown := r.Partitions
	if !all && len(shown) > manyRows {
		shown = worstPartitions(shown)
		fmt.Fprintf(t, "\npartitions\t%s\nthe worst %d of %d (--all shows every one):\n", countStates(r.Partitions), len(shown), len(r.Partitions))
	}
	if len(shown) == 0 {
		return
	}
	fmt.Fprintln(t, "\nPARTITION\tSTATE\tLAG\tEVENTS/S\tLAST EVENT\tHEAD-ROOM")
	for _, p := range shown {
		last := "-"
		if p.LastEventAt != nil {
			last = formatTime(*p.LastEventAt)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%.1f\t%s\t%s\n", p.ID, p.Status, lagOf(p), p.Rate, last, headRoom(p.HeadRoom))
	}
	fmt.Fprintf(t, "\n%s\n", aboutHeadRoom)
	for _, p := range r.Partitions {
		if p.Error != "" {
			fmt.Fprintf(t, "\npartition %d: %s\n", p.ID, p.Error)
		}
	}
}

// More rows than manyRows are summed up, and the worst shown.
const (
	manyRows = 8
	worst    = 5
)

// worstPartitions returns those that are furthest from well: stopped, then late, then near the end
// of the oplog.
func worstPartitions(all []health.Partition) []health.Partition {
	rank := func(p health.Partition) int {
		switch {
		case p.Error != "":
			return 0
		case p.Status != health.Healthy && p.Status != "streaming" && p.Status != "idle":
			return 1
		}
		return 2
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b health.Partition) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)), cmp.Compare(valueOr(b.Lag, 0), valueOr(a.Lag, 0)),
			cmp.Compare(valueOr(a.HeadRoom, math.Inf(1)), valueOr(b.HeadRoom, math.Inf(1))), cmp.Compare(a.ID, b.ID))
	})
	return sorted[:worst]
}

// countStates says how many partitions are in each state.
func countStates(all []health.Partition) string {
	states := map[health.Status]int{}
	for _, p := range all {
		states[p.Status]++
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
	}
	return strings.Join(parts, ", ")
}

// watchFlag adds --watch.
func watchFlag(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, fmt.Sprintf("look again every %d seconds until Ctrl-C", watchEvery))
}

// look shows something once, or with --watch again and again until the context ends. An error then
// is shown in its place.
func look(ctx context.Context, w io.Writer, watch bool, show func(io.Writer) error) error {
	if !watch {
		return show(w)
	}
	for first := true; ; first = false {
		beginLook(w, first)
		if err := show(w); err != nil && ctx.Err() == nil {
			if first {
				return err
			}
			fmt.Fprintln(Terminal{w}, err)
		}
		if retry.Sleep(ctx, watchEvery*time.Second) != nil {
			return nil
		}
	}
}

// writeProblems writes the problems, with their remedies.
func writeProblems(t *tabwriter.Writer, problems []health.Problem) {
	if len(problems) == 0 {
		fmt.Fprintln(t, "no problems")
		return
	}
	fmt.Fprintln(t, "PROBLEM\tSEVERITY\tSINCE\tNODES\tCAUSE")
	for _, p := range problems {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", printable(p.Subject), p.Severity, formatTime(p.Since), printable(strings.Join(p.Affects.Nodes, ", ")), printable(p.Cause))
	}
	for _, p := range problems {
		fmt.Fprintf(t, "\n%s: %s\n%s\n", p.Code, p.Remedy, p.Runbook)
	}
}

// writeMembership writes a node's view of its cluster.
func writeMembership(t *tabwriter.Writer, m *health.Membership) {
	seen := ""
	if m.Detached {
		seen = " as last seen"
		fmt.Fprintln(t, "DETACHED: the node is not a member of its cluster now and owns no partitions")
	}
	if m.LeaseDeadlineLag < 0 {
		fmt.Fprintf(t, "lease expired\t%s ago\n", formatDuration(-seconds(m.LeaseDeadlineLag)))
	} else {
		fmt.Fprintf(t, "lease expires in\t%s unless renewed\n", formatDuration(seconds(m.LeaseDeadlineLag)))
	}
	fmt.Fprintf(t, "leader\t%s%s\nplan\t%d\npartitions\t%d owned, %d planned\n", cmp.Or(m.Leader, "nobody"), seen, m.Plan, m.Owned, m.Planned)
	for _, status := range slices.Sorted(maps.Keys(m.Members)) {
		fmt.Fprintf(t, "members %s\t%d%s\n", status, m.Members[status], seen)
	}
	fmt.Fprintln(t)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// headRoom shows the log time, in seconds, until a position leaves the oplog.
func headRoom(s *float64) string {
	switch {
	case s == nil:
		return "-"
	case *s < 0:
		return "left the oplog " + formatDuration(-seconds(*s)) + " ago"
	}
	return formatDuration(seconds(*s))
}

// aboutHeadRoom explains the column.
const aboutHeadRoom = "HEAD-ROOM is the log time until the position leaves the oplog: - while the oplog has not reached its size, because nothing leaves it then, or where that is unknown."

// valueOr returns a value, or unknown for nil.
func valueOr(s *float64, unknown float64) float64 {
	if s == nil {
		return unknown
	}
	return *s
}

// lagOf shows the lag of a partition: while that is unknown, what it last was, and how long ago.
func lagOf(p health.Partition) string {
	if last := p.LastKnown; last != nil && last.Lag != nil {
		return fmt.Sprintf("unknown, was %s %s ago", formatDuration(seconds(*last.Lag)), formatDuration(time.Since(last.At)))
	}
	return orUnknown(p.Lag)
}

func orUnknown(s *float64) string {
	if s == nil {
		return "unknown"
	}
	return formatDuration(seconds(*s))
}

// formatDuration shows a duration with its two largest units: 2h10m.
func formatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + formatDuration(-d)
	case d == 0:
		return "0s"
	}
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		if d < u.size {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.size, u.name)
		if i+1 < len(units) {
			if rest := d % u.size / units[i+1].size; rest > 0 {
				text += fmt.Sprintf("%d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
