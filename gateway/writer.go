package gateway

import "context"

// A writer serializes messages to a transport. A transport's send blocks while the client does not
// receive and cannot be canceled; send on a writer can.
type writer struct {
	transport func(any) error
	turn      chan struct{} // held by the sender: a transport takes one message at a time
	next      chan any
	sent      chan error // result of the last message taken from next; never blocks
	stall     watchdog   // of a client that does not read
}

// newWriter returns a writer for a transport. It starts nothing.
func newWriter(transport func(any) error) *writer {
	w := &writer{transport: transport, turn: make(chan struct{}, 1), next: make(chan any), sent: make(chan error, 1)}
	w.stall.ignore(true)
	return w
}

// run passes messages to the transport until done is closed and the transport has returned.
func (w *writer) run(done <-chan struct{}) {
	for {
		select {
		case m := <-w.next:
			w.stall.ignore(false)
			err := w.transport(m)
			w.stall.ignore(true)
			w.sent <- err
		case <-done:
			return
		}
	}
}

// send writes messages in order, not interleaved with others. It blocks while the client does not
// receive. If the context ends first, the connection can no longer be used.
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
