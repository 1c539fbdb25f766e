package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
)

func exportCommand() *cobra.Command {
	o := command{noOutput: true}
	cmd := o.build("export [FILE]", "Write all checkpoints into a file, or to standard output", cobra.MaximumNArgs(1),
		func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
			toFile := len(args) > 0 && args[0] != "-"
			if toFile {
				fmt.Fprintln(w, "Reading the checkpoints.")
			}
			archive, err := admin.Export(ctx, conn.Store, operatorName())
			if err != nil {
				return err
			}
			if !toFile {
				return archive.Write(w)
			}
			if err := writeFile(args[0], archive.Write); err != nil {
				return err
			}
			fmt.Fprintf(w, "%d checkpoints and %d losses are in %s.\n", len(archive.Checkpoints), len(archive.Gaps), printable(args[0]))
			return nil
		})
	cmd.Long = `Write the origin and all checkpoints as one JSON document, for "streamer subscribers import" at another store. The document contains resume
tokens, and those contain keys of documents: keep it as you keep the data.`
	return cmd
}

// writeFile makes a new file for its owner alone; one that exists is not touched.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fault.New(fault.CommandBadArgument, err)
	}
	err = errors.Join(write(f), f.Close())
	if err != nil {
		_ = os.Remove(name) // half an archive is none
	}
	return err
}

// An imported is the plan of an import, and whether it was executed.
type imported struct {
	*admin.ImportPlan

	Done bool `json:"done"`

	every bool // show the checkpoints that stay, too
}

func importCommand() *cobra.Command {
	o := command{allNodes: true, accepts: []fault.Code{fault.ClusterBackend}}
	var every bool
	cmd := o.build("import FILE", "Take over the checkpoints of an export", cobra.ExactArgs(1),
		func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
			archive, err := readArchive(args[0])
			if err != nil {
				return err
			}
			source, err := conn.Mongo(ctx)
			if err != nil {
				return err
			}
			plan, err := admin.PlanImport(ctx, conn.Store, source, archive)
			if err != nil {
				return err
			}
			i := imported{ImportPlan: plan, every: every}
			question := fmt.Sprintf("Import %d checkpoints? Where one moves forward, what is between is skipped.", len(plan.Steps))
			if err := o.decide(ctx, w, i, i.write, nil, question); err != nil {
				return err
			}
			bar := progress{w: w, unit: "checkpoints", every: linesEvery}
			if o.output == "" {
				fmt.Fprintln(w, "Claiming the partitions: if a node has just ended, its claim lasts for up to its lease.")
				plan.Progress = bar.show
			}
			err = apply(ctx, conn, plan, args[0])
			bar.end()
			if err != nil {
				return err
			}
			i.Done = true
			return o.print(w, i, i.write)
		})
	cmd.Long = `Take over the checkpoints that "streamer subscribers export" wrote, for example when they move from etcd to MongoDB. No node may be running.
Where there is no cluster yet, its origin is taken over too. Changes in between are redelivered where a checkpoint moves back, and skipped where it moves
forward. Subscribers that are not in the export stay where they are.`
	cmd.Flags().BoolVar(&every, "all", false, "show the checkpoints that stay, too")
	return o.planFlags(cmd)
}

// importTTL is how long the claim of an import lives without being renewed.
const importTTL = 10 * time.Second

// apply claims the partitions as a node does, so that none can be saving, and imports.
func apply(ctx context.Context, conn *backend.Conn, plan *admin.ImportPlan, from string) error {
	if err := conn.CheckVacant(ctx); err != nil {
		if held, is := errors.AsType[*cluster.HeldError](err); is {
			return fault.New(fault.NodeRunning, held)
		}
		return err
	}
	if err := plan.Create(ctx, conn.Store, conn.InitialBackend()); err != nil {
		return err
	}
	by := operatorName()
	solo := member.NewSolo(member.SoloConfig{
		Member: cluster.Identity{Node: by, Process: rand.Text()}, Partitions: plan.Origin.Partitions, TTL: importTTL,
	}, conn.Owner)
	applied := false
	err := solo.Run(ctx, func(ctx context.Context, terms []change.Term) error {
		err := plan.Apply(ctx, conn.Store, terms, by, from)
		applied = err == nil
		return err
	})
	if err == nil && !applied {
		return fmt.Errorf("import: %w", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	return conn.RecordMove(ctx, by)
}

func readArchive(name string) (admin.Archive, error) {
	f := os.Stdin
	if name != "-" {
		var err error
		if f, err = os.Open(name); err != nil {
			return admin.Archive{}, fault.New(fault.CommandBadArgument, err)
		}
		defer f.Close() //nolint:errcheck // read only
	}
	return admin.ReadArchive(f, name)
}

// write writes what would be done, or was.
func (i imported) write(t *tabwriter.Writer) {
	if i.Done {
		fmt.Fprintf(t, "%d checkpoints are new, %d were moved forward, %d back, %d were there already.\n",
			i.Count(admin.New), i.Count(admin.Forward), i.Count(admin.Back), i.Count(admin.Stays))
		return
	}
	if i.Creates {
		fmt.Fprintf(t, "There is no cluster here yet: its origin is taken over (%s, %d partitions, of %s).\n\n", i.Origin.Cluster, i.Origin.Partitions, i.Origin.Source)
	}
	fmt.Fprintf(t, "%d are new, %d move forward, %d back, %d are unchanged\n", i.Count(admin.New), i.Count(admin.Forward), i.Count(admin.Back), i.Count(admin.Stays))
	steps := slices.Clone(i.Steps)
	if !i.every {
		steps = slices.DeleteFunc(steps, func(s admin.ImportStep) bool { return s.Move == admin.Stays })
	}
	if len(steps) == 0 {
		return
	}
	fmt.Fprintln(t, "\nSUBSCRIBER\tPARTITION\tAT\tARCHIVE\tTIME\tMOVE")
	for _, s := range steps {
		from := "-"
		if s.From != nil {
			from = s.From.String()
		}
		partition := "all"
		if s.Partition != nil {
			partition = fmt.Sprint(*s.Partition)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", quoted(s.Subscriber), partition, from, s.To, formatTime(s.To.Time), s.Move)
	}
}
