package fanout_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
)

// A node that stood still past its lease hands nothing over when it goes on, although nothing has told its sessions yet.
func TestNothingIsHandedOverWithoutTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var detached atomic.Bool
		w := newWorld(t, fanout.Config{Trusted: func() bool { return !detached.Load() }})
		defer w.stop()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g"}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.source.Append(changetest.Event{ID: int64(1)})
		synctest.Wait()
		detached.Store(true)
		if batches, _, err := s.Receive(t.Context()); fault.Of(err) != fault.NodeDetached || len(batches) != 0 {
			t.Errorf("%d batches, %v", len(batches), err)
		}
		if _, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "h"}, all(t)); fault.Of(err) != fault.NodeDetached {
			t.Errorf("a session opens on a detached node: %v", err)
		}
		w.hub.Detach(errors.New("the lease has run out"))
		_, notices, err := s.Receive(t.Context())
		if fault.Of(err) != fault.NodeDetached || len(notices) != 1 || notices[0].Kind != "detached" {
			t.Errorf("notices %v, %v", notices, err)
		}
		detached.Store(false)
		again, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g"}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		again.Close(nil)
	})
}
