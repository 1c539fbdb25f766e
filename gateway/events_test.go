package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 8

// A place is a log and its events over HTTP.
type place struct {
	t      *testing.T
	source *lanetest.Log
	server *httptest.Server
	logs   chan slog.Record
}

func open(t *testing.T, cfg gateway.EventsConfig) *place {
	t.Helper()
	source := &lanetest.Log{}
	return openOver(t, cfg, source, source)
}

// openOver is open of a log that is read through another source.
func openOver(t *testing.T, cfg gateway.EventsConfig, source *lanetest.Log, through lane.Source) *place {
	t.Helper()
	p := &place{t: t, source: source, logs: make(chan slog.Record, 100)}
	p.source.Tick(1)
	l := lane.NewLog(lane.Config{Partitions: partitions}, through)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, change.At(change.Timestamp{T: 1000})) }()
	cfg.Cluster, cfg.Partitions, cfg.Logger = "c", partitions, slog.New(handler{p.logs})
	cfg.Encode = func(b []byte, e *change.Event) ([]byte, error) {
		return fmt.Appendf(b, `{"operationType":%q,"ns":%q,"t":%d,"i":%d,"size":%d}`,
			e.OpName(), e.Namespace(), e.Time().T, e.Time().I, len(e.Raw())), nil
	}
	cfg.Now = func(context.Context) (change.Timestamp, error) { return change.Timestamp{T: 1001, I: 1}, nil }
	p.server = httptest.NewServer(gateway.NewEvents(cfg, l))
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// handler sends log records to a channel.
type handler struct{ records chan slog.Record }

func (h handler) Enabled(context.Context, slog.Level) bool { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error {
	h.records <- r
	return nil
}
func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h handler) WithGroup(string) slog.Handler      { return h }

// get subscribes; the reader ends with the test.
func (p *place) get(query, lastID string) *sse.Reader {
	p.t.Helper()
	resp := p.do(query, lastID)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		p.t.Fatalf("status %d, type %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return sse.NewReader(resp.Body)
}

func (p *place) do(query, lastID string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.server.URL+"/v1/events"+query, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := p.server.Client().Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// message is an event's data.
type message struct {
	ID            string `json:"id"`
	Partition     *int   `json:"partition"`
	OperationType string `json:"operationType"`
	NS            string `json:"ns"`
	T, I          uint32
	Size          int
}

func next(t *testing.T, r *sse.Reader) message {
	t.Helper()
	m, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	var got message
	if err := json.Unmarshal(m.Data, &got); err != nil {
		t.Fatalf("%s: %v", m.Data, err)
	}
	if got.ID != m.ID {
		t.Errorf("id %s in the data, %s of the message", got.ID, m.ID)
	}
	return got
}

func TestClientSeesWhatItAskedForAndResumesBehindIt(t *testing.T) {
	p := open(t, gateway.EventsConfig{})
	r := p.get("?db=shop&coll=orders&op=insert,delete", "")
	p.source.Append(
		changetest.Event{ID: 1}, changetest.Event{ID: 1, Op: "update"}, changetest.Event{ID: 2, Coll: "carts"},
		changetest.Event{ID: 3, Op: "delete"}, changetest.Event{ID: 4},
	)
	for i, want := range []uint32{2, 5, 6} {
		got := next(t, r)
		if got.I != want || got.NS != "shop.orders" || got.Partition == nil {
			t.Errorf("event %d: %+v", i, got)
		}
		if i == 0 {
			again := p.get("?db=shop&coll=orders&op=insert&op=delete", got.ID)
			if first := next(t, again); first.I != 5 {
				t.Errorf("resumed at %+v", first)
			}
		}
	}
	drop := changetest.Event{Op: "drop", Keyless: true}
	all := p.get("", r.LastID())
	p.source.Append(drop)
	if got := next(t, all); got.OperationType != "drop" || got.Partition != nil {
		t.Errorf("drop: %+v", got)
	}
}

func TestFilterChoosesEvents(t *testing.T) {
	p := open(t, gateway.EventsConfig{})
	r := p.get("?coll=orders&filter="+url.QueryEscape(`key._id in [2, 4] && op == "insert"`), "")
	p.source.Append(
		changetest.Event{ID: 1}, changetest.Event{ID: 2}, changetest.Event{ID: 3}, changetest.Event{ID: 4, Op: "delete"}, changetest.Event{ID: 4},
	)
	for _, want := range []uint32{3, 6} {
		if got := next(t, r); got.I != want {
			t.Errorf("%+v, want increment %d", got, want)
		}
	}
}

// Events of different shards may share everything of their heads; only their tokens' hashes tell which the client has seen.
func TestResumeAmongEventsOfEqualHeads(t *testing.T) {
	p := open(t, gateway.EventsConfig{})
	at := change.Timestamp{T: 1001, I: 9}
	var events []changetest.Event
	for id := range 4 {
		events = append(events, changetest.Event{ID: int64(id + 1), Time: at})
	}
	p.source.Append(append(events, changetest.Event{ID: 9, Time: change.Timestamp{T: 1001, I: 10}})...)
	r := p.get("", "")
	for seen := range 4 {
		id := next(t, r).ID
		again := p.get("", id)
		for rest := seen + 1; rest < 4; rest++ {
			if got := next(t, again); got.I != 9 {
				t.Fatalf("after %d of 4: %+v", seen+1, got)
			}
		}
		if got := next(t, again); got.I != 10 {
			t.Errorf("after %d of 4, the next is %+v", seen+1, got)
		}
	}
}

// An id whose event the stream no longer yields, because the filter was changed, must not swallow its neighbours.
func TestResumeAtAnEventThatIsNoLongerThere(t *testing.T) {
	p := open(t, gateway.EventsConfig{Heartbeat: 20 * time.Millisecond})
	at := change.Timestamp{T: 1001, I: 9}
	gone := string(gateway.NewEncoder("c", partitions, nil).ID(nil, changetest.Event{ID: 77, Time: at}.Position()))
	p.source.Append(changetest.Event{ID: 1, Time: at}, changetest.Event{ID: 2, Time: at})
	r := p.get("", gone)
	p.source.Tick(1) // the log goes on, without events
	for range 2 {
		if got := next(t, r); got.I != 9 {
			t.Errorf("%+v", got)
		}
	}
}

func TestHeartbeatMovesTheID(t *testing.T) {
	p := open(t, gateway.EventsConfig{Heartbeat: 10 * time.Millisecond})
	resp := p.do("?coll=nothing", "")
	lines := bufio.NewScanner(resp.Body)
	first := ""
	p.source.Append(changetest.Event{ID: 1})
	for lines.Scan() {
		id, isID := strings.CutPrefix(lines.Text(), "id: ")
		switch {
		case isID && first == "":
			first = id
			p.source.Append(changetest.Event{ID: 2})
		case isID && id != first:
			return
		}
	}
	t.Fatal("no second id came")
}

func TestBadRequestsAreRefusedWithACode(t *testing.T) {
	p := open(t, gateway.EventsConfig{})
	ours := string(gateway.NewEncoder("c", partitions, nil).ID(nil, changetest.Event{ID: 1, Time: change.Timestamp{T: 1001, I: 9}}.Position()))
	theirs := string(gateway.NewEncoder("another", partitions, nil).ID(nil, changetest.Event{ID: 1}.Position()))
	damaged := strings.ToUpper(ours)
	for name, c := range map[string]struct {
		query, id string
		code      fault.Code
	}{
		"unknown parameter":    {query: "?database=shop", code: fault.SessionBadRequest},
		"unknown operation":    {query: "?op=upsert", code: fault.SessionBadRequest},
		"parameter twice":      {query: "?db=a&db=b", code: fault.SessionBadRequest},
		"malformed query":      {query: "?db=%zz", code: fault.SessionBadRequest},
		"malformed filter":     {query: "?filter=key._id+%3D%3D", code: fault.FilterInvalid},
		"filter without doc":   {query: "?filter=doc.a+%3D%3D+1", code: fault.FilterNeedsDoc},
		"malformed id":         {id: "17", code: fault.SessionBadPosition},
		"damaged id":           {id: damaged, code: fault.SessionBadPosition},
		"id of another":        {id: theirs, code: fault.SessionBadPosition},
		"id that is too short": {id: ours[:20], code: fault.SessionBadPosition},
	} {
		resp := p.do(c.query, c.id)
		var body struct {
			Code            fault.Code
			Message, Remedy string
		}
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusBadRequest || body.Code != c.code || body.Message == "" || body.Remedy == "" {
			t.Errorf("%s: %d %+v", name, resp.StatusCode, body)
		}
	}
}

// What the log no longer holds is told with its bounds, and then the client goes on with what there is.
func TestLostPositionIsToldNotSkipped(t *testing.T) {
	p := open(t, gateway.EventsConfig{})
	p.source.Append(changetest.Event{ID: 1}, changetest.Event{ID: 2}, changetest.Event{ID: 3})
	p.source.Truncate(1)
	old := string(gateway.NewEncoder("c", partitions, nil).ID(nil, change.At(change.Timestamp{T: 900, I: 1})))
	r := p.get("", old)
	m, err := r.Next()
	if err != nil || m.Event != "resync" {
		t.Fatalf("%+v, %v", m, err)
	}
	var told struct {
		ID       string
		Notice   string
		Advice   string
		LostFrom struct {
			Timestamp struct{ T, I uint32 } `json:"$timestamp"`
		} `json:"lost_from"`
		LostTo struct {
			Timestamp struct{ T, I uint32 } `json:"$timestamp"`
		} `json:"lost_to"`
	}
	if err := json.Unmarshal(m.Data, &told); err != nil {
		t.Fatal(err)
	}
	from, to := told.LostFrom.Timestamp, told.LostTo.Timestamp
	if told.Notice != "resync" || told.Advice == "" || from.T != 900 || to.T != 1001 || to.I != 4 || told.ID != m.ID {
		t.Errorf("%s", m.Data)
	}
	if got := next(t, r); got.I != 4 {
		t.Errorf("then came %+v", got)
	}
	if again := next(t, p.get("", m.ID)); again.I != 4 {
		t.Errorf("behind the notice comes %+v", again)
	}
}

// A refusing log refuses positions from before the tail so often, although it has them.
type refusing struct {
	*lanetest.Log

	times atomic.Int64
}

// Open implements lane.Source.
func (l *refusing) Open(ctx context.Context, from change.Position) (lane.Stream, error) {
	if from.Time.T < 1000 && l.times.Add(-1) >= 0 {
		return nil, &lane.LostError{First: change.Timestamp{T: 1}, Err: errors.New("refused")}
	}
	return l.Log.Open(ctx, from)
}

// A client whose id is refused, although the log should have it, is told of nothing: it is tried again.
func TestClientThatIsRefusedGetsWhatTheLogHas(t *testing.T) {
	source := &refusing{Log: &lanetest.Log{}}
	source.times.Store(2)
	for i := range uint32(3) {
		source.Append(changetest.Event{ID: int64(i), Time: change.Timestamp{T: 900, I: i + 1}})
	}
	p := openOver(t, gateway.EventsConfig{}, source.Log, source)
	r := p.get("", string(gateway.NewEncoder("c", partitions, nil).ID(nil, change.At(change.Timestamp{T: 900}))))
	for i := range uint32(3) {
		if got := next(t, r); got.T != 900 || got.I != i+1 {
			t.Errorf("number %d is %+v", i, got)
		}
	}
}

func TestPositionAheadOfTheLogIsRefused(t *testing.T) {
	p := open(t, gateway.EventsConfig{})
	future := string(gateway.NewEncoder("c", partitions, nil).ID(nil, change.At(change.Timestamp{T: 5000, I: 1})))
	resp := p.do("", future)
	var body struct{ Code fault.Code }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || resp.StatusCode != http.StatusConflict || body.Code != fault.LogAhead {
		t.Errorf("%d %+v, %v", resp.StatusCode, body, err)
	}
}

func TestClientThatTakesNothingIsCutOff(t *testing.T) {
	p := open(t, gateway.EventsConfig{StallTimeout: 50 * time.Millisecond, MaxClients: 1})
	u, err := url.Parse(p.server.URL)
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
	if _, err := conn.Read(line); err != nil || string(line) != "HTTP/1.1 200" {
		t.Fatalf("%q, %v", line, err)
	}
	if resp := p.do("", ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a second client got %d", resp.StatusCode)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for id := int64(0); ; id++ {
			select {
			case <-stop:
				return
			default:
				p.source.Append(changetest.Event{ID: id, Pad: 100_000, DB: strings.Repeat("d", 60_000)})
			}
		}
	}()
	r := <-p.logs
	if r.Message != "subscriber cut off" {
		t.Errorf("logged %q", r.Message)
	}
}
