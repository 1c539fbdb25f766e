package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/internal/retry"
)

// A tail follows a node's events.
type tail struct {
	url    string
	query  url.Values
	json   bool
	colour bool
	out    io.Writer
	notes  io.Writer
	lastID string
	client nodeClient
}

func tailCommand() *cobra.Command {
	t := &tail{query: url.Values{}}
	var db, coll, output string
	var ops []string
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow the events of a running node",
		Long: `Follow the events of a running node, from now on. After a lost connection it continues after the last event.

  streamer tail --db shop --coll orders --op insert,delete
  streamer tail --url https://node-1:8080 --ca-file ca.crt --token-file token
  streamer tail -o json | jq .documentKey`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, value := range map[string]string{"db": db, "coll": coll, "op": strings.Join(ops, ",")} {
				if value != "" {
					t.query.Set(name, value)
				}
			}
			if output != "" && output != "json" {
				return fmt.Errorf("unknown output %q: use -o json", output)
			}
			base, err := parseAddress("url", t.url)
			if err != nil {
				return err
			}
			t.url = base.JoinPath("v1/events").String()
			t.json = output == "json"
			t.out, t.notes = cmd.OutOrStdout(), Terminal{cmd.ErrOrStderr()}
			t.colour = isTerminal(t.out) && os.Getenv("NO_COLOR") == ""
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&t.url, "url", "http://127.0.0.1:8080", "address of the node")
	cmd.Flags().StringVar(&db, "db", "", "only this database")
	cmd.Flags().StringVar(&coll, "coll", "", "only this collection")
	cmd.Flags().StringSliceVar(&ops, "op", nil, "only these operations: insert, update, replace, delete, drop, rename, dropDatabase")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json: one event a line")
	t.client.addFlags(cmd)
	return cmd
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
		case ctx.Err() != nil:
			return nil
		case !connected, fault.Of(err) != "" && !errors.Is(err, errUnavailable):
			return err
		}
		fmt.Fprintf(t.notes, "connection lost (%v); reconnecting\n", err)
		if retry.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// follow makes one connection and prints its events until it breaks.
func (t *tail) follow(ctx context.Context, connected func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+"?"+t.query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if t.lastID != "" {
		req.Header.Set("Last-Event-ID", t.lastID)
	}
	resp, err := t.client.do(req)
	if err != nil {
		return fmt.Errorf("connect to the node: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		err := refusal(body, resp.Status)
		if resp.StatusCode == http.StatusServiceUnavailable {
			err = fmt.Errorf("%w: %w", errUnavailable, err)
		}
		return err
	}
	connected()
	events := sse.NewReader(resp.Body)
	for {
		m, err := events.Next()
		t.lastID = cmp.Or(events.LastID(), t.lastID) // a connection may end before it has told an id
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the node closed the connection")
		case err != nil:
			return err
		case m.Event == "error":
			return refusal(m.Data, "ended")
		}
		switch {
		case m.Event == "resync" && !t.json:
			err = t.printLoss(m.Data)
		case m.Event != "" && t.note(m.Data):
		default:
			err = t.print(m.Data)
		}
		if err != nil {
			return err
		}
	}
}

// refusal makes an error of what the node said.
func refusal(body []byte, status string) error {
	var said struct {
		Code    fault.Code
		Message string
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Message == "" {
		return fmt.Errorf("the node answered %s", status)
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

// print shows one event.
func (t *tail) print(data []byte) error {
	if t.json {
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

// note shows a notice about what is followed, which is no event, and reports whether it is one.
func (t *tail) note(data []byte) bool {
	var n struct{ Message string }
	if json.Unmarshal(data, &n) != nil || n.Message == "" {
		return false
	}
	fmt.Fprintln(t.notes, n.Message)
	return true
}

// printLoss shows what the log no longer had.
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

// longestDetail bounds what is shown of a document.
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

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
