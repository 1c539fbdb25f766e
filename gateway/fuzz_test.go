package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/input"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// position is one on the wire.
func position() change.Ref {
	return changetest.Event{ID: 1, Time: change.Timestamp{T: 1001, I: 9}}.Position().Ref()
}

// FuzzConnectRequest reads what a client may send over gRPC, first and later: a message of any
// bytes is read or refused with a code, and of what is read every text is bounded, and every name
// can be shown.
func FuzzConnectRequest(f *testing.F) {
	at := position().Append(nil)
	hellos := []*streampb.Hello{
		{Start: streampb.Start_START_NOW, Subscriptions: []*streampb.Subscription{{Id: "a", Filter: "key._id == 1", Ops: []string{"insert"}, Fields: []string{"x"}}}},
		{
			Subscriber: "s", Start: streampb.Start_START_RESUME, Cluster: "c", PartitionCount: 4, Position: at,
			Positions: []*streampb.PartitionPosition{{Partition: 1, Position: at}, {Partition: 3, Position: at}},
		},
		{Start: streampb.Start_START_SNAPSHOT, Subscriber: "s", Partitions: streampb.Partitions_PARTITIONS_OWNED, Checks: []*streampb.Check{{Name: "x"}}},
		{Start: streampb.Start_START_RESUME, Cluster: "c", PartitionCount: 1 << 31, Positions: []*streampb.PartitionPosition{{Partition: 1 << 30, Position: at}}},
	}
	add := func(m *streampb.ConnectRequest) {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, m := range hellos {
		add(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: m}})
	}
	add(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{Subscriptions: hellos[0].GetSubscriptions()}}})
	add(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Unsubscribe{Unsubscribe: &streampb.Unsubscribe{Ids: []string{"a", ""}}}})
	add(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: &streampb.Attach{Positions: hellos[1].GetPositions()}}})
	add(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: &streampb.Detach{Partitions: []uint32{1, 1 << 31}}}})
	add(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: &streampb.Heartbeat{Checks: hellos[2].GetChecks()}}})
	f.Add([]byte("\x0a\x03\x0a\x01\xff")) // a name that is not UTF-8
	const partitions, most = 4, 10
	s := NewServer(Config{Cluster: "c", Node: "n", Partitions: partitions, MaxSubscriptions: most}, nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		refused := func(err error) bool {
			if err != nil && fault.Of(err) == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return err != nil
		}
		m := &streampb.ConnectRequest{}
		if refused(newCodec(s.input).decode(mem.BufferSlice{mem.SliceBuffer(data)}, m)) {
			return
		}
		name := func(of string) {
			if !input.IsName(of) {
				t.Fatalf("%q is no name", of)
			}
		}
		for _, sub := range append(m.GetHello().GetSubscriptions(), m.GetSubscribe().GetSubscriptions()...) {
			if refused(s.input.Check(sub)) {
				continue
			}
			read, filter, err := readSubscription(sub, match.Carries{}) // match.FuzzCompile reads the filter
			if !refused(err) && (read.ID == "" || len(read.Form.Fields) > 100 || filter.Source != sub.GetFilter()) {
				t.Fatalf("%+v", read)
			}
			name(read.ID)
		}
		for _, id := range m.GetUnsubscribe().GetIds() {
			name(id)
		}
		for _, check := range append(m.GetHello().GetChecks(), m.GetHeartbeat().GetChecks()...) {
			name(check.GetName())
		}
		if len(m.GetHello().GetSubscriptions()) > most || len(m.GetSubscribe().GetSubscriptions()) > most || len(m.GetUnsubscribe().GetIds()) > most {
			t.Fatal("more subscriptions than a session may have")
		}
		if _, err := s.readPositions(m.GetAttach().GetPositions(), partitions); !refused(err) && len(m.GetAttach().GetPositions()) > partitions {
			t.Fatalf("%d positions of %d partitions", len(m.GetAttach().GetPositions()), partitions)
		}
		hello := m.GetHello()
		r, err := s.readHello(hello, &access.Identity{Name: "by"})
		if refused(err) {
			return
		}
		name(r.Subscriber)
		name(r.Process)
		switch {
		case r.Known && (hello.GetCluster() != "c" || r.At.IsZero() && len(r.Partitions) == 0):
			t.Fatalf("known without a position: %+v", r)
		case r.By != "by" || r.Subscriber != "" && r.Subscriber != "by/"+hello.GetSubscriber():
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

// FuzzEventsRequest reads what a client of event streams may ask for: the query and the id of its
// last event.
func FuzzEventsRequest(f *testing.F) {
	id := string(position().AppendText(nil, "c"))
	f.Add("db=shop&coll=orders&op=insert,delete&op=update&filter=key._id+%3D%3D+1", "")
	f.Add("subscriber=s&start=snapshot&on_loss=snapshot", id+".7.ff")
	f.Add("start=2026-01-02T15:04:05Z&Last-Event-ID="+id, id+".18446744073709551615.ffffffff")
	f.Add("start=earliest&end=2026-01-02T15:04:05Z", "")
	f.Add("db=%zz&db=a;b", id+"..")
	f.Add("subscriber=%ff&lasteventid="+id, "")
	h := NewEvents(EventsConfig{Cluster: "c"}, nil)
	f.Fuzz(func(t *testing.T, query, last string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events", nil)
		r.URL.RawQuery = query
		r.Header["Last-Event-Id"] = []string{last}
		_, request, sub, _, err := h.parse(r)
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
		case !input.IsName(request.Subscriber) || request.Subscriber == "" && (sub.Recover || request.Start == streamer.StartSnapshot):
			t.Fatalf("%+v", request)
		case request.Start == streamer.StartTime && (request.Time.Unix() <= 0 || request.Time.Unix() > 1<<32-1):
			t.Fatalf("starts at %s", request.Time)
		}
	})
}

// FuzzPagesRequest reads what a client of pages may ask for.
func FuzzPagesRequest(f *testing.F) {
	next := placeText(change.Timestamp{T: 1, I: 2}, change.IDOf(changetest.Event{ID: 7}.Document()))
	f.Add("db=shop&coll=orders&filter=key._id+%3D%3D+1&limit=500&from=" + next)
	f.Add("db=%ff&coll=&fliter=x&limit=-1")
	f.Add("db=a&coll=b&from=AAAA")
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/snapshot", nil)
		r.URL.RawQuery = query
		filter, request, err := parsePages(r)
		switch {
		case err != nil && fault.Of(err) == "":
			t.Fatalf("an error without a code: %v", err)
		case err != nil:
		case filter.DB == "" || filter.Coll == "" || request.Documents < 1 || request.Documents > maxPage || request.At.IsZero() != request.From.IsZero():
			t.Fatalf("%+v, %+v", filter, request)
		}
	})
}
