package sse_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/gateway/sse"
)

func TestReaderFollowsTheSpecification(t *testing.T) {
	r := sse.NewReader(strings.NewReader(": connected\n\nid: 1\ndata: one\n\nid: 2\n: heartbeat\n\ndata: two\ndata:lines\nevent: error\n\nid: 3\ndata: cut"))
	var progress []string
	r.Progress = func(id string) { progress = append(progress, id) }
	want := []sse.Message{{ID: "1", Data: []byte("one")}, {ID: "2", Event: "error", Data: []byte("two\nlines")}}
	for i, w := range want {
		m, err := r.Next()
		if err != nil || m.ID != w.ID || m.Event != w.Event || string(m.Data) != string(w.Data) {
			t.Errorf("message %d: %+v, %v", i, m, err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("a message that is cut off: %v", err)
	}
	if !slices.Equal(progress, []string{"2"}) {
		t.Errorf("ids without a message: %v", progress)
	}
	if r.LastID() != "2" {
		t.Errorf("last id %q", r.LastID())
	}
}

// Lines that have no other place for the id of a message have it in its data, once.
func TestDataWithItsID(t *testing.T) {
	for _, tt := range []struct{ id, data, want string }{
		{"1", `{"partition":2}`, `{"id":"1","partition":2}`},
		{"1", `{"id":"1","partition":2}`, `{"id":"1","partition":2}`},
		{"", `{"partition":2}`, `{"partition":2}`},
		{"1", `{}`, `{}`},
		{"1", "text", "text"},
	} {
		if got := (sse.Message{ID: tt.id, Data: []byte(tt.data)}).WithID(); string(got) != tt.want {
			t.Errorf("%s of %s: %s", tt.data, tt.id, got)
		}
	}
}
