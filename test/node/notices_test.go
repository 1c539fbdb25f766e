package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/notice"
)

const hookSecret = "a secret of sixteen bytes"

// hook receives what nodes post.
func hook(t *testing.T) (settings []string, deliveries <-chan notice.Delivery) {
	t.Helper()
	got := make(chan notice.Delivery, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if err := notice.VerifyDelivery(r.Header, body, time.Now(), hookSecret); err != nil {
			t.Error(err)
		}
		var d notice.Delivery
		if err := json.Unmarshal(body, &d); err != nil {
			t.Error(err)
		}
		got <- d
	}))
	t.Cleanup(server.Close)
	return []string{"STREAMER_NOTICES_WEBHOOK_URL=" + server.URL, "STREAMER_NOTICES_WEBHOOK_SECRET=" + hookSecret}, got
}

// told reads notices off a node's HTTP server until there are so many.
func (n *live) told(last string, many int) (texts []string, past int, id string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.service.Addr()+"/v1/notices", nil)
	if err != nil {
		n.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", last)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	events := sse.NewReader(resp.Body)
	for len(texts) < many {
		m, err := events.Next()
		if err != nil {
			n.Fatalf("%v after %v", err, texts)
		}
		var got notice.Notice
		if err := json.Unmarshal(m.Data, &got); err != nil {
			n.Fatal(err)
		}
		texts = append(texts, got.Node+": "+got.Text)
		if got.Past {
			past++
		}
	}
	return texts, past, events.LastID()
}

func posted(text string) notice.Notice {
	return notice.Notice{
		Channel: notice.Health, Kind: notice.KindMoved, Level: notice.Info, Text: text, Fields: map[string]any{"plan": 1, "moves": 2, "cause": "test"},
	}
}

func TestNoticesOutliveTheirNodeAndArePosted(t *testing.T) {
	r := newRig(t, devmongo.Config{})
	settings, deliveries := hook(t)
	n := r.begin(settings...)
	n.service.Board().Post(posted("one"))
	n.service.Board().Post(posted("two"))
	for i, want := range []string{"one", "two"} {
		d := <-deliveries
		if d.Notice == nil || d.Notice.Text != want || d.Node != "n" || d.Cluster != "c" {
			t.Errorf("delivery %d: %+v", i, d)
		}
	}
	texts, past, id := n.told("", 2)
	if !slices.Equal(texts, []string{"n: one", "n: two"}) || past != 0 {
		t.Errorf("%v, %d past", texts, past)
	}
	n.service.Board().Post(posted("three"))
	if texts, _, _ := n.told(id, 1); !slices.Equal(texts, []string{"n: three"}) {
		t.Errorf("resumed: %v", texts)
	}
	n.service.Board().Post(posted("the last")) // and at once
	n.stopped()
	for range 2 {
		<-deliveries
	}

	again := r.begin(settings...)
	again.service.Board().Post(posted("young"))
	texts, past, _ = again.told(id, 5) // an id of before a restart begins with the oldest
	if !slices.Equal(texts, []string{"n: one", "n: two", "n: three", "n: the last", "n: young"}) || past != 4 {
		t.Errorf("after the restart: %v, %d past", texts, past)
	}
	if d := <-deliveries; d.Notice == nil || d.Notice.Text != "young" {
		t.Errorf("the history was posted again: %+v", d)
	}
}

func TestNodeWithoutEtcdHasItsBoardAlone(t *testing.T) {
	r := newRig(t, devmongo.Config{}, "STREAMER_RELIABILITY_CHECKPOINT_BACKEND="+config.BackendMongo)
	n := r.begin()
	for i := range 3 {
		n.service.Board().Post(posted(fmt.Sprint(i)))
	}
	if texts, past, _ := n.told("", 3); !slices.Equal(texts, []string{"n: 0", "n: 1", "n: 2"}) || past != 0 {
		t.Errorf("%v, %d past", texts, past)
	}
}
