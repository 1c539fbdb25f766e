package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/retry"
)

// opFollow is the operation that changes nothing and shows how far snapshots are.
const opFollow = "follow"

// followEvery is the interval of looks. Each look lists all subscribers.
const followEvery = time.Second

// A followed is how far the snapshots of a subscriber are.
type followed struct {
	Subscriber string `json:"subscriber"`
	// Read counts the documents that were read, Estimated those that there are about to read.
	Read      uint64 `json:"read"`
	Estimated uint64 `json:"estimated"`
	// Done says that all of them are complete, or cancelled.
	Done bool `json:"done"`
}

// readFollowed asks a node how far the snapshots of a subscriber are.
func readFollowed(ctx context.Context, node *nodeClient, name, subscription string) (f followed, err error) {
	all, err := readSubscribers(ctx, node)
	if err != nil {
		return f, err
	}
	i := slices.IndexFunc(all.Subscribers, func(s admin.Subscriber) bool { return s.Subscriber == name })
	if i < 0 {
		return f, fault.Newf(fault.CommandBadArgument, "there is no subscriber %q", name)
	}
	known := all.Subscribers[i].Snapshots
	if session := all.Subscribers[i].Session; session != nil {
		known = session.Snapshots
	}
	f = followed{Subscriber: name, Done: true}
	for _, s := range known {
		if subscription != "" && s.Subscription != subscription {
			continue
		}
		f.Read += s.Read
		f.Done = f.Done && s.Done
		if s.Done {
			f.Estimated += s.Read
		} else {
			f.Estimated += max(s.Estimated, s.Read)
		}
	}
	return f, nil
}

// followSnapshots shows how far the snapshots of a subscriber are until all are complete. A node
// that does not answer is asked again for a while.
func followSnapshots(ctx context.Context, o *command, name, subscription string, w io.Writer) error {
	bar := progress{w: w, unit: "documents", every: linesEvery}
	defer bar.end()
	for answered := time.Now(); ; {
		f, err := readFollowed(ctx, o.node, name, subscription)
		switch {
		case err == nil:
			answered = time.Now()
			if o.output == "" {
				bar.show(int(f.Read), int(f.Estimated))
			}
		case fault.Of(err) != fault.NodeUnreachable || time.Since(answered) > maxSilence:
			return err
		}
		if f.Done {
			bar.end()
			return o.print(w, f, func(t *tabwriter.Writer) {
				fmt.Fprintf(t, "No snapshot of subscriber %s is under way: %d documents were read.\n", quoted(f.Subscriber), f.Read)
			})
		}
		if err := retry.Sleep(ctx, followEvery); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
}

func snapshotCommand() *cobra.Command {
	var o command
	var subscription, namespace string
	var client nodeClient
	var follow bool
	o.node = &client
	cmd := &cobra.Command{
		Use: "snapshot SUBSCRIBER [begin|pause|resume|cancel|follow]", Short: "Send the documents that exist to a subscriber, or pause that", Args: Args(cobra.RangeArgs(1, 2)),
		Long: `Send the documents that exist to a subscriber, each in its place among the changes, or pause, resume or cancel a snapshot. The node that is
asked must be the one to which the subscriber is connected (see streamer subscribers list). It needs an identity with the right to every namespace,
and is recorded in the audit log. follow changes nothing: it shows how far they are until they are complete; so does --follow after another one.

  streamer snapshot gateway/orders --namespace shop.orders --follow --yes
  streamer snapshot gateway/orders follow
  streamer snapshot gateway/orders pause --address https://node-1:8080 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			do := "begin"
			if len(args) > 1 {
				do = args[1]
			}
			if do == opFollow {
				return followSnapshots(cmd.Context(), &o, args[0], subscription, cmd.OutOrStdout())
			}
			if err := o.ask(fmt.Sprintf("Snapshot of subscriber %s: %s?", quoted(args[0]), printable(do))); err != nil {
				return err
			}
			query := url.Values{"subscriber": args[:1], "operation": {do}, "subscription": {subscription}, "namespace": {namespace}}
			var result admin.SnapshotResult
			if err := client.ask(cmd.Context(), http.MethodPost, "v1/subscribers/snapshots", query, &result); err != nil {
				return err
			}
			tell := func(t *tabwriter.Writer) {
				fmt.Fprintf(t, "Snapshots of subscriber %s: %s, %d subscriptions.\n", quoted(result.Subscriber), result.Operation, result.Subscriptions)
			}
			if !follow || o.output == "" { // otherwise what it was at the end is the result
				if err := printResult(cmd.OutOrStdout(), o.output, result, tell); err != nil || !follow {
					return err
				}
			}
			return followSnapshots(cmd.Context(), &o, args[0], subscription, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&subscription, "subscription", "", "only this subscription")
	cmd.Flags().StringVar(&namespace, "namespace", "", "only this collection (db.coll)")
	cmd.Flags().BoolVar(&follow, "follow", false, "show how far it is, until it is complete")
	cmd.ValidArgsFunction = completeFrom(&client, subscriberNames)
	client.addFlags(cmd)
	client.addFileFlag(cmd)
	OutputFlag(cmd, &o.output)
	return o.confirmFlag(cmd)
}
