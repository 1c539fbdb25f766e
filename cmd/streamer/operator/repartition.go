package operator

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/cmd/streamer/operator/form"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/place"
)

// A repartitioned is what counting the partitions anew would do, and what stands when it was done.
type repartitioned struct {
	*admin.RepartitionPlan

	Done bool `json:"done"`
	// Stands is the origin afterwards.
	Stands *admin.Origin `json:"stands,omitempty"`
}

func repartitionCommand() *cobra.Command {
	o := form.Command{Nodes: true}
	var to int
	cmd := o.Make("repartition --to M", "Change the number of partitions", cobra.NoArgs,
		func(ctx context.Context, at *place.Place, _ []string, w io.Writer) error {
			if to == 0 {
				return fault.Newf(fault.CommandBadArgument, "--to is missing: how many partitions there are to be")
			}
			if err := at.OpenAsFound(ctx); err != nil {
				return err
			}
			source, err := at.Mongo(ctx)
			if err != nil {
				return err
			}
			plan, err := admin.PlanRepartition(ctx, at.Marks, source, to, namespaces(at.Config.Rescan.Collections))
			if err != nil {
				return err
			}
			r := repartitioned{RepartitionPlan: plan}
			question := fmt.Sprintf("Change the number of partitions from %d to %d?", plan.Origin.Partitions, to)
			if err := o.Decide(w, r, r.write, plan.Check(), question); err != nil {
				return err
			}
			next, err := plan.Apply(ctx, at.Marks, form.Who())
			if err != nil {
				return err
			}
			stands := admin.ShowOrigin(next)
			r.Done, r.Stands = true, &stands
			return o.Print(w, r, r.write)
		})
	cmd.Long = `Change the number of partitions. All nodes must have been stopped; then set cluster.partitions, and start them again.

Documents are in other partitions then, so every new partition begins where the rearmost of the old ones stands: nothing is missing. What
lies between there and the partition furthest on may be delivered again; gateways that tell where they stand begin where they were in the
rearmost of their partitions, and drop what they know. Stop the nodes while all partitions have caught up, and it is next to nothing.

Marks are taken away and the origin is written anew in one transaction, with a higher incarnation, which ends every epoch from before.
Histories, the gap log and the rows of gateways stay, and say of how many partitions they are. Where marks are in MongoDB and nodes share
the partitions through etcd, there are two transactions: after a crash between them no node starts, and the same command does the rest.

  streamer checkpoint repartition --to 128 --dry-run`
	cmd.Flags().IntVar(&to, "to", 0, "how many partitions there are to be")
	return o.Planning(cmd)
}

// namespaces are those of collections that are read again, without the fields that say when a document was changed.
func namespaces(collections []string) []string {
	all := make([]string, len(collections))
	for i, c := range collections {
		all[i], _, _ = strings.Cut(c, ":")
	}
	return all
}

// write writes what would be done, or was.
func (r repartitioned) write(t *tabwriter.Writer) {
	if r.Done {
		fmt.Fprintf(t, "There are %d partitions, incarnation %d. Set cluster.partitions to %d before nodes are started.\n",
			r.Stands.Partitions, r.Stands.Incarnation, r.Stands.Partitions)
		return
	}
	fmt.Fprintf(t, "partitions\t%d, to be %d\n", r.Origin.Partitions, r.To)
	fmt.Fprintf(t, "all begin at\t%s (%s)\n", r.Start, form.Clock(r.Start.Time))
	fmt.Fprintf(t, "furthest on\t%s (%s)\n", r.Furthest, form.Clock(r.Furthest.Time))
	fmt.Fprintf(t, "between\t%s changes of all collections, delivered again to who does not tell where it stands\n", estimate(r.Entries))
	if r.Without > 0 {
		fmt.Fprintf(t, "without a mark\t%d partitions, which stand where the cluster began\n", r.Without)
	}
	if r.OplogBegins == nil {
		fmt.Fprintln(t, "oplog\tcannot be looked at: whether it reaches back so far shows when it is read")
	} else {
		fmt.Fprintf(t, "oplog\tbegins at %s: it reaches back so far: %s\n", form.Clock(*r.OplogBegins), r.Reached)
	}
}
