package operator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/retry"
)

// A tail follows a node's events.
type tail struct {
	query  url.Values
	output string
	colour bool
	out    io.Writer
	notes  io.Writer
	lastID string
	// most is how many events are shown, 0 for no end.
	most   int
	shown  int
	client nodeClient
	// take takes a message; nil shows it.
	take func(sse.Message) error
}

// The forms in which tail shows events.
const (
	outputText   = "text"
	outputJSON   = "json"
	outputPretty = "pretty"
)

func tailCommand() *cobra.Command {
	t := &tail{query: url.Values{}}
	var start, until, subscriber string
	var selects selection
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow the events of a running node",
		Long: `Follow the events of a running node, from now on or from --start. After a lost connection it continues after the last event. With --subscriber
it has a checkpoint of that name and continues there the next time. With --until it ends where the log reaches that time, at the latest some seconds after it
in a deployment without writes.

  streamer tail --db shop --coll orders --op insert,delete
  streamer tail --db shop --coll orders --filter 'doc.total >= 100.0' --start -10m --count 5
  streamer tail --db shop --coll orders --start -2h --until -1h -o json
  streamer tail --address https://node-1:8080 --ca-file ca.crt --token-file token
  streamer tail -o json | jq .documentKey`,
		Args: Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := startParameter(start)
			if err != nil {
				return err
			}
			end, err := untilParameter(until)
			if err != nil {
				return err
			}
			selects.set(t.query)
			for name, value := range map[string]string{"subscriber": subscriber, "start": from, "end": end} {
				if value != "" {
					t.query.Set(name, value)
				}
			}
			if forms := []string{"", outputText, outputJSON, outputPretty}; !slices.Contains(forms, t.output) {
				return fault.Newf(fault.CommandBadArgument, "unknown output %q: use -o text, -o json or -o pretty", t.output)
			}
			if cmd.Flags().Changed("count") && t.most < 1 {
				return fault.Newf(fault.CommandBadArgument, "--count %d: it must be at least 1", t.most)
			}
			t.out = cmd.OutOrStdout()
			t.notes = Terminal{cmd.ErrOrStderr()}
			t.colour = coloured(t.out)
			return t.run(cmd.Context())
		},
	}
	selects.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&start, "start", "", "where to begin: now, earliest, or a time ("+admin.TimeForms+")")
	flags.StringVar(&until, "until", "", "where to end: a time ("+admin.TimeForms+"); without --subscriber")
	flags.StringVar(&subscriber, "subscriber", "", "name of a subscriber: the place after the last change sent to it is kept as its checkpoint")
	flags.IntVar(&t.most, "count", 0, "end after so many events")
	flags.StringVarP(&t.output, "output", "o", "", "text (the default), json: one event a line, pretty: JSON over several lines")
	complete(cmd, "output", cobra.FixedCompletions([]string{outputText, outputJSON, outputPretty}, cobra.ShellCompDirectiveNoFileComp))
	t.client.addFlags(cmd)
	t.client.addFileFlag(cmd)
	return cmd
}

// A selection says which changes of a node are wanted.
type selection struct {
	db, coll, filter string
	ops              []string
}

// addFlags adds the flags of the selection.
func (s *selection) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.db, "db", "", "only this database")
	flags.StringVar(&s.coll, "coll", "", "only this collection")
	flags.StringSliceVar(&s.ops, "op", nil, "only these operations: "+strings.Join(operations(), ", "))
	flags.StringVar(&s.filter, "filter", "", "only changes for which this expression is true (docs/filters.md)")
	complete(cmd, "op", cobra.FixedCompletions(operations(), cobra.ShellCompDirectiveNoFileComp))
}

// set sets the parameters of a request for the changes.
func (s *selection) set(query url.Values) {
	for name, value := range map[string]string{"db": s.db, "coll": s.coll, "op": strings.Join(s.ops, ","), "filter": s.filter} {
		if value != "" {
			query.Set(name, value)
		}
	}
}

// operations are the values of --op.
func operations() []string {
	return []string{"insert", "update", "replace", "delete", "drop", "rename", "dropDatabase"}
}

// startParameter translates --start into the node's parameter.
func startParameter(text string) (string, error) {
	switch text {
	case "", "now", "earliest":
		return text, nil
	}
	at, err := admin.ParseTime(text, time.Now())
	if err != nil {
		return "", fault.Newf(fault.CommandBadArgument, "--start %q: now, earliest, or %w", text, err)
	}
	return at.UTC().Format(time.RFC3339), nil
}

// untilParameter translates --until into the node's parameter.
func untilParameter(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	at, err := admin.ParseTime(text, time.Now())
	if err != nil {
		return "", fault.Newf(fault.CommandBadArgument, "--until %q: %w", text, err)
	}
	return at.UTC().Format(time.RFC3339), nil
}

// Pauses between attempts to connect.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
)

// errUnavailable says that the node cannot serve just now: it stops, or cannot reach MongoDB, or
// has no room.
var errUnavailable = errors.New("the node is not available")

// run follows until the context ends or the node refuses. Without a first connection it gives up,
// because the address is wrong then.
func (t *tail) run(ctx context.Context) error {
	connected := false
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := t.follow(ctx, func() { connected, pause = true, firstPause })
		switch {
		case ctx.Err() != nil, err == nil:
			return nil
		case errors.As(err, new(outputError)):
			return err
		case !connected, fault.Of(err) != "" && fault.Of(err) != fault.NodeUnreachable && !errors.Is(err, errUnavailable):
			return err
		}
		fmt.Fprintf(t.notes, "connection lost (%v); reconnecting\n", err)
		if retry.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// follow makes one connection and prints its events until it breaks, or all that are wanted have
// been shown.
func (t *tail) follow(ctx context.Context, connected func()) error {
	req, err := t.client.request(ctx, http.MethodGet, "v1/events", t.query)
	if err != nil {
		return err
	}
	if t.lastID != "" {
		req.Header.Set("Last-Event-ID", t.lastID)
	}
	resp, err := t.client.do(req)
	if err != nil {
		return t.client.unreachable(err)
	}
	defer resp.Body.Close()                      //nolint:errcheck // read only
	if resp.StatusCode == http.StatusNoContent { // it had reached the end
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		err := t.client.unreachable(cmp.Or(refusal(body), foreign(resp)))
		if resp.StatusCode == http.StatusServiceUnavailable {
			err = fmt.Errorf("%w: %w", errUnavailable, err)
		}
		return err
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return t.client.unreachable(foreign(resp))
	}
	connected()
	events := sse.NewReader(resp.Body)
	for {
		m, err := events.Next()
		t.lastID = cmp.Or(events.LastID(), t.lastID) // a connection may end before it has sent an id
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the node closed the connection")
		case err != nil:
			return err
		case m.Event == "error":
			return cmp.Or(refusal(m.Data), errors.New("the node ended the stream"))
		case m.Event == "end":
			return nil
		}
		take := t.take
		if take == nil {
			take = t.show
		}
		if err := take(m); err != nil {
			return outputError{err}
		}
		if t.most > 0 && t.shown == t.most {
			return nil
		}
	}
}

// An outputError says that an event cannot be shown or kept: another connection would not help.
type outputError struct{ error }

// Unwrap returns the cause.
func (e outputError) Unwrap() error { return e.error }

// show shows an event, or the node's message about the stream.
func (t *tail) show(m sse.Message) (err error) {
	switch {
	case m.Event == "resync" && !t.json():
		err = t.printLoss(m.Data)
	case m.Event != "" && t.note(m.Data):
	default:
		err = t.print(m.WithID())
		if m.Event == "" {
			t.shown++
		}
	}
	return err
}

// refusal makes an error from the node's answer, nil where no node answers so.
func refusal(body []byte) error {
	var said struct {
		Code    fault.Code
		Message string
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Message == "" {
		return nil
	}
	if _, known := fault.Lookup(said.Code); !known {
		return errors.New(said.Message)
	}
	return fault.New(said.Code, errors.New(said.Message))
}

// An event is what tail shows of a change.
type event struct {
	Op   string `json:"operationType"`
	Time struct {
		Timestamp struct{ T uint32 } `json:"$timestamp"`
	} `json:"clusterTime"`
	NS struct {
		DB, Coll string
	} `json:"ns"`
	Key    json.RawMessage `json:"documentKey"`
	Full   json.RawMessage `json:"fullDocument"`
	Update struct {
		Set     json.RawMessage `json:"updatedFields"`
		Removed []string        `json:"removedFields"`
	} `json:"updateDescription"`
	To struct {
		DB, Coll string
	} `json:"to"`
}

// Colours by operation.
const (
	plain  = "\x1b[0m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	purple = "\x1b[35m"
)

// json reports whether events are shown as they are.
func (t *tail) json() bool { return t.output == outputJSON || t.output == outputPretty }

// print shows one event.
func (t *tail) print(data []byte) error {
	if t.output == outputPretty {
		var lines bytes.Buffer
		if err := json.Indent(&lines, data, "", "  "); err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		data = lines.Bytes()
	}
	if t.json() {
		_, err := fmt.Fprintf(Terminal{t.out}, "%s\n", data)
		return err
	}
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	ns := printable(strings.TrimSuffix(e.NS.DB+"."+e.NS.Coll, "."))
	at := time.Unix(int64(e.Time.Timestamp.T), 0).Format(time.TimeOnly)
	_, err := fmt.Fprintf(t.out, "%s %s %s %s\n",
		t.paint(dim, at), t.paint(colourOf(e.Op), fmt.Sprintf("%-8s", printable(e.Op))), ns,
		strings.TrimSpace(printable(id(e.Key))+" "+printable(e.detail())))
	return err
}

// note shows a notice about the stream, which is not an event, and reports whether it is one.
func (t *tail) note(data []byte) bool {
	var n struct{ Message string }
	if json.Unmarshal(data, &n) != nil || n.Message == "" {
		return false
	}
	fmt.Fprintln(t.notes, n.Message)
	return true
}

// printLoss shows the span of a loss.
func (t *tail) printLoss(data []byte) error {
	type at struct {
		Timestamp struct{ T uint32 } `json:"$timestamp"`
	}
	var loss struct {
		From   at     `json:"lost_from"`
		To     at     `json:"lost_to"`
		Advice string `json:"advice"`
	}
	if err := json.Unmarshal(data, &loss); err != nil {
		return fmt.Errorf("read notice: %w", err)
	}
	clock := func(a at) string { return time.Unix(int64(a.Timestamp.T), 0).Format(time.DateTime) }
	_, err := fmt.Fprintln(t.out, t.paint(red, fmt.Sprintf("lost: changes from %s to %s. %s", clock(loss.From), clock(loss.To), printable(loss.Advice))))
	return err
}

func (t *tail) paint(colour, text string) string {
	if !t.colour {
		return text
	}
	return colour + text + plain
}

func colourOf(op string) string {
	switch op {
	case "insert":
		return green
	case "update", "replace":
		return yellow
	case "delete":
		return red
	}
	return purple
}

// id returns the _id out of a document key, or the whole key where there is more to it.
func id(key json.RawMessage) string {
	var only map[string]json.RawMessage
	if json.Unmarshal(key, &only) == nil && len(only) == 1 && only["_id"] != nil {
		return string(only["_id"])
	}
	return string(key)
}

// longestDetail bounds the shown part of a document.
const longestDetail = 160

// detail says what changed.
func (e *event) detail() string {
	text := string(e.Full)
	switch {
	case e.To.DB != "":
		text = "to " + e.To.DB + "." + e.To.Coll
	case len(e.Update.Set) > 0:
		text = string(e.Update.Set)
		if len(e.Update.Removed) > 0 {
			text += " without " + strings.Join(e.Update.Removed, ", ")
		}
	}
	if runes := []rune(text); len(runes) > longestDetail {
		text = string(runes[:longestDetail]) + "…"
	}
	return text
}
