package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
)

func gapsCommand() *cobra.Command {
	var o command
	return o.build("gaps", "List the losses that nodes recorded", cobra.NoArgs,
		func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
			if _, err := admin.ReadOrigin(ctx, conn.Store); err != nil {
				return err
			}
			gaps, unread := conn.Store.Gaps(ctx)
			if unread != nil && len(gaps) == 0 {
				return unread
			}
			log := admin.GapLog{Gaps: admin.ShowGaps(gaps)}
			err := o.print(w, log, func(t *tabwriter.Writer) {
				if len(log.Gaps) == 0 {
					fmt.Fprintln(t, "No losses.")
					return
				}
				fmt.Fprintln(t, "FOUND\tLOST FROM\tTO\tREASON\tNAMESPACES\tBY")
				for _, g := range log.Gaps {
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", formatTime(g.Found), formatTime(g.LostFrom.Time), formatTime(g.LostTo.Time), g.Reason,
						printable(orDash(strings.Join(g.Namespaces, ","))), printable(g.By))
				}
			})
			return cmp.Or(err, unread)
		})
}
