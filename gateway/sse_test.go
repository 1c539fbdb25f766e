package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/streamer"
)

// records is a log handler that tells of clients that are cut off.
type records chan struct{}

func (r records) Enabled(context.Context, slog.Level) bool { return true }
func (r records) Handle(_ context.Context, record slog.Record) error {
	if record.Message == "subscriber disconnected" {
		r <- struct{}{}
	}
	return nil
}
func (r records) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r records) WithGroup(string) slog.Handler      { return r }

// get subscribes to events; the stream ends with the test.
func (w *world) get(query, lastID string) *sse.Reader {
	w.Helper()
	return sse.NewReader(w.stream(query, lastID).Body)
}

func (w *world) stream(query, lastID string) *http.Response {
	w.Helper()
	resp := w.do(query, lastID)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		w.Fatalf("status %d, type %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), text)
	}
	return resp
}

func (w *world) do(query, lastID string) *http.Response {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.web.URL+"/v1/events"+query, nil)
	if err != nil {
		w.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := w.web.Client().Do(req)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// A message is an event's data.
type message struct {
	ID            string `json:"-"` // of the message
	Partition     *int
	OperationType string
	NS            struct{ DB, Coll string }
	DocumentKey   struct {
		ID int64 `json:"_id"`
	}
	FullDocument struct{ Pad string }
}

// event returns the next event.
func event(t *testing.T, r *sse.Reader) message {
	t.Helper()
	for {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Event != "" {
			continue
		}
		var got message
		if err := json.Unmarshal(m.Data, &got); err != nil {
			t.Fatalf("%s: %v", m.Data, err)
		}
		if got.ID = m.ID; got.ID == "" {
			t.Errorf("%s without an id", m.Data)
		}
		return got
	}
}

// id is the id of a position.
func id(at change.Position, cluster string) string { return string(at.Ref().AppendText(nil, cluster)) }

func TestClientSeesWhatItAskedForAndResumesAfterIt(t *testing.T) {
	w := newWorld(t, options{})
	r := w.get("?db=shop&coll=orders&op=insert,delete", "")
	w.source.Append(
		changetest.Event{ID: 1}, changetest.Event{ID: 2, Op: "update"}, changetest.Event{ID: 3, Coll: "carts"},
		changetest.Event{ID: 4, Op: "delete"}, changetest.Event{ID: 5},
	)
	for i, want := range []int64{1, 4, 5} {
		got := event(t, r)
		if got.DocumentKey.ID != want || got.NS.DB != "shop" || got.NS.Coll != "orders" || got.Partition == nil {
			t.Errorf("event %d: %+v", i, got)
		}
		if i == 0 {
			again := w.get("?db=shop&coll=orders&op=insert&op=delete", got.ID)
			if first := event(t, again); first.DocumentKey.ID != 4 {
				t.Errorf("resumed at %+v", first)
			}
			param := w.get("?op=delete&Last-Event-ID="+url.QueryEscape(got.ID), "")
			if first := event(t, param); first.DocumentKey.ID != 4 {
				t.Errorf("resumed at %+v", first)
			}
		}
	}
	all := w.get("", r.LastID())
	w.source.Append(changetest.Event{Op: "drop", Keyless: true})
	if got := event(t, all); got.OperationType != "drop" || got.Partition != nil {
		t.Errorf("drop: %+v", got)
	}
}

func TestFilterChoosesEvents(t *testing.T) {
	w := newWorld(t, options{})
	r := w.get("?coll=orders&filter="+url.QueryEscape(`key._id in [2, 4] && op == "insert"`), "")
	w.source.Append(
		changetest.Event{ID: 1}, changetest.Event{ID: 2}, changetest.Event{ID: 3}, changetest.Event{ID: 4, Op: "delete"}, changetest.Event{ID: 4},
	)
	for _, want := range []int64{2, 4} {
		if got := event(t, r); got.DocumentKey.ID != want {
			t.Errorf("%+v, want %d", got, want)
		}
	}
}

// Events of different shards may share everything of their heads; only their tokens' hashes tell
// which the client has seen.
func TestResumeAmongEventsOfEqualHeads(t *testing.T) {
	w := newWorld(t, options{})
	r := w.get("", "")
	at := change.Timestamp{T: 1001, I: 9}
	var events []changetest.Event
	for i := range int64(4) {
		events = append(events, changetest.Event{ID: i, Time: at})
	}
	w.source.Append(append(events, changetest.Event{ID: 9, Time: change.Timestamp{T: 1001, I: 10}})...)
	for seen := range 4 {
		again := w.get("", event(t, r).ID)
		for rest := seen + 1; rest < 4; rest++ {
			if got := event(t, again); got.DocumentKey.ID > 3 {
				t.Fatalf("after %d of 4: %+v", seen+1, got)
			}
		}
		if got := event(t, again); got.DocumentKey.ID != 9 {
			t.Errorf("after %d of 4, the next is %+v", seen+1, got)
		}
	}
}

// An id whose event the stream no longer yields, because the filter was changed, must not swallow
// its neighbours.
func TestResumeAtAnEventThatIsNoLongerThere(t *testing.T) {
	w := newWorld(t, options{})
	at := change.Timestamp{T: 1001, I: 9}
	w.source.Append(changetest.Event{ID: 1, Time: at}, changetest.Event{ID: 2, Time: at})
	r := w.get("", id(changetest.Event{ID: 77, Time: at}.Position(), "c"))
	w.source.Tick(1) // the log goes on, without events
	for range 2 {
		if got := event(t, r); got.DocumentKey.ID > 2 {
			t.Errorf("%+v", got)
		}
	}
}

// Where nothing matches the id moves on all the same, and a quiet stream has heartbeats.
func TestIDMovesOnWithoutEvents(t *testing.T) {
	w := newWorld(t, options{events: gateway.EventsConfig{Heartbeat: 20 * time.Millisecond}, hub: delivery.Config{Bookmark: 10 * time.Millisecond}})
	lines := bufio.NewScanner(w.stream("?coll=nothing", "").Body)
	last, rested := "", false
	w.source.Append(changetest.Event{ID: 1})
	for lines.Scan() {
		id, isID := strings.CutPrefix(lines.Text(), "id: ")
		switch {
		case lines.Text() == ": heartbeat" && last != "" && !rested:
			rested = true
			w.source.Append(changetest.Event{ID: 2})
		case isID && rested && id != last:
			return
		case isID:
			last = id
		}
	}
	t.Fatal("no second id came")
}

// The deadline of a write is that of a client that does not read, and not of a stream.
func TestStreamOutlivesItsStallTimeout(t *testing.T) {
	const stall = time.Second
	w := newWorld(t, options{events: gateway.EventsConfig{StallTimeout: stall, Heartbeat: stall / 10}})
	began := time.Now()
	lines := bufio.NewScanner(w.stream("?coll=nothing", "").Body)
	for lines.Scan() {
		if lines.Text() == ": heartbeat" && time.Since(began) > stall+stall/4 {
			return
		}
	}
	t.Fatalf("the stream ended after %v: %v", time.Since(began), lines.Err())
}

// A timed listener has connections whose writes have deadlines.
type timedListener struct {
	net.Listener

	most   time.Duration
	report func(left time.Duration)
}

func (l timedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &timedConn{Conn: conn, listener: l}, err
}

type timedConn struct {
	net.Conn

	listener timedListener

	mu    sync.Mutex
	limit time.Time
}

func (c *timedConn) SetWriteDeadline(limit time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = limit
	return c.Conn.SetWriteDeadline(limit)
}

func (c *timedConn) Write(text []byte) (int, error) {
	c.mu.Lock()
	left := time.Until(c.limit)
	c.mu.Unlock()
	if left > c.listener.most || left < c.listener.most-c.listener.most/10 {
		c.listener.report(left)
	}
	return c.Conn.Write(text)
}

// Each write may block for the stall timeout: neither longer, nor much shorter because of an
// earlier one. So it is for streams with a connection of their own, and for those within a request.
func TestWritesMayBlockForTheStallTimeout(t *testing.T) {
	const stall = time.Hour
	for name, detached := range map[string]bool{"detached": true, "within the request": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			events := gateway.NewEvents(gateway.EventsConfig{Cluster: "c", StallTimeout: stall}, w.node)
			if !detached {
				events.Wait(t.Context()) // as when the node stops
			}
			wrong := make(chan time.Duration, 100)
			web := httptest.NewUnstartedServer(events)
			web.Listener = timedListener{web.Listener, stall, func(left time.Duration) { wrong <- left }}
			web.Start()
			defer web.Close()
			defer web.CloseClientConnections()
			w.web.URL = web.URL
			r := w.get("", "")
			for id := int64(1); id <= 3; id++ {
				w.source.Append(changetest.Event{ID: id})
				event(t, r)
			}
			select {
			case left := <-wrong:
				t.Errorf("a write may block for %s", left)
			default:
			}
		})
	}
}

// Line breaks of a document are escaped: an event is one line of data, whatever it holds.
func TestLineBreaksOfDocumentsAreEscaped(t *testing.T) {
	w := newWorld(t, options{})
	resp := w.stream("", "")
	text := "a\r\nb\rc\nd\n\nevent: x\u2028é\x00\x1f"
	w.source.Append(changetest.Event{Coll: text}, changetest.Event{ID: 2})
	body := bufio.NewReader(resp.Body)
	for got := 0; got < 2; {
		line, err := body.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		data, isData := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
		if strings.Contains(line, "\r") || strings.HasPrefix(line, "event") {
			t.Fatalf("%q", line)
		}
		if !isData {
			continue
		}
		var m message
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if got++; got == 1 && m.NS.Coll != text {
			t.Errorf("%q", m.NS.Coll)
		}
	}
}

func TestBadRequestsAreRefusedWithACode(t *testing.T) {
	w := newWorld(t, options{})
	position := changetest.Event{ID: 1, Time: change.Timestamp{T: 1001, I: 9}}.Position()
	ours := id(position, "c")
	for name, c := range map[string]struct {
		query, id string
		status    int
		code      fault.Code
	}{
		"unknown parameter":          {query: "?database=shop", code: fault.SessionBadRequest},
		"unknown operation":          {query: "?op=upsert", code: fault.SessionBadRequest},
		"parameter twice":            {query: "?db=a&db=b", code: fault.SessionBadRequest},
		"malformed query":            {query: "?db=%zz", code: fault.SessionBadRequest},
		"a snapshot of nobody":       {query: "?start=snapshot", code: fault.SessionBadRequest},
		"a recovery of nobody":       {query: "?on_loss=snapshot", code: fault.SessionBadRequest},
		"an unknown on_loss":         {query: "?on_loss=more&subscriber=s", code: fault.SessionBadRequest},
		"malformed start":            {query: "?start=yesterday", code: fault.SessionBadRequest},
		"a start before all":         {query: "?start=1960-01-01T00:00:00Z", code: fault.SessionBadRequest},
		"a long name":                {query: "?subscriber=" + strings.Repeat("x", 257), code: fault.SessionBadRequest},
		"malformed filter":           {query: "?filter=key._id+%3D%3D", code: fault.FilterInvalid},
		"filter without doc":         {query: "?filter=doc.a+%3D%3D+1", code: fault.FilterNeedsDoc},
		"malformed id":               {id: "17", code: fault.SessionBadPosition},
		"damaged id":                 {id: strings.ToUpper(ours), code: fault.SessionBadPosition},
		"malformed generation":       {id: ours + ".x", code: fault.SessionBadPosition},
		"id of another":              {id: id(position, "another"), code: fault.SessionBadPosition},
		"id that is too short":       {id: ours[:20], code: fault.SessionBadPosition},
		"id that is ahead":           {id: id(change.At(change.Timestamp{T: 5000, I: 1}), "c"), status: http.StatusConflict, code: fault.LogAhead},
		"a start in the future":      {query: "?start=2100-01-01T00:00:00Z", code: fault.SessionBadRequest},
		"a filter that is too large": {query: "?filter=" + strings.Repeat("x", 5000), code: fault.FilterTooLarge},
	} {
		resp := w.do(c.query, c.id)
		var body struct {
			Code            fault.Code
			Message, Remedy string
		}
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.status == 0 {
			c.status = http.StatusBadRequest
		}
		if resp.StatusCode != c.status || body.Code != c.code || body.Message == "" || body.Remedy == "" {
			t.Errorf("%s: %d %+v", name, resp.StatusCode, body)
		}
	}
}

// What the log no longer holds is told with its bounds, and then the client goes on with what there
// is.
func TestLostPositionIsToldNotSkipped(t *testing.T) {
	w := newWorld(t, options{})
	w.source.Append(changetest.Event{ID: 1}, changetest.Event{ID: 2}, changetest.Event{ID: 3})
	w.source.Truncate(1)
	r := w.get("", id(change.At(change.Timestamp{T: 900, I: 1}), "c"))
	m, err := r.Next()
	if err != nil || m.Event != "resync" {
		t.Fatalf("%+v, %v", m, err)
	}
	type timestamp struct {
		Timestamp struct{ T, I uint32 } `json:"$timestamp"`
	}
	var told struct {
		Notice, Reason, Advice string
		LostFrom               timestamp `json:"lost_from"`
		LostTo                 timestamp `json:"lost_to"`
	}
	if err := json.Unmarshal(m.Data, &told); err != nil {
		t.Fatal(err)
	}
	from, to := told.LostFrom.Timestamp, told.LostTo.Timestamp
	if told.Notice != "resync" || told.Reason != "history_lost" || told.Advice == "" || from.T != 900 || to.T != 1000 || m.ID == "" {
		t.Errorf("%s", m.Data)
	}
	if got := event(t, r); got.DocumentKey.ID != 3 {
		t.Errorf("then came %+v", got)
	}
	if again := event(t, w.get("", m.ID)); again.DocumentKey.ID != 3 {
		t.Errorf("after the notice comes %+v", again)
	}
}

// The loss of a renamed collection comes before the rename: a client whose last event is the rename
// was told of it.
func TestClientThatHasARenameIsNotToldOfItAgain(t *testing.T) {
	w := newWorld(t, options{})
	first := w.get("", "")
	w.source.Append(changetest.Event{Op: "rename", Coll: "draft", To: "orders", Keyless: true}, changetest.Event{ID: 7})
	told, renamed := 0, ""
	for renamed == "" {
		m, err := first.Next()
		switch {
		case err != nil:
			t.Fatal(err)
		case m.Event == "resync":
			told++
		case bytes.Contains(m.Data, []byte(`"rename"`)):
			renamed = m.ID
		}
	}
	m, err := w.get("", renamed).Next()
	if err != nil || m.Event != "" || !bytes.Contains(m.Data, []byte(`"insert"`)) || told != 1 {
		t.Errorf("told %d times, and after the rename came %q %s, %v", told, m.Event, m.Data, err)
	}
}

// A named client resumes without an id where it has been written to. One that an operator has moved
// back goes there, whatever id it has.
func TestNamedClientHasACheckpoint(t *testing.T) {
	w := newWorld(t, options{})
	first := w.stream("?subscriber=page", "")
	r := sse.NewReader(first.Body)
	_, begun := w.source.Reach()
	for i := range int64(5) {
		w.source.Append(changetest.Event{ID: 10 + i})
	}
	last := ""
	for range 5 {
		last = event(t, r).ID
	}
	_ = first.Body.Close()
	gone := func() bool { return len(w.node.Subscribers()) == 0 } // and its checkpoint is saved, which its session does not wait for
	w.until("it has left", gone)
	w.source.Append(changetest.Event{ID: 20})
	second := w.stream("?subscriber=page", "")
	if got := event(t, sse.NewReader(second.Body)); got.DocumentKey.ID != 20 {
		t.Errorf("resumed at %+v", got)
	}
	_ = second.Body.Close()
	w.until("it has left", gone)
	if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "page"}, change.At(begun.Next()), "operator", "a test"); err != nil {
		t.Fatal(err)
	}
	third := w.stream("?subscriber=page", last)
	again := event(t, sse.NewReader(third.Body))
	if again.DocumentKey.ID != 10 || !strings.HasSuffix(again.ID, ".1") {
		t.Errorf("after the rewind it resumed at %+v", again)
	}
	_ = third.Body.Close()
	w.until("it has left", gone)
	if got := event(t, w.get("?subscriber=page", again.ID)); got.DocumentKey.ID != 11 {
		t.Errorf("its id of the new generation resumed at %+v", got)
	}
}

// The ids of what was on its way when an operator moved a client back are of the generation before:
// one that comes back with such an id has not heard of it, and goes back.
func TestIDsBeforeARewindAreOfTheGenerationBefore(t *testing.T) {
	w := newWorld(t, options{})
	r := sse.NewReader(w.stream("?subscriber=page", "").Body)
	w.until("it is there", func() bool { return len(w.node.Subscribers()) == 1 })
	_, begun := w.source.Reach()
	w.write(1, 0)
	event(t, r)
	const n = 250
	w.write(n, 64<<10)
	w.until("much is on its way", func() bool { return w.node.Subscribers()[0].Unacknowledged > n/2 })
	if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "page"}, change.At(begun.Next()), "operator", "a test"); err != nil {
		t.Fatal(err)
	}
	w.node.Rewound("page")
	w.until("the node knows", func() bool { return w.node.Subscribers()[0].Generation == 1 })
	for rewound, after := false, 0; after < 10; {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		rewound = rewound || m.Event == string(delivery.Rewound)
		if of := strings.HasSuffix(m.ID, ".1"); of != rewound {
			t.Fatalf("told of the rewind: %v, an id of its generation: %v (%s)", rewound, of, m.Event)
		}
		if rewound {
			after++
		}
	}
}

// A client that was away is told of a rewind with the namespaces that its identity may know of.
func TestMissedRewindNamesWhatTheIdentityMayRead(t *testing.T) {
	w := newWorld(t, options{node: streamer.NodeConfig{Namespaces: []string{"shop.*", "secret.plans"}}})
	ctx := t.Context()
	r := streamer.Request{
		Subscriber: "t/page", Process: "p", Started: time.Now(), By: "t", Start: streamer.StartNow,
		Readable: (&access.Identity{Name: "t", Namespaces: []string{"shop.orders"}}).Readable,
	}
	first, err := w.node.Connect(ctx, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	first.Close(ctx, nil)
	_, end := w.source.Reach()
	if _, err := w.store.Rewind(ctx, checkpoint.Key{Subscriber: r.Subscriber}, change.At(end), "operator", "a test"); err != nil {
		t.Fatal(err)
	}
	r.Known, r.At = true, delivery.Place{At: change.At(end.Next())}
	again, err := w.node.Connect(ctx, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close(ctx, nil)
	if missed := again.Missed(); missed == nil || !slices.Equal(missed.Namespaces, []string{"shop.orders"}) {
		t.Errorf("%+v", missed)
	}
}

// A client that was away while an operator moved it back is told before anything comes again, also
// when it leaves right after that.
func TestClientThatWasAwayIsToldOfARewind(t *testing.T) {
	w := newWorld(t, options{})
	first := w.stream("?subscriber=page", "")
	r := sse.NewReader(first.Body)
	w.until("it is there", func() bool { return len(w.node.Subscribers()) == 1 })
	_, begun := w.source.Reach()
	w.write(2, 0)
	event(t, r)
	had := event(t, r)
	_ = first.Body.Close()
	w.until("it has left", func() bool { return len(w.node.Subscribers()) == 0 })
	if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "page"}, change.At(begun.Next()), "operator", "a test"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		back := w.stream("?subscriber=page", had.ID)
		r := sse.NewReader(back.Body)
		m, err := r.Next()
		if err != nil || m.Event != string(delivery.Rewound) || m.ID != "" || !bytes.Contains(m.Data, []byte(`"generation":1`)) {
			t.Fatalf("told %q %s (id %q), %v", m.Event, m.Data, m.ID, err)
		}
		if again := event(t, r); !strings.HasSuffix(again.ID, ".1") {
			t.Errorf("then %s", again.ID)
		}
		_ = back.Body.Close()
		w.until("it has left", func() bool { return len(w.node.Subscribers()) == 0 })
	}
}

// A client that has not received everything up to where an operator moves it back gets the rest as
// well: what its connection lost was acknowledged when it was written.
func TestRewindTakesNothingFromAClientThatIsBeforeIt(t *testing.T) {
	w := newWorld(t, options{})
	first := w.stream("?subscriber=page", "")
	r := sse.NewReader(first.Body)
	w.until("it is there", func() bool { return len(w.node.Subscribers()) == 1 })
	w.source.Append(changetest.Event{ID: 1}, changetest.Event{ID: 2}, changetest.Event{ID: 3}, changetest.Event{ID: 4})
	had := event(t, r)
	for range 3 { // are lost on the way
		event(t, r)
	}
	_ = first.Body.Close()
	w.until("it has left", func() bool { return len(w.node.Subscribers()) == 0 })
	_, end := w.source.Reach()
	if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "page"}, change.At(end), "operator", "a test"); err != nil {
		t.Fatal(err)
	}
	w.source.Append(changetest.Event{ID: 5})
	back := sse.NewReader(w.stream("?subscriber=page", had.ID).Body)
	to := fmt.Sprintf(`"lost_from":{"$timestamp":{"t":%d,"i":%d}}`, end.T, end.I) // the operator's place
	if m, err := back.Next(); err != nil || m.Event != string(delivery.Rewound) || !strings.Contains(string(m.Data), to) {
		t.Fatalf("told %q %s, %v", m.Event, m.Data, err)
	}
	for id := had.DocumentKey.ID + 1; id <= 5; id++ {
		if got := event(t, back); got.DocumentKey.ID != id || !strings.HasSuffix(got.ID, ".1") {
			t.Fatalf("got %+v instead of %d", got, id)
		}
	}
}

// A client that was away when its checkpoint was imported, and whose next connection breaks, gets
// what it has not had.
func TestClientThatWasAwayDuringAnImportMissesNothing(t *testing.T) {
	w := newWorld(t, options{})
	first := w.stream("?subscriber=page", "")
	r := sse.NewReader(first.Body)
	w.until("it is there", func() bool { return len(w.node.Subscribers()) == 1 })
	w.write(1, 0)
	had := event(t, r)
	_ = first.Body.Close()
	gone := func() bool { return len(w.node.Subscribers()) == 0 }
	w.until("it has left", gone)
	stored, err := w.store.Load(t.Context(), "page")
	if err != nil || len(stored) != 1 {
		t.Fatal(stored, err)
	}
	stored[0].Reason = checkpoint.ReasonImport
	if err := w.store.Put(t.Context(), stored[0]); err != nil {
		t.Fatal(err)
	}
	w.write(3, 0)
	var want string
	for range 2 {
		back := w.stream("?subscriber=page", had.ID)
		r := sse.NewReader(back.Body)
		if m, err := r.Next(); err != nil || m.Event != string(delivery.Rewound) {
			t.Fatalf("told %q %s, %v", m.Event, m.Data, err)
		}
		got := event(t, r).ID
		if want == "" {
			want = got
		}
		if got != want {
			t.Fatalf("goes on at %s, and has not had %s", got, want)
		}
		event(t, r)
		event(t, r)
		_ = back.Body.Close()
		w.until("it has left", gone)
		w.write(1, 0)
	}
}

// Of two clients with one name the later one has it: the other is told, so that it does not come
// back in turn for ever.
func TestLaterClientOfANameReplacesTheEarlier(t *testing.T) {
	w := newWorld(t, options{})
	earlier := w.get("?subscriber=page", "")
	w.get("?subscriber=page", "")
	m, err := earlier.Next()
	if err != nil || m.Event != "error" || !bytes.Contains(m.Data, []byte(fault.SessionReplaced)) {
		t.Errorf("%s %s %v", m.Event, m.Data, err)
	}
	if _, err := earlier.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("then %v", err)
	}
}

// Each stream says first when its client may come back, and at its end again where the client would
// only meet the same error, or take a name from another client that takes it back: later, and not
// all clients at once.
func TestStreamsSayWhenToComeBack(t *testing.T) {
	w := newWorld(t, options{})
	delays := func(body io.Reader) (all []time.Duration) {
		t.Helper()
		text, err := io.ReadAll(body)
		if err != nil || !bytes.HasPrefix(text, []byte("retry: ")) {
			t.Errorf("%s, %v", text, err)
		}
		for line := range strings.Lines(string(text)) {
			if value, is := strings.CutPrefix(strings.TrimSpace(line), "retry: "); is {
				ms, err := strconv.Atoi(value)
				if err != nil {
					t.Error(err)
				}
				all = append(all, time.Duration(ms)*time.Millisecond)
			}
		}
		return all
	}
	seen := make(map[time.Duration]bool)
	var earlier *http.Response
	for range 5 {
		later := w.stream("?subscriber=page", "")
		if earlier != nil {
			all := delays(earlier.Body)
			if len(all) != 2 || all[0] < 500*time.Millisecond || all[0] > 1500*time.Millisecond || all[1] < 5*time.Second || all[1] > 15*time.Second {
				t.Errorf("a client that was replaced may come back after %v", all)
				continue
			}
			seen[all[0]], seen[all[1]] = true, true
		}
		earlier = later
	}
	if len(seen) < 3 {
		t.Errorf("the delays are %v", seen)
	}
	w.stop()
	if all := delays(earlier.Body); len(all) != 1 { // at another node it can go on at once
		t.Errorf("a client of a node that stops may come back after %v", all)
	}
}

// A client that takes nothing is cut off, and costs the others nothing.
func TestClientThatTakesNothingIsCutOff(t *testing.T) {
	cut := make(records, 2)
	w := newWorld(t, options{events: gateway.EventsConfig{StallTimeout: 5 * time.Second, MaxClients: 2, Logger: slog.New(cut)}})
	u, err := url.Parse(w.web.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 12)
	if _, err := io.ReadFull(conn, line); err != nil || string(line) != "HTTP/1.1 200" {
		t.Fatalf("%q, %v", line, err)
	}
	other := w.get("?coll=small", "")
	if resp := w.do("", ""); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a third client got %d", resp.StatusCode)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for written := int64(0); ; written++ {
		<-tick.C // the other is hardly ever within a write when the machine stands still
		w.source.Append(changetest.Event{ID: written, Pad: 100_000}, changetest.Event{ID: written, Coll: "small"})
		if got := event(t, other); got.DocumentKey.ID != written {
			t.Fatalf("the other got %+v, want %d", got, written)
		}
		select {
		case <-cut:
			return
		default:
		}
	}
}

// A node that stops ends its streams such that clients come back, and never answers an EventSource
// with a status upon which it gives up.
func TestNodeThatStopsHasClientsComeBack(t *testing.T) {
	w := newWorld(t, options{})
	r := w.get("", "")
	w.stop()
	if m, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%+v, %v", m, err)
	}
	if resp := w.do("", ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", resp.StatusCode)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.web.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := w.web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), "retry: ") || !bytes.Contains(text, []byte(fault.NodeStopping)) {
		t.Errorf("%d %s %v", resp.StatusCode, text, err)
	}
}

// A filter that fails on every event tells so once a second, with how often it was, and holds
// nothing up.
func TestFailuresOfAFilterAreToldOnceASecond(t *testing.T) {
	w := newWorld(t, options{events: gateway.EventsConfig{Heartbeat: 50 * time.Millisecond}})
	const n = 500
	start := time.Now()
	r := w.get("?filter="+`key._id%2B"x"=="y"`, "")
	go w.write(n, 0)
	told, failures := 0, 0
	for failures < n {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Event != "filter_failed" {
			continue
		}
		var body struct {
			Code    fault.Code
			Message string
		}
		if err := json.Unmarshal(m.Data, &body); err != nil || body.Code != fault.FilterEvaluation {
			t.Fatalf("%s: %v", m.Data, err)
		}
		count := 1
		_, _ = fmt.Sscanf(body.Message, "%d events", &count) // one where it does not say
		told, failures = told+1, failures+count
	}
	if most := 2 + int(time.Since(start)/time.Second); told > most {
		t.Errorf("told %d times in %s", told, time.Since(start))
	}
}

// A client whose filter can never be true is told so when it subscribes.
func TestClientIsToldOfADoubtfulFilter(t *testing.T) {
	w := newWorld(t, options{events: gateway.EventsConfig{Heartbeat: 50 * time.Millisecond}})
	for query, want := range map[string]string{
		`op=="updated"`:                     "never true",
		`update.updatedFields.total.net==3`: `changed(\"total.net\")`,
	} {
		r := w.get("?filter="+url.QueryEscape(query), "")
		for {
			m, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if m.Event == "filter_doubtful" {
				if !strings.Contains(string(m.Data), want) {
					t.Errorf("%s: %s", query, m.Data)
				}
				break
			}
		}
	}
}

// Why a request's context has ended decides what its client is told.
func TestClientOfAnEndedContextIsToldWhy(t *testing.T) {
	events := gateway.NewEvents(gateway.EventsConfig{Cluster: "c"}, nil)
	for _, tt := range []struct {
		cause  error
		status int
		want   fault.Code
	}{
		{fault.Newf(fault.NodeStopping, "it stops"), 503, fault.NodeStopping},
		{fault.Newf(fault.AccessUnauthenticated, "revoked"), 401, fault.AccessUnauthenticated},
		{errors.New("anything"), 500, ""},
		{nil, 400, fault.SessionBadRequest}, // it has closed its side of the connection
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tt.cause)
		w := httptest.NewRecorder()
		events.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil))
		if w.Code != tt.status || !bytes.Contains(w.Body.Bytes(), []byte(tt.want)) {
			t.Errorf("%v: %d %s", tt.cause, w.Code, w.Body)
		}
	}
}

// Requests that have passed no authenticator may nothing where identities count.
func TestRequestOfNobodyIsRefused(t *testing.T) {
	events := gateway.NewEvents(gateway.EventsConfig{Cluster: "c", Accounts: access.NewAccounts(access.Defaults{})}, nil)
	for _, query := range []string{"", "?db=shop&coll=orders"} {
		w := httptest.NewRecorder()
		events.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events"+query, nil))
		if w.Code != http.StatusForbidden || !bytes.Contains(w.Body.Bytes(), []byte(fault.AccessForbidden)) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// A loss of history ends a stream where the deployment is to halt, with the code.
func TestStreamEndsAtALossWhereLossesHalt(t *testing.T) {
	w := newWorld(t, options{hub: delivery.Config{Halt: true}})
	w.source.Append(changetest.Event{ID: 1}, changetest.Event{ID: 2})
	w.source.Truncate(1)
	m, err := w.get("", id(change.At(change.Timestamp{T: 900, I: 1}), "c")).Next()
	if err != nil || m.Event != "error" || !bytes.Contains(m.Data, []byte(fault.LogHistoryLost)) {
		t.Errorf("%+v %s %v", m.Event, m.Data, err)
	}
}

// The id of an event is its last line, and nowhere else, whatever its kind: clients that take an id
// as soon as they have read its line, of which there are many, resume at an event that breaks off.
func TestIDIsTheLastLineOfItsEvent(t *testing.T) {
	w := newWorld(t, options{})
	w.source.Append(changetest.Event{ID: 1}, changetest.Event{ID: 2})
	w.source.Truncate(1)
	body := bufio.NewReader(w.stream("", id(change.At(change.Timestamp{T: 900, I: 1}), "c")).Body) // a loss, then an event
	for kinds := map[string]bool{}; len(kinds) < 2; {
		var block []string
		for {
			line, err := body.ReadString('\n')
			if err != nil {
				t.Fatalf("after %v: %v", kinds, err)
			}
			if line == "\n" {
				break
			}
			block = append(block, line)
		}
		has := func(field string) int {
			return slices.IndexFunc(block, func(line string) bool { return strings.HasPrefix(line, field) })
		}
		if has("data: ") < 0 || has("id: ") < 0 {
			continue
		}
		kinds[strings.Join(block[:has("data: ")], "")] = true
		if last := len(block) - 1; has("id: ") != last || strings.Contains(block[last-1], block[last][len("id: "):len(block[last])-1]) {
			t.Errorf("%q", block)
		}
	}
}

// A notice and an error have the id that their client has: programs that keep what their library
// says is the id of an event, which is empty for one without, would begin anew.
func TestWhatIsNoChangeHasTheIDThatTheClientHas(t *testing.T) {
	w := newWorld(t, options{events: gateway.EventsConfig{Heartbeat: 50 * time.Millisecond}})
	w.source.Append(changetest.Event{ID: 1}, changetest.Event{ID: 2})
	block := func(body *bufio.Reader, event string) (text string) {
		t.Helper()
		for !strings.Contains(text, "event: "+event+"\n") || !strings.HasSuffix(text, "\n\n") {
			line, err := body.ReadString('\n')
			if err != nil {
				t.Fatalf("%q, %v", text, err)
			}
			if strings.HasSuffix(text, "\n\n") {
				text = ""
			}
			text += line
		}
		return text
	}
	first := bufio.NewReader(w.stream("?start=earliest&subscriber=page", "").Body)
	var last string
	for second := false; last == ""; { // until it has both changes: what is queued is dropped when it is replaced
		line, err := first.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		second = second || strings.HasPrefix(line, "data: ") && strings.Contains(line, `"_id":2`)
		if id, is := strings.CutPrefix(line, "id: "); is && second {
			last = strings.TrimSpace(id)
		}
	}
	doubtful := bufio.NewReader(w.stream("?filter="+url.QueryEscape(`op=="updated"`), last).Body)
	if text := block(doubtful, "filter_doubtful"); !strings.HasSuffix(text, "\nid: "+last+"\n\n") {
		t.Errorf("a client that comes with %s gets %q", last, text)
	}
	if text := block(bufio.NewReader(w.stream("?filter="+url.QueryEscape(`op=="updated"`), "").Body), "filter_doubtful"); strings.Contains(text, "id: ") {
		t.Errorf("a client without an id gets %q", text)
	}
	w.stream("?subscriber=page", last) // takes the name over
	rest, err := io.ReadAll(first)
	all := append([]string{"id: " + last}, regexp.MustCompile(`(?m)^id: .*$`).FindAllString(string(rest), -1)...)
	if err != nil || len(all) < 2 || all[len(all)-1] != all[len(all)-2] || !strings.HasSuffix(string(rest), all[len(all)-1]+"\n\n") {
		t.Errorf("a client that is replaced gets %q, %v", rest, err)
	}
}

// A stretch of the log ends where it is to end, also in an idle log and between two changes of a
// reply, and a client that continues there misses nothing.
func TestStretchOfTheLogEnds(t *testing.T) {
	w := newWorld(t, options{})
	w.source.Tick(10) // 1010
	w.write(2, 0)
	w.source.Tick(10) // 1020
	w.write(3, 0)
	at := func(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }
	read := func(query, last string) (ids []string, end string) {
		t.Helper()
		body := w.stream(query, last).Body
		defer body.Close()
		r := sse.NewReader(body)
		for {
			m, err := r.Next()
			switch {
			case errors.Is(err, io.EOF):
				return ids, end
			case err != nil:
				t.Fatal(err)
			case end != "":
				t.Errorf("%q %s after the end", m.Event, m.Data)
			case m.Event == "end":
				end = m.ID
			default:
				ids = append(ids, m.ID)
			}
		}
	}
	ids, end := read("?start="+at(1010)+"&end="+at(1020), "") // no more than its changes
	if len(ids) != 2 || end == "" {
		t.Fatalf("%v, end %q", ids, end)
	}
	if resp := w.do("?start="+at(1010)+"&end="+at(1020), end); resp.StatusCode != http.StatusNoContent {
		t.Errorf("again: %s", resp.Status)
	}
	w.source.Tick(10) // 1030: nothing more happens
	if ids, end := read("?end="+at(1030), end); len(ids) != 3 || end == "" {
		t.Errorf("from there on: %v, end %q", ids, end)
	}
	if ids, end := read("?coll=none&start=earliest&end="+at(1030), ""); len(ids) != 0 || end == "" {
		t.Errorf("nothing matches: %v, end %q", ids, end)
	}
	for _, until := range []int64{500, 1030} { // what the log no longer has is not nothing
		body := w.stream("?start="+at(100)+"&end="+at(until), "").Body
		text, err := io.ReadAll(body)
		_ = body.Close()
		if begins := strings.Index(string(text), "event: begin\n"); err != nil || begins < 0 || begins > strings.Index(string(text), "event: end\n") {
			t.Errorf("until %d: %s, %v", until, text, err)
		}
	}
	for _, query := range []string{"?end=x", "?end=now", "?end=" + at(1030) + "&subscriber=s", "?end=" + at(1030) + "&start=snapshot&subscriber=s", "?end=" + at(0)} {
		if resp := w.do(query, ""); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", query, resp.Status)
		}
	}
}

// A response that is far from its end looks more often whether it has come there, but has no more
// heartbeats than others.
func TestFarEndHasNoMoreHeartbeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{events: gateway.EventsConfig{Heartbeat: 2 * time.Second}})
	began := time.Now()
	body := w.stream("?end=2100-01-01T00:00:00Z", "").Body
	defer body.Close()
	for lines := bufio.NewScanner(body); lines.Scan(); {
		if lines.Text() == ": heartbeat" {
			if after := time.Since(began); after < 1500*time.Millisecond {
				t.Errorf("a heartbeat after %s", after)
			}
			return
		}
	}
	t.Error("no heartbeat")
}
