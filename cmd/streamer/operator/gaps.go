package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
)

func gapsCommand() *cobra.Command {
	var o command
	o.node = &nodeClient{}
	o.atNode = func(ctx context.Context, _ []string, w io.Writer) error {
		var log admin.GapLog
		if err := o.node.ask(ctx, http.MethodGet, "v1/gaps", nil, &log); err != nil {
			return err
		}
		if err := o.print(w, log, func(t *tabwriter.Writer) { writeGaps(t, log) }); err != nil || log.Error == "" {
			return err
		}
		return fmt.Errorf("some losses cannot be read: %s", printable(log.Error))
	}
	cmd := o.build("gaps", "List the losses that nodes recorded", cobra.NoArgs,
		func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
			if _, err := admin.ReadOrigin(ctx, conn.Store); err != nil {
				return err
			}
			gaps, unread := conn.Store.Gaps(ctx)
			if unread != nil && len(gaps) == 0 {
				return unread
			}
			log := admin.GapLog{Gaps: admin.ShowGaps(gaps)}
			if unread != nil {
				log.Error = unread.Error()
			}
			return cmp.Or(o.print(w, log, func(t *tabwriter.Writer) { writeGaps(t, log) }), unread)
		})
	cmd.Long = "List the losses that nodes recorded: changes of the log that every subscriber may have missed.\n" + ownLosses + "\n\n" + storeOrNode
	return cmd
}

// storeOrNode says in the help of a command where it gets its answer from.
const storeOrNode = `A node that is named (--address, STREAMER_ADDRESS, a context) is asked, or the one at 127.0.0.1:8080 without a configuration. With one (-f, or
variables STREAMER_…) the command reads the nodes' shared state, and needs no running node.`

// writeGaps writes losses for people. The command returns the error of the log.
func writeGaps(t *tabwriter.Writer, log admin.GapLog) {
	if len(log.Gaps) == 0 {
		if log.Error == "" {
			fmt.Fprintf(t, "No losses of the log.\n%s\n", ownLosses)
		}
		return
	}
	fmt.Fprintln(t, "FOUND\tLOST FROM\tTO\tREASON\tNAMESPACES\tBY")
	for _, g := range log.Gaps {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", formatTime(g.Found), formatTime(g.LostFrom.Time), formatTime(g.LostTo.Time), g.Reason,
			printable(orDash(strings.Join(g.Namespaces, ","))), printable(g.By))
	}
	fmt.Fprintf(t, "\n%s\n", ownLosses)
}

// ownLosses says where other losses are.
const ownLosses = "A subscriber that came back too late has its own losses: `streamer subscribers list -o json`."
