package node

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
)

// A gateway that acknowledges nothing is named on /health, and disconnected in the end; others are
// served on, and their checkpoints move on.
func TestGatewayThatAcknowledgesNothingIsNamed(t *testing.T) {
	t.Parallel()
	n := newRig(t, devmongo.Config{}).begin("STREAMER_GATEWAY_ACK_TIMEOUT=20s", "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=1s")
	n.status()
	_, port, _ := strings.Cut(n.service.Gateway(), ":")
	stuck, err := client.New(client.Config{Addresses: []string{"localhost:" + port}, Subscriber: "stuck", Start: client.StartNow, OnNotice: func(context.Context, client.Notice) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan struct{}, 100), make(chan struct{})
	err = stuck.Subscribe(client.Subscription{ID: "orders", DB: "shop", Coll: "orders"}, func(ctx context.Context, _ client.Change) error {
		got <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		_ = stuck.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	prompt := n.connect(client.Config{Subscriber: "prompt"}, client.Subscription{ID: "orders", DB: "shop", Coll: "orders"})
	prompt.told(t, "the other is connected", connected)
	n.until("both are on the live path", func() bool {
		live := 0
		for _, s := range n.service.Node().Subscribers() {
			if s.Live && !s.Shared {
				live++
			}
		}
		return live == 2
	})
	begun := time.Now()
	n.insert("a", "b")
	<-got
	prompt.takes(t, 2)
	named := func() []string {
		for _, p := range n.service.Health().Problems {
			if p.Code == fault.SessionUnacknowledged {
				return p.Affects.Subscribers
			}
		}
		return nil
	}
	if early := named(); early != nil && time.Since(begun) < 10*time.Second { // half of the time in which it is disconnected
		t.Errorf("too early: %q", early)
	}
	written := n.written()
	n.until("the checkpoint of the other one moves on", func() bool {
		for _, c := range n.stored("prompt") {
			return c.Position.Time.Compare(written) >= 0
		}
		return false
	})
	n.until("it is named", func() bool { return slices.Equal(named(), []string{"stuck"}) })
	n.until("it is disconnected", func() bool { return named() == nil })
}
