package operator

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
)

// A repartitioned is the plan of a repartition, and the new origin after it.
type repartitioned struct {
	*admin.RepartitionPlan

	Done bool `json:"done"`
	// Stands is the origin afterwards.
	Stands *admin.Origin `json:"stands,omitempty"`
}

func repartitionCommand() *cobra.Command {
	o := command{allNodes: true}
	var to int
	cmd := o.build("repartition --to M", "Change the number of partitions", cobra.NoArgs,
		func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
			if to == 0 {
				return fault.Newf(fault.CommandBadArgument, "--to is missing: set the new number of partitions")
			}
			if err := conn.OpenAsStored(ctx); err != nil {
				return err
			}
			source, err := conn.Mongo(ctx)
			if err != nil {
				return err
			}
			say := func(text string) {
				if o.output == "" {
					fmt.Fprintln(w, text)
				}
			}
			say("1 of 2: reading all checkpoints, and how far the oplog reaches.")
			plan, err := admin.PlanRepartition(ctx, conn.Store, source, to, backend.Watch(conn.Config).Coverage())
			if err != nil {
				return err
			}
			r := repartitioned{RepartitionPlan: plan}
			question := fmt.Sprintf("Change the number of partitions from %d to %d?", plan.Origin.Partitions, to)
			if err := o.decide(ctx, w, r, r.write, plan.Check(), question); err != nil {
				return err
			}
			say("2 of 2: writing the new origin, in one transaction.")
			next, err := plan.Apply(ctx, conn.Store, operatorName())
			if err != nil {
				return err
			}
			stands := admin.ShowOrigin(next)
			r.Done = true
			r.Stands = &stands
			return o.print(w, r, r.write)
		})
	cmd.Long = `Change the number of partitions. Stop all nodes first; then set cluster.partitions, and start them again.

Documents are in other partitions then, so a subscriber begins where it is earliest in the old ones: nothing is missing. Changes between there and
where it is latest may be delivered again. Shared subscribers all begin where the earliest of them is. Clients that tell where they are begin where they
were earliest, and drop known changes by position. Stop the nodes while all subscribers have caught up, and next to nothing is redelivered.

The checkpoints of shared subscribers are taken away and the origin is written anew in one transaction, with a higher incarnation, which ends
every epoch from before. The other checkpoints, histories and the gap log stay. Where checkpoints are in MongoDB and nodes share the
partitions through etcd, there are two transactions: after a crash between them no node starts, and the same command does the rest.

  streamer cluster repartition --to 128 --dry-run`
	cmd.Flags().IntVar(&to, "to", 0, "the new number of partitions")
	return o.planFlags(cmd)
}

// write writes what would be done, or was.
func (r repartitioned) write(t *tabwriter.Writer) {
	if r.Done {
		fmt.Fprintf(t, "There are %d partitions, incarnation %d. Set cluster.partitions to %d before nodes are started.\n",
			r.Stands.Partitions, r.Stands.Incarnation, r.Stands.Partitions)
		return
	}
	fmt.Fprintf(t, "partitions\t%d, to be %d\n", r.Origin.Partitions, r.To)
	fmt.Fprintf(t, "shared ones begin at\t%s (%s)\n", r.Start, formatTime(r.Start.Time))
	writeReach(t, r.OplogBegins, r.Reached)
	fmt.Fprintf(t, "entries\t%s of all collections, from the earliest position to the latest\n", estimate(r.Entries))
	if len(r.Subscribers) > 0 {
		fmt.Fprintln(t, "\nSUBSCRIBER\tKIND\tEARLIEST\tLATEST\tWITHOUT A CHECKPOINT\tSNAPSHOTS UNDER WAY")
	}
	for _, s := range r.Subscribers {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d partitions\t%d\n", quoted(s.Subscriber), s.Kind, formatTime(s.Earliest.Time), formatTime(s.Latest.Time), s.Without, s.Snapshots)
	}
}
