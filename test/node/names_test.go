package node

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/preflight"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/sink"
)

// withNames has a view, a time series and a collection in the database shop.
func withNames(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, devmongo.Config{Release: "8.0"})
	r.insert("a")
	r.create("seen", bson.E{Key: "viewOn", Value: "orders"}, bson.E{Key: "pipeline", Value: bson.A{}})
	r.create("weather", bson.E{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "at"}}})
	return r
}

// subscribes returns the first answer to a subscription over gRPC, and the first notice about it.
func (n *live) subscribes(name, db, coll string, ops ...string) (rejected, told fault.Code) {
	n.Helper()
	stream, err := n.hello(n.conn(), "", func(h *streampb.Hello) {
		h.Subscriber, h.ProcessId, h.Start = name, "p", streampb.Start_START_NOW
		h.Subscriptions = []*streampb.Subscription{{Id: "s", Db: db, Coll: coll, Ops: ops}}
	})
	if err != nil {
		n.Fatal(err)
	}
	for {
		answer, err := stream.Recv()
		switch {
		case err != nil:
			n.Fatal(err)
		case answer.GetRejected() != nil:
			return fault.Code(answer.GetRejected().GetCode()), ""
		case answer.GetNotice().GetKind() == "collection_missing" && answer.GetNotice().GetSubscription() == "s":
			return "", fault.Code(answer.GetNotice().GetCode())
		}
	}
}

// firstEvent returns the type and the data of the first event of an event stream that has a name.
func (n *live) firstEvent(path string) (kind, data string) {
	n.Helper()
	resp := n.request(http.DefaultClient, "http://"+n.service.Addr()+path)
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kind = text
		}
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && kind != "" {
			return kind, text
		}
	}
	n.Fatalf("%s ended: %s", path, resp.Status)
	return "", ""
}

// Names of which nothing will ever come are refused by every way to data, and what does not exist
// yet is told.
func TestNamesOfWhichNothingComesAreRefused(t *testing.T) {
	t.Parallel()
	n := withNames(t).beginWith(nil, "STREAMER_MONGODB_WATCH=")
	for _, coll := range []string{"seen", "weather"} {
		query := url.Values{"db": {"shop"}, "coll": {coll}}.Encode()
		for _, path := range []string{"/v1/snapshot?", "/v1/events?", "/v1/events?subscriber=s&start=snapshot&", "/v1/events?leaves=true&"} {
			if status, code := n.refused(path + query); status != http.StatusBadRequest || code != fault.SessionUnwatched {
				t.Errorf("%s%s: %d, %s", path, query, status, code)
			}
		}
		if rejected, _ := n.subscribes("of "+coll, "shop", coll); rejected != fault.SessionUnwatched {
			t.Errorf("%s over gRPC: %q", coll, rejected)
		}
	}
	for name, of := range map[string][2]string{"a collection": {"shop", "ordres"}, "a database": {"shp", ""}, "both": {"shp", "orders"}} {
		if rejected, told := n.subscribes(name, of[0], of[1]); rejected != "" || told != fault.MongoMissing {
			t.Errorf("%s over gRPC: %q, %q", name, rejected, told)
		}
		query := url.Values{"db": {of[0]}, "coll": {of[1]}}.Encode()
		if kind, data := n.firstEvent("/v1/events?" + query); kind != "collection_missing" || !strings.Contains(data, string(fault.MongoMissing)) {
			t.Errorf("%s as an event stream: %s, %s", name, kind, data)
		}
		if of[1] == "" {
			continue
		}
		_, text := n.answer(http.DefaultClient, "http://"+n.service.Addr()+"/v1/snapshot?"+query)
		var page struct {
			Documents []any
			Missing   string
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Documents) > 0 || !strings.Contains(page.Missing, of[0]+"."+of[1]) {
			t.Errorf("%s as a page: %s, %v", name, text, err)
		}
	}
}

// Operations that the node does not read are refused by every way to changes.
func TestOperationsThatAreNotReadAreRefused(t *testing.T) {
	t.Parallel()
	n := withNames(t).beginWith(nil, "STREAMER_MONGODB_OPERATIONS=insert,update")
	for _, query := range []string{"op=delete", "op=insert,replace", "filter=" + url.QueryEscape(`op == "delete"`)} {
		if status, code := n.refused("/v1/events?db=shop&" + query); status != http.StatusBadRequest || code != fault.SessionUnwatched {
			t.Errorf("%s: %d, %s", query, status, code)
		}
	}
	if rejected, _ := n.subscribes("s", "shop", "orders", "delete"); rejected != fault.SessionUnwatched {
		t.Errorf("over gRPC: %q", rejected)
	}
	if resp := n.request(http.DefaultClient, "http://"+n.service.Addr()+"/v1/events?db=shop&op=insert,drop"); resp.StatusCode != http.StatusOK {
		t.Errorf("operations that are read: %s", resp.Status)
	}
}

// A sink of which nothing will ever come is refused at the start where the configuration tells, and
// halted where MongoDB does; of what does not exist yet operators are told.
func TestNamesOfSinks(t *testing.T) {
	t.Parallel()
	r := withNames(t)
	to := t.TempDir() + "/out"
	with := func(subscription string) {
		r.file = t.TempDir() + "/config.yaml"
		r.sinkFrom("now", "    type: file\n    file: {path: '"+to+"'}\n    subscriptions: ["+subscription+"]\n")
	}
	for _, c := range []struct{ subscription, setting string }{
		{"{namespace: shop.other}", "STREAMER_MONGODB_WATCH=shop.orders"},
		{"{namespace: crm.*}", "STREAMER_MONGODB_WATCH=shop.*"},
		{"{namespace: streamer.x}", "STREAMER_MONGODB_WATCH="},
		{"{operations: [delete]}", "STREAMER_MONGODB_OPERATIONS=insert"},
		{"{}", "STREAMER_RESCAN_COLLECTIONS=streamer.x"},
	} {
		with(c.subscription)
		if _, err := r.assemble(c.setting); fault.Of(err) != fault.SessionUnwatched {
			t.Errorf("%s, %s: %v", c.subscription, c.setting, err)
		}
		if cfg, err := config.Load(r.file, append(slices.Clone(r.settings), c.setting)); err != nil {
			t.Errorf("%s, %s: %v", c.subscription, c.setting, err)
		} else if report := preflight.RunHere(t.Context(), cfg, preflight.Source{}); report.OK {
			t.Errorf("%s, %s: config check finds nothing", c.subscription, c.setting)
		}
	}
	for _, coll := range []string{"seen", "weather"} {
		with("{namespace: shop." + coll + "}")
		n := r.begin()
		n.status() // it serves
		n.until("the sink is halted", func() bool {
			st := n.service.Sinks()[0].Status()
			return st.State == sink.Halted && strings.Contains(st.Error, coll)
		})
		n.stopped()
	}
	with("{namespace: shop.ordres}")
	n := r.begin()
	n.status()
	n.until("operators are told", func() bool { return slices.Contains(n.posted(notice.Health), notice.KindCollectionMissing) })
	if st := n.service.Sinks()[0].Status(); st.State == sink.Halted {
		t.Errorf("a sink of a collection that may still come: %+v", st)
	}
}
