package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
)

// A documentHistory is the changes of a document that are still in the log.
type documentHistory struct {
	Namespace string            `json:"namespace"`
	ID        json.RawMessage   `json:"_id"`
	Begins    *time.Time        `json:"begins,omitempty"` // of the log, if that is later than --since
	ReadTo    time.Time         `json:"read_to"`
	Changes   []documentChange  `json:"changes"`
	Losses    []json.RawMessage `json:"losses"`
	More      bool              `json:"more"` // --limit ended it
}

// A documentChange is a change in the node's answer.
type documentChange struct {
	Position  string          `json:"position"`
	Operation string          `json:"operation"`
	Time      time.Time       `json:"time"`
	Changed   []string        `json:"changed"`
	Event     json.RawMessage `json:"event"`
}

func documentCommand() *cobra.Command {
	var client nodeClient
	var since, until, output string
	most := 1000
	cmd := &cobra.Command{
		Use:   "history DB.COLL ID",
		Short: "Show the changes of one document that the log still has",
		Long: `Show the changes of one document that the oplog and the retained log still have, the oldest first, and the events of its whole collection (drop, rename).
It asks a running node, which reads the log from --since on. ID is the document's _id: Extended JSON, 24 hexadecimal digits for an ObjectId, or a plain text, which
is a string. A string that looks otherwise has quotes: '"17"'.

  streamer history shop.orders 650000000000000000000001
  streamer history shop.orders '{"$numberLong":"17"}' --since -2d
  streamer history shop.customers alice -o json | jq .changes[].changed`,
		Args: Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := CheckOutput(output); err != nil {
				return err
			}
			if most < 1 {
				return fault.Newf(fault.CommandBadArgument, "--limit %d: it must be at least 1", most)
			}
			db, coll, found := strings.Cut(args[0], ".")
			if !found || db == "" || coll == "" {
				return fault.Newf(fault.CommandBadArgument, "%q is no namespace: write DB.COLL", args[0])
			}
			query := url.Values{"db": {db}, "coll": {coll}, "id": {args[1]}}
			for flag, value := range map[string]*string{"since": &since, "until": &until} {
				if *value == "" {
					continue
				}
				at, err := admin.ParseTime(*value, time.Now())
				if err != nil {
					return fault.Newf(fault.CommandBadArgument, "--%s %q: %w", flag, *value, err)
				}
				query.Set(map[string]string{"since": "start", "until": "end"}[flag], at.UTC().Format(time.RFC3339))
			}
			history, err := readHistory(cmd.Context(), &client, query, most, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			history.Namespace = args[0]
			return printResult(cmd.OutOrStdout(), output, history, func(t *tabwriter.Writer) { writeHistory(t, history) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "where to begin: a time ("+admin.TimeForms+"); without it, the beginning of the log")
	flags.StringVar(&until, "until", "", "where to end: a time; without it, now")
	flags.IntVar(&most, "limit", most, "how many changes are shown at most, the oldest first")
	client.addFlags(cmd)
	client.addFileFlag(cmd)
	OutputFlag(cmd, &output)
	return cmd
}

// changesPage is how many changes one request asks for.
const changesPage = 1000

// readHistory asks a node until the log has been read, or there are enough changes. The node reads
// for a few seconds at a time, and then prints its progress.
func readHistory(ctx context.Context, client *nodeClient, query url.Values, most int, progress io.Writer) (all documentHistory, err error) {
	all = documentHistory{Changes: []documentChange{}, Losses: []json.RawMessage{}}
	for {
		query.Set("limit", fmt.Sprint(min(changesPage, most-len(all.Changes))))
		var page struct {
			documentHistory

			Next string `json:"next"`
		}
		if err := client.ask(ctx, http.MethodGet, "v1/changes", query, &page); err != nil {
			return all, err
		}
		all.ID, all.ReadTo = page.ID, page.ReadTo
		if page.Begins != nil {
			all.Begins = page.Begins
		}
		all.Changes, all.Losses = append(all.Changes, page.Changes...), append(all.Losses, page.Losses...)
		if page.Next == "" {
			return all, nil
		}
		if len(all.Changes) >= most {
			all.More = true
			return all, nil
		}
		fmt.Fprintf(progress, "%d changes, read up to %s\n", len(all.Changes), formatTime(all.ReadTo))
		query.Set("from", page.Next)
	}
}

// writeHistory writes a document's changes for people.
func writeHistory(t *tabwriter.Writer, h documentHistory) {
	fmt.Fprintf(t, "%s %s: %d changes, read up to %s\n", printable(h.Namespace), printable(string(h.ID)), len(h.Changes), formatTime(h.ReadTo))
	if h.Begins != nil {
		fmt.Fprintf(t, "The log begins at %s: earlier changes are not in it.\n", formatTime(*h.Begins))
	}
	if len(h.Losses) > 0 {
		fmt.Fprintf(t, "Changes may be missing: the log has %d gaps in this stretch (-o json shows them).\n", len(h.Losses))
	}
	if len(h.Changes) > 0 {
		fmt.Fprintln(t, "TIME\tOPERATION\tCHANGED\tPOSITION")
	}
	for _, c := range h.Changes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", formatTime(c.Time), printable(c.Operation), printable(orDash(shortened(strings.Join(c.Changed, ", ")))), printable(c.Position))
	}
	if h.More {
		fmt.Fprintln(t, "There are more: raise --limit, or begin later with --since.")
	}
}
