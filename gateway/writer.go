package gateway

import "context"

// A writer hands messages to a transport whose own sending waits while the client takes nothing, and cannot be given up; waiting for a writer
// can.
type writer struct {
	transport func(any) error
	turn      chan struct{} // held by whoever sends: a transport takes one message at a time
	next      chan any
	sent      chan error // of the last one that was taken from next; never blocks
}

// newWriter makes a writer over a transport. It starts nothing.
func newWriter(transport func(any) error) *writer {
	return &writer{transport: transport, turn: make(chan struct{}, 1), next: make(chan any), sent: make(chan error, 1)}
}

// run takes messages to the transport until done is closed and the transport has returned.
func (w *writer) run(done <-chan struct{}) {
	for {
		select {
		case m := <-w.next:
			w.sent <- w.transport(m)
		case <-done:
			return
		}
	}
}

// send hands messages to the transport, one after the other and not mixed with those of others. It blocks while the client takes nothing,
// until the context ends; then the connection is over, and nothing can be sent any more.
func (w *writer) send(ctx context.Context, messages ...any) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, m := range messages {
		select {
		case w.next <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case err := <-w.sent:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	<-w.turn
	return nil
}
