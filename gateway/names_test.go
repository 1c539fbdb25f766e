package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/streamer"
)

// questions are what the store and MongoDB are asked about names.
type questions struct {
	mu  sync.Mutex
	all []string
}

func (q *questions) note(what, name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, what+" "+name)
}

// take returns the questions since the last call.
func (q *questions) take() (all []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.all = q.all, nil
	return all
}

// kinds says that there is every collection. What everybody may read is no question: an answer
// holds for a second.
func (q *questions) kinds(_ context.Context, all []change.Namespace) (map[change.Namespace]change.NamespaceKind, error) {
	told := make(map[change.Namespace]change.NamespaceKind)
	for _, ns := range all {
		if ns.Coll != "orders" {
			q.note("kind", ns.String())
		}
		told[ns] = change.NamespaceCollection
	}
	return told, nil
}

// An askedStore notes which names it is asked about.
type askedStore struct {
	streamer.Checkpoints
	*questions
}

func (s askedStore) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	s.note("load", subscriber)
	return s.Checkpoints.Load(ctx, subscriber)
}

func (s askedStore) History(ctx context.Context, k checkpoint.Key) ([]checkpoint.Checkpoint, error) {
	s.note("history", k.Subscriber)
	return s.Checkpoints.History(ctx, k)
}

func (s askedStore) ClaimName(ctx context.Context, c checkpoint.Claim, first checkpoint.Checkpoint) (checkpoint.Checkpoint, error) {
	s.note("claim", first.Subscriber)
	return s.Checkpoints.ClaimName(ctx, c, first)
}

// Whatever name of others a client asks for, existing or not, the same code answers: the store and
// MongoDB are asked about nothing of others, and the answers are equal. So neither what is answered
// nor how long it takes says which names there are.
func TestNamesOfOthersAreNotLookedUp(t *testing.T) {
	q := &questions{}
	server := newList(t, "victim name=victim namespace=shop.* namespace=priv.*", "tenant name=tenant namespace=shop.orders").config(gateway.Config{})
	w := newWorld(t, options{server: server, hub: delivery.Config{Kinds: q.kinds}, store: func(s streamer.Checkpoints) streamer.Checkpoints { return askedStore{s, q} }})
	cfg := gateway.EventsConfig{Cluster: "c", Accounts: access.NewAccounts(access.Defaults{})}
	events, mux := gateway.NewEvents(cfg, w.node), http.NewServeMux()
	mux.Handle("GET /v1/events", events)
	mux.Handle("GET /v1/changes", gateway.NewChanges(events, parseInt))
	mux.Handle("GET /v1/snapshot", gateway.NewPages(cfg, w.node))
	web := httptest.NewServer(server.Access.Handler(mux))
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	for _, name := range []string{"streamed", "resumed", "placed"} {
		w.connectAs("victim", hello(func(h *streampb.Hello) {
			h.Subscriber, h.Subscriptions = name, []*streampb.Subscription{{Id: "s", Db: "shop", Coll: "ledger"}}
		}))
	}

	get := func(path string) func(name string) string {
		return func(name string) string {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+strings.ReplaceAll(path, "NAME", name), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer tenant")
			resp, err := web.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode == http.StatusOK {
				return resp.Status // a stream has no end
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.Status + " " + string(text)
		}
	}
	call := func(change func(h *streampb.Hello, name string)) func(name string) string {
		return func(name string) string {
			t.Helper()
			s := w.openAs("tenant", hello(func(h *streampb.Hello) {
				h.Subscriber, h.Subscriptions = "", []*streampb.Subscription{{Id: "s", Db: "shop", Coll: "orders"}}
				change(h, name)
			}))
			defer func() { _ = s.CloseSend() }()
			for {
				m, err := s.take()
				_, reason, text := explained(err)
				switch {
				case err != nil:
					return reason + " " + text
				case m.GetRejected() != nil:
					return m.GetRejected().String()
				case m.GetBatch() != nil:
					return "served"
				}
			}
		}
	}
	for name, test := range map[string]struct {
		ask        func(name string) string
		there, not string
	}{
		"events":           {get("/v1/events?db=shop&coll=NAME"), "ledger", "ledgex"},
		"events, filtered": {get("/v1/events?db=shop&coll=NAME&filter=key._id+%3D%3D+1&start=earliest"), "ledger", "ledgex"},
		"a database":       {get("/v1/events?db=NAME"), "priv", "prix"},
		"changes":          {get("/v1/changes?db=shop&coll=NAME&id=7"), "ledger", "ledgex"},
		"pages":            {get("/v1/snapshot?db=shop&coll=NAME"), "ledger", "ledgex"},
		"hello": {call(func(h *streampb.Hello, name string) {
			h.Subscriptions[0].Coll = name
		}), "ledger", "ledgex"},
		"hello, with others": {call(func(h *streampb.Hello, name string) {
			h.Subscriptions = []*streampb.Subscription{{Id: "other", Db: "shop", Coll: name, Filter: "wrong("}}
		}), "ledger", "ledgex"},
		"a subscriber's events":   {get("/v1/events?db=shop&coll=orders&subscriber=NAME"), "streamed", "streamex"},
		"a subscriber, qualified": {get("/v1/events?db=shop&coll=orders&subscriber=victim/NAME"), "streamed", "streamex"},
		"a subscriber's session": {call(func(h *streampb.Hello, name string) {
			h.Subscriber, h.Start = name, streampb.Start_START_RESUME
		}), "resumed", "resumex"},
		"its session, qualified": {call(func(h *streampb.Hello, name string) {
			h.Subscriber, h.Start = "victim/"+name, streampb.Start_START_RESUME
		}), "resumed", "resumex"},
		"its session, at a position": {call(func(h *streampb.Hello, name string) {
			h.Subscriber, h.Cluster, h.Position, h.PartitionCount, h.Generation = "victim/"+name, "c", at(999), partitions, 7
		}), "placed", "placex"},
	} {
		q.take()
		told := make(map[string]string)
		asked := make(map[string][]string)
		for _, which := range []string{test.there, test.not} {
			told[which] = strings.ReplaceAll(test.ask(which), which, "NAME")
			for _, question := range q.take() {
				asked[which] = append(asked[which], strings.ReplaceAll(question, which, "NAME"))
				_, of, _ := strings.Cut(question, " ")
				if !strings.HasPrefix(of, "tenant/") {
					t.Errorf("%s: asked: %s", name, question)
				}
			}
		}
		if told[test.there] != told[test.not] || told[test.not] == "" || !slices.Equal(asked[test.there], asked[test.not]) {
			t.Errorf("%s: of one that there is\n%s\n%q\nand of one that there is not\n%s\n%q", name, told[test.there], asked[test.there], told[test.not], asked[test.not])
		}
	}
}
