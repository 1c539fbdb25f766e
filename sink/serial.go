package sink

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mongostream/streamer/change"
)

// A Serial publishes the messages of each partition in batches, one after the other: messages that
// arrive while a batch is under way form the next one. It is for embedding in targets that
// acknowledge a request as a whole. It does not send a message whose term has ended while it
// waited.
type Serial struct {
	// Send publishes messages of one partition in order and returns how many of them, from the
	// first, the target has acknowledged, and the error if not all. It returns within a bounded
	// time. If it waits, or makes several requests, it checks Owned again before each.
	Send func(ctx context.Context, messages []*Message) (n int, err error)
	// Batch bounds the messages of a call of Send, Parallel the calls under way; both required.
	Batch, Parallel int
	// Together sends all partitions in one order.
	Together bool

	mu struct {
		sync.Mutex
		queues map[change.Partition][]*Message // of partitions with a goroutine
		failed map[change.Partition]bool       // a message has failed since the last Flush
		closed bool
	}
	begin  sync.Once
	slots  chan struct{}
	ctx    context.Context //nolint:containedctx // of the calls of Send, from the first Publish to Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Publish implements Target.
func (s *Serial) Publish(_ context.Context, m *Message) {
	s.begin.Do(s.open)
	p := m.Partition
	if s.Together {
		p = 0
	}
	if !s.enqueue(p, m) {
		m.Done(ErrEarlier)
	}
}

// enqueue queues a message, unless an earlier one has failed; the sink may not have noticed that
// yet.
func (s *Serial) enqueue(p change.Partition, m *Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failed[p] {
		return false
	}
	queue, runs := s.mu.queues[p]
	s.mu.queues[p] = append(queue, m)
	if !runs {
		s.wg.Go(func() { s.run(p) })
	}
	return true
}

func (s *Serial) open() {
	s.mu.queues, s.mu.failed = make(map[change.Partition][]*Message), make(map[change.Partition]bool)
	s.slots = make(chan struct{}, s.Parallel)
	s.ctx, s.cancel = context.WithCancel(context.Background())
}

// Flush implements Target. Later messages may follow a failure.
func (s *Serial) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.mu.failed)
}

// Close ends the calls of Send and waits for them.
func (s *Serial) Close() {
	s.begin.Do(s.open)
	s.cancel()
	s.wg.Wait()
}

// run sends the queue of a partition until it is empty.
func (s *Serial) run(p change.Partition) {
	for {
		s.slots <- struct{}{}
		s.mu.Lock()
		queue := s.mu.queues[p]
		n := min(len(queue), s.Batch)
		batch := slices.Clone(queue[:n])
		if n == 0 {
			delete(s.mu.queues, p)
			s.mu.Unlock()
			<-s.slots
			return
		}
		s.mu.queues[p] = queue[n:]
		s.mu.Unlock()
		sent, err := s.send(batch)
		<-s.slots
		for _, m := range batch[:sent] {
			m.Done(nil)
		}
		if err == nil {
			if sent < len(batch) {
				s.mu.Lock()
				s.mu.queues[p] = append(batch[sent:], s.mu.queues[p]...)
				s.mu.Unlock()
			}
			continue
		}
		s.fail(p, batch[sent:], err)
		return
	}
}

// fail reports the failure of a partition's first message, and then reports all later ones,
// including those queued meanwhile, as not sent.
func (s *Serial) fail(p change.Partition, batch []*Message, err error) {
	s.mu.Lock()
	all := append(batch, s.mu.queues[p]...) // all of the batch may be sent
	s.mu.queues[p] = nil
	s.mu.Unlock()
	if len(all) > 0 {
		all[0].Done(err) // before the failure mark, which the next Flush removes
		all = all[1:]
	}
	s.mu.Lock()
	later := s.mu.queues[p]
	delete(s.mu.queues, p)
	s.mu.failed[p] = true
	s.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		err = ErrEarlier
	}
	for _, m := range append(all, later...) {
		m.Done(err)
	}
}

// send sends the messages before the first whose term has ended.
func (s *Serial) send(batch []*Message) (n int, err error) {
	if batch = Owned(batch); len(batch) == 0 {
		return 0, ErrReplaced
	}
	return s.Send(s.ctx, batch)
}
