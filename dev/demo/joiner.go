package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/dev/workload"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/internal/retry"
)

// snapshotDone begins the line of a journal that says that the snapshot is complete.
const snapshotDone = "snapshot done"

// A joiner is a subscriber that begins with documents. The first one takes everything and keeps its
// connection; each later one joins a second after the one before, and breaks off now and then until
// the writer rests.
type joiner struct {
	workload.Selection

	number  int
	name    string
	path    string // of its journal
	journal *os.File
	mu      sync.Mutex // guards line, and writing it
	line    []byte

	addresses, sites []string
	begun            time.Time
	rests            time.Time // when the writer does
}

// newJoiner returns the joiner with a number, which decides its subscription and transport.
func newJoiner(number int, path string) *joiner {
	j := &joiner{number: number, name: fmt.Sprintf("replica-%d", number), path: path}
	if number == 0 {
		return j
	}
	switch number % 5 {
	case 1:
		j.Filter, j.Leaves = "doc.rev % 2 == 0", true
		j.Matches = func(_, seq int64) bool { return seq%2 == 0 }
	case 2:
		j.Filter = "key._id % 4 == 1"
		j.Ops = []string{"insert", "update", "replace"}
		j.Matches = func(id, _ int64) bool { return id%4 == 1 }
	case 3:
		j.Filter = "key._id % 4 == 2"
		j.Ops = []string{"insert", "delete"}
		j.Matches = func(id, _ int64) bool { return id%4 == 2 }
	case 4:
		j.Filter, j.Leaves = "doc.rev % 3 != 0", true
		j.Matches = func(_, seq int64) bool { return seq%3 != 0 }
	}
	return j
}

// events reports whether it reads server-sent events.
func (j *joiner) events() bool { return j.number > 0 && j.number%2 == 0 }

// String returns its subscription and transport.
func (j *joiner) String() string {
	over := "gRPC"
	if j.events() {
		over = "server-sent events"
	}
	return fmt.Sprintf("%s (over %s, filter %q, operations %v, leaves %t):", j.name, over, j.Filter, j.Ops, j.Leaves)
}

// subscriberCommand runs the subscribers, configured by the environment. What one of them has
// acknowledged has been written to its journal.
func subscriberCommand(ctx context.Context) error {
	count, err := strconv.Atoi(os.Getenv("DEMO_SUBSCRIBERS"))
	if err != nil {
		return fmt.Errorf("read DEMO_SUBSCRIBERS: %w", err)
	}
	var begun time.Time
	if err := begun.UnmarshalText([]byte(os.Getenv("DEMO_BEGUN"))); err != nil {
		return fmt.Errorf("read DEMO_BEGUN: %w", err)
	}
	length, err := time.ParseDuration(os.Getenv("DEMO_LENGTH"))
	if err != nil {
		return fmt.Errorf("read DEMO_LENGTH: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range count {
		j := newJoiner(i, os.Getenv("DEMO_JOURNALS")+strconv.Itoa(i))
		j.addresses, j.sites = strings.Split(os.Getenv("DEMO_ADDRESSES"), ","), strings.Split(os.Getenv("DEMO_SITES"), ",")
		j.begun = begun
		j.rests = begun.Add(length)
		g.Go(func() error { return j.run(ctx) })
	}
	return g.Wait()
}

// run subscribes from its second on, until the context ends.
func (j *joiner) run(ctx context.Context) (err error) {
	if retry.Sleep(ctx, time.Until(j.begun.Add(time.Duration(j.number)*time.Second))) != nil {
		return nil
	}
	if j.journal, err = os.OpenFile(j.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	defer j.journal.Close()              //nolint:errcheck // every write has been checked
	if err := j.note("\n"); err != nil { // ends what a killed one has left unfinished
		return err
	}
	session := j.subscribe
	if j.events() {
		session = j.newReader().read
	}
	for ctx.Err() == nil {
		connected, cancel := j.lasts(ctx)
		err = session(connected)
		cancel()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", j.name, err)
		}
	}
	return nil
}

// lasts returns the context of a connection: of all but the first one it ends after some seconds,
// unless the writer rests by then.
func (j *joiner) lasts(ctx context.Context) (context.Context, context.CancelFunc) {
	d := time.Second + rand.N(4*time.Second)
	if j.number == 0 || time.Now().Add(d).After(j.rests) {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// note writes a line to the journal.
func (j *joiner) note(line string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write([]byte(line))
}

// took writes the effect of an event to the journal.
func (j *joiner) took(event []byte) (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.line, err = workload.AppendJSON(j.line[:0], event); err != nil {
		return err
	}
	return j.write(j.line)
}

// write writes to the journal. The caller holds the mutex.
func (j *joiner) write(line []byte) error {
	if _, err := j.journal.Write(line); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// done notes that the snapshot is complete.
func (j *joiner) done() error {
	return j.note(fmt.Sprintf("%s after %.1f s\n", snapshotDone, time.Since(j.begun).Seconds()))
}

// subscribe is a program that subscribes over gRPC.
func (j *joiner) subscribe(ctx context.Context) error {
	c, err := client.New(client.Config{
		Addresses: rotated(j.addresses, j.number), Subscriber: j.name, Start: client.StartSnapshot, StopTimeout: 10 * time.Millisecond,
		OnNotice: func(_ context.Context, n client.Notice) error {
			switch n := n.(type) {
			case client.Resync:
				return fmt.Errorf("the subscriber was told of a loss: %+v", n)
			case client.SnapshotBegun: // its earlier documents may have been deleted since
				return j.note(workload.Anew)
			case client.SnapshotDone:
				return j.done()
			}
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("make the subscriber: %w", err)
	}
	sub := client.Subscription{ID: j.name, DB: "shop", Coll: "orders", Filter: j.Filter, Ops: j.Ops, Leaves: j.Leaves, Format: client.JSON}
	if err := c.Subscribe(sub, func(_ context.Context, c client.Change) error { return j.took(c.Data) }); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return c.Run(ctx)
}

// idsEvery is how many events a reader takes before it writes their id to its journal.
const idsEvery = 32

// A reader is a joiner that reads server-sent events.
type reader struct {
	*joiner

	subscriber string
	last       string // the id after which it resumes
	unsaved    int    // events since the last id in the journal
}

// newReader returns a reader that resumes after the last id in its journal.
func (j *joiner) newReader() *reader {
	r := &reader{joiner: j}
	text, err := os.ReadFile(j.path)
	if err != nil {
		return r
	}
	for line := range strings.Lines(string(text)) {
		switch fields := strings.Fields(line); {
		case line == workload.Anew:
			r.subscriber, r.last = "", ""
		case len(fields) == 4 && fields[0] == "id" && fields[3] == ".":
			r.subscriber, r.last = fields[1], fields[2]
		}
	}
	return r
}

// read reads a stream from any node, until it ends or the context does.
func (r *reader) read(ctx context.Context) error {
	if r.last == "" { // what a node takes for delivered may not have arrived, and no id says so: begin as somebody else
		r.subscriber = fmt.Sprintf("%s-%d", r.name, time.Now().UnixNano())
		if err := r.note(workload.Anew); err != nil {
			return err
		}
	}
	query := url.Values{"db": {"shop"}, "coll": {"orders"}, "subscriber": {r.subscriber}, "start": {"snapshot"}, "leaves": {strconv.FormatBool(r.Leaves)}}
	if r.Filter != "" {
		query.Set("filter", r.Filter)
	}
	if len(r.Ops) > 0 {
		query.Set("op", strings.Join(r.Ops, ","))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.sites[rand.IntN(len(r.sites))]+"/v1/events?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if r.last != "" {
		request.Header.Set("Last-Event-ID", r.last)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil { // a node that is killed or frozen
		_ = retry.Sleep(ctx, 100*time.Millisecond)
		return nil
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		return r.refused(ctx, response)
	}
	messages := sse.NewReader(response.Body)
	for m, err := messages.Next(); err == nil; m, err = messages.Next() {
		if err := r.message(m); err != nil {
			return err
		}
	}
	r.last = cmp.Or(messages.LastID(), r.last) // it moves on without events
	return nil
}

// refused waits where a node starts or stops, and fails where it refuses for another reason.
func (r *reader) refused(ctx context.Context, response *http.Response) error {
	text, err := io.ReadAll(response.Body)
	if response.StatusCode < http.StatusInternalServerError && response.StatusCode != http.StatusConflict && response.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("%s: %w", response.Status, errors.Join(errors.New(string(text)), err))
	}
	_ = retry.Sleep(ctx, 100*time.Millisecond)
	return nil
}

// message takes one message.
func (r *reader) message(m sse.Message) error {
	switch m.Event {
	case "":
		if err := r.took(m.Data); err != nil {
			return err
		}
	case "snapshot":
		var mark struct{ State string }
		if err := json.Unmarshal(m.Data, &mark); err != nil {
			return fmt.Errorf("read mark: %w", err)
		}
		if mark.State == "done" {
			if err := r.done(); err != nil {
				return err
			}
		}
		r.unsaved = idsEvery
	case "resync", "error":
		return fmt.Errorf("%s: %s", m.Event, m.Data)
	}
	r.last = m.ID
	if r.unsaved++; r.unsaved < idsEvery || r.last == "" {
		return nil
	}
	r.unsaved = 0
	return r.note(fmt.Sprintf("id %s %s .\n", r.subscriber, r.last))
}
