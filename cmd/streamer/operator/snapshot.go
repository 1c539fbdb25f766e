package operator

import (
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/internal/admin"
)

func snapshotCommand() *cobra.Command {
	var o command
	var subscription, namespace string
	var client nodeClient
	cmd := &cobra.Command{
		Use: "snapshot SUBSCRIBER [begin|pause|resume|cancel]", Short: "Send the documents that exist to a subscriber, or pause that", Args: Args(cobra.RangeArgs(1, 2)),
		Long: `Send the documents that exist to a subscriber, each in its place among the changes, or pause, resume or cancel what is under way. The node that is
asked must be the one to which the subscriber is connected (see streamer subscribers list). It needs an identity with the right to every namespace,
and is recorded in the audit log.

  streamer snapshot gateway/orders --namespace shop.orders --yes
  streamer snapshot gateway/orders pause --address https://node-1:8080 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			do := "begin"
			if len(args) > 1 {
				do = args[1]
			}
			if err := o.ask(fmt.Sprintf("Snapshot of subscriber %s: %s?", quoted(args[0]), printable(do))); err != nil {
				return err
			}
			query := url.Values{"subscriber": args[:1], "operation": {do}, "subscription": {subscription}, "namespace": {namespace}}
			var result admin.SnapshotResult
			if err := client.ask(cmd.Context(), http.MethodPost, "v1/subscribers/snapshots", query, &result); err != nil {
				return err
			}
			return printResult(cmd.OutOrStdout(), o.output, result, func(t *tabwriter.Writer) {
				fmt.Fprintf(t, "Snapshots of subscriber %s: %s, %d subscriptions.\n", quoted(result.Subscriber), result.Operation, result.Subscriptions)
			})
		},
	}
	cmd.Flags().StringVar(&subscription, "subscription", "", "only this subscription")
	cmd.Flags().StringVar(&namespace, "namespace", "", "only this collection (db.coll)")
	cmd.ValidArgsFunction = completeFrom(&client, subscriberNames)
	client.addFlags(cmd)
	client.addFileFlag(cmd)
	OutputFlag(cmd, &o.output)
	return o.confirmFlag(cmd)
}
