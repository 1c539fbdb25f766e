package operator

import (
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/internal/admin"
)

func sinksCommand() *cobra.Command {
	cmd := alone(sinkCommand("status", "Show the sinks at a node", "", cobra.NoArgs), "sinks", "Show, pause and resume sinks",
		sinkCommand("pause NAME", "Stop publishing at all nodes; changes wait in the oplog", admin.PauseSink, cobra.ExactArgs(1)),
		sinkCommand("resume NAME", "Publish again, also after the sink has halted", admin.ResumeSink, cobra.ExactArgs(1)),
	)
	cmd.Long = `Show, pause and resume the sinks of a cluster through one of its nodes. It needs an identity with the right to every namespace.

  streamer sinks status
  streamer sinks pause orders --yes`
	return cmd
}

// sinkCommand makes a command that asks a node for its sinks, or has something done with one.
func sinkCommand(use, short, do string, args cobra.PositionalArgs) *cobra.Command {
	var o command
	var client nodeClient
	cmd := &cobra.Command{
		Use: use, Short: short, Args: Args(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			var list admin.SinkList
			method := http.MethodGet
			path := "v1/sinks"
			if do != "" {
				method = http.MethodPost
				path = path + "/" + url.PathEscape(args[0]) + "/" + do
				if err := o.ask(fmt.Sprintf("Sink %s: %s at all nodes?", quoted(args[0]), do)); err != nil {
					return err
				}
			}
			if err := client.ask(cmd.Context(), method, path, nil, &list); err != nil {
				return err
			}
			if do != "" {
				said := fmt.Sprintf("requested: %s %s", do, args[0])
				if list.Pending != "" {
					said += "; " + list.Pending
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), said)
				return err
			}
			return printResult(cmd.OutOrStdout(), o.output, list, func(t *tabwriter.Writer) { writeSinks(t, list) })
		},
	}
	client.addFlags(cmd)
	client.addFileFlag(cmd)
	OutputFlag(cmd, &o.output)
	if do != "" {
		cmd.ValidArgsFunction = completeFrom(&client, sinkNames)
		return o.confirmFlag(cmd)
	}
	return cmd
}

// writeSinks writes sinks for people.
func writeSinks(t *tabwriter.Writer, l admin.SinkList) {
	if len(l.Sinks) == 0 {
		fmt.Fprintln(t, "No sinks.")
		return
	}
	fmt.Fprintln(t, "SINK\tNODE\tSTATE\tUNDER WAY\tPUBLISHED\tRETRIED\tDEAD LETTERS\tERROR")
	for _, s := range l.Sinks {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", printable(s.Name), printable(l.Node), s.State, s.UnderWay, s.Published, s.Retried, s.DeadLetters, printable(s.Error))
	}
}
