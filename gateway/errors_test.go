package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
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
// gets code, summary and remedy. A connection of the driver that has ended is no end of the
// client's.
func TestErrorsOfDependenciesNameNothing(t *testing.T) {
	for _, end := range []error{errors.New("refused"), io.EOF, io.ErrUnexpectedEOF, context.Canceled} {
		t.Run(end.Error(), func(t *testing.T) {
			w := newWorld(t, options{unread: fmt.Errorf("dial tcp 10.1.2.3:2379: secret-host of tenant-b: %w", end)})
			w.refusesUnreadable()
		})
	}
}

func (w *world) refusesUnreadable() {
	w.Helper()
	entry, _ := fault.Lookup(fault.CheckpointUnreadable)
	_, reason, overGRPC := w.open(w.Context(), named("s")).ends()
	if reason != string(fault.CheckpointUnreadable) {
		w.Errorf("reason %q", reason)
	}
	resp := w.do("?subscriber=s", "")
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	for transport, text := range map[string]string{"gRPC": overGRPC, "events": string(body)} {
		for _, foreign := range []string{"10.1.2.3", "secret-host", "tenant-b"} {
			if strings.Contains(text, foreign) {
				w.Errorf("%s names %s: %s", transport, foreign, text)
			}
		}
		for _, want := range []string{string(fault.CheckpointUnreadable), entry.Summary, entry.Remedy} {
			if !strings.Contains(text, want) {
				w.Errorf("%s: no %q: %s", transport, want, text)
			}
		}
	}
}
