package connect

import (
	"context"
	"sync"

	"github.com/mongostream/streamer/client"
)

// Bounds of the changes that wait between the client and the engine, and of a batch without a
// policy.
const (
	maxWaiting    = 16 << 20 // bytes
	maxBatch      = 1000     // messages
	maxBatchBytes = 1 << 20
)

// A queue has the changes that the client has handed over, in order, and knows up to which position
// the engine has accepted all of them. Changes are counted from the first.
type queue struct {
	acknowledge func(client.Position)  // the client's
	position    func() client.Position // of the changes that the client has handed over

	mu struct {
		sync.Mutex
		waiting []client.Change
		bytes   int
		put     uint64        // changes handed over
		taken   uint64        // changes that are in a batch
		done    uint64        // changes that, with all before them, have been accepted
		more    chan struct{} // closed when something was put; then replaced
		space   chan struct{} // closed when something was taken; then replaced
		flights []*flight     // batches that are not accepted, or after one that is not, in order
		marks   []mark        // in order
		settled chan struct{} // closed when all is accepted; then replaced
	}
}

// A flight is a batch under way.
type flight struct {
	end      uint64 // the changes up to its last
	accepted bool
}

// A mark is a position that covers no change after a number of them.
type mark struct {
	changes  uint64
	position client.Position
}

func newQueue(position func() client.Position, acknowledge func(client.Position)) *queue {
	q := &queue{position: position, acknowledge: acknowledge}
	q.mu.more, q.mu.space, q.mu.settled = make(chan struct{}), make(chan struct{}), make(chan struct{})
	return q
}

// signal wakes all who wait on a channel.
func signal(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// add hands a change over. It waits while too much waits.
func (q *queue) add(ctx context.Context, c client.Change) error {
	for {
		q.mu.Lock()
		if q.mu.bytes < maxWaiting {
			q.mu.waiting = append(q.mu.waiting, c)
			q.mu.bytes += len(c.Data)
			q.mu.put++
			signal(&q.mu.more)
			q.mu.Unlock()
			return nil
		}
		space := q.mu.space
		q.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take returns what waits, at most so many changes and a batch, and nothing if nothing does; then
// more is closed when something comes.
func (q *queue) take(most int) (changes []client.Change, more <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < min(len(q.mu.waiting), most) && (n == 0 || size+len(q.mu.waiting[n].Data) <= maxBatchBytes) {
		size += len(q.mu.waiting[n].Data)
		n++
	}
	changes = q.mu.waiting[:n:n]
	if q.mu.waiting = q.mu.waiting[n:]; len(q.mu.waiting) == 0 {
		q.mu.waiting = nil
	}
	q.mu.bytes -= size
	q.mu.taken += uint64(n)
	if n > 0 {
		signal(&q.mu.space)
	}
	return changes, q.mu.more
}

// depart makes a batch of all that was taken and is in none. accept says that the engine has
// accepted it.
func (q *queue) depart() (accept func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Changes that the client counts as handled have been put: the mark comes after them.
	q.mu.marks = append(q.mu.marks, mark{q.mu.put, q.position()})
	f := &flight{end: q.mu.taken}
	q.mu.flights = append(q.mu.flights, f)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		f.accepted = true
		q.settle()
	}
}

// settle acknowledges the last position whose changes have all been accepted. The caller holds the
// mutex.
func (q *queue) settle() {
	accepted := q.accepted()
	n := 0
	for n < len(q.mu.marks) && q.mu.marks[n].changes <= accepted {
		n++
	}
	last := client.Position{}
	if n > 0 {
		last = q.mu.marks[n-1].position
		q.mu.marks = q.mu.marks[n:]
	}
	if accepted == q.mu.put { // then also a position that came without a change
		last = q.position()
		signal(&q.mu.settled)
	}
	if !last.IsZero() {
		q.acknowledge(last)
	}
}

// accepted returns the number of changes that, with all before them, have been accepted. The caller
// holds the mutex.
func (q *queue) accepted() uint64 {
	for len(q.mu.flights) > 0 && q.mu.flights[0].accepted {
		q.mu.done = q.mu.flights[0].end
		q.mu.flights = q.mu.flights[1:]
	}
	return q.mu.done
}

// progress acknowledges the position if nothing is under way: the log moves on without changes,
// too.
func (q *queue) progress() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle()
}

// under returns how many changes are not accepted.
func (q *queue) under() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.put - q.accepted()
}

// rest waits until all that was handed over has been accepted.
func (q *queue) rest(ctx context.Context) error {
	for {
		q.mu.Lock()
		done, settled := q.accepted() == q.mu.put, q.mu.settled
		q.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
