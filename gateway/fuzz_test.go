package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// position is one on the wire.
func position() change.Ref {
	return changetest.Event{ID: 1, Time: change.Timestamp{T: 1001, I: 9}}.Position().Ref()
}

// FuzzHello reads what a client may send first, and what it may send later: a message of any bytes is read or refused with a code.
func FuzzHello(f *testing.F) {
	at := position().Append(nil)
	for _, m := range []*streampb.Hello{
		{Start: streampb.Start_START_NOW, Subscriptions: []*streampb.Subscription{{Id: "a", Filter: "key._id == 1", Ops: []string{"insert"}}}},
		{
			Subscriber: "s", Start: streampb.Start_START_RESUME, Cluster: "c", PartitionCount: 4, Position: at,
			Positions: []*streampb.PartitionPosition{{Partition: 1, Position: at}, {Partition: 3, Position: at}},
		},
		{Start: streampb.Start_START_SNAPSHOT, Subscriber: "s", Partitions: streampb.Partitions_PARTITIONS_OWNED, Checks: []*streampb.Check{{Name: "x"}}},
		{Start: streampb.Start_START_RESUME, Cluster: "c", PartitionCount: 1 << 31, Positions: []*streampb.PartitionPosition{{Partition: 1 << 30, Position: at}}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	const partitions, most = 4, 10
	s := NewServer(Config{Cluster: "c", Node: "n", Partitions: partitions, MaxSubscriptions: most}, nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &streampb.Hello{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		refused := func(err error) bool {
			if err != nil && fault.Of(err) == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return err != nil
		}
		if failing, err := readChecks(m.GetChecks()); !refused(err) && len(failing) > maxChecks {
			t.Fatalf("%d checks", len(failing))
		}
		if _, err := s.readPositions(m.GetPositions(), partitions); !refused(err) && len(m.GetPositions()) > partitions {
			t.Fatalf("%d positions of %d partitions", len(m.GetPositions()), partitions)
		}
		for _, sub := range m.GetSubscriptions() {
			read, filter, err := readSubscription(sub, match.Carries{}) // match.FuzzCompile reads the filter
			if !refused(err) && (read.ID == "" || len(read.ID) > maxID || len(read.Form.Fields) > maxFields || filter.Source != sub.GetFilter()) {
				t.Fatalf("%+v", read)
			}
		}
		r, err := s.readHello(m, &access.Identity{Name: "by"})
		if refused(err) {
			return
		}
		switch {
		case r.Known && (m.GetCluster() != "c" || r.At.IsZero() && len(r.Partitions) == 0):
			t.Fatalf("known without a position: %+v", r)
		case r.By != "by" || r.Subscriber != "" && r.Subscriber != "by/"+m.GetSubscriber() || len(m.GetSubscriber()) > maxID || len(r.Process) > maxID || len(m.GetSubscriptions()) > most:
			t.Fatalf("%+v", r)
		case r.Start == streamer.StartSnapshot && (r.Subscriber == "" || r.Attached):
			t.Fatalf("a snapshot of nobody: %+v", r)
		}
		for p := range r.Partitions {
			if int(p) >= partitions {
				t.Fatalf("partition %d of %d", p, partitions)
			}
		}
	})
}

// FuzzEventsRequest reads what a client of event streams may ask for: the query and the id of its last event.
func FuzzEventsRequest(f *testing.F) {
	id := string(position().AppendText(nil, "c"))
	f.Add("db=shop&coll=orders&op=insert,delete&op=update&filter=key._id+%3D%3D+1", "")
	f.Add("subscriber=s&start=snapshot&on_loss=snapshot", id+".7.ff")
	f.Add("start=2026-01-02T15:04:05Z&Last-Event-ID="+id, id+".18446744073709551615.ffffffff")
	f.Add("db=%zz&db=a;b", id+"..")
	h := NewEvents(EventsConfig{Cluster: "c"}, nil)
	f.Fuzz(func(t *testing.T, query, last string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events", nil)
		r.URL.RawQuery = query
		r.Header["Last-Event-Id"] = []string{last}
		_, request, sub, err := h.parse(r)
		if err != nil {
			if fault.Of(err) == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		switch {
		case request.Known && request.At.IsZero():
			t.Fatalf("known without a position: %+v", request)
		case last != "" && !request.Known:
			t.Fatalf("the id %q is ignored", last)
		case len(request.Subscriber) > maxID || request.Subscriber == "" && (sub.Recover || request.Start == streamer.StartSnapshot):
			t.Fatalf("%+v", request)
		case request.Start == streamer.StartTime && (request.Time.Unix() <= 0 || request.Time.Unix() > 1<<32-1):
			t.Fatalf("starts at %s", request.Time)
		}
	})
}
