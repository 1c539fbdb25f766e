package process

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/internal/admin"
)

// A collector keeps what a subscriber is sent.
type collector struct {
	mu        sync.Mutex
	documents map[string]int // how often each came with a snapshot
	changes   []string       // the _ids
	marks     []string       // state and reason, in their order
}

func (c *collector) event(text []byte) error {
	var e struct {
		OperationType string
		DocumentKey   struct {
			ID json.RawMessage `json:"_id"`
		}
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.OperationType == "snapshot" {
		c.documents[string(e.DocumentKey.ID)]++
	} else {
		c.changes = append(c.changes, string(e.DocumentKey.ID))
	}
	return nil
}

func (c *collector) mark(state, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks = append(c.marks, state+" "+reason)
}

// changed reports whether a change of a document has come.
func (c *collector) changed(id int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.changes, fmt.Sprint(id))
}

// state returns how many documents have come, and the last mark.
func (c *collector) state() (documents int, mark string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.documents {
		documents += n
	}
	if len(c.marks) > 0 {
		mark = c.marks[len(c.marks)-1]
	}
	return documents, mark
}

// overGRPC has a Go client collect.
func (c *collector) overGRPC(t *testing.T, address, database string) {
	t.Helper()
	cl, err := client.New(client.Config{
		Addresses: []string{address}, Subscriber: "s", Start: client.StartSnapshot, Token: func(context.Context) (string, error) { return "good", nil },
		OnNotice: func(_ context.Context, n client.Notice) error {
			switch n := n.(type) {
			case client.SnapshotBegun:
				c.mark("begun", n.Reason)
			case client.SnapshotDone:
				c.mark("done", n.Reason)
			case client.SnapshotCancelled:
				c.mark("cancelled", n.Reason)
			}
			return nil
		},
	})
	if err == nil {
		err = cl.Subscribe(client.Subscription{ID: "events", DB: database, Coll: "orders", Format: client.JSON}, func(_ context.Context, e client.Change) error {
			return c.event(e.Data)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cl.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// overEvents has a client of server-sent events collect.
func (c *collector) overEvents(t *testing.T, address, database string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	query := url.Values{"subscriber": {"s"}, "start": {"snapshot"}, "db": {database}, "coll": {"orders"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/v1/events?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer good")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer func() { _ = resp.Body.Close() }()
		for events := sse.NewReader(resp.Body); ; {
			m, err := events.Next()
			if err != nil {
				return // the test looks at what has come
			}
			switch m.Event {
			case "":
				err = c.event(m.Data)
			case "snapshot":
				var mark struct{ State, Reason string }
				err = json.Unmarshal(m.Data, &mark)
				c.mark(mark.State, mark.Reason)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(func() { cancel(); reading.Wait() })
}

// Operators pause, resume, cancel and begin snapshots of subscribers over both transports with the
// command, and are in the audit log.
func TestOperatorsDirectASnapshotThatRuns(t *testing.T) {
	t.Parallel()
	const documents, page = 40, 5
	for _, over := range []string{"gRPC", "events"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			pages := devmongotest.NewPages("orders", -1)
			server := devmongotest.Start(t, devmongo.Config{Adjust: func(p *devmongo.Profile) { p.BeforeReply = pages.Pass }})
			t.Cleanup(pages.Open)
			list := put(t, "identities", fmt.Appendf(nil, "token %s name=ops namespace=*\n", access.Hash("good")))
			listen := devmongotest.FreeAddress()
			l := labOn(t, "etcd", server.URI()).with(fmt.Sprint("STREAMER_RESCAN_PAGE_SIZE=", page), "STREAMER_RESCAN_RATE=100000",
				"STREAMER_ACCESS_IDENTITIES_FILE="+list, "STREAMER_GRPC_LISTEN="+listen)
			l.insert(0, documents)
			node := l.node()
			address := node.address()
			command := l.with("STREAMER_CLIENT_TOKEN=good")
			operate := func(want int, args ...string) {
				t.Helper()
				args = append(append([]string{"snapshot", "ops/s"}, args...), "--address", address, "--yes", "-o", "json")
				if r := decode[admin.SnapshotResult](t, command.result(args...)); r.Subscriptions != want || r.Subscriber != "ops/s" {
					t.Errorf("%v: %+v, want %d subscriptions", args, r, want)
				}
			}
			inVain := func(do string) {
				t.Helper()
				command.operate("snapshot", "ops/s", do, "--address", address, "--yes").refused(fault.CommandBadArgument, "nothing was done")
			}
			shown := func() (s admin.Snapshot) {
				t.Helper()
				for _, sub := range decode[struct{ Subscribers []admin.Subscriber }](t, ask(t, address+"/v1/subscribers", "Authorization", "Bearer good").body).Subscribers {
					if sub.Session != nil && len(sub.Session.Snapshots) == 1 {
						s = sub.Session.Snapshots[0]
					}
				}
				return s
			}

			pages.Admit(2)
			var c collector
			c.documents = make(map[string]int)
			if over == "gRPC" {
				c.overGRPC(t, listen, l.database)
			} else {
				c.overEvents(t, address, l.database)
			}
			until(t, "two pages have come", func() bool { n, mark := c.state(); return n == 2*page && mark == "begun start" })
			operate(1, "pause")
			inVain("pause")
			pages.Open()
			l.insert(documents, documents+1)
			until(t, "a change comes while the snapshot is paused", func() bool { return c.changed(documents) })
			if n, mark := c.state(); n != 2*page || mark != "begun start" {
				t.Errorf("%d documents have come of a snapshot that is paused, %q", n, mark)
			}
			if s := shown(); !s.Paused || s.Done || s.Read != 2*page {
				t.Errorf("%+v", s)
			}
			operate(1, "resume")
			until(t, "the rest has come", func() bool { _, mark := c.state(); return mark == "done start" })
			c.mu.Lock()
			for id := range documents {
				if n := c.documents[fmt.Sprint(id)]; n != 1 {
					t.Errorf("document %d came %d times", id, n)
				}
			}
			clear(c.documents)
			c.mu.Unlock()
			inVain("resume")
			if text := command.result("snapshot", "ops/s", "follow", "--address", address); !strings.Contains(text, fmt.Sprintf("No snapshot of subscriber ops/s is under way: %d documents were read.", documents+1)) {
				t.Errorf("a snapshot that is complete: %s", text)
			}

			pages.Admit(2)
			operate(1, "begin", "--namespace", l.database+".orders")
			until(t, "some of it comes again", func() bool { n, mark := c.state(); return n == 2*page && mark == "begun operator" })
			operate(1, "cancel")
			until(t, "the subscriber hears that it is cancelled", func() bool { _, mark := c.state(); return mark == "cancelled operator" })
			pages.Open()
			inVain("cancel")
			l.insert(documents+1, documents+2)
			until(t, "changes come after it", func() bool { return c.changed(documents + 1) })
			if n, _ := c.state(); n != 2*page {
				t.Errorf("%d documents have come of a snapshot that was cancelled", n)
			}
			if s := shown(); !s.Done || s.Paused {
				t.Errorf("%+v", s)
			}

			text := command.result("snapshot", "ops/s", "--address", address, "--yes", "--follow")
			if !strings.Contains(text, "begin, 1 subscriptions") || !strings.Contains(text, " documents left\n") || !strings.Contains(text, fmt.Sprintf("under way: %d documents were read", documents+2)) {
				t.Errorf("the progress of a snapshot: %s", text)
			}
			until(t, "everything has come again", func() bool {
				n, mark := c.state()
				return n == 2*page+documents+2 && mark == "done operator"
			})
			command.operate("snapshot", "ops/nobody", "--address", address, "--yes").refused(fault.CommandBadArgument, "ops/nobody", "is not connected")
			l.operate("snapshot", "ops/s", "--address", address, "--yes").refused(fault.AccessUnauthenticated)

			var recorded []string
			for _, r := range decode[admin.AuditLog](t, command.result("audit", "--address", address, "-o", "json")).Records {
				if r.Kind == "operated" {
					recorded = append(recorded, fmt.Sprint(r.Fields["by"], " ", r.Fields["command"], " ", r.Fields["arguments"]))
				}
			}
			want := []string{
				"pause", "pause", "resume", "resume", "begin namespace", "cancel", "cancel", "begin", "begin nobody",
			}
			for i, w := range want {
				do, rest, _ := strings.Cut(w, " ")
				arguments := "subscriber=ops/s"
				switch rest {
				case "namespace":
					arguments += " namespace=" + l.database + ".orders"
				case "nobody":
					arguments = "subscriber=ops/nobody"
				}
				want[i] = fmt.Sprintf("ops snapshot %s [%s]", do, arguments)
			}
			if !slices.Equal(recorded, want) {
				t.Errorf("recorded\n%s\nwant\n%s", strings.Join(recorded, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
