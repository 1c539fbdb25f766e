package main

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wiring"
)

// An address that is no address is refused, by one node and by the process of one of several.
func TestAddressThatIsNoneIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-http", "nonsense"}, {"-grpc", "127.0.0.1:99999"}, {"-nodes", "2", "-http", ":nowhere"}} {
		if err := command(t.Context(), append([]string{"-for", "1s"}, args...), io.Discard, io.Discard); err == nil {
			t.Errorf("%v: it runs", args)
		}
	}
}

// taken returns an address that is in use.
func taken(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// A node that others know at its address does not move: it waits for what has the address.
func TestNodeOfALaterLifeWaitsForItsAddress(t *testing.T) {
	cfg, err := config.Load("", []string{"STREAMER_HTTP_LISTEN=" + taken(t), "STREAMER_GRPC_LISTEN=127.0.0.1:0", "STREAMER_ETCD_ENDPOINTS=127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = assembleAgain(ctx, wiring.Options{Config: cfg})
	if ctx.Err() == nil || fault.Of(err) != fault.NodeAddressInUse {
		t.Errorf("it gave up: %v", err)
	}
}
