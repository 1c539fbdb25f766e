package operator

import (
	"context"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mongostream/streamer/internal/admin"
)

func auditCommand() *cobra.Command {
	var output string
	var client nodeClient
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who has connected to the nodes and operators' actions", Args: Args(cobra.NoArgs),
		Long: `Show the audit log of a running node: refused and accepted logins, sessions, and operators' actions. With etcd it is that of the whole
cluster. It needs an identity with the right to every namespace.

  streamer audit --address https://node-1:8080 --ca-file ca.crt --token-file token`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckOutput(output); err != nil {
				return err
			}
			var log admin.AuditLog
			if err := client.ask(cmd.Context(), http.MethodGet, "v1/audit", nil, &log); err != nil {
				return err
			}
			return printResult(cmd.OutOrStdout(), output, log, func(t *tabwriter.Writer) { writeAudit(t, log) })
		},
	}
	client.addFlags(cmd)
	client.addFileFlag(cmd)
	OutputFlag(cmd, &output)
	return cmd
}

// writeAudit writes the audit log for people.
func writeAudit(t *tabwriter.Writer, log admin.AuditLog) {
	if len(log.Records) == 0 {
		fmt.Fprintln(t, "No records.")
		return
	}
	fmt.Fprintln(t, "TIME\tNODE\tKIND\tSAYS")
	for _, n := range log.Records {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", formatTime(n.At), printable(n.Node), printable(n.Kind), printable(n.Text))
	}
}

// auditTimeout is how long it may take to write a record.
const auditTimeout = 10 * time.Second

// maxArgument is how much of an argument is recorded: a resume token contains a document's key.
const maxArgument = 100

// record writes into the audit log that the operator has confirmed the command. Without it nothing
// is done. A node alone with checkpoints in MongoDB has no history that others could write to: the
// record is a line of the command's own log then. A node that is asked writes the record itself.
func (o *command) record(ctx context.Context) error {
	if o.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	arguments := make([]string, 0, len(o.args))
	for _, a := range o.args {
		arguments = append(arguments, shortened(a))
	}
	o.cmd.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		isTarget := f.Name == "to" || f.Name == "from"
		if _, err := admin.ParseTarget(value); isTarget && err == nil && len(value) > len(time.RFC3339)+len("+00:00") {
			value = "(a resume token)"
		}
		arguments = append(arguments, "--"+f.Name+"="+shortened(value))
	})
	n := admin.OperatedNotice(operatorName(), o.cmd.CommandPath(), arguments)
	n.At = time.Now().UTC()
	kept, err := o.conn.Announce(ctx, n)
	switch {
	case err != nil:
		return fmt.Errorf("write the audit log: %w", err)
	case !kept:
		newLogger(o.conn.Config).Warn("audit", "channel", "audit", "kind", n.Kind, "by", n.Node, "text", n.Text)
	}
	return nil
}

func shortened(argument string) string {
	if runes := []rune(argument); len(runes) > maxArgument {
		return string(runes[:maxArgument]) + "…"
	}
	return argument
}
