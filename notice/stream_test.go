package notice_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/notice"
)

// serve serves a board.
func serve(t *testing.T, cfg notice.StreamConfig, b *notice.Board) string {
	t.Helper()
	server := httptest.NewServer(notice.NewStream(cfg, b))
	t.Cleanup(server.Close)
	return server.URL
}

// follow connects as a reader that had the notice with the id, until the returned function is
// called.
func follow(t *testing.T, url, last string) (*http.Response, func()) {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	stop := func() { leave(); _ = resp.Body.Close() }
	t.Cleanup(stop)
	return resp, stop
}

// next reads a notice.
func next(t *testing.T, events *sse.Reader) (m sse.Message, n notice.Notice) {
	t.Helper()
	m, err := events.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(m.Data, &n); err != nil {
		t.Fatal(err)
	}
	return m, n
}

func post(b *notice.Board, kinds ...string) {
	for _, kind := range kinds {
		b.Post(notice.Notice{Channel: notice.Breaker, Kind: kind, Level: notice.Warning, Text: "text of " + kind, Fields: map[string]any{"n": 1}})
	}
}

func TestReaderThatComesBackGoesOnWhereItWas(t *testing.T) {
	b := notice.NewBoard(notice.Config{Node: "a"})
	url := serve(t, notice.StreamConfig{}, b)
	post(b, "one", "two")
	resp, leave := follow(t, url, "")
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", resp.Header)
	}
	events := sse.NewReader(resp.Body)
	m, n := next(t, events)
	if m.Event != "circuit_breaker" || n.Kind != "one" || n.Node != "a" || n.ID != 1 || n.Text != "text of one" {
		t.Errorf("%+v, %+v", m, n)
	}
	id := events.LastID()
	leave()

	post(b, "three")
	resp, _ = follow(t, url, id)
	events = sse.NewReader(resp.Body)
	for _, want := range []string{"two", "three"} {
		if _, n := next(t, events); n.Kind != want {
			t.Errorf("%+v, want %s", n, want)
		}
	}
	post(b, "four") // while it is connected
	if _, n := next(t, events); n.Kind != "four" {
		t.Errorf("%+v", n)
	}
	if id == events.LastID() {
		t.Error("the id stands still")
	}
}

// The numbers of a board begin anew with its process: who comes back with a high one from before
// gets what there is.
func TestReaderFromBeforeARestartMissesNothing(t *testing.T) {
	old, young := notice.NewBoard(notice.Config{}), notice.NewBoard(notice.Config{})
	post(old, "one", "two", "three", "four")
	resp, _ := follow(t, serve(t, notice.StreamConfig{}, old), "")
	events := sse.NewReader(resp.Body)
	for range 4 {
		next(t, events)
	}
	post(young, "first")
	resp, _ = follow(t, serve(t, notice.StreamConfig{}, young), events.LastID())
	if _, n := next(t, sse.NewReader(resp.Body)); n.Kind != "first" {
		t.Errorf("%+v", n)
	}
}

func TestReaderIsToldWhatIsKeptNoMore(t *testing.T) {
	b := notice.NewBoard(notice.Config{Keep: 2})
	url := serve(t, notice.StreamConfig{}, b)
	post(b, "one")
	resp, leave := follow(t, url, "")
	events := sse.NewReader(resp.Body)
	next(t, events)
	leave()
	post(b, "two", "three", "four", "five")
	resp, _ = follow(t, url, events.LastID())
	events = sse.NewReader(resp.Body)
	m, err := events.Next()
	if err != nil || m.Event != "missed" || string(m.Data) != `{"missed":2}` {
		t.Errorf("%+v: %s, %v", m, m.Data, err)
	}
	if _, n := next(t, events); n.Kind != "four" {
		t.Errorf("%+v", n)
	}
}

func TestQuietBoardIsHeard(t *testing.T) {
	resp, _ := follow(t, serve(t, notice.StreamConfig{Heartbeat: time.Millisecond}, notice.NewBoard(notice.Config{})), "")
	var got strings.Builder
	for buffer := make([]byte, 64); strings.Count(got.String(), ": heartbeat\n\n") < 3; {
		n, err := resp.Body.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(buffer[:n])
	}
	if !begun.MatchString(got.String()) || !strings.HasPrefix(begun.ReplaceAllString(got.String(), ""), ": heartbeat\n\n") {
		t.Errorf("%q", got.String())
	}
}

// A particular that JSON has no form for costs itself, and not the notice.
func TestNoticeThatCannotBeWrittenComesWithoutItsParticulars(t *testing.T) {
	b := notice.NewBoard(notice.Config{})
	b.Post(notice.Notice{Channel: notice.Health, Kind: "odd", Fields: map[string]any{"f": func() {}}})
	resp, _ := follow(t, serve(t, notice.StreamConfig{}, b), "")
	if _, n := next(t, sse.NewReader(resp.Body)); n.Kind != "odd" || n.Fields["error"] == nil {
		t.Errorf("%+v", n)
	}
}

func TestBadRequestsForNoticesAreRefused(t *testing.T) {
	b := notice.NewBoard(notice.Config{})
	url := serve(t, notice.StreamConfig{MaxClients: 1}, b)
	for name, tt := range map[string]struct {
		query, last string
		status      int
		code        fault.Code
	}{
		"no id":             {"", "nonsense", 400, fault.SessionBadPosition},
		"no number":         {"", "ABCDEFGHIJKL-x", 400, fault.SessionBadPosition},
		"a long one":        {"", strings.Repeat("A", 500), 400, fault.SessionBadPosition},
		"unknown parameter": {"?channel=x", "", 400, fault.SessionBadRequest},
		"bad in the query":  {"?Last-Event-ID=7", "", 400, fault.SessionBadPosition},
	} {
		resp, _ := follow(t, url+tt.query, tt.last)
		refused(t, name, resp, tt.status, tt.code)
	}
	_, leave := follow(t, url, "")
	resp, _ := follow(t, url, "")
	refused(t, "one too many", resp, 503, fault.SessionTooMany)
	leave()
	for name, tt := range map[string]struct {
		cause  error
		status int
		code   fault.Code
	}{
		"stopping":           {fault.Newf(fault.NodeStopping, "it stops"), 503, fault.NodeStopping},
		"a side that closed": {nil, 400, fault.SessionBadRequest},
	} {
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(tt.cause)
		w := httptest.NewRecorder()
		notice.NewStream(notice.StreamConfig{}, b).ServeHTTP(w, httptest.NewRequestWithContext(ended, http.MethodGet, "/", nil))
		refused(t, name, w.Result(), tt.status, tt.code)
	}
}

func refused(t *testing.T, name string, resp *http.Response, status int, code fault.Code) {
	t.Helper()
	var said struct{ Code, Message, Remedy string }
	err := json.NewDecoder(resp.Body).Decode(&said)
	entry, _ := fault.Lookup(code)
	if err != nil || resp.StatusCode != status || said.Code != string(code) || said.Message == "" || said.Remedy != entry.Remedy {
		t.Errorf("%s: %v, %d, %s", name, err, resp.StatusCode, fmt.Sprintf("%+v", said))
	}
}

// An EventSource gives up on any status but 200: one that comes too many is told when to come
// again.
func TestEventSourceOfNoticesComesBack(t *testing.T) {
	b := notice.NewBoard(notice.Config{})
	url := serve(t, notice.StreamConfig{MaxClients: 1}, b)
	follow(t, url, "")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" ||
		!strings.HasPrefix(string(text), "retry: ") || !strings.Contains(string(text), string(fault.SessionTooMany)) {
		t.Errorf("%v, %s, %s", err, resp.Status, text)
	}
}

// begun is how a stream begins: with when its client may come back.
var begun = regexp.MustCompile(`^retry: ([5-9]\d\d|1[0-4]\d\d)\n: connected\n\n`)

// FuzzStreamRequest reads what a client of notices may ask for: the query and the id of its last
// notice.
func FuzzStreamRequest(f *testing.F) {
	b := notice.NewBoard(notice.Config{Node: "a"})
	for range 5 {
		post(b, "one")
	}
	serve := func(query, last string) (status int, text string) {
		following, leave := context.WithCancel(context.Background())
		r := httptest.NewRequestWithContext(following, http.MethodGet, "/v1/notices", nil)
		r.URL.RawQuery = query
		r.Header["Last-Event-Id"] = []string{last}
		w := &leaving{ResponseRecorder: httptest.NewRecorder(), leave: leave, most: 2} // ": connected", and what there is
		notice.NewStream(notice.StreamConfig{Heartbeat: time.Millisecond}, b).ServeHTTP(w, r)
		leave()
		return w.Code, w.Body.String()
	}
	f.Add("", "")
	f.Add("channel=circuit_breaker,health&channel=audit", "ABCDEFGHIJKL-3")
	f.Add("Last-Event-ID=ABCDEFGHIJKL-18446744073709551615", "")
	f.Add("channel=%zz;&x=1", "-")
	f.Fuzz(func(t *testing.T, query, last string) {
		switch status, text := serve(query, last); status {
		case http.StatusOK:
			if !begun.MatchString(text) {
				t.Fatalf("%q", text)
			}
		case http.StatusBadRequest:
			var said struct{ Code string }
			if err := json.Unmarshal([]byte(text), &said); err != nil || said.Code == "" {
				t.Fatalf("%q, %v", text, err)
			}
		default:
			t.Fatalf("status %d: %s", status, text)
		}
	})
}

// A leaving client goes after so many writes.
type leaving struct {
	*httptest.ResponseRecorder

	leave context.CancelFunc
	most  int
}

func (l *leaving) Write(b []byte) (int, error) {
	if l.most--; l.most <= 0 {
		l.leave()
	}
	return l.ResponseRecorder.Write(b)
}

// SetWriteDeadline is that of http.ResponseController.
func (l *leaving) SetWriteDeadline(time.Time) error { return nil }
