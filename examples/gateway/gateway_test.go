package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A node accepts every subscription but those of one filter, sends each a change, and then a loss.
type node struct {
	streampb.UnimplementedGatewayServer
}

func (node) Connect(stream streampb.Gateway_ConnectServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	var places [3][]byte
	for i := range places {
		places[i] = make([]byte, 34)
		places[i][0] = byte(i + 1)
	}
	places[1][18] = 1
	seq := uint64(0)
	send := func(m *streampb.ConnectResponse) error { return stream.Send(m) }
	batch := func(b *streampb.Batch) error {
		seq++
		b.Seq = seq
		return send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: b}})
	}
	welcome := &streampb.Welcome{Cluster: "c", PartitionCount: 1}
	if err := send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	if err := batch(&streampb.Batch{To: places[0]}); err != nil {
		return err
	}
	for subscriptions := first.GetHello().GetSubscriptions(); ; {
		for _, sub := range subscriptions {
			if sub.GetFilter() == "bad(" {
				rejected := &streampb.Rejected{Id: sub.GetId(), Code: "STRM-FILTER-SYNTAX", Message: "bad("}
				if err := send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Rejected{Rejected: rejected}}); err != nil {
					return err
				}
				continue
			}
			subscribed := &streampb.ConnectResponse_Subscribed{Subscribed: &streampb.Subscribed{Id: sub.GetId()}}
			if err := send(&streampb.ConnectResponse{Message: subscribed}); err != nil {
				return err
			}
			change := &streampb.Event{Position: places[1], Subscriptions: []string{sub.GetId()}, Change: []byte(`{"operationType":"insert","coll":"` + sub.GetColl() + `"}`)}
			if err := batch(&streampb.Batch{To: places[1], Events: []*streampb.Event{change}}); err != nil {
				return err
			}
			lost := &streampb.Loss{Kind: streampb.Loss_KIND_RESYNC, Namespaces: []string{"shop.orders"}}
			if err := batch(&streampb.Batch{To: places[2], Loss: lost}); err != nil {
				return err
			}
		}
		r, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has left
		}
		subscriptions = r.GetSubscribe().GetSubscriptions()
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start runs the example against a node and returns its address.
func start(t *testing.T) string {
	t.Helper()
	nodes, browsers := listen(t), listen(t)
	server := grpc.NewServer()
	streampb.RegisterGatewayServer(server, node{})
	go func() { _ = server.Serve(nodes) }()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- serve(ctx, browsers, client.Config{Addresses: []string{nodes.Addr().String()}, Subscriber: "g", Start: client.StartNow})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve returned %v", err)
		}
		server.Stop()
	})
	return browsers.Addr().String()
}

func dial(ctx context.Context, t *testing.T, url string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.Dial(ctx, url, nil) //nolint:bodyclose // there is none after the upgrade
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

func TestBrowsersGetTheirChangesAndLosses(t *testing.T) {
	address := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ws := dial(ctx, t, "ws://"+address+"/changes?coll=orders")
	var got []string
	seen := map[string]bool{}
	for len(seen) < 3 {
		_, message, err := ws.Read(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		var m struct {
			Notice, Coll string
			Namespaces   []string
		}
		if err := json.Unmarshal(message, &m); err != nil {
			t.Fatal(err)
		}
		if m.Notice == "resync" && (len(m.Namespaces) != 1 || !seen["orders"]) {
			t.Errorf("%s before the change", message)
		}
		got = append(got, string(message))
		seen[m.Notice+m.Coll] = true
	}
	if !seen["subscribed"] || !seen["orders"] || !seen["resync"] {
		t.Errorf("%q", got)
	}
}

func TestBrowserHearsWhyItsFilterIsRefused(t *testing.T) {
	address := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, _, err := dial(ctx, t, "ws://"+address+"/changes?filter=bad(").Read(ctx)
	if err == nil || !strings.Contains(err.Error(), "STRM-FILTER-SYNTAX") {
		t.Error(err)
	}
}

func TestSlowBrowserLeavesInsteadOfHoldingTheOthers(t *testing.T) {
	ctx, leave := context.WithCancelCause(t.Context())
	b := &browser{waiting: make(chan []byte, maxWaiting), leave: leave}
	for range maxWaiting {
		b.push(nil)
	}
	if ctx.Err() != nil {
		t.Fatal("it leaves too early")
	}
	b.push(nil)
	if context.Cause(ctx) != errSlow { //nolint:errorlint // the very error
		t.Error(context.Cause(ctx))
	}
}

func TestPageIsServedAndOtherOriginsAreRefused(t *testing.T) {
	address := start(t)
	request := func(path, origin string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if origin != "" {
			r.Header = http.Header{"Origin": {origin}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		}
		transport := &http.Transport{DisableKeepAlives: true}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	if status, body := request("/", ""); status != http.StatusOK || !strings.Contains(body, "new WebSocket") {
		t.Errorf("%d: %s", status, body)
	}
	if status, _ := request("/changes", "https://elsewhere.example"); status != http.StatusForbidden {
		t.Errorf("another origin: %d", status)
	}
}
