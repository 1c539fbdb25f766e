package connect_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A process of a gateway that begins hears what happened before it came; one that comes back has heard it.
func TestProcessThatBeginsIsToldWhatIsRecent(t *testing.T) {
	w := newWorld(t, connect.Config{Recent: func() []fanout.Notice {
		return []fanout.Notice{{Kind: "recovered", Text: "it is well again", At: time.Unix(1, 0)}}
	}})
	told := func(s *session) bool { // in what comes with the first batches
		s.Helper()
		for {
			r, err := s.Recv()
			if err != nil {
				s.Fatal(err)
			}
			if r.GetNotice().GetKind() == "recovered" {
				return true
			}
			if b := r.GetBatch(); b != nil && len(b.GetEvents()) > 0 {
				return false
			}
		}
	}
	for i, want := range []bool{true, false, true} {
		s := w.connect(hello(func(h *streampb.Hello) {
			h.Start = streampb.Start_START_EARLIEST // there is an event to come
			if i == 2 {
				h.ProcessId, h.StartedAt = "q", timestamppb.New(time.Unix(2000, 0))
			}
		}))
		if got := told(s); got != want {
			t.Errorf("connection %d is told: %t, want %t", i, got, want)
		}
	}
}
