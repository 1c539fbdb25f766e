package operator

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
)

func handoffCommand() *cobra.Command {
	var o command
	h := admin.Handoff{By: operatorName()}
	cmd := o.build("handoff PARTITION --to NODE", "Have a partition handed over to another node", cobra.ExactArgs(1),
		func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
			if h.To == "" {
				return fault.Newf(fault.CommandBadArgument, "--to is missing: which node is to get it")
			}
			if h.For < least || h.For > most {
				return fault.Newf(fault.CommandBadArgument, "--for %s: it must be between %s and %s", h.For, least, most)
			}
			c, err := conn.OpenCluster(ctx)
			if err != nil {
				return err
			}
			wanted, err := partitions(ctx, conn, args[:1])
			if err != nil {
				return err
			}
			h.Partition = wanted[0]
			h.Confirm = func(from string) error {
				return o.confirm(fmt.Sprintf("Hand partition %d over from node %s to node %s?", h.Partition, from, h.To))
			}
			if o.output == "" {
				h.Progress = func(s admin.HandoffStep) { fmt.Fprintf(w, "%8.1f s  %s\n", float64(s.AfterMS)/1000, s.Text) }
			}
			done, err := h.Run(ctx, c)
			if err != nil {
				return err
			}
			return o.print(w, done, func(t *tabwriter.Writer) {
				fmt.Fprintf(t, "Partition %d has moved from node %s to node %s.\n", done.Partition, done.From, done.To)
			})
		})
	cmd.Long = `Have a partition handed over to another node: it is delivered without a gap, by its old owner until the new one serves it.

The wish is written into etcd, the leader plans with it, and the nodes hand the partition over as for every other plan. It stands for as
long as --for says, which is how long the command waits at most too; plans are sticky, so the partition stays where it is afterwards. To
keep the shares even, the leader may move another partition the other way.

  streamer handoff 17 --to node-2 --yes`
	cmd.Flags().StringVar(&h.To, "to", "", "the node that is to get it")
	cmd.Flags().BoolVar(&h.AllowOlder, "allow-older", false, "also if that node runs an older version")
	cmd.Flags().DurationVar(&h.For, "for", time.Minute, "how long it is wished and waited for")
	return o.confirmFlag(cmd)
}

// How long a handoff may be wished and waited for.
const (
	least = 10 * time.Second
	most  = 24 * time.Hour
)

// A drained is what became of a drain, or of taking one back.
type drained struct {
	admin.DrainResult

	Wished bool `json:"wished"` // the wish stands
}

func drainCommand() *cobra.Command {
	var o command
	var undo bool
	d := admin.Drain{By: operatorName()}
	cmd := o.build("drain NODE", "Have a node emptied before it is stopped", cobra.ExactArgs(1),
		func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
			c, err := conn.OpenCluster(ctx)
			if err != nil {
				return err
			}
			if d.Node = args[0]; undo {
				ask := func() error {
					return o.confirm(fmt.Sprintf("Assign node %s its share of the partitions again?", d.Node))
				}
				if err := admin.Undrain(ctx, c, d.Node, ask); err != nil {
					return err
				}
				return o.print(w, drained{DrainResult: admin.DrainResult{Node: d.Node}}, func(t *tabwriter.Writer) {
					fmt.Fprintf(t, "Node %s gets its share of the partitions again.\n", d.Node)
				})
			}
			d.Confirm = func(owned int) error {
				return o.confirm(fmt.Sprintf("Hand the %d partitions of node %s over to other nodes, and assign it none until --undo?", owned, d.Node))
			}
			if o.output == "" {
				d.Progress = func(left int) { fmt.Fprintf(w, "%d partitions left\n", left) }
			}
			done, err := d.Run(ctx, c)
			if err != nil {
				if done.Left > 0 {
					fmt.Fprintf(os.Stderr, "The wish stands: the leader goes on emptying node %s, until it is taken back with --undo.\n", d.Node)
				}
				return err
			}
			return o.print(w, drained{DrainResult: done, Wished: true}, func(t *tabwriter.Writer) {
				if done.Gone {
					fmt.Fprintf(t, "Node %s has gone.\n", d.Node)
					return
				}
				fmt.Fprintf(t, "Node %s is empty after %s: it may be stopped. It gets nothing until `streamer drain %s --undo`.\n",
					d.Node, formatDuration(time.Duration(done.TookMS)*time.Millisecond), d.Node)
			})
		})
	cmd.Long = `Have everything that a node owns handed over to the others, and nothing given to it until that is taken back with --undo, after a
restart too. Returns when the node is empty: then it may be stopped, and nobody notices.

A node that is stopped (SIGTERM) does the same by itself, within reliability.shutdown.drain_timeout. Drain it by hand where that is to be
watched, or where the machine is to stay empty for a while.`
	cmd.Flags().BoolVar(&undo, "undo", false, "take it back: the node gets its share again")
	cmd.Flags().DurationVar(&d.For, "for", 5*time.Minute, "how long it is watched; the leader goes on by itself")
	return o.confirmFlag(cmd)
}

// showHandoffs prints what moves, has moved, and is wished.
func showHandoffs(o *command) action {
	return func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
		c, err := conn.OpenCluster(ctx)
		if err != nil {
			return err
		}
		list, err := admin.ListMoves(ctx, c)
		if err != nil {
			return err
		}
		return o.print(w, list, func(t *tabwriter.Writer) { writeMoves(t, list) })
	}
}
