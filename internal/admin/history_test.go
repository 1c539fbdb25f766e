package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/streamer"
)

// sampled is the status of a subscriber that is so many seconds late.
func sampled(name, by string, lag float64, acknowledged uint64) streamer.SubscriberStatus {
	late, room := time.Duration(lag*float64(time.Second)), time.Hour
	return streamer.SubscriberStatus{Name: name, By: by, Lag: &late, HeadRoom: &room, Acknowledged: acknowledged, Unacknowledged: 3}
}

// historyOf returns what an identity with a token, or everybody, is shown, and how many bytes that
// are.
func historyOf(t *testing.T, h *admin.History, token, subscriber string) (list admin.HistoryList, size int) {
	t.Helper()
	handler := as(t, admin.ServeHistory("a", h))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/history?subscriber="+subscriber, nil)
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &list); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return list, w.Body.Len()
}

func TestHistoryKeepsAnHour(t *testing.T) {
	t.Parallel()
	h, now, lag := admin.NewHistory(), time.Now(), 0.5
	if empty, _ := historyOf(t, h, "operator", ""); empty.At != nil || len(empty.Nodes) > 0 {
		t.Errorf("before the first sample: %+v", empty)
	}
	members := func(rate float64) []cluster.Member {
		return []cluster.Member{{Heartbeat: cluster.Heartbeat{Node: "a", Load: cluster.Load{Rate: rate, Lag: &lag}, Gateways: []cluster.Gateway{{Name: "x"}, {Name: "y", Left: true}}, Unlisted: 2}}}
	}
	const samples = 300
	for i := range samples {
		h.Note(now.Add(time.Duration(i)*admin.HistoryEvery), members(float64(i)), []streamer.SubscriberStatus{sampled("s", "", float64(i), uint64(i)*15)},
			[]admin.Stage{{Name: "hub", Seconds: 0.0005 * float64(i*i), Count: uint64(i * i)}, {Name: "transport", Seconds: 1, Count: 4}})
	}
	list, _ := historyOf(t, h, "operator", "s")
	rates := list.Nodes["a"].Rate
	if len(rates) != 240 || *rates[239] != samples-1 || *rates[0] != samples-240 || *list.Nodes["a"].Sessions[239] != 3 || *list.Nodes["a"].Lag[0] != 0.5 {
		t.Errorf("%d rates, %v", len(rates), list.Nodes["a"])
	}
	if s := list.Subscriber; s == nil || *s.Lag[239] != samples-1 || *s.Rate[239] != 1 || *s.HeadRoom[239] != 3600 || *s.Unacknowledged[0] != 3 || *list.HeadRoom[239] != 3600 {
		t.Errorf("%+v", list)
	}
	if hub, transport := list.Stages["hub"], list.Stages["transport"]; len(hub) != 240 || *hub[239] != 0.0005 || transport[239] != nil {
		t.Errorf("stages: %v", list.Stages)
	}
	// A process that stood still for a minute knows nothing of that minute, and who has gone is
	// forgotten after an hour.
	later := now.Add(samples*admin.HistoryEvery + time.Minute)
	h.Note(later, members(7), nil, nil)
	list, _ = historyOf(t, h, "operator", "s")
	rates = list.Nodes["a"].Rate
	if *rates[239] != 7 || rates[238] != nil || rates[235] != nil || *rates[234] != samples-1 || list.Subscriber == nil || list.Subscriber.Lag[239] != nil || list.HeadRoom[239] != nil {
		t.Errorf("after a pause: %v", rates[230:])
	}
	for i := range 240 {
		h.Note(later.Add(time.Duration(i+1)*admin.HistoryEvery), nil, nil, nil)
	}
	if list, _ = historyOf(t, h, "operator", "s"); len(list.Nodes) != 0 || list.Subscriber != nil {
		t.Errorf("an hour later: %+v", list)
	}
}

// Names come from clients, who may use as many as they like, and displace no sink.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h, now := admin.NewHistory(), time.Now()
	var members []cluster.Member
	for i := range 500 {
		members = append(members, cluster.Member{Heartbeat: cluster.Heartbeat{Node: fmt.Sprintf("node-%03d", i)}})
	}
	for turn := range 10 {
		var all []streamer.SubscriberStatus
		for i := range 1000 {
			all = append(all, sampled(fmt.Sprintf("s-%d-%03d", turn, i), "", float64(i), 0))
		}
		sink := sampled("sink/x", "", 0, 0)
		sink.Shared = true
		h.Note(now.Add(time.Duration(turn)*admin.HistoryEvery), members, append(all, sink), nil)
	}
	list, _ := historyOf(t, h, "operator", "s-9-999")
	if len(list.Nodes) != 64 || list.Subscriber == nil {
		t.Errorf("%d nodes, the subscriber furthest behind: %v", len(list.Nodes), list.Subscriber)
	}
	for name, want := range map[string]bool{"sink/x": true, "s-9-937": true, "s-9-936": false, "s-8-999": true, "s-7-999": false} {
		if list, _ := historyOf(t, h, "operator", name); (list.Subscriber != nil) != want {
			t.Errorf("%s: kept %v, want %v", name, list.Subscriber != nil, want)
		}
	}
	if admin.MaxHistoryBytes > 1<<20 {
		t.Errorf("%d bytes", admin.MaxHistoryBytes)
	}
}

// A tenant sees its own subscriber, and cannot tell another's from one that does not exist.
func TestHistoryOfOthersIsNotShown(t *testing.T) {
	t.Parallel()
	h := admin.NewHistory()
	h.Note(time.Now(), []cluster.Member{{Heartbeat: cluster.Heartbeat{Node: "a"}}}, []streamer.SubscriberStatus{sampled("tenant/own", "tenant", 1, 0), sampled("rival/own", "rival", 1, 0), sampled("nobody", "", 1, 0)},
		[]admin.Stage{{Name: "hub", Seconds: 1, Count: 1}})
	own, _ := historyOf(t, h, "tenant", "tenant/own")
	if own.Subscriber == nil || len(own.Nodes) > 0 || len(own.HeadRoom) > 0 || len(own.Stages) > 0 {
		t.Errorf("its own: %+v", own)
	}
	for _, name := range []string{"rival/own", "nobody", "no-such"} {
		if list, _ := historyOf(t, h, "tenant", name); list.Subscriber != nil || len(list.Nodes) > 0 {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

// as has requests made by the identity of their token: operator, or tenant.
func as(t *testing.T, handler http.Handler) http.Handler {
	t.Helper()
	list := filepath.Join(t.TempDir(), "identities")
	text := fmt.Sprintf("token %s name=operator namespace=*\ntoken %s name=tenant namespace=shop.orders\n", access.Hash("operator"), access.Hash("tenant"))
	if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := access.New(access.Config{Identities: list})
	if err != nil {
		t.Fatal(err)
	}
	return a.Handler(handler)
}
