package nats_test

import (
	"context"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/nats"
)

// Messages are taken by the named stream alone.
func TestStreamIsTheConfiguredOne(t *testing.T) {
	t.Parallel()
	s, stream := start(t)
	for name, want := range map[string]bool{"changes": true, "another": false} {
		n, err := nats.New(nats.Config{URL: s.URL(), Subject: "changes.{db}", Losses: "changes.losses", Stream: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		if err := sink.One(t.Context(), n, message(1, 1)); (err == nil) != want {
			t.Errorf("the stream %s: %v", name, err)
		}
	}
	if got := stored(t, stream); len(got) != 1 {
		t.Errorf("the stream has %q", got)
	}
}

// A server that takes a message and does not acknowledge it is waited for as long as AckTimeout.
func TestAcknowledgementsAreAwaitedAsConfigured(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	conn, err := client.Connect(s.URL(), client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if _, err := conn.Subscribe("silent.>", func(*client.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	n, err := nats.New(nats.Config{URL: s.URL(), Subject: "silent.{db}", Losses: "silent.losses", AckTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	for late := 1; ; late++ { // the machine may stand still: of three times one must be in time
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // the default is 10 s
		err := sink.One(ctx, n, message(1, 1))
		inTime := ctx.Err() == nil
		cancel()
		if inTime && err != nil && !strings.Contains(err.Error(), "responders") {
			return
		}
		if late == 3 {
			t.Fatalf("in time: %t, %v", inTime, err)
		}
	}
}
