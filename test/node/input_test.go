package node

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
)

// unwatched are namespaces of which a node with the given watch reads nothing.
func unwatched(everything bool) [][2]string {
	never := [][2]string{
		{"admin", "system.users"}, {"admin", "x"}, {"config", "transactions"}, {"local", "oplog.rs"}, {"streamer", "checkpoints"}, {"streamer", "gaps"},
		{"shop", "system.views"}, {"shop", "system.buckets.orders"},
	}
	if everything {
		return never
	}
	return append(never, [][2]string{{"crm", "leads"}, {"shop", "other"}, {"shop", "orders.x"}}...)
}

// refused returns the status of an answer over HTTP, and the code of ours if it is a refusal.
func (n *live) refused(path string, header ...string) (status int, code fault.Code) {
	n.Helper()
	resp := n.request(http.DefaultClient, "http://"+n.service.Addr()+path, header...)
	defer func() { _ = resp.Body.Close() }()
	var said struct {
		Code fault.Code `json:"code"`
	}
	if resp.StatusCode != http.StatusOK { // otherwise it may never end
		_ = json.NewDecoder(resp.Body).Decode(&said) // the code is missing then
	}
	return resp.StatusCode, said.Code
}

// Whatever a node is asked for changes or documents with, it gives nothing of what it does not watch.
func TestNothingIsReadThatIsNotWatched(t *testing.T) {
	t.Parallel()
	for name, watch := range map[string]string{"everything": "", "one collection": "shop.orders"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{})
			for _, ns := range unwatched(false) {
				if strings.HasPrefix(ns[1], "system.") || ns[0] == "local" {
					continue
				}
				if _, err := r.client.Database(ns[0]).Collection(ns[1]).InsertOne(t.Context(), bson.D{{Key: "_id", Value: "secret"}}); err != nil {
					t.Fatal(err)
				}
			}
			n := r.beginWith(nil, "STREAMER_MONGODB_WATCH="+watch)
			for _, ns := range unwatched(watch == "") {
				query := url.Values{"db": {ns[0]}, "coll": {ns[1]}}.Encode()
				for _, path := range []string{"/v1/snapshot?", "/v1/events?", "/v1/events?subscriber=s&start=snapshot&", "/v1/events?start=earliest&"} {
					if status, code := n.refused(path + query); status != http.StatusBadRequest || code != fault.SessionUnwatched {
						t.Errorf("%s%s: %d, %s", path, query, status, code)
					}
				}
				for _, start := range []streampb.Start{streampb.Start_START_NOW, streampb.Start_START_SNAPSHOT} {
					stream, err := n.hello(n.conn(), "", func(h *streampb.Hello) {
						h.Subscriber, h.ProcessId, h.Start = "g", "p", start
						h.Subscriptions = []*streampb.Subscription{{Id: "all", Db: ns[0], Coll: ns[1]}}
					})
					if err != nil {
						t.Fatal(err)
					}
					if answer, err := stream.Recv(); err != nil || answer.GetRejected().GetCode() != string(fault.SessionUnwatched) {
						t.Errorf("%v over gRPC, %v: %v, %v", ns, start, answer, err)
					}
				}
			}
			if resp, text := n.answer(http.DefaultClient, "http://"+n.service.Addr()+"/v1/snapshot?db=shop&coll=orders"); resp.StatusCode != http.StatusOK {
				t.Errorf("what is watched: %s, %s", resp.Status, text)
			}
		})
	}
}
