package gateway_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/sse"
)

// FuzzEventIsOneFrame frames whatever an encoder makes of an event as server-sent events do, and reads it back: it is one message, or refused.
func FuzzEventIsOneFrame(f *testing.F) {
	for _, object := range []string{
		`{}`, `{"a":1}`, "{\"a\":\"\n\nid: forged\ndata: forged\"}", "{\"a\":\"\r\rdata: forged\"}", "{\n}", "", "{", "[1]", "{\"\u2028\":\"\u0085\"}",
	} {
		f.Add([]byte(object), int64(1), false)
	}
	f.Fuzz(func(t *testing.T, object []byte, id int64, keyless bool) {
		e, err := change.Parse(changetest.Event{ID: id, Time: change.Timestamp{T: 1000, I: 1}, Keyless: keyless}.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		encoder := gateway.NewEncoder("c", partitions, func(b []byte, _ *change.Event) ([]byte, error) { return append(b, object...), nil })
		text, err := encoder.Event(nil, &e)
		if err != nil {
			if len(text) != 0 {
				t.Fatalf("%q with an error", text)
			}
			return
		}
		r := sse.NewReader(bytes.NewReader(fmt.Appendf(nil, "id: real\ndata: %s\n\ndata: next\n\n", text)))
		m, err := r.Next()
		if err != nil || m.ID != "real" || m.Event != "" || !bytes.Equal(m.Data, text) {
			t.Fatalf("%q comes as %+v, %v", text, m, err)
		}
		if m, err := r.Next(); err != nil || string(m.Data) != "next" {
			t.Fatalf("%q is followed by %+v, %v", text, m, err)
		}
	})
}
