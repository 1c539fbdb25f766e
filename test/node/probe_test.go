package node

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A probe asks a running node about a name that is another's, as an identity, and returns all that
// it is answered. What differs from one answer to the next whatever is asked is not in it.
type probe func(n *live, token, name string) string

// overHTTP is a probe by a request, in whose path and query %s is the name.
func overHTTP(method, target string, header ...string) probe {
	return func(n *live, token, name string) string {
		n.Helper()
		url := "http://" + n.service.Addr() + strings.ReplaceAll(target, "%s", name)
		req, err := http.NewRequestWithContext(n.Context(), method, url, nil)
		if err != nil {
			n.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], strings.ReplaceAll(header[i+1], "%s", name))
		}
		resp := n.do(http.DefaultClient, req)
		defer func() { _ = resp.Body.Close() }()
		var text []byte
		if resp.Header.Get("Content-Type") != "text/event-stream" || resp.ContentLength >= 0 { // a stream that begins has no end
			if text, err = io.ReadAll(resp.Body); err != nil {
				n.Fatal(err)
			}
		}
		resp.Header.Del("Date")
		var b strings.Builder
		fmt.Fprintln(&b, resp.Status)
		for _, key := range slices.Sorted(maps.Keys(resp.Header)) {
			fmt.Fprintln(&b, key, resp.Header[key])
		}
		fmt.Fprintf(&b, "%s", text)
		return b.String()
	}
}

// overGRPC is a probe by a hello, which a function gives the name. later is sent after the welcome.
func overGRPC(hello func(h *streampb.Hello, name string), later func(name string) *streampb.ConnectRequest) probe {
	return func(n *live, token, name string) string {
		n.Helper()
		conn := n.conn()
		stream, err := n.hello(conn, token, func(h *streampb.Hello) {
			h.Subscriptions = []*streampb.Subscription{{Id: "s", Db: "shop", Coll: "orders"}}
			if hello != nil {
				hello(h, name)
			}
		})
		defer func() { _ = conn.Close() }()
		if err != nil {
			return told(err)
		}
		if later != nil {
			if err := stream.Send(later(name)); err != nil {
				return told(err)
			}
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				return told(err)
			}
			if m.GetBatch() == nil && m.GetTopology() == nil { // whose time and place differ
				return m.String()
			}
		}
	}
}

// told is all that an error of a call tells a client.
func told(err error) string {
	s := status.Convert(err)
	return fmt.Sprint(s.Code(), s.Message(), s.Details())
}

// subscription is one that says a filter for the collection.
func subscription(coll, filter string) *streampb.Subscription {
	return &streampb.Subscription{Id: "other", Db: "shop", Coll: coll, Filter: filter}
}

// probes are those with names of a kind.
func probes() map[string]map[string]probe {
	collections := map[string]probe{
		"hello": overGRPC(func(h *streampb.Hello, name string) {
			h.Subscriptions = append(h.Subscriptions, subscription(name, ""))
		}, nil),
		"hello with a wrong filter": overGRPC(func(h *streampb.Hello, name string) {
			h.Subscriptions = append(h.Subscriptions, subscription(name, "doc.nothing("))
		}, nil),
		"subscribe": overGRPC(nil, func(name string) *streampb.ConnectRequest {
			return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{
				Subscriptions: []*streampb.Subscription{subscription(name, "key._id == 1")},
			}}}
		}),
	}
	for _, query := range []string{"", "&filter=key._id+%3D%3D+1", "&filter=wrong(", "&op=nothing", "&start=earliest", "&start=snapshot&subscriber=mine", "&Last-Event-ID=forged"} {
		collections["events"+query] = overHTTP(http.MethodGet, "/v1/events?db=shop&coll=%s"+query)
	}
	for _, query := range []string{"", "&from=forged", "&limit=1", "&filter=wrong("} {
		collections["pages"+query] = overHTTP(http.MethodGet, "/v1/snapshot?db=shop&coll=%s"+query)
	}
	collections["changes"] = overHTTP(http.MethodGet, "/v1/changes?db=shop&coll=%s&id=1")
	databases := map[string]probe{
		"changes": overHTTP(http.MethodGet, "/v1/changes?db=%s&coll=ledger&id=1"),
		"events":  overHTTP(http.MethodGet, "/v1/events?db=%s&coll=ledger"), "pages": overHTTP(http.MethodGet, "/v1/snapshot?db=%s&coll=ledger"),
		"all events": overHTTP(http.MethodGet, "/v1/events?db=%s"), "hello": overGRPC(func(h *streampb.Hello, name string) { h.Subscriptions[0].Db = name }, nil),
	}
	resume := func(h *streampb.Hello, name string) { h.Subscriber, h.Start = name, streampb.Start_START_RESUME }
	subscribers := map[string]probe{
		"resume": overGRPC(resume, nil), "events": overHTTP(http.MethodGet, "/v1/events?db=shop&coll=orders&subscriber=%s"),
		"snapshot": overHTTP(http.MethodPost, "/v1/subscribers/snapshots?subscriber=%s&operation=begin"),
		"list":     overHTTP(http.MethodGet, "/v1/subscribers?subscriber=%s"), "path": overHTTP(http.MethodGet, "/v1/subscribers/%s"),
		"detail":  overHTTP(http.MethodGet, "/v1/subscribers/detail?subscriber=%s"),
		"notices": overHTTP(http.MethodGet, "/v1/notices?subscriber=%s"),
	}
	sinks := map[string]probe{
		"pause": overHTTP(http.MethodPost, "/v1/sinks/%s/pause"), "resume": overHTTP(http.MethodPost, "/v1/sinks/%s/resume"), "look": overHTTP(http.MethodGet, "/v1/sinks/%s/pause"),
		"snapshot": overHTTP(http.MethodPost, "/v1/subscribers/snapshots?subscriber=sink/%s"), "component": overHTTP(http.MethodGet, "/internal/health/sink/%s"),
		"subscriber": overHTTP(http.MethodGet, "/v1/events?db=shop&coll=orders&subscriber=sink%2F%s"),
	}
	nodes := map[string]probe{
		"drain": overHTTP(http.MethodPost, "/v1/nodes/%s/drain"), "handoff": overHTTP(http.MethodPost, "/v1/partitions/0/handoff?to=%s"),
		"pause": overHTTP(http.MethodPost, "/v1/restarts/pause?slug=%s/hub"), "component": overHTTP(http.MethodGet, "/internal/health/%s/hub"),
		"metrics": overHTTP(http.MethodGet, "/metrics?node=%s"),
	}
	partitions := map[string]probe{"handoff": overHTTP(http.MethodPost, "/v1/partitions/%s/handoff?to=node-1")}
	return map[string]map[string]probe{
		"collection": collections, "database": databases, "subscriber": subscribers, "subscriber of the node": subscribers, "sink": sinks, "node": nodes, "partition": partitions,
	}
}

// An identity without the right learns nothing of the names of others: whatever it asks through any
// door, it is answered the same, byte by byte, whether there is such a name or not. Who has the
// right is told the difference.
func TestNamesOfOthersCannotBeProbed(t *testing.T) {
	t.Parallel()
	const probers = 8 // identities, because each one's refusals are held back
	lines := []string{"b name=tenant-b namespace=shop.ledger", "o name=operator namespace=*"}
	for i := range probers {
		lines = append(lines, fmt.Sprintf("a%d name=tenant-a%d namespace=shop.orders starts_per_second=100000", i, i))
	}
	list := filepath.Join(t.TempDir(), "identities")
	enlist(t, list, lines...)
	r := sinkRig(t, toHTTP(t, &endpoint{}))
	r.settings = append(r.settings, "STREAMER_ACCESS_IDENTITIES_FILE="+list, "STREAMER_HTTP_PROBES_LISTEN=127.0.0.1:0", "STREAMER_NODE_ID=node-1", patient)
	n := r.beginWith(nil)
	n.status()
	for db, coll := range map[string]string{"shop": "ledger", "priv": "ledger"} {
		if _, err := r.client.Database(db).Collection(coll).InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	r.insert("mine")
	other, err := n.hello(n.conn(), "b", func(h *streampb.Hello) {
		h.Subscriber, h.Subscriptions = "sub-b", []*streampb.Subscription{{Id: "s", Db: "shop", Coll: "ledger"}}
	})
	if err != nil {
		t.Fatal(err)
	}
	n.until("the other has a checkpoint", func() bool { return len(r.stored("tenant-b/sub-b")) == partitions })

	for kind, names := range map[string][2]string{ // one that there is, and one of the same length that there is not
		"collection": {"ledger", "ledgex"}, "database": {"priv", "prix"}, "subscriber": {"tenant-b%2Fsub-b", "tenant-b%2Fsub-x"}, "subscriber of the node": {"sub-b", "sub-x"},
		"sink": {"out", "oux"}, "node": {"node-1", "node-2"}, "partition": {"1", "9"},
	} {
		for i, door := range slices.Sorted(maps.Keys(probes()[kind])) {
			ask, token := probes()[kind][door], fmt.Sprint("a", i%probers)
			there, not := ask(n, token, names[0]), ask(n, token, names[1])
			for _, in := range []*string{&there, &not} {
				for _, name := range names {
					*in = strings.ReplaceAll(strings.ReplaceAll(*in, name, "NAME"), strings.ReplaceAll(name, "%2F", "/"), "NAME")
				}
			}
			if there != not {
				t.Errorf("%s, %s: of one that there is\n%s\nand of one that there is not\n%s", kind, door, there, not)
			}
		}
	}
	operator := func(ask probe, name string) string { return strings.ReplaceAll(ask(n, "o", name), name, "NAME") }
	for _, names := range [][4]string{
		{"subscriber", "snapshot", "tenant-b/sub-b", "tenant-b/sub-x"}, {"subscriber", "detail", "tenant-b/sub-b", "tenant-b/sub-x"}, {"sink", "resume", "out", "oux"},
		{"node", "pause", "node-1", "node-2"},
	} {
		kind, names := names[0], names[1:]
		if ask := probes()[kind][names[0]]; operator(ask, names[1]) == operator(ask, names[2]) {
			t.Errorf("the operator cannot tell a %s that there is from one that there is not: %s", kind, operator(ask, names[1]))
		}
	}
	_ = other.CloseSend()
}
