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
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/internal/backend"
)

func handoffCommand() *cobra.Command {
	var o command
	h := handoff.Request{By: operatorName()}
	o.node = &nodeClient{}
	o.atNode = func(ctx context.Context, args []string, w io.Writer) error {
		return handoffAtNode(ctx, &o, h.To, args[0], w)
	}
	cmd := o.build("handoff PARTITION --to NODE", "Move a partition to another node", cobra.ExactArgs(1),
		func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
			if h.To == "" {
				return fault.Newf(fault.CommandBadArgument, "--to is missing: name the node that takes the partition")
			}
			if h.For < least || h.For > most {
				return fault.Newf(fault.CommandBadArgument, "--for %s: it must be between %s and %s", h.For, least, most)
			}
			return handoffInStore(ctx, &o, h, conn, args[0], w)
		})
	cmd.Long = `Move a partition to another node without losing a change.

The command writes a directive into etcd, the leader plans with it, and the nodes hand the partition over as for every other plan. The
directive expires after --for, which is also how long the command waits. Plans are sticky, so the partition stays there afterwards. To keep
the shares even, the leader may move another partition in return.

The partition's subscribers:
  - Sinks get it from one node at a time. The old owner waits until the target has acknowledged its messages, saves the checkpoint, and one
    transaction makes the new node the owner, which continues at that checkpoint. Changes that were not acknowledged in time are published again.
  - Clients that follow the owners (client.Owned, PARTITIONS_OWNED) get it from both nodes for the broadcast window, handoff.overlap (1s by
    default), and drop duplicates by position. A client that has a session with the new owner leaves the window early. With 0s it waits
    until the new owner delivers.
  - All other subscribers notice nothing: any node serves them.
If the old owner loses its lease within the window, it stops delivering the partition at once. If the handoff fails, the partition stays, or
the new node takes it over from its last checkpoint.

` + storeOrNode + ` A node tries
for a minute, and takes no --for and no --allow-older.

  streamer handoff 17 --to node-2 --yes`
	cmd.Flags().StringVar(&h.To, "to", "", "the node that takes the partition")
	complete(cmd, "to", completeFrom(o.node, nodeNames))
	cmd.Flags().BoolVar(&h.AllowOlder, "allow-older", false, "allow a node with an older version")
	cmd.Flags().DurationVar(&h.For, "for", time.Minute, "how long the directive lives, and how long to wait")
	return o.confirmFlag(cmd)
}

// handoffInStore hands a partition over by a directive in the cluster's store.
func handoffInStore(ctx context.Context, o *command, h handoff.Request, conn *backend.Conn, partition string, w io.Writer) error {
	c, err := conn.OpenCluster(ctx)
	if err != nil {
		return err
	}
	wanted, err := partitions(ctx, conn, []string{partition})
	if err != nil {
		return err
	}
	h.Partition = wanted[0]
	h.Confirm = func(from string) error {
		return o.confirm(ctx, fmt.Sprintf("Hand partition %d over from node %s to node %s?", h.Partition, from, h.To))
	}
	if o.output == "" {
		h.Progress = func(s handoff.Step) { fmt.Fprintf(w, "%8.1f s  %s\n", float64(s.AfterMS)/1000, s.Text) }
	}
	done, err := h.Run(ctx, c)
	if err != nil {
		return err
	}
	return o.print(w, done, func(t *tabwriter.Writer) {
		fmt.Fprintf(t, "Partition %d has moved from node %s to node %s.\n", done.Partition, done.From, done.To)
	})
}

// Bounds of the life of a handoff's directive.
const (
	least = 10 * time.Second
	most  = 24 * time.Hour
)

// A drained is the outcome of a drain, or of its end.
type drained struct {
	handoff.DrainResult

	Wished bool `json:"wished"` // the directive is in the store
}

func drainCommand() *cobra.Command {
	var o command
	var undo bool
	d := handoff.Drain{By: operatorName()}
	o.node = &nodeClient{}
	o.atNode = func(ctx context.Context, args []string, w io.Writer) error {
		return drainAtNode(ctx, &o, args[0], d.For, undo, w)
	}
	cmd := o.build("drain NODE", "Move all partitions away from a node before it is stopped", cobra.ExactArgs(1),
		func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
			c, err := conn.OpenCluster(ctx)
			if err != nil {
				return err
			}
			if d.Node = args[0]; undo {
				ask := func() error {
					return o.confirm(ctx, fmt.Sprintf("Assign node %s its share of the partitions again?", d.Node))
				}
				if err := handoff.Undrain(ctx, c, d.Node, ask); err != nil {
					return err
				}
				return o.print(w, drained{DrainResult: handoff.DrainResult{Node: d.Node}}, func(t *tabwriter.Writer) {
					fmt.Fprintf(t, "Node %s gets its share of the partitions again.\n", d.Node)
				})
			}
			d.Confirm = func(owned int) error {
				return o.confirm(ctx, fmt.Sprintf("Move the %d partitions of node %s to other nodes, and assign it none until --undo?", owned, d.Node))
			}
			bar := progress{w: w, unit: "partitions"}
			if o.output == "" {
				d.Progress = bar.left
			}
			done, err := d.Run(ctx, c)
			bar.end()
			if err != nil {
				if done.Left > 0 {
					fmt.Fprintf(os.Stderr, "The leader continues to drain node %s until the drain is undone with --undo.\n", d.Node)
				}
				return err
			}
			return o.print(w, drained{DrainResult: done, Wished: true}, func(t *tabwriter.Writer) { writeDrained(t, done) })
		})
	cmd.Long = `Move all partitions of a node to other nodes, and assign it none until --undo, even after a restart. The command returns when the node is
empty: then it can be stopped without an interruption.

` + storeOrNode + `

A node that is stopped (SIGTERM) does the same, within reliability.shutdown.drain_timeout. Use drain to watch the progress, or to keep the
node empty for a while.`
	cmd.ValidArgsFunction = completeFrom(o.node, nodeNames)
	cmd.Flags().BoolVar(&undo, "undo", false, "undo a drain: the node gets its share again")
	cmd.Flags().DurationVar(&d.For, "for", 5*time.Minute, "how long to wait; the leader continues on its own")
	return o.confirmFlag(cmd)
}

// writeDrained writes the outcome of a drain for people.
func writeDrained(t *tabwriter.Writer, done handoff.DrainResult) {
	if done.Gone {
		fmt.Fprintf(t, "Node %s has left the cluster.\n", done.Node)
		return
	}
	fmt.Fprintf(t, "Node %s is empty after %s and can be stopped. It gets no partitions until `streamer drain %s --undo`.\n",
		done.Node, formatDuration(time.Duration(done.TookMS)*time.Millisecond), done.Node)
}

// showHandoffs prints what moves, has moved, and is wished.
func showHandoffs(o *command) action {
	return func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
		c, err := conn.OpenCluster(ctx)
		if err != nil {
			return err
		}
		list, err := handoff.ReadHistory(ctx, c)
		if err != nil {
			return err
		}
		return o.print(w, list, func(t *tabwriter.Writer) { writeMoves(t, list) })
	}
}
