package line

import "context"

// A Writer hands messages to a transport whose own sending waits while the client takes nothing, and cannot be given up; waiting for a Writer
// can.
type Writer[M any] struct {
	transport func(M) error
	turn      chan struct{} // held by who sends: a transport takes one message at a time
	next      chan M
	sent      chan error // of the last one that was taken from next; never blocks
}

// NewWriter makes a Writer over a transport. It starts nothing.
func NewWriter[M any](transport func(M) error) *Writer[M] {
	return &Writer[M]{transport: transport, turn: make(chan struct{}, 1), next: make(chan M), sent: make(chan error, 1)}
}

// Run takes messages to the transport until done is closed and the transport has returned.
func (w *Writer[M]) Run(done <-chan struct{}) {
	for {
		select {
		case m := <-w.next:
			w.sent <- w.transport(m)
		case <-done:
			return
		}
	}
}

// Send hands messages to the transport, one after the other and not mixed with those of others. It blocks while the client takes nothing,
// until the context ends; then the connection is over, and nothing can be sent any more.
func (w *Writer[M]) Send(ctx context.Context, messages ...M) error {
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
