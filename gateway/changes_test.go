package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
)

// A past is an answer of Changes.
type past struct {
	Begins  *time.Time
	Changes []struct{ Event json.RawMessage }
	Losses  []json.RawMessage
	Next    string
}

// bytes returns the size of the events.
func (p *past) bytes() (n int) {
	for _, c := range p.Changes {
		n += len(c.Event)
	}
	return n
}

// parseInt reads the _id of a document of the log.
func parseInt(text string) (change.Value, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	return change.IDOf(change.WrapDocument(change.AppendInt64(nil, "_id", n))), err
}

func (w *world) changes(cfg gateway.EventsConfig) *gateway.Changes {
	cfg.Cluster = "c"
	c := gateway.NewChanges(gateway.NewEvents(cfg, w.node), parseInt)
	c.ReadFor(2 * patience) // on a busy machine, or one that stands still
	return c
}

// request asks for the changes of document 7.
func (w *world) request(query string) *http.Request {
	return httptest.NewRequestWithContext(w.Context(), http.MethodGet, "/v1/changes?db=shop&coll=orders&id=7"+query, nil)
}

// pastOf returns the answer to a request that is accepted.
func (w *world) pastOf(c *gateway.Changes, query string) (p past) {
	w.Helper()
	answer := httptest.NewRecorder()
	c.ServeHTTP(answer, w.request(query))
	if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || answer.Code != http.StatusOK {
		w.Fatalf("%s: %d %s", query, answer.Code, answer.Body)
	}
	return p
}

// A request reads from its start to its end, and says if the log begins later, or if changes may be
// missing.
func TestChangesHaveAStartAndAnEnd(t *testing.T) {
	w := newWorld(t, options{})
	w.source.Tick(10) // 1010
	w.write(2, 0)
	w.source.Tick(10) // 1020
	w.write(3, 0)
	w.source.Tick(10) // 1030
	c := w.changes(gateway.EventsConfig{})
	at := func(name string, seconds int64) string {
		return "&" + name + "=" + url.QueryEscape(time.Unix(seconds, 0).UTC().Format(time.RFC3339))
	}
	for _, test := range []struct {
		query           string
		changes, losses int
		begins          bool
	}{
		{"", 5, 0, false},
		{at("start", 1010), 5, 0, false},
		{at("start", 1020), 3, 0, false},
		{at("end", 1020), 2, 0, false},
		{at("start", 1010) + at("end", 1020), 2, 0, false},
		{at("start", 1020) + at("end", 1020), 0, 0, false},
		{at("start", 100), 5, 0, true},
		{at("start", 100) + at("end", 500), 0, 0, true},
	} {
		p := w.pastOf(c, test.query)
		if len(p.Changes) != test.changes || len(p.Losses) != test.losses || (p.Begins != nil) != test.begins || p.Next != "" {
			t.Errorf("%s: %d changes, losses %s, begins %v, next %q", test.query, len(p.Changes), p.Losses, p.Begins, p.Next)
		}
	}
	w.source.Truncate(1)
	from := "&from=" + url.QueryEscape(id(change.At(change.Timestamp{T: 900, I: 1}), "c"))
	if p := w.pastOf(c, from); len(p.Changes) == 0 || len(p.Losses) != 1 {
		t.Errorf("from a place that has left the log: %d changes, losses %s", len(p.Changes), p.Losses)
	}
	if p := w.pastOf(c, from+at("end", 500)); len(p.Changes) != 0 || len(p.Losses) != 0 {
		t.Errorf("after its end: %d changes, losses %s", len(p.Changes), p.Losses)
	}
}

// An answer is bounded in bytes, unless one change alone is larger; every change comes once.
func TestAnswerOfChangesIsBounded(t *testing.T) {
	w := newWorld(t, options{})
	const part = gateway.ChangeBytes * 2 / 5
	pads := []int{part, part, part, gateway.ChangeBytes, part}
	for _, pad := range pads {
		w.write(1, pad)
	}
	w.source.Tick(10)
	c := w.changes(gateway.EventsConfig{})
	var sizes []int
	for from, rounds := "", 0; ; rounds++ {
		p := w.pastOf(c, from)
		if n := p.bytes(); len(p.Changes) != 1 && n > gateway.ChangeBytes {
			t.Errorf("an answer with %d changes has %d bytes", len(p.Changes), n)
		}
		for _, e := range p.Changes {
			sizes = append(sizes, len(e.Event)/part)
		}
		if p.Next == "" {
			break
		}
		if from = "&from=" + url.QueryEscape(p.Next); rounds == 2*len(pads) {
			t.Fatal("no end")
		}
	}
	if got := fmt.Sprint(sizes); got != "[1 1 1 2 1]" {
		t.Errorf("changes of %s parts", got)
	}
}

// A loss is in one answer, also where that is full right after it.
func TestChangesHaveEachLossOnce(t *testing.T) {
	for name, e := range map[string]changetest.Event{
		"too large for MongoDB to deliver": {Op: change.SkippedName, Keyless: true},
		"renamed onto the collection":      {Op: "rename", Coll: "draft", To: "orders", Keyless: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			w.write(1, 0)
			w.source.Append(e)
			w.write(2, 0)
			w.source.Tick(10)
			c := w.changes(gateway.EventsConfig{})
			changes, losses, from := 0, 0, ""
			w.until("everything is read", func() bool {
				p := w.pastOf(c, "&limit=1"+from)
				for _, told := range p.Changes {
					if !strings.Contains(string(told.Event), `"rename"`) {
						changes++
					}
				}
				losses += len(p.Losses)
				from = "&from=" + url.QueryEscape(p.Next)
				return p.Next == ""
			})
			if changes != 3 || losses != 1 {
				t.Errorf("%d changes and %d losses", changes, losses)
			}
		})
	}
}

// A request that reads for too long is answered with the place where the next one continues, also
// where nothing was found.
func TestChangesAreAnsweredInTime(t *testing.T) {
	w := newWorld(t, options{})
	c := w.changes(gateway.EventsConfig{})
	c.ReadFor(time.Millisecond)
	const far = "&end=2100-01-01T00:00:00Z"
	p := w.pastOf(c, far)
	if len(p.Changes) != 0 || p.Next == "" {
		t.Fatalf("%d changes, next %q", len(p.Changes), p.Next)
	}
	w.write(1, 0)
	found := 0
	w.until("the change is found", func() bool {
		p = w.pastOf(c, far+"&from="+url.QueryEscape(p.Next))
		found += len(p.Changes)
		return found > 0
	})
	if p = w.pastOf(c, far+"&from="+url.QueryEscape(p.Next)); len(p.Changes) != 0 || found != 1 {
		t.Errorf("found %d times, then %d", found, len(p.Changes))
	}
}

// A watched response tells when it is written.
type watched struct {
	*httptest.ResponseRecorder

	written func()
}

func (w *watched) Write(b []byte) (int, error) {
	w.written()
	return w.ResponseRecorder.Write(b)
}

// A client counts until its answer is written.
func TestClientsOfChangesCountWhileTheyRead(t *testing.T) {
	w := newWorld(t, options{})
	c := w.changes(gateway.EventsConfig{MaxClients: 1})
	second := httptest.NewRecorder()
	first := &watched{ResponseRecorder: httptest.NewRecorder(), written: func() { c.ServeHTTP(second, w.request("")) }}
	c.ServeHTTP(first, w.request(""))
	if first.Code != http.StatusOK || second.Code != http.StatusServiceUnavailable || !strings.Contains(second.Body.String(), string(fault.SessionTooMany)) {
		t.Errorf("%d %s, then %d %s", first.Code, first.Body, second.Code, second.Body)
	}
	w.pastOf(c, "")
}

// A session that ends because something timed out ends the request: it is not mistaken for silence.
func TestEndOfASessionEndsTheRequest(t *testing.T) {
	w := newWorld(t, options{})
	c := w.changes(gateway.EventsConfig{})
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, w.request("&end=2100-01-01T00:00:00Z"))
		answers <- answer
	}()
	w.until("it reads", func() bool { return len(w.node.Hub().Sessions()) == 1 })
	for _, s := range w.node.Hub().Sessions() {
		s.Close(fmt.Errorf("load a checkpoint: %w", context.DeadlineExceeded))
	}
	if answer := <-answers; answer.Code != http.StatusInternalServerError {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

// A request whose identity loses its right while the log is read for it is refused, and gets
// nothing of what was read.
func TestRevokedIdentityGetsNoChanges(t *testing.T) {
	listed := newList(t, "reader name=reader namespace=shop.orders")
	server := listed.config(gateway.Config{})
	w := newWorld(t, options{})
	w.write(3, 0)
	c := w.changes(gateway.EventsConfig{Accounts: access.NewAccounts(access.Defaults{})})
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		answer, r := httptest.NewRecorder(), w.request("&end=2100-01-01T00:00:00Z")
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("Authorization", "Bearer reader")
		server.Access.Handler(c).ServeHTTP(answer, r)
		answers <- answer
	}()
	w.until("it reads", func() bool { return len(w.node.Hub().Sessions()) == 1 })
	listed.write("other name=other namespace=shop.orders")
	answer := <-answers
	if answer.Code != http.StatusUnauthorized || !strings.Contains(answer.Body.String(), string(fault.AccessUnauthenticated)) || strings.Contains(answer.Body.String(), "documentKey") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	w.until("its session has ended", func() bool { return len(w.node.Hub().Sessions()) == 0 })
}
