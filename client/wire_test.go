package client

import (
	"reflect"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/gateway/streampb"
)

// Garbage collections do not look at the events that wait for handlers.
func TestEventsHaveNoPointers(t *testing.T) {
	for f := range reflect.TypeFor[event]().Fields() {
		switch f.Type.Kind() {
		case reflect.Array, reflect.Bool, reflect.Uint32, reflect.Int:
		default:
			t.Errorf("%s is a %s", f.Name, f.Type)
		}
	}
}

// Events find their changes and their subscriptions in the batch, which has these once for all
// events that follow each other with the same ones.
func TestEventsShareTheirSubscriptions(t *testing.T) {
	sent := [][]string{{"a"}, {"a"}, {"a", "b"}, {"a", "b"}, {"b"}, {}, {}, {"gone"}, {"a"}}
	b := &streampb.Batch{Seq: 2, To: make([]byte, placeSize)}
	for i, ids := range sent {
		b.Events = append(b.Events, &streampb.Event{Position: make([]byte, placeSize), Change: []byte("change " + strconv.Itoa(i)), Subscriptions: ids})
	}
	raw, err := proto.Marshal(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: b}})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]*subscribed{"a": {Subscription: Subscription{ID: "a"}}, "b": {Subscription: Subscription{ID: "b"}}}
	got, _, err := decode(raw, func(id []byte) *subscribed { return known[string(id)] })
	if err != nil || len(got.events) != len(sent) || len(got.subs) != 5 {
		t.Fatalf("%d events, %d subscriptions: %v", len(got.events), len(got.subs), err)
	}
	for i, ids := range sent {
		e := &got.events[i]
		if data := got.changeOf(e); string(data) != "change "+strconv.Itoa(i) || cap(data) != len(data) {
			t.Errorf("event %d has %q of %d bytes", i, data, cap(data))
		}
		for _, sub := range got.subs[e.first:e.last] {
			if len(ids) == 0 || ids[0] != sub.ID {
				t.Errorf("event %d is of %s, not of %q", i, sub.ID, ids)
				continue
			}
			ids = ids[1:]
		}
		if len(ids) > 0 && ids[0] != "gone" {
			t.Errorf("event %d is not of %q", i, ids)
		}
	}
}
