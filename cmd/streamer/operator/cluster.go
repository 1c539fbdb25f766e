package operator

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
)

func clusterCommand() *cobra.Command {
	return group("cluster", "Adopt a restored cluster, or change its partitions", adoptCommand(), repartitionCommand())
}

// An adopted is the plan of an adoption, and the new origin after it.
type adopted struct {
	*admin.AdoptPlan

	Done bool `json:"done"`
	// Stands is the origin afterwards.
	Stands *admin.Origin `json:"stands,omitempty"`
}

func adoptCommand() *cobra.Command {
	o := command{allNodes: true, accepts: []fault.Code{fault.ClusterOrigin, fault.ClusterBackend}}
	var to string
	var source bool
	cmd := o.build("adopt", "Adopt the checkpoints after etcd or MongoDB was restored from a backup", cobra.NoArgs,
		func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
			var restored change.Timestamp
			if to != "" {
				p, err := admin.ParseTarget(to)
				if err != nil {
					return err
				}
				if p.Token != nil { // of whatever kind: one of progress is a time as well, one of an event is after its time
					return fault.Newf(fault.CommandBadArgument, "--to takes a time, not a token")
				}
				restored = p.Time
			}
			mongo, err := conn.Mongo(ctx)
			if err != nil {
				return err
			}
			plan, err := admin.PlanAdopt(ctx, conn.Store, mongo, restored, conn.Describe())
			if err != nil {
				return err
			}
			a := adopted{AdoptPlan: plan}
			if err := o.decide(ctx, w, a, a.write, plan.Check(source), "Adopt the checkpoints? Every node that runs loses its partitions."); err != nil {
				return err
			}
			next, err := plan.Apply(ctx, conn.Store, operatorName())
			if err != nil {
				return err
			}
			stands := admin.ShowOrigin(next)
			a.Done = true
			a.Stands = &stands
			return o.print(w, a, a.write)
		})
	cmd.Long = `Take the checkpoints over after a restore, and before nodes are started again.

After a restore of etcd the epochs that were given since the backup would be given once more. Adopting raises the incarnation, which ends
every epoch from before: nodes that survived can no longer save the checkpoints of shared subscribers. The etcd that the configuration leads to is
the cluster's from then on, also where it is another one than before.

After a restore of MongoDB checkpoints may be of a log that does not exist. Those ahead of MongoDB's time, or with --to after the time of the backup,
are moved back, and what their subscribers have had of it is recorded in the gap log (streamer gaps).`
	cmd.Flags().StringVar(&to, "to", "", "the time to which MongoDB was restored ("+admin.TimeForms+"; or t:i)")
	cmd.Flags().BoolVar(&source, "source", false, "accept another deployment than the one the checkpoints were made with: the same data, moved or restored")
	return o.planFlags(cmd)
}

// write writes what would be done, or was.
func (a adopted) write(t *tabwriter.Writer) {
	if a.Done {
		fmt.Fprintf(t, "The cluster is adopted: incarnation %d. %d checkpoints were moved back.\n", a.Stands.Incarnation, len(a.Ahead))
		return
	}
	fmt.Fprintf(t, "cluster\t%s, %d partitions, incarnation %d\n", a.Origin.Cluster, a.Origin.Partitions, a.Origin.Incarnation)
	fmt.Fprintf(t, "checkpoints are of\t%s\n", a.Origin.Source)
	if a.NewSource {
		fmt.Fprintf(t, "MongoDB is\t%s\n", a.Source)
	}
	if a.NewEtcd {
		fmt.Fprintf(t, "etcd was\t%s below %s\n", a.Origin.Backend.Etcd, a.Origin.Backend.Prefix)
		fmt.Fprintf(t, "etcd is\t%s below %s\n", a.Etcd.Etcd, a.Etcd.Prefix)
	}
	fmt.Fprintf(t, "MongoDB is at\t%s (%s)\n", a.Now, formatTime(a.Now.Time))
	fmt.Fprintf(t, "checkpoints ahead\t%d\n", len(a.Ahead))
	if len(a.Ahead) > 0 {
		fmt.Fprintf(t, "they go back to\t%s (%s)\n\nSUBSCRIBER\tPARTITION\tAT\tTIME\n", a.To, formatTime(a.To.Time))
		for _, c := range a.Ahead {
			partition := "all"
			if c.Partition != nil {
				partition = fmt.Sprint(*c.Partition)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", quoted(c.Subscriber), partition, c.Position, formatTime(c.Position.Time))
		}
	}
}
