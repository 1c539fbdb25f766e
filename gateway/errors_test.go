package gateway_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
)

// An unreadable store loads nothing where it has an error.
type unreadable struct {
	*checkpointtest.Memory

	err error
}

func (s unreadable) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Memory.Load(ctx, subscriber)
}

// What a driver says, which may name hosts and others, reaches no client over any transport: it
// gets code, summary and remedy.
func TestErrorsOfDependenciesNameNothing(t *testing.T) {
	w := newWorld(t, options{unread: errors.New("dial tcp 10.1.2.3:2379: secret-host of tenant-b")})
	entry, _ := fault.Lookup(fault.CheckpointUnreadable)
	stream, err := w.client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: named("s")}}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	_, reason, overGRPC := explained(err)
	if reason != string(fault.CheckpointUnreadable) {
		t.Errorf("reason %q", reason)
	}
	resp := w.do("?subscriber=s", "")
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for transport, text := range map[string]string{"gRPC": overGRPC, "events": string(body)} {
		for _, foreign := range []string{"10.1.2.3", "secret-host", "tenant-b"} {
			if strings.Contains(text, foreign) {
				t.Errorf("%s names %s: %s", transport, foreign, text)
			}
		}
		for _, want := range []string{string(fault.CheckpointUnreadable), entry.Summary, entry.Remedy} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q: %s", transport, want, text)
			}
		}
	}
}
