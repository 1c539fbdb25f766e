package operator

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cmd/streamer/operator/form"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/place"
)

// A rewound is what a rewind would do, and whether it was done.
type rewound struct {
	*admin.RewindPlan

	Done bool `json:"done"`
}

func rewindCommand() *cobra.Command {
	var o form.Command
	var to, why string
	var all bool
	cmd := o.Make("rewind PARTITION… | --all", "Move marks back, so that what is behind them is delivered again", cobra.ArbitraryArgs,
		func(ctx context.Context, at *place.Place, args []string, w io.Writer) error {
			if all == (len(args) > 0) {
				return fault.Newf(fault.CommandBadArgument, "give partitions, or --all for every one")
			}
			if to == "" {
				return fault.Newf(fault.CommandBadArgument, "--to is missing: where to go back to")
			}
			target, err := admin.ParseTarget(to)
			if err != nil {
				return err
			}
			var partitions []change.Partition
			for _, arg := range args {
				_, p, err := partition(ctx, at, arg)
				if err != nil {
					return err
				}
				partitions = append(partitions, p)
			}
			source, err := at.Mongo(ctx)
			if err != nil {
				return err
			}
			plan, err := admin.PlanRewind(ctx, at.Marks, source, partitions, target)
			if err != nil {
				return err
			}
			r := rewound{RewindPlan: plan}
			if err := o.Decide(w, r, r.write, plan.Check(), fmt.Sprintf("Move %d marks back?", plan.Moves())); err != nil {
				return err
			}
			if _, err := plan.Apply(ctx, at.Marks, form.Who(), why); err != nil {
				return err
			}
			r.Done = true
			return o.Print(w, r, r.write)
		})
	cmd.Long = `Move the marks of partitions back to a time or to a resume token. It is the only way back: what is behind the new mark is delivered
again, after a notice (rewound) to the subscribers in its place. The gateways that have had some of it are named. A node that owns a partition loses its term, and claims the partition
again by itself. Marks that stand before the target stay where they are.

  streamer checkpoint rewind 3 --to 2026-01-31T12:00:00Z --dry-run
  streamer checkpoint rewind --all --to 1769860800:1 --yes --why "orders were written twice"`
	cmd.Flags().StringVar(&to, "to", "", "an RFC 3339 time, a cluster time t:i, or a resume token (as JSON, or its _data)")
	cmd.Flags().StringVar(&why, "why", "", "what it is for; stands in the history")
	cmd.Flags().BoolVar(&all, "all", false, "every partition")
	return o.Planning(cmd)
}

// shownGateways bounds how many gateways are shown one by one.
const shownGateways = 20

// write writes what would be done, or was.
func (r rewound) write(t *tabwriter.Writer) {
	if r.Done {
		fmt.Fprintf(t, "%d marks were moved back to %s (%s).\n", r.Moves(), r.To, form.Clock(r.To.Time))
		return
	}
	fmt.Fprintf(t, "to\t%s (%s)\n", r.To, form.Clock(r.To.Time))
	if r.OplogBegins == nil {
		fmt.Fprintln(t, "oplog\tcannot be looked at: whether it reaches back so far shows when it is read")
	} else {
		fmt.Fprintf(t, "oplog\tbegins at %s: it reaches back so far: %s\n", form.Clock(*r.OplogBegins), r.Reached)
	}
	fmt.Fprintf(t, "entries\t%s of all partitions, from there to the mark that stands furthest on\n", estimate(r.Entries))
	fmt.Fprintf(t, "gateways\t%d have had some of them, and get them again after a notice\n", len(r.Gateways))
	if r.GatewaysUnknown != "" {
		fmt.Fprintf(t, "\tnot all are known: %s\n", r.GatewaysUnknown)
	}
	fmt.Fprintln(t)
	if len(r.Gateways) > 0 {
		fmt.Fprintln(t, "GATEWAY\tSTANDS AT\tTIME\tPARTITIONS\tSEEN")
		for _, g := range r.Gateways[:min(len(r.Gateways), shownGateways)] {
			fmt.Fprintf(t, "%q\t%s\t%s\t%d\t%s\n", g.Gateway, g.Furthest, form.Clock(g.Furthest.Time), g.Partitions, form.Clock(g.SeenAt))
		}
		if more := len(r.Gateways) - shownGateways; more > 0 {
			fmt.Fprintf(t, "and %d more (-o json shows all)\n", more)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t, "PARTITION\tSTANDS AT\tTIME\tMOVES\tEVENTS AGAIN")
	for _, s := range r.Steps {
		moves := "no: it stands before"
		if s.Moves {
			moves = fmt.Sprintf("back %s, to generation %d", short(s.From.Time.Sub(r.To.Time)), s.Generation+1)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", s.Partition, s.From, form.Clock(s.From.Time), moves, estimate(s.Events))
	}
}

// estimate shows a number that may not be known.
func estimate(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprintf("about %d", *n)
}
