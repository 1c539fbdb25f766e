package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/gateway/sse"
)

// What clients are told of one position is one step, however much it is: a change in several forms,
// and that its document leaves. Documents that fill a batch by themselves, batches that are full of
// changes, and credits of one event change nothing.
func TestEveryClientIsToldAllOfAPosition(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		documents, bytes int
		settings         []string
	}{
		"large documents":              {20, 300 << 10, nil},
		"full batches":                 {1023, 10, nil},
		"credits of one event":         {60, 10, []string{"STREAMER_GATEWAY_CREDIT_EVENTS=1"}},
		"large with credits of a byte": {10, 300 << 10, []string{"STREAMER_GATEWAY_CREDIT_BYTES=1KiB"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{}, append(tc.settings, "STREAMER_MONGODB_FULL_DOCUMENT=updateLookup")...)
			n := r.beginWith(nil)
			n.status()
			told := &tellings{}
			told.overGRPC(t, n)
			told.overEvents(r, n)
			var want, odd []string
			documents := make([]any, tc.documents)
			for i := range documents {
				documents[i] = bson.D{{Key: "_id", Value: i}, {Key: "v", Value: 1}, {Key: "pad", Value: strings.Repeat("x", tc.bytes)}}
				want, odd = append(want, fmt.Sprint("insert ", i)), append(odd, fmt.Sprint("insert ", i))
			}
			if _, err := r.coll("orders").InsertMany(t.Context(), documents); err != nil {
				t.Fatal(err)
			}
			for i := range min(tc.documents, 60) { // each takes its document away from those that want odd ones
				doc := bson.D{{Key: "v", Value: 2}, {Key: "pad", Value: strings.Repeat("x", tc.bytes)}}
				if _, err := r.coll("orders").ReplaceOne(t.Context(), byID(i), doc); err != nil {
					t.Fatal(err)
				}
				want, odd = append(want, fmt.Sprint("replace ", i)), append(odd, fmt.Sprint("left ", i))
			}
			for who, want := range map[string][]string{"all": want, "one field": want, "odd": odd, "events": odd} {
				n.until(who+" has everything", func() bool { return len(told.to(who)) >= len(want) })
				got := told.to(who)
				slices.Sort(want)
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("%s: told of %d changes, want %d:\n%q", who, len(got), len(want), got[:min(len(got), 50)])
				}
			}
		})
	}
}

// A tellings is what clients are told, by their names.
type tellings struct {
	mu  sync.Mutex
	all map[string][]string
}

func (w *tellings) to(who string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all[who])
}

func (w *tellings) take(who string, event []byte) error {
	var e struct {
		Op  string `json:"operationType"`
		Key struct {
			ID int `json:"_id"`
		} `json:"documentKey"`
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[string][]string)
	}
	w.all[who] = append(w.all[who], fmt.Sprint(e.Op, " ", e.Key.ID))
	return nil
}

// overGRPC follows a node with a client that has three subscriptions, in two forms.
func (w *tellings) overGRPC(t *testing.T, n *live) {
	t.Helper()
	c, err := client.New(client.Config{
		Addresses: []string{n.service.Gateway()}, Subscriber: "positions", Start: client.StartEarliest,
		OnNotice: func(context.Context, client.Notice) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []client.Subscription{
		{ID: "all", DB: "shop", Format: client.JSON}, {ID: "one field", DB: "shop", Format: client.JSON, Fields: []string{"v"}},
		{ID: "odd", DB: "shop", Format: client.JSON, Filter: "doc.v % 2 == 1", Leaves: true},
	} {
		if err := c.Subscribe(sub, func(_ context.Context, c client.Change) error { return w.take(c.Subscription, c.Data) }); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// overEvents follows a node with an event stream, which breaks after each of its first messages and
// goes on after the last id that it has.
func (w *tellings) overEvents(r *rig, n *live) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		transport := &http.Transport{DisableKeepAlives: true} // keeps no connection whose request was given up
		last, err := "", error(nil)
		for connections := 1; ctx.Err() == nil && err == nil; connections++ {
			if last, err = w.someEvents(ctx, &http.Client{Transport: transport}, n, last, connections); errors.Is(err, io.EOF) {
				err = nil // the stream was ended, as those of a client that is late are
			}
		}
		ended <- err
	}()
	r.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			r.Error(err)
		}
	})
}

// someEvents reads one event, or all where there were enough connections, and returns the last id.
func (w *tellings) someEvents(ctx context.Context, web *http.Client, n *live, last string, connections int) (string, error) {
	const query = "/v1/events?db=shop&start=earliest&leaves=true&filter=doc.v%20%25%202%20%3D%3D%201"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.service.Addr()+query, nil)
	if err != nil {
		return last, err
	}
	req.Header.Set("Last-Event-ID", last)
	resp, err := web.Do(req)
	if err != nil {
		return last, err
	}
	defer func() { _ = resp.Body.Close() }()
	for events := sse.NewReader(resp.Body); ; {
		m, err := events.Next()
		if err != nil {
			return last, err
		}
		switch m.Event {
		case "":
		case string(client.CollectionMissing):
			continue
		default:
			return last, fmt.Errorf("told of %s %s", m.Event, m.Data)
		}
		if err := w.take("events", m.Data); err != nil {
			return last, err
		}
		if last = m.ID; connections < 40 {
			return last, nil
		}
	}
}
