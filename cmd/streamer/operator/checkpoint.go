package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cmd/streamer/operator/form"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/place"
)

func checkpointCommand() *cobra.Command {
	return form.Group("checkpoint", "Look at marks, move them back, carry them elsewhere",
		listCommand(), showCommand(), historyCommand(), rewindCommand(), exportCommand(), importCommand(), repartitionCommand())
}

// A listing is all marks of a cluster.
type listing struct {
	Origin admin.Origin `json:"origin"`
	Marks  []admin.Mark `json:"marks"`
	// Without is how many partitions have no mark yet: they begin at the origin's start.
	Without int `json:"without_mark"`
}

func listCommand() *cobra.Command {
	var o form.Command
	return o.Make("list", "List the marks of all partitions", cobra.NoArgs, func(ctx context.Context, at *place.Place, _ []string, w io.Writer) error {
		origin, err := admin.ReadOrigin(ctx, at.Marks)
		if err != nil {
			return err
		}
		marks, unread := at.Marks.List(ctx)
		if unread != nil && len(marks) == 0 {
			return unread
		}
		all := listing{Origin: admin.ShowOrigin(origin), Marks: admin.ShowMarks(marks), Without: origin.Partitions - len(marks)}
		err = o.Print(w, all, func(t *tabwriter.Writer) {
			fmt.Fprintf(t, "cluster %s, %d partitions, incarnation %d, of %s\n\n", origin.Cluster, origin.Partitions, origin.Incarnation, origin.Source)
			writeMarks(t, all.Marks)
			if all.Without > 0 && unread == nil {
				fmt.Fprintf(t, "\n%d partitions have no mark: they begin at %s.\n", all.Without, form.Clock(all.Origin.Start.Time))
			}
		})
		return cmp.Or(err, unread)
	})
}

func writeMarks(t *tabwriter.Writer, marks []admin.Mark) {
	fmt.Fprintln(t, "PARTITION\tPOSITION\tTIME\tGENERATION\tEPOCH\tSAVED\tBY\tREASON")
	for _, m := range marks {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n",
			among(m.Partition, m.Of), m.Position, form.Clock(m.Position.Time), m.Generation, m.Epoch, form.Clock(m.At), m.By, because(m))
	}
}

// among tells which partition is meant, where it was one of another number than there are now.
func among(p change.Partition, of int) string {
	if of == 0 {
		return fmt.Sprint(p)
	}
	return fmt.Sprintf("%d of %d", p, of)
}

// because tells the reason of a mark, and what an operator said about it.
func because(m admin.Mark) string {
	if m.Note == "" {
		return string(m.Reason)
	}
	return string(m.Reason) + ": " + m.Note
}

// A shown is the mark of one partition, nil where there is none yet.
type shown struct {
	Partition change.Partition `json:"partition"`
	Mark      *admin.Mark      `json:"mark"`
	// Begins is where the partition begins without a mark.
	Begins *admin.Position `json:"begins,omitempty"`
}

func showCommand() *cobra.Command {
	var o form.Command
	return o.Make("show PARTITION", "Show the mark of one partition", cobra.ExactArgs(1), func(ctx context.Context, at *place.Place, args []string, w io.Writer) error {
		origin, p, err := partition(ctx, at, args[0])
		if err != nil {
			return err
		}
		s := shown{Partition: p}
		m, err := at.Marks.Load(ctx, p)
		switch {
		case err == nil:
			mark := admin.ShowMark(m)
			s.Mark = &mark
		case errors.Is(err, checkpoint.ErrNoMark):
			begins := admin.ShowPosition(change.At(origin.Start))
			s.Begins = &begins
		default:
			return err
		}
		return o.Print(w, s, func(t *tabwriter.Writer) {
			fmt.Fprintf(t, "partition\t%d\n", p)
			if s.Mark == nil {
				fmt.Fprintf(t, "mark\tnone yet: it begins at %s (%s)\n", s.Begins, form.Clock(s.Begins.Time))
				return
			}
			fmt.Fprintf(t, "position\t%s (%s)\ngeneration\t%d\nepoch\t%s\nsaved\t%s by %s\nreason\t%s\nfingerprint\t%s\n",
				s.Mark.Position, form.Clock(s.Mark.Position.Time), s.Mark.Generation, s.Mark.Epoch, form.Clock(s.Mark.At), s.Mark.By, because(*s.Mark), s.Mark.Fingerprint)
		})
	})
}

// A past is the history of one partition, the newest mark first.
type past struct {
	Partition change.Partition `json:"partition"`
	Marks     []admin.Mark     `json:"history"`
}

func historyCommand() *cobra.Command {
	var o form.Command
	return o.Make("history PARTITION", "Show the last marks of one partition, the newest first", cobra.ExactArgs(1),
		func(ctx context.Context, at *place.Place, args []string, w io.Writer) error {
			_, p, err := partition(ctx, at, args[0])
			if err != nil {
				return err
			}
			marks, unread := at.Marks.History(ctx, p)
			if unread != nil && len(marks) == 0 {
				return unread
			}
			h := past{Partition: p, Marks: admin.ShowMarks(marks)}
			err = o.Print(w, h, func(t *tabwriter.Writer) {
				if len(h.Marks) == 0 {
					fmt.Fprintf(t, "Partition %d has no mark yet.\n", p)
					return
				}
				writeMarks(t, h.Marks)
			})
			return cmp.Or(err, unread)
		})
}

// partition reads the origin, and the number of one of its partitions.
func partition(ctx context.Context, at *place.Place, text string) (checkpoint.Origin, change.Partition, error) {
	origin, err := admin.ReadOrigin(ctx, at.Marks)
	if err != nil {
		return origin, 0, err
	}
	p, err := admin.ParsePartition(text, origin)
	return origin, p, err
}
