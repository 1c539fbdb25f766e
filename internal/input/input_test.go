package input

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
)

// requests are the messages that clients send, of every service of a node;
// gateway.TestEveryServiceIsBounded says that there are no others.
func requests() []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	for _, m := range []proto.Message{
		&streampb.ConnectRequest{}, &grpc_health_v1.HealthCheckRequest{}, &grpc_health_v1.HealthListRequest{}, &reflection.ServerReflectionRequest{}, &alpha.ServerReflectionRequest{}, //nolint:staticcheck // clients still use it

	} {
		all = append(all, m.ProtoReflect().Descriptor())
	}
	return all
}

// chosen returns the texts and lists in messages, and in those that they contain.
func chosen(of ...protoreflect.MessageDescriptor) map[protoreflect.FullName]protoreflect.FieldDescriptor {
	found, seen := make(map[protoreflect.FullName]protoreflect.FieldDescriptor), make(map[protoreflect.FullName]bool)
	var walk func(protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			switch field.Kind() { //nolint:exhaustive // others are of a fixed size
			case protoreflect.StringKind, protoreflect.BytesKind:
				found[field.FullName()] = field
			case protoreflect.MessageKind:
				walk(field.Message())
			}
			if field.IsList() || field.IsMap() {
				found[field.FullName()] = field
			}
		}
	}
	for _, m := range of {
		walk(m)
	}
	return found
}

// A client chooses no text and no list that has no bound, and the bound holds: what is longer, or
// has an element more, is refused.
func TestEveryFieldIsBounded(t *testing.T) {
	const subscriptions = 50
	m, found := NewMessages(subscriptions), chosen(requests()...)
	for name := range m.fields {
		if found[name] == nil {
			t.Errorf("the table has a row for %s, which is no field that a client chooses", name)
		}
	}
	for name, field := range found {
		bound, known := m.fields[name]
		if !known || slices.Contains(m.Unbounded(field.ContainingMessage()), name) {
			t.Errorf("%s has no bound", name)
			continue
		}
		message := field.ContainingMessage()
		try := func(what string, wire []byte, accepted bool) {
			err := m.CheckWire(message, wire)
			switch {
			case accepted && err != nil:
				t.Errorf("%s, %s: %v", name, what, err)
			case !accepted && (err == nil || fault.Of(err) == ""):
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if field.IsList() {
			element := protowire.AppendBytes(protowire.AppendTag(nil, field.Number(), protowire.BytesType), nil)
			if bound.Kind == Number {
				element = protowire.AppendVarint(protowire.AppendTag(nil, field.Number(), protowire.VarintType), 1)
				packed := protowire.AppendTag(nil, field.Number(), protowire.BytesType)
				try("packed", protowire.AppendBytes(packed, bytes.Repeat([]byte{1}, bound.Count)), true)
				try("one too many, packed", protowire.AppendBytes(packed, bytes.Repeat([]byte{1}, bound.Count+1)), false)
			}
			if bound.Count == 0 {
				t.Errorf("%s is a list without a bound", name)
			}
			try("all elements", bytes.Repeat(element, bound.Count), true)
			try("one too many", bytes.Repeat(element, bound.Count+1), false)
		}
		if field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.BytesKind {
			continue
		}
		text := func(text string) []byte {
			return protowire.AppendString(protowire.AppendTag(nil, field.Number(), protowire.BytesType), text)
		}
		try("as long as allowed", text(strings.Repeat("x", bound.Bytes)), true)
		try("too long", text(strings.Repeat("x", bound.Bytes+1)), false)
		for _, bad := range []string{"\xff", "a\x00", "a\nb", "\x1b[2J", "a\u2028b", "\u202eb", "\x7f", "\u0085"} {
			try(fmt.Sprintf("%q", bad), text(bad), bound.Kind == Bytes || bound.Kind == Text && bad != "\xff" && bad != "a\x00")
		}
	}
}

// What is within a message with an answer of its own is checked for that answer, and the size of
// the whole for the message around it.
func TestSubscriptionsAreAnsweredOneByOne(t *testing.T) {
	m := NewMessages(1000)
	bad := &streampb.Subscription{Id: strings.Repeat("x", MaxName+1)}
	whole := &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{Subscriptions: []*streampb.Subscription{{Id: "a"}, bad}}}}
	if err := m.Check(whole); err != nil {
		t.Errorf("the message: %v", err)
	}
	if err := m.Check(bad); fault.Of(err) != fault.SessionBadRequest {
		t.Errorf("the subscription: %v", err)
	}
	if err := m.Check(&streampb.Subscription{Id: "a", Filter: strings.Repeat("x", 5000)}); fault.Of(err) != fault.FilterTooLarge {
		t.Errorf("the filter: %v", err)
	}
	var wide streampb.Subscribe
	for range 1000 {
		wide.Subscriptions = append(wide.Subscriptions, &streampb.Subscription{Fields: make([]string, 300)}) // two bytes each on the wire, and more in memory
	}
	if err := m.Check(&wide); fault.Of(err) != fault.SessionTooLarge {
		t.Errorf("many empty elements: %v", err)
	}
	for _, wire := range [][]byte{{0xff}, {0x0a, 5, 1}, {0x0a, 2, 0x0a, 200}} {
		if err := m.CheckWire((&streampb.ConnectRequest{}).ProtoReflect().Descriptor(), wire); fault.Of(err) != fault.SessionBadRequest {
			t.Errorf("%x: %v", wire, err)
		}
	}
}

// What a session keeps of a message costs its identity at least as much as it takes: of a
// subscription, every text but the operations, which become numbers.
func TestWhatIsKeptIsCharged(t *testing.T) {
	m := NewMessages(10)
	free := &streampb.Subscription{Ops: []string{"insert", "update"}}
	if n := m.Cost(free); n != 0 {
		t.Errorf("operations cost %d", n)
	}
	for _, kept := range []*streampb.Subscription{
		{Id: strings.Repeat("x", 200)}, {Db: strings.Repeat("x", 200)}, {Coll: strings.Repeat("x", 200)}, {Filter: strings.Repeat("x", 200)},
		{Fields: slices.Repeat([]string{"xx"}, 100)},
	} {
		if n := m.Cost(kept); n < 200 {
			t.Errorf("%v costs %d", kept, n)
		}
	}
	hello := &streampb.Hello{Subscriber: "name", ProcessId: "process", Checks: []*streampb.Check{{Name: "check"}}}
	before := m.Cost(hello)
	hello.Subscriptions = []*streampb.Subscription{{Id: "counted with the subscription"}}
	if after := m.Cost(hello); before < len("nameprocesscheck") || after != before {
		t.Errorf("%d, with a subscription %d", before, after)
	}
}

func request(t *testing.T, query string, header ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.URL.RawQuery = query
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// A client chooses no parameter that has no bound, and the bound holds.
func TestEveryParameterIsBounded(t *testing.T) {
	for row, bound := range parameters() {
		pattern, name, scoped := "", row, strings.LastIndexByte(row, ' ')
		if scoped >= 0 {
			pattern, name = row[:scoped], row[scoped+1:]
		}
		try := func(what, query string, accepted bool) {
			r := request(t, query)
			r.Pattern = pattern
			_, err := Query(r, name)
			if accepted == (err != nil) || err != nil && fault.Of(err) == "" {
				t.Errorf("%s, %s: %v", row, what, err)
			}
		}
		if bound.Bytes == 0 || bound.Kind == Bytes {
			t.Errorf("%s: %+v", row, bound)
		}
		if bound.Kind == Number { // the longest ones do not fit into 64 bits
			for value, taken := range map[string]bool{
				"7": true, "0": true, "18446744073709551615": true, "18446744073709551616": false, "007": false, "00": false, "%2B7": false, "+7": false, "-7": false,
				"7+": false, "%207": false, "7.0": false, "7e0": false, "0x7": false, "0b1": false, "1_0": false, "\uff17": false, "\u0667": false, "%E2%91%A6": false, "": false,
				"7%00": false, "7%0a": false, "%ff": false,
			} {
				try(value, name+"="+value, taken)
			}
			continue
		}
		try("as long as allowed", name+"="+strings.Repeat("x", bound.Bytes), true)
		try("too long", name+"="+strings.Repeat("x", bound.Bytes+1), false)
		try("not UTF-8", name+"=%ff", false)
		try("the character 0", name+"=%00", false)
		try("a line break", name+"=a%0Ab", bound.Kind == Text)
		count := max(bound.Count, 1)
		try("all values", strings.Repeat(name+"=x&", count), true)
		try("a value too many", strings.Repeat(name+"=x&", count+1), false)
	}
	for _, query := range []string{"x=1", "db=a", "%zz=1", "a;b", "%FF=1", "Limit=1"} {
		if _, err := Query(request(t, query), "limit"); fault.Of(err) != fault.SessionBadRequest {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// Clients that cannot set a header name the parameter in their own ways.
func TestIDsToResumeAfter(t *testing.T) {
	for _, c := range []struct {
		query, header, want string
		code                fault.Code
	}{
		{"", "", "", ""},
		{"", "h", "h", ""},
		{"Last-Event-ID=q", "", "q", ""},
		{"lastEventId=q", "", "q", ""},
		{"last-event-id=q", "", "q", ""},
		{"last_event_id=q", "", "q", ""},
		{"lastEventId=", "", "", ""},       // the first connection
		{"lastEventId=&r=123", "", "", ""}, // event-source-polyfill before 0.0.10
		{"padding=true&lastEventId=q&_=1", "", "q", ""},
		{"evs_buffer_size_limit=262144", "h", "h", ""}, // eventsource-polyfill
		{"evs_buffer_size_limit=262144&evs_preamble=2056&evs_last_event_id=q", "", "q", ""},
		{"r=" + strings.Repeat("x", word.Bytes+1), "", "", fault.SessionBadRequest},
		{"rr=1", "", "", fault.SessionBadRequest},
		{"lastEventId=q", "h", "h", ""},
		{"lastEventId=q&Last-Event-ID=q", "", "q", ""},
		{"lastEventId=q&Last-Event-ID=r", "", "", fault.SessionBadPosition},
		{"lastEventId=" + strings.Repeat("x", eventID.Bytes+1), "", "", fault.SessionBadPosition},
		{"", strings.Repeat("x", eventID.Bytes+1), "", fault.SessionBadPosition},
		{"lastEventId=%ff", "", "", fault.SessionBadRequest},
		{"lastEventId=a&lastEventId=b", "", "", fault.SessionBadRequest},
	} {
		r := request(t, c.query)
		if c.header != "" {
			r.Header.Set(LastEventID, c.header)
		}
		query, err := Query(r, LastEventID)
		var id string
		if err == nil {
			id, err = Resumes(r, query)
		}
		if fault.Of(err) != c.code || err == nil && id != c.want {
			t.Errorf("%.60s, %.20s: %.20q, %v", c.query, c.header, id, err)
		}
	}
	if _, err := Query(request(t, "r=1"), "db"); fault.Of(err) != fault.SessionBadRequest {
		t.Errorf("what is no event stream takes what libraries for them add: %v", err)
	}
	if _, err := Resumes(request(t, "", LastEventID, "a", LastEventID, "b"), nil); fault.Of(err) != fault.SessionBadPosition {
		t.Errorf("two headers: %v", err)
	}
}

func TestPathsAreChecked(t *testing.T) {
	var said error
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/sinks/{name}/{do}", func(_ http.ResponseWriter, r *http.Request) { said = CheckPath(r) })
	mux.HandleFunc("/v1/partitions/{partition}/handoff", func(_ http.ResponseWriter, r *http.Request) { said = CheckPath(r) })
	mux.HandleFunc("/v1/other/{thing}", func(_ http.ResponseWriter, r *http.Request) { said = CheckPath(r) })
	for path, code := range map[string]fault.Code{
		"/v1/sinks/kafka/pause": "", "/v1/sinks/%ff/pause": fault.SessionBadRequest, "/v1/sinks/a%0Ab/pause": fault.SessionBadRequest,
		"/v1/sinks/" + strings.Repeat("x", 300) + "/pause": fault.SessionBadRequest, "/v1/other/x": fault.SessionBadRequest,
		"/v1/partitions/7/handoff": "", "/v1/partitions/%37/handoff": "", "/v1/partitions/007/handoff": fault.SessionBadRequest, "/v1/partitions/+7/handoff": fault.SessionBadRequest,
		"/v1/partitions/%207/handoff": fault.SessionBadRequest, "/v1/partitions/7%20/handoff": fault.SessionBadRequest, "/v1/partitions/%EF%BC%97/handoff": fault.SessionBadRequest,
	} {
		said = nil
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
		if fault.Of(said) != code {
			t.Errorf("%s: %v", path, said)
		}
	}
}

// FuzzQuery reads any query of any endpoint: what is accepted is bounded UTF-8, and of known
// parameters.
func FuzzQuery(f *testing.F) {
	f.Add("db=shop&coll=orders&op=insert,delete&op=update&lastEventId=x", "x")
	f.Add("db=%zz&a;b&%ff=%00", "")
	names := slices.Sorted(maps.Keys(parameters()))
	f.Fuzz(func(t *testing.T, query, last string) {
		r := request(t, query)
		r.Header[LastEventID] = []string{last}
		values, err := Query(r, names...)
		if err == nil {
			_, err = Resumes(r, values)
		}
		if err != nil {
			if fault.Of(err) == "" || !IsName(strings.ReplaceAll(err.Error()[:min(len(err.Error()), MaxName/2)], "\uFFFD", "")) {
				t.Fatalf("%q", err)
			}
			return
		}
		asked, _ := url.ParseQuery(query)
		if len(asked) != len(values) {
			t.Fatalf("%v of %v", values, asked)
		}
		for name, texts := range values {
			for _, text := range texts {
				if len(text) > 32<<10 || strings.ToValidUTF8(text, "") != text || strings.ContainsRune(text, 0) {
					t.Fatalf("%s: %q", name, text)
				}
			}
		}
	})
}
