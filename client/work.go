package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A work handles the partitions of a cluster: their positions, a queue for each, and the workers
// that call the handlers. When the number of partitions changes it is replaced.
type work struct {
	client *Client
	ctx    context.Context //nolint:containedctx // of the handlers
	cancel context.CancelCauseFunc
	ended  sync.WaitGroup // of the workers
	calls  *sync.Cond     // signals that a lane is ready
	still  chan struct{}  // holds one signal: a handler has ended

	mu struct {
		sync.Mutex
		progress
		lanes   []lane
		feeds   map[*feed]struct{}
		first   *lane // queue of the ready lanes
		last    *lane
		idle    int    // idle workers
		segment uint64 // counts the stretches that are queued in one go
		meeting bool   // a change of all partitions is being handled
		outside int    // handlers that run in session goroutines
		inside  int    // handlers that run in workers
		era     int    // counts the rewinds

		acked Position // with AckManual, the position that the program has acknowledged; zero while no position is known

		rewinding chan struct{} // closed when the program has handled a rewind; nil while there is none
	}
}

// A lane is the queue of one partition. The goroutine that has set busy owns it until it is empty.
type lane struct {
	partition uint32
	busy      bool // it is ready, is being handled, or backs off
	next      *lane
	queue     []chunk
	now       doing // of the owner

	segment uint64 // the last queued segment, and its last event
	tail    uint32
}

// A chunk is the events of one partition in a batch.
type chunk struct {
	batch *batch
	event uint32 // the first of them
}

// A doing is an event that is being handled.
type doing struct {
	chunk

	sub      uint32 // index of its current subscription
	attempts int    // attempts of that handler
	begun    bool   // a handler has been called for the change
	more     bool   // another event of its place follows
}

// A feed is the state of a session in a work.
type feed struct {
	track
	guest

	outbox *outbox
	fail   func(error) // ends the session; does not block

	rest   chan struct{} // holds one signal: all queued events have been handled, or another session has advanced
	over   bool
	era    int
	moved  bool     // it has made progress, or has determined the begin position
	queue  []*batch // received batches that have not been handled, in order
	open   int      // queued events that have not been handled
	kept   []ack    // with AckManual, the handled batches that are not acknowledged, in order
	behind *behind  // while it catches up with the session that it replaces
	ahead  []uint32 // partitions in which it has caught up
	caught bool
}

// A behind is the place that a session must reach before it replaces other sessions in partitions.
type behind struct {
	goal       place
	partitions []uint32
}

// An ack is what acknowledges a batch, and the place that must be acknowledged before it.
type ack struct {
	seq       uint64
	to        place
	documents uint64 // the number of the batch among those with documents, 0 if it has none
}

// maxKept bounds the acknowledgements of a session that are kept apart. Batches beyond it are
// acknowledged together.
const maxKept = 1024

// newWork returns a work and starts its workers, which end with the context or with retire.
func newWork(ctx context.Context, c *Client, g progress) *work {
	w := &work{client: c, still: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.calls = sync.NewCond(&w.mu)
	w.mu.progress = g
	w.mu.lanes = make([]lane, len(g.parts))
	w.mu.feeds = make(map[*feed]struct{})
	w.mu.acked = g.position()
	for p := range w.mu.lanes {
		w.mu.lanes[p].partition = uint32(p)
	}
	for range c.cfg.Concurrency {
		w.ended.Go(w.run)
	}
	context.AfterFunc(w.ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls.Broadcast()
	})
	return w
}

// close waits for the handlers. The context must have ended.
func (w *work) close() {
	w.ended.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.mu.outside > 0 {
		w.calls.Wait()
	}
}

// cluster returns the cluster ID.
func (w *work) cluster() string { return w.mu.progress.cluster }

// step unlocks the mutex while a handler runs in a session goroutine; the returned function locks
// it again.
func (w *work) step() (back func()) {
	w.mu.outside++
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		notify(w.still)
		if w.mu.outside--; w.ctx.Err() != nil {
			w.calls.Broadcast()
		}
	}
}

// retire cancels the handlers' context and waits for them.
func (w *work) retire() {
	w.cancel(errRepartitioned)
	w.close()
}

// run handles ready lanes until the context ends.
func (w *work) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.ctx.Err() == nil {
		l := w.mu.first
		if l == nil {
			w.mu.idle++
			w.calls.Wait()
			w.mu.idle--
			continue
		}
		if w.mu.first, l.next = l.next, nil; w.mu.first == nil {
			w.mu.last = nil
		}
		w.wake()
		w.serve(l)
	}
}

// wake signals a worker if a lane is ready. That worker signals the next. The caller holds the
// mutex.
func (w *work) wake() {
	if w.mu.first != nil && w.mu.idle > 0 {
		w.calls.Signal()
	}
}

// enqueue makes a lane ready. The caller holds the mutex.
func (w *work) enqueue(l *lane) {
	if w.mu.last == nil {
		w.mu.first = l
	} else {
		w.mu.last.next = l
	}
	w.mu.last = l
}

// serve handles a lane, chunk by chunk, in turn with other ready lanes. The caller holds the mutex,
// which serve releases while handlers run.
func (w *work) serve(l *lane) {
	for w.next(l) {
		w.mu.inside++
		w.mu.Unlock()
		wait, err := w.client.deliver(w.ctx, &l.now)
		w.mu.Lock()
		w.mu.inside--
		notify(w.still)
		switch {
		case err != nil:
			return // the client ends
		case wait > 0:
			time.AfterFunc(wait, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.enqueue(l)
				w.wake()
			})
			return
		}
		w.handled(l)
		if l.now.batch == nil && w.mu.first != nil && len(l.queue) > 0 {
			w.enqueue(l)
			return
		}
	}
	l.busy = false
}

// next selects the next event of a lane that needs a handler. The caller holds the mutex.
func (w *work) next(l *lane) bool {
	for {
		if l.now.batch == nil {
			if len(l.queue) == 0 {
				l.queue = nil
				return false
			}
			l.now = doing{chunk: l.queue[0]}
			l.queue = l.queue[1:]
		}
		b := l.now.batch
		e := &b.events[l.now.event]
		switch {
		case b.feed.era != w.mu.era, b.feed.over && (!l.now.begun || w.mu.rewinding != nil):
			l.now = doing{} // another session sends it again
		case w.mu.saw(l.partition, &e.place) && e.snapshot && w.mu.has(&b.feed.track, l.partition):
			// Another session is later: the document may be older than a change that has been
			// handled, and dropping it would lose it. The next session, which begins later, sends
			// it again.
			w.drop(b.feed)
			b.feed.fail(errOlder)
			l.now = doing{}
		case w.mu.saw(l.partition, &e.place):
			w.client.stats.duplicates.Add(1)
			w.done(l)
		case e.first == e.last: // of a subscription that is no longer there
			w.handled(l)
		default:
			l.now.begun = true
			l.now.more = b.continues(e)
			return true
		}
	}
}

// handled advances a partition to the current event. A change may come in several formats, one
// after the other: it is handled with the last of them. The caller holds the mutex.
func (w *work) handled(l *lane) {
	b := l.now.batch
	e := &b.events[l.now.event]
	if b.feed.era == w.mu.era && !b.continues(e) {
		w.mu.reach(l.partition, &e.place)
		b.feed.moved = true
	}
	w.done(l)
}

// done advances a lane to its next event. The caller holds the mutex.
func (w *work) done(l *lane) {
	b := l.now.batch
	e := &b.events[l.now.event]
	if e.next == 0 {
		l.now = doing{}
	} else {
		l.now = doing{chunk: chunk{b, e.next}, begun: l.now.begun && b.continues(e)}
	}
	f := b.feed
	if f.over {
		return
	}
	b.left--
	if f.open--; f.open == 0 {
		notify(f.rest)
	}
	if b.left == 0 {
		w.complete(f)
	}
}

// complete removes the batches of a feed that, with all before them, have been handled. The caller
// holds the mutex.
func (w *work) complete(f *feed) {
	n := 0
	seq := uint64(0)
	for ; n < len(f.queue) && f.queue[n].left == 0; n++ {
		b := f.queue[n]
		if b.attached != nil {
			w.mu.attach(&f.track, b.attached, &b.to, b.seq)
			w.follow(f, b.attached)
		} else {
			before := f.base.place
			w.mu.pass(&f.track, &b.to)
			f.moved = f.moved || before != f.base.place
		}
		w.client.room.give(&f.guest, b.size)
		w.client.stats.batches.Add(1)
		if w.client.cfg.Acks == AckManual {
			f.keep(ack{b.seq, b.to, w.mu.count(b)})
		}
		seq = b.seq
		f.queue[n] = nil
	}
	if n == 0 {
		return
	}
	f.queue = f.queue[n:]
	if f.behind != nil && f.base.compare(&f.behind.goal) >= 0 {
		f.ahead = append(f.ahead, f.behind.partitions...)
		f.caught = true
		f.behind = nil
	}
	if w.client.cfg.Acks == AckManual {
		w.release(f)
	} else {
		f.outbox.ack(seq)
	}
	w.notifyWaiting()
}

// keep adds what acknowledges a batch.
func (f *feed) keep(a ack) {
	if len(f.kept) == maxKept {
		a.documents = max(a.documents, f.kept[maxKept-1].documents)
		f.kept[maxKept-1] = a
	} else {
		f.kept = append(f.kept, a)
	}
}

// release acknowledges the batches of a feed that the program has acknowledged. The caller holds
// the mutex.
func (w *work) release(f *feed) {
	n := 0
	for n < len(f.kept) && w.mu.acked.covers(&f.kept[n]) {
		n++
	}
	if n > 0 {
		f.outbox.ack(f.kept[n-1].seq)
		f.kept = slices.Delete(f.kept, 0, n)
	}
}

// acknowledge records an acknowledgement of the program.
func (w *work) acknowledge(p Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.documents.of != w.mu.documents.of {
		p.documents = tally{}
	}
	w.mu.acked = w.mu.acked.Merge(p)
	for f := range w.mu.feeds {
		w.release(f)
	}
}

// notifyWaiting signals sessions that wait for others. The caller holds the mutex.
func (w *work) notifyWaiting() {
	for f := range w.mu.feeds {
		if f.waits != nil {
			notify(f.rest)
		}
	}
}

// push queues the events of a batch. At a change of all partitions, and at a loss or the mark of a
// snapshot, it blocks until everything before it has been handled and then handles it. Only one
// goroutine may push for a feed at a time.
func (w *work) push(ctx context.Context, f *feed, b *batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.over {
		w.client.room.leave(&f.guest)
		return errLeft
	}
	f.queue = append(f.queue, b)
	b.feed = f
	b.left = 1
	w.mu.segment++
	defer w.wake()
	for i := 0; i < len(b.events); {
		if !b.events[i].all {
			w.hand(b, uint32(i))
			i++
			continue
		}
		forms := i + 1
		for forms < len(b.events) && b.events[forms].place == b.events[i].place {
			forms++
		}
		if err := w.meet(ctx, b, uint32(i), uint32(forms)); err != nil {
			return err
		}
		i = forms
		w.mu.segment++
	}
	if b.loss != nil || b.snapshot != nil {
		if err := w.quiet(ctx, f); err != nil {
			return err
		}
		if b.loss.GetKind() == streampb.Loss_KIND_REWOUND {
			if err := w.goBack(ctx, f, lossOf(b.loss), &b.to, b.loss.GetGeneration(), nil); err != nil {
				return err
			}
			return errRewound // this session ends, too
		}
		if err := w.tell(ctx, b.notice(), b.to); err != nil {
			return err
		}
		if f.over {
			return errLeft
		}
	}
	b.left--
	w.complete(f)
	return nil
}

// hand adds an event to its lane. The caller holds the mutex.
func (w *work) hand(b *batch, event uint32) {
	l := &w.mu.lanes[b.events[event].partition]
	if l.segment == w.mu.segment {
		b.events[l.tail].next = event
	} else {
		l.queue = append(l.queue, chunk{b, event})
		l.segment = w.mu.segment
		if !l.busy {
			l.busy = true
			w.enqueue(l)
		}
	}
	l.tail = event
	b.left++
	b.feed.open++
}

// quiet waits until all queued events of a feed have been handled. The caller holds the mutex,
// which quiet releases while it waits.
func (w *work) quiet(ctx context.Context, f *feed) error {
	w.wake()
	for f.open > 0 && !f.over {
		if err := w.wait(ctx, f); err != nil {
			return err
		}
	}
	return w.alive(ctx, f)
}

// wait waits for a signal to a feed. The caller holds the mutex, which wait releases meanwhile.
func (w *work) wait(ctx context.Context, f *feed) error { return w.waitFor(ctx, f.rest) }

func (w *work) waitFor(ctx context.Context, signal <-chan struct{}) error {
	w.mu.Unlock()
	defer w.mu.Lock()
	select {
	case <-signal:
	case <-w.ctx.Done():
	case <-ctx.Done():
	}
	return w.alive(ctx, nil)
}

// alive returns why a waiting session has ended, nil if it has not.
func (w *work) alive(ctx context.Context, f *feed) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case w.ctx.Err() != nil:
		return context.Cause(w.ctx)
	case f != nil && f.over:
		return errLeft
	}
	return nil
}

// meet handles a change of all partitions once, in the formats first to last. It waits until
// everything before it has been handled in every partition, by whichever session. The caller holds
// the mutex, which meet releases while it waits.
func (w *work) meet(ctx context.Context, b *batch, first, last uint32) error {
	f := b.feed
	at := &b.events[first].place
	if err := w.quiet(ctx, f); err != nil {
		return err
	}
	f.waits = at
	defer func() { f.waits = nil }()
	w.notifyWaiting()
	for {
		switch {
		case w.mu.sawAll(at):
			w.client.stats.duplicates.Add(uint64(last - first))
			return nil
		case w.mu.meeting:
		case w.met(at):
			w.mu.meeting = true
			err := w.together(ctx, b, first, last)
			w.mu.meeting = false
			if err == nil && f.era == w.mu.era {
				w.mu.reachAll(at)
				f.moved = true
			}
			w.notifyWaiting()
			return err
		case w.stuck(f):
			return errStuck
		}
		if err := w.wait(ctx, f); err != nil {
			return err
		}
		if err := w.alive(ctx, f); err != nil {
			return err
		}
	}
}

// met reports whether everything before a place has been handled in every partition: the partition
// is later, or a session that has it waits there. If several changes share a head, sessions may
// receive them in different orders. The caller holds the mutex.
func (w *work) met(at *place) bool {
	for p := range w.mu.parts {
		if !w.waitsIn(uint32(p), at) && !w.mu.saw(uint32(p), at) {
			return false
		}
	}
	return true
}

func (w *work) waitsIn(partition uint32, at *place) bool {
	for _, t := range w.mu.parts[partition].in {
		if t.waits != nil && t.waits.compare(at) >= 0 {
			return true
		}
	}
	return false
}

// stuck reports whether a session waits in vain: its own stream has the missing partition, but only
// after it continues to read; or no session has it, because no partition is attached to another
// session before this one has ended. The caller holds the mutex.
func (w *work) stuck(f *feed) bool {
	alone := w.client.fleet != nil && w.client.fleet.alone.Load()
	for p := range w.mu.parts {
		p := uint32(p)
		if _, wanted := f.wanted[p]; !wanted && !alone || w.mu.has(&f.track, p) {
			continue
		}
		if !w.mu.saw(p, f.waits) && !w.comes(p, f) {
			return true
		}
	}
	return false
}

// comes reports whether another session has a partition or will have it. The caller holds the
// mutex.
func (w *work) comes(partition uint32, than *feed) bool {
	if len(w.mu.parts[partition].in) > 0 {
		return true
	}
	for f := range w.mu.feeds {
		if _, wanted := f.wanted[partition]; wanted && f != than && f.waits == nil {
			return true
		}
	}
	return false
}

// together calls the handlers of a change of all partitions. The caller holds the mutex, which
// together releases meanwhile.
func (w *work) together(ctx context.Context, b *batch, first, last uint32) error {
	defer w.step()()
	for event := first; event < last; event++ {
		d := doing{chunk: chunk{b, event}, more: event+1 < last}
		for {
			wait, err := w.client.deliver(w.ctx, &d)
			if err != nil {
				return err
			}
			if wait == 0 {
				break
			}
			if err := w.pause(ctx, wait); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *work) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	case <-ctx.Done():
	}
	return w.alive(ctx, nil)
}

// tell passes a notice with its place among the changes to OnNotice until that succeeds or the
// notice is skipped. The caller holds the mutex, which tell releases meanwhile.
func (w *work) tell(ctx context.Context, n Notice, at place) error {
	defer w.step()()
	switch n.(type) {
	case Resync, Rewound:
		w.client.stats.losses.Add(1)
	}
	for attempts := 1; ; attempts++ {
		err := w.client.cfg.OnNotice(w.ctx, n)
		if err == nil {
			w.client.told(n, at)
			return nil
		}
		wait, err := w.client.failed(w.ctx, Poison{Notice: n, Attempts: attempts, Err: err})
		if err != nil || wait == 0 {
			return err
		}
		if err := w.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// begin starts a session at a place. It returns false if an operator has rewound the subscriber
// since the Hello, also while the program is being told of it. follows says that the session
// replaces another one.
func (w *work) begin(f *feed, at *place, all, follows bool, generation uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.era != w.mu.era || w.mu.rewinding != nil {
		return false
	}
	w.mu.feeds[f] = struct{}{}
	w.mu.generation = generation
	f.moved = !w.mu.known
	w.mu.progress.begin(&f.track, at, all)
	if w.mu.acked.IsZero() {
		w.mu.acked = w.mu.position()
	}
	w.mu.acked.generation = generation
	if follows {
		f.behind = &behind{}
		for p := range w.mu.parts {
			w.raise(f.behind, uint32(p))
		}
	}
	return true
}

// follow makes a session replace others in partitions once it has reached their position. The
// caller holds the mutex.
func (w *work) follow(f *feed, partitions []uint32) {
	for _, p := range partitions {
		if !w.mu.has(&f.track, p) {
			continue
		}
		if f.behind == nil {
			f.behind = &behind{}
		}
		f.behind.partitions = append(f.behind.partitions, p)
		w.raise(f.behind, p)
	}
}

func (w *work) raise(b *behind, partition uint32) {
	if at := w.mu.at(partition); b.goal.compare(&at.place) < 0 {
		b.goal = at.place
	}
}

// arrived returns and clears the partitions in which a session has caught up, and reports whether
// it has ever caught up.
func (w *work) arrived(f *feed) (partitions []uint32, caught bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	partitions = f.ahead
	f.ahead = nil
	return partitions, f.caught
}

// hasMoved reports whether a session has made progress.
func (w *work) hasMoved(f *feed) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f.moved
}

// forget drops the events of a session for which no handler has been called. Another session
// redelivers them.
func (w *work) forget(f *feed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(f)
}

// leave makes a session that is about to end handle nothing more, except changes that have begun.
func (w *work) leave(f *feed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.over = true
}

// drop is forget for callers that hold the mutex.
func (w *work) drop(f *feed) {
	if _, there := w.mu.feeds[f]; there {
		delete(w.mu.feeds, f)
		w.mu.progress.end(&f.track)
	}
	f.over, f.queue, f.open = true, nil, 0
	for p := range w.mu.lanes {
		l := &w.mu.lanes[p]
		rest := l.queue[:0]
		for _, c := range l.queue {
			if c.batch.feed != f {
				rest = append(rest, c)
			}
		}
		clear(l.queue[len(rest):])
		l.queue = rest
	}
	w.client.room.leave(&f.guest)
	w.notifyWaiting()
}

// rewound handles a rewind that happened while the client was not connected: it notifies the
// program and moves back together with the session.
func (w *work) rewound(ctx context.Context, f *feed, to *place, generation uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := Rewound{Advice: "An operator rewound this subscriber: the following changes may have been delivered before."}
	return w.goBack(ctx, f, told, to, generation, f)
}

// goBack notifies the program of a rewind, moves all partitions back, and ends all sessions except
// but, which may be nil. Sessions that report the same rewind later are ignored, so the program is
// notified once. The caller holds the mutex, which goBack releases meanwhile.
func (w *work) goBack(ctx context.Context, f *feed, told Notice, to *place, generation uint64, but *feed) error {
	for w.mu.rewinding != nil {
		if err := w.waitFor(ctx, w.mu.rewinding); err != nil {
			return err
		}
	}
	if f.over || f.era != w.mu.era {
		return errRewound
	}
	w.mu.rewinding = make(chan struct{})
	defer func() {
		close(w.mu.rewinding)
		w.mu.rewinding = nil
	}()
	w.endAllBut(f)
	for w.mu.inside+w.mu.outside > 0 { // what was delivered before has been handled when the program is notified
		if err := w.waitFor(ctx, w.still); err != nil {
			return err
		}
	}
	if err := w.tell(ctx, told, *to); err != nil {
		return err
	}
	w.mu.era++
	w.mu.progress.rewind(to, generation)
	w.mu.acked = w.mu.position()
	w.endAllBut(but)
	if but != nil {
		but.era = w.mu.era
	}
	return nil
}

// endAllBut ends all sessions but one, after a rewind. The caller holds the mutex.
func (w *work) endAllBut(f *feed) {
	for other := range w.mu.feeds {
		if other != f {
			w.drop(other)
			other.fail(errRewound)
		}
	}
}

// want records whether a session should have partitions.
func (w *work) want(f *feed, partitions []uint32, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if on {
		f.want(partitions)
	} else {
		w.mu.detach(&f.track, partitions)
	}
	w.notifyWaiting()
}

// withdraw removes partitions from a session that has them only up to a batch.
func (w *work) withdraw(f *feed, partitions []uint32, seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.withdraw(&f.track, partitions, seq)
	w.notifyWaiting()
}

// ask returns the positions of partitions that are requested from a node now.
func (w *work) ask(f *feed, partitions []uint32) []*streampb.PartitionPosition {
	w.mu.Lock()
	defer w.mu.Unlock()
	positions := make([]*streampb.PartitionPosition, len(partitions))
	for i, p := range partitions {
		f.asked[p]++
		if _, wanted := f.wanted[p]; wanted {
			f.wanted[p] = true
		}
		at := w.mu.at(p)
		positions[i] = &streampb.PartitionPosition{Partition: p, Position: at.place[:]}
	}
	return positions
}

// position returns the client's position.
func (w *work) position() Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.position()
}

// resumable returns the position where a session begins.
func (w *work) resumable() Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begins()
}

// begins is resumable for callers that hold the mutex.
func (w *work) begins() Position {
	if w.client.cfg.Acks == AckManual {
		return w.mu.acked
	}
	return w.mu.position()
}

// introduce fills in the client's position in a Hello, and starts the era of a feed.
func (w *work) introduce(m *streampb.Hello, f *feed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.era = w.mu.era
	p := w.begins()
	if p.IsZero() {
		return
	}
	if m.GetStart() != streampb.Start_START_SNAPSHOT { // which a subscription may not have had yet
		m.Start = streampb.Start_START_RESUME
	}
	m.Position = p.rest.place[:]
	m.Cluster = p.cluster
	m.PartitionCount = p.partitions
	m.Generation = p.generation
	for i := range p.elsewhere {
		e := &p.elsewhere[i]
		m.Positions = append(m.Positions, &streampb.PartitionPosition{Partition: e.partition, Position: e.at.place[:]})
	}
}
