package connect_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/redpanda-data/benthos/v4/public/service"

	"github.com/mongostream/streamer/connect"
)

// A step is a processor that does what a test wants.
type step func(ctx context.Context, batch service.MessageBatch) ([]service.MessageBatch, error)

func (s step) ProcessBatch(ctx context.Context, batch service.MessageBatch) ([]service.MessageBatch, error) {
	return s(ctx, batch)
}

func (step) Close(context.Context) error { return nil }

// withStep returns an environment that has the processor step.
func withStep(t *testing.T, build func(*service.Resources) step) *service.Environment {
	t.Helper()
	env := service.NewEnvironment()
	err := env.RegisterBatchProcessor("step", service.NewConfigSpec(), func(_ *service.ParsedConfig, res *service.Resources) (service.BatchProcessor, error) {
		return build(res), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func keep(_ context.Context, batch service.MessageBatch) ([]service.MessageBatch, error) {
	return []service.MessageBatch{batch}, nil
}

// A batch whose processing the end of a read cuts short is not acknowledged, whatever its
// processors make of that, and the next read returns it whole.
func TestBatchThatIsCutShortIsKept(t *testing.T) {
	for name, cut := range map[string]step{
		"keeps": keep,
		"fails": func(ctx context.Context, _ service.MessageBatch) ([]service.MessageBatch, error) {
			return nil, ctx.Err()
		},
		"drops": func(context.Context, service.MessageBatch) ([]service.MessageBatch, error) { return nil, nil },
		"halves": func(ctx context.Context, b service.MessageBatch) ([]service.MessageBatch, error) {
			return keep(ctx, b[:1])
		},
	} {
		n := newNode(t)
		read, cancel := context.WithCancel(t.Context())
		env := withStep(t, func(*service.Resources) step {
			return func(ctx context.Context, batch service.MessageBatch) ([]service.MessageBatch, error) {
				if ctx.Done() != read.Done() {
					return keep(ctx, batch)
				}
				cancel()
				return cut(ctx, batch)
			}
		})
		in, err := connect.NewBareInput(fmt.Sprintf("addresses: [%q]\nsubscriber: s\nbatching: {count: 2, period: 1h, processors: [step: {}]}\n", n.address), env)
		if err != nil {
			t.Fatal(err)
		}
		connected := make(chan error, 1)
		go func() { connected <- in.Connect(t.Context()) }()
		v := n.welcomed("a")
		if err := <-connected; err != nil {
			t.Fatal(err)
		}
		seq := v.batch("c1", "b1", "c1")
		if batch, _, err := in.ReadBatch(read); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %d messages, %v", name, len(batch), err)
		}
		again, done := context.WithTimeout(t.Context(), patience)
		if batch, _, err := in.ReadBatch(again); err != nil || len(batch) != 2 {
			t.Errorf("%s: %d messages, %v", name, len(batch), err)
		}
		done()
		if err := in.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := v.left(); got >= seq {
			t.Errorf("%s: batch %d is acknowledged, and nobody has accepted it", name, got)
		}
	}
}

// remove takes a processor of the resources away, as the engine does when a file that it watches
// gives one a configuration that cannot be used.
func remove(ctx context.Context, res *service.Resources, name string) error {
	manager := reflect.ValueOf(res.XUnwrapper()).MethodByName("Unwrap").Call(nil)[0]
	err, _ := manager.MethodByName("RemoveProcessor").Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(name)})[0].Interface().(error)
	return err
}

// A batch that cannot be processed is not acknowledged, and the log says why.
func TestBatchThatCannotBeProcessedIsKept(t *testing.T) {
	n := newNode(t)
	b := withStep(t, func(res *service.Resources) step {
		return func(ctx context.Context, batch service.MessageBatch) ([]service.MessageBatch, error) {
			if res.HasProcessor("gone") {
				if err := remove(ctx, res, "gone"); err != nil {
					t.Error(err)
				}
			}
			return keep(ctx, batch)
		}
	}).NewStreamBuilder()
	if err := b.AddResourcesYAML("processor_resources: [{label: gone, mapping: root = this}]"); err != nil {
		t.Fatal(err)
	}
	p := startWith(t, n, "  batching: {count: 1, period: 1h, processors: [step: {}, resource: gone]}\n", b)
	v := n.welcomed("a")
	seq := v.batch("b1", "b1")
	v.batch("c1", "c1")
	p.logs("process batch: ")
	p.stop()
	if got := v.left(); got >= seq {
		t.Errorf("batch %d is acknowledged, and nobody has accepted it", got)
	}
	select {
	case b := <-p.batches:
		t.Errorf("%q is delivered", b.places)
	default:
	}
}

// A message on which a processor fails is delivered with its error.
func TestMessageOfAFailedProcessorIsDelivered(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "  batching: {count: 1, period: 1h, processors: [{mapping: 'root = throw(\"no\")'}]}\n")
	v := n.welcomed("a")
	seq := v.batch("b1", "b1")
	b := p.next("b1")
	if err := b.batch[0].GetError(); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("its error: %v", err)
	}
	b.answer <- nil
	v.acked(seq)
}
