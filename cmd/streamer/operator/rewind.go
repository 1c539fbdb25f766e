package operator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
)

// A rewound is the plan of a rewind, and whether it was executed.
type rewound struct {
	*admin.RewindPlan

	Done bool `json:"done"`
	// Announced says that the nodes have been informed, AnnounceError why not.
	Announced     bool   `json:"announced"`
	AnnounceError string `json:"announce_error,omitempty"`
}

// announceTimeout bounds the announcement of a rewind to the nodes, which also notice it at their
// next save.
const announceTimeout = 10 * time.Second

// rewindTimeout is how long a node may take to plan a rewind, or to do it: longer than it takes to
// count the entries of the log, and than its own bound on writing the checkpoints.
const rewindTimeout = 90 * time.Second

func rewindCommand() *cobra.Command {
	var o command
	var to, why string
	var only *[]string
	o.node = &nodeClient{}
	o.atNode = func(ctx context.Context, args []string, w io.Writer) error {
		return rewindAtNode(ctx, &o, args[0], to, w)
	}
	cmd := o.build("rewind NAME --to TIME|TOKEN", "Move a subscriber back, so that later changes are redelivered", cobra.ExactArgs(1),
		func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
			if err := checkTarget(to); err != nil { // before MongoDB is connected to
				return err
			}
			wanted, err := partitions(ctx, conn, *only)
			if err != nil {
				return err
			}
			return o.rewind(ctx, conn, rewinding{subscriber: args[0], to: to, why: why, partitions: wanted}, w)
		})
	cmd.Long = `Move a subscriber back to a time or to a resume token. It is the only way back: changes after the new position are redelivered, after a notice
(rewound). Where a partition is before the target already, it stays. The node that serves the subscriber is notified, and goes there at once; where there
is no etcd to tell it by, it finds out when it saves the next checkpoint. A subscriber that is not connected begins there.

A checkpoint that is corrupt is replaced by the newest entry of its history, moved back if that is later than the target. The rest of its
snapshots is not known then: begin them again with subscribers snapshot.

` + storeOrNode + ` A node moves
all partitions of a subscriber, and takes no --partition and no --why.

  streamer subscribers rewind gateway/orders --to -10m
  streamer subscribers rewind gateway/orders --to 2026-01-31T12:00:00Z --dry-run
  streamer subscribers rewind stdout --partition 3,17 --to 1769860800:1 --yes --why "orders were written twice"`
	cmd.Flags().StringVar(&to, "to", "", "a time ("+admin.TimeForms+"), earliest, a cluster time t:i, or a resume token (as JSON, or its _data)")
	cmd.Flags().StringVar(&why, "why", "", "the reason; kept in the history")
	only = partitionFlag(cmd)
	cmd.ValidArgsFunction = completeFrom(o.node, subscriberNames)
	return o.planFlags(cmd)
}

// A rewinding says which subscriber is moved where.
type rewinding struct {
	subscriber, to, why string
	partitions          []change.Partition // none are all
}

// checkTarget refuses a text that is no position.
func checkTarget(to string) error {
	switch to {
	case "":
		return fault.Newf(fault.CommandBadArgument, "--to is missing: set the position to move back to")
	case admin.Earliest:
		return nil
	}
	_, err := admin.ParseTarget(to)
	return err
}

// rewind moves a subscriber back, after it has shown the plan and asked.
func (o *command) rewind(ctx context.Context, conn *backend.Conn, what rewinding, w io.Writer) error {
	source, err := conn.Log(ctx)
	if err != nil {
		return err
	}
	target, err := admin.FindTarget(ctx, source, what.to)
	if err != nil {
		return err
	}
	plan, err := admin.PlanRewind(ctx, conn.Store, source, what.subscriber, what.partitions, target)
	if err != nil {
		return err
	}
	r := rewound{RewindPlan: plan}
	question := fmt.Sprintf("Move subscriber %s back to %s?", quoted(plan.Subscriber), formatTime(plan.To.Time))
	if err := o.decide(ctx, w, r, r.write, plan.Check(), question); err != nil {
		return err
	}
	written, err := plan.Apply(ctx, conn.Store, operatorName(), what.why)
	if len(written) > 0 {
		telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
		defer cancel()
		var untold error
		if r.Announced, untold = conn.Announce(telling, plan.Notice(written, operatorName())); untold != nil {
			r.AnnounceError = untold.Error()
		}
	}
	if err != nil {
		return err
	}
	r.Done = true
	return o.print(w, r, r.write)
}

// rewindAtNode moves a subscriber back through one of the cluster's nodes, after it has shown the
// node's plan and asked.
func rewindAtNode(ctx context.Context, o *command, subscriber, to string, w io.Writer) error {
	if err := checkTarget(to); err != nil {
		return err
	}
	for _, flag := range []string{"partition", "why"} {
		if o.cmd.Flags().Changed(flag) {
			return fault.Newf(fault.CommandBadArgument, "--%s needs the configuration of the nodes: give -f, and no --address", flag)
		}
	}
	if at, err := admin.ParseTarget(to); err == nil && at.Token == nil {
		to = at.Time.String() // of the plan that is confirmed: a relative time would have moved on meanwhile
	}
	o.node.wait = rewindTimeout
	const path = "v1/subscribers/rewind"
	query := url.Values{"subscriber": {subscriber}, "to": {to}}
	r := rewound{RewindPlan: &admin.RewindPlan{}}
	if err := o.node.ask(ctx, http.MethodGet, path, query, r.RewindPlan); err != nil {
		return err
	}
	question := fmt.Sprintf("Move subscriber %s back to %s?", quoted(r.Subscriber), formatTime(r.To.Time))
	if err := o.decide(ctx, w, r, r.write, nil, question); err != nil {
		return err
	}
	var accepted admin.Accepted
	if err := o.node.ask(ctx, http.MethodPost, path, query, &accepted); err != nil {
		return err
	}
	r.Done, r.Announced = true, true
	return o.print(w, r, r.write)
}

// write writes what would be done, or was.
func (r rewound) write(t *tabwriter.Writer) {
	if r.Done {
		fmt.Fprintf(t, "Subscriber %s was moved back to %s (%s), %d checkpoints.\n", quoted(r.Subscriber), r.To, formatTime(r.To.Time), r.Moves())
		switch {
		case r.AnnounceError != "":
			fmt.Fprintf(t, "The nodes could not be told (%s): the one that serves it finds out with the next checkpoint.\n", r.AnnounceError)
		case !r.Announced:
			fmt.Fprintln(t, "The node that serves it finds out with the next checkpoint.")
		}
		return
	}
	fmt.Fprintf(t, "subscriber\t%s\n", quoted(r.Subscriber))
	fmt.Fprintf(t, "to\t%s (%s)\n", r.To, formatTime(r.To.Time))
	writeReach(t, r.OplogBegins, r.Reached)
	fmt.Fprintf(t, "entries\t%s of all partitions and collections, from there to the latest position\n\n", estimate(r.Entries))
	fmt.Fprintln(t, "PARTITION\tAT\tTIME\tMOVES\tREDELIVERED AT MOST\tPROCESS")
	for _, s := range r.Steps {
		partition, moves := "all", "no: it is there, or before"
		if s.Partition != nil {
			partition = fmt.Sprint(*s.Partition)
		}
		if s.Moves {
			moves = fmt.Sprintf("back %s, to generation %d", formatDuration(max(0, s.From.Time.Sub(r.To.Time))), s.Generation+1)
		}
		if s.Repairs {
			moves = "corrupt: repaired from its history, " + moves
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", partition, s.From, formatTime(s.From.Time), moves, estimate(s.Events), process(s.Claim))
	}
}

// writeReach writes whether the oplog reaches back to somewhere.
func writeReach(t *tabwriter.Writer, begins *time.Time, reached admin.Reach) {
	if begins == nil {
		fmt.Fprintln(t, "oplog\tcannot be read: whether it reaches back so far shows when a node reads it")
		return
	}
	fmt.Fprintf(t, "oplog\tbegins at %s: it reaches back so far: %s\n", formatTime(*begins), reached)
}

// estimate shows a number that may not be known.
func estimate(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprintf("about %d", *n)
}
