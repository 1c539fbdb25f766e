package operator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/supervisor"
)

func supervisorCommand() *cobra.Command {
	return group("supervisor", "Show who looks after the components, and what was restarted",
		superviseStatusCommand(), reportsCommand(), pauseCommand(), setCommand())
}

// A supervision is what status shows.
type supervision struct {
	Sweep uint64 `json:"sweep"`
	By    string `json:"by,omitempty"`
	// Used is nil where it is unknown: a node does not tell it.
	Used   map[string]int     `json:"restarts_in_window"`
	Paused []supervisor.Pause `json:"paused"`
	Change supervisor.Change  `json:"changed"`
	Report *supervisor.Report `json:"report,omitempty"`
}

func superviseStatusCommand() *cobra.Command {
	var o command
	o.node = &nodeClient{}
	o.atNode = func(ctx context.Context, _ []string, w io.Writer) error {
		r, err := readReports(ctx, o.node, 1)
		if err != nil {
			return err
		}
		s := supervision{Paused: append([]supervisor.Pause{}, r.Paused...)}
		if len(r.Reports) > 0 {
			s.Report = &r.Reports[0]
			s.Sweep = s.Report.Sweep
			s.By = s.Report.By
		}
		return o.print(w, s, func(t *tabwriter.Writer) { writeSupervision(t, s) })
	}
	cmd := o.build("status", "Show the last sweep over all components", cobra.NoArgs,
		func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
			store, err := conn.Supervision(ctx)
			if err != nil {
				return err
			}
			standing, err := store.Look(ctx)
			if err != nil {
				return err
			}
			reports, err := store.Reports(ctx, 1)
			if err != nil {
				return err
			}
			s := supervision{
				Sweep: standing.Sweep, By: standing.By, Used: standing.Used, Paused: append([]supervisor.Pause{}, standing.Paused...), Change: standing.Change,
			}
			if len(reports) > 0 {
				s.Report = &reports[0]
			}
			return o.print(w, s, func(t *tabwriter.Writer) { writeSupervision(t, s) })
		})
	cmd.Long = "Show the last sweep over all components.\n\n" + storeOrNode
	return cmd
}

// readReports reads the last reports from a node, the newest first.
func readReports(ctx context.Context, node *nodeClient, n int) (r admin.Reports, err error) {
	return r, node.ask(ctx, http.MethodGet, "v1/reports", url.Values{"limit": {strconv.Itoa(n)}}, &r)
}

// writeSupervision writes the last sweep for people.
func writeSupervision(t *tabwriter.Writer, s supervision) {
	if s.Report == nil {
		fmt.Fprintln(t, "No sweep yet.")
		return
	}
	r := s.Report
	fmt.Fprintf(t, "Sweep %d by node %s at %s: %d of %d components make progress.\n", r.Sweep, printable(r.By), formatTime(time.UnixMilli(r.FiredAt)), r.Healthy, r.Total)
	for _, node := range r.Unwatched {
		fmt.Fprintf(t, "Node %s is not looked after: other machines cannot reach its address (http.advertise).\n", printable(node))
	}
	for _, p := range s.Paused {
		fmt.Fprintf(t, "Restarts of %s are paused until %s, by %s.\n", printable(p.Slug), formatTime(p.Until), printable(p.By))
	}
	if len(r.Findings) > 0 {
		fmt.Fprintln(t, "\nCOMPONENT\tMISSES\tCAUSE\tACTION\tRESTARTS\tDETAIL")
	}
	for _, f := range r.Findings {
		used := "unknown"
		if s.Used != nil {
			used = strconv.Itoa(s.Used[f.Slug])
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", printable(f.Slug), f.Misses, f.Cause, f.Action, used, printable(f.Detail))
	}
}

func reportsCommand() *cobra.Command {
	var o command
	var n int
	o.node = &nodeClient{}
	o.atNode = func(ctx context.Context, _ []string, w io.Writer) error {
		if err := checkLast(n); err != nil {
			return err
		}
		result, err := readReports(ctx, o.node, n)
		if err != nil {
			return err
		}
		return o.print(w, result, func(t *tabwriter.Writer) { writeReports(t, result.Reports) })
	}
	cmd := o.build("reports", "List the reports of the last sweeps", cobra.NoArgs,
		func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
			if err := checkLast(n); err != nil {
				return err
			}
			store, err := conn.Supervision(ctx)
			if err != nil {
				return err
			}
			reports, err := store.Reports(ctx, n)
			if err != nil {
				return err
			}
			result := admin.Reports{Reports: append([]supervisor.Report{}, reports...)}
			return o.print(w, result, func(t *tabwriter.Writer) { writeReports(t, result.Reports) })
		})
	cmd.Long = `List the reports of the last sweeps, the newest last. Reports of sweeps that found and did the same are kept as one; SWEEPS says how many.

` + storeOrNode
	cmd.Flags().IntVar(&n, "last", 20, "how many")
	return cmd
}

// checkLast checks --last.
func checkLast(n int) error {
	if n < 1 || n > admin.MaxReports {
		return fault.Newf(fault.CommandBadArgument, "--last %d: it must lie between 1 and %d", n, admin.MaxReports)
	}
	return nil
}

// writeReports writes reports for people.
func writeReports(t *tabwriter.Writer, reports []supervisor.Report) {
	if len(reports) == 0 {
		fmt.Fprintln(t, "No reports.")
		return
	}
	fmt.Fprintln(t, "AT\tSWEEPS\tBY\tHEALTHY\tTOTAL\tRESTARTED\tUNHEALTHY")
	for _, r := range slices.Backward(reports) {
		unhealthy := make([]string, len(r.Findings))
		for i, f := range r.Findings {
			unhealthy[i] = fmt.Sprintf("%s (%s, %s)", f.Slug, f.Cause, f.Action)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%d\t%s\n", formatTime(time.UnixMilli(r.FiredAt)), r.Sweeps, printable(r.By), r.Healthy, r.Total, r.Restarted,
			printable(orDash(strings.Join(unhealthy, ", "))))
	}
}

func pauseCommand() *cobra.Command {
	var o command
	var slug string
	var during time.Duration
	var undo bool
	cmd := o.build("pause-restart --slug SLUG --for DURATION", "Keep a component, or all of a node, from being restarted for a while", cobra.NoArgs,
		func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
			switch {
			case slug == "":
				return fault.Newf(fault.CommandBadArgument, "--slug is missing: name a component, such as node-1/hub, or a node")
			case !undo && (during < time.Second || during > admin.MaxPause):
				return fault.Newf(fault.CommandBadArgument, "--for %s: it must lie between 1s and %s", during, admin.MaxPause)
			}
			store, err := conn.Supervision(ctx)
			if err != nil {
				return err
			}
			if undo {
				if err := o.confirm(ctx, fmt.Sprintf("Allow restarts of %s again?", slug)); err != nil {
					return err
				}
				if err := store.Unpause(ctx, slug); err != nil {
					return err
				}
				return o.print(w, supervisor.Pause{Slug: slug, By: operatorName()}, func(t *tabwriter.Writer) {
					fmt.Fprintf(t, "%s is restarted again if it makes no progress.\n", slug)
				})
			}
			if err := o.confirm(ctx, fmt.Sprintf("Keep %s from being restarted for %s?", slug, during)); err != nil {
				return err
			}
			p := supervisor.Pause{Slug: slug, By: operatorName(), Until: time.Now().Add(during).UTC()}
			if err := store.Pause(ctx, p, during); err != nil {
				return err
			}
			return o.print(w, p, func(t *tabwriter.Writer) {
				fmt.Fprintf(t, "%s is not restarted until %s. It is still watched and paged.\n", slug, formatTime(p.Until))
			})
		})
	cmd.Long = `Keep a component, or all of a node, from being restarted while you look for the cause. The pause expires; it does not keep the component from being
watched and paged. A process that makes no progress at all is still replaced by systemd or Kubernetes (/livez).

  streamer supervisor pause-restart --slug node-1/hub --for 1h --yes`
	cmd.Flags().StringVar(&slug, "slug", "", "component, such as node-1/hub, or a node")
	cmd.Flags().DurationVar(&during, "for", time.Hour, "how long")
	cmd.Flags().BoolVar(&undo, "undo", false, "end a pause")
	return o.confirmFlag(cmd)
}

func setCommand() *cobra.Command {
	var o command
	var interval time.Duration
	var misses int
	var restart, page, reset bool
	cmd := o.build("set", "Change the settings of all nodes within their hard limits", cobra.NoArgs,
		func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
			flags := o.cmd.Flags()
			store, err := conn.Supervision(ctx)
			if err != nil {
				return err
			}
			standing, err := store.Look(ctx)
			if err != nil {
				return err
			}
			change := standing.Change
			if reset {
				change = supervisor.Change{}
			}
			if flags.Changed("heartbeat-interval") {
				seconds := interval.Seconds()
				change.Interval = &seconds
			}
			if flags.Changed("missed-heartbeats-to-alert") {
				change.Misses = &misses
			}
			if flags.Changed("auto-restart") {
				change.AutoRestart = &restart
			}
			if flags.Changed("page-on-failure") {
				change.PageOnFailure = &page
			}
			if err := change.Validate(); err != nil {
				return err
			}
			if err := o.confirm(ctx, "Change how the components of all nodes are looked after?"); err != nil {
				return err
			}
			change.By = operatorName()
			if err := store.Set(ctx, change); err != nil {
				return err
			}
			return o.print(w, change, func(t *tabwriter.Writer) { fmt.Fprintln(t, "Changed; in force with the next sweep.") })
		})
	cmd.Long = `Change the settings of all nodes while they run, until --reset. Other settings are as the node that leads is configured. Hard limits cannot be
exceeded, and page_on_failure cannot be turned off (STRM-PARAMETER-CHANGE-REQUIRES-APPROVAL).`
	cmd.Flags().DurationVar(&interval, "heartbeat-interval", 0, "how often every component is asked; at most 300s")
	cmd.Flags().IntVar(&misses, "missed-heartbeats-to-alert", 0, "after how many misses in a row a component is paged; at most 10")
	cmd.Flags().BoolVar(&restart, "auto-restart", true, "restart what makes no progress")
	cmd.Flags().BoolVar(&page, "page-on-failure", true, "locked")
	cmd.Flags().BoolVar(&reset, "reset", false, "as configured again, but for the other flags")
	return o.confirmFlag(cmd)
}
