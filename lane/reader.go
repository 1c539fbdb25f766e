package lane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/lane/plan"
	"github.com/mongostream/streamer/lane/ring"
)

// A reader is one change stream, its ring, and the cursors in it. Everything but the two loops' own variables is guarded by the
// log's mutex.
type reader struct {
	log  *Log
	tail bool
	from change.Position // where the stream is opened
	// why it is not opened there, but at the earliest place behind that the log still holds; nil where it is
	onward *LostError

	opened  bool
	limit   int64 // of the ring, in bytes
	ring    ring.Ring
	lanes   [][]*Cursor // by partition
	all     []*Cursor   // cursors of every partition
	members int
	idle    int    // cursors that have read everything
	front   uint64 // number of the slot that the foremost cursor reads next
	rear    uint64 // no lane that is waited for reads a slot before this one next
	queued  int64  // bytes fetched and not yet in the ring

	replied, moved time.Time // when the last answer came, and the last that told something new; or since when it is read again

	wanted  chan struct{} // wakes the fetch loop
	waits   bool          // the fetch loop did when it last looked
	crowded bool          // the split loop waits for lanes
	room    chan struct{} // wakes it
	leave   context.CancelFunc

	// What a catch-up looked like when it was last watched: how far from the tail, and its front.
	distance time.Duration
	seen     uint64
}

func newReader(l *Log, tail bool, from change.Position) *reader {
	limit := l.cfg.RingBytes
	if !tail {
		limit /= 4
	}
	return &reader{
		log: l, tail: tail, from: from,
		limit:  limit,
		lanes:  make([][]*Cursor, l.cfg.Partitions),
		wanted: make(chan struct{}, 1),
		room:   make(chan struct{}, 1),
		seen:   math.MaxUint64,
	}
}

// kind is the reader's label in metrics and logs.
func (r *reader) kind() string {
	if r.tail {
		return "tail"
	}
	return "catchup"
}

// run opens the stream and reads it until the context ends, the last cursor has left a catch-up, or the stream fails.
func (r *reader) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.log.locked(func() { r.leave = cancel })
	r.log.metrics.Streams.Inc()
	defer r.log.metrics.Streams.Dec()
	stream, err := r.open(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", r.kind(), err)
	}
	if stream == nil {
		return nil // the tail has what is left
	}
	defer stream.Close()
	r.log.opened(r, stream.Base())

	replies := make(chan Reply, 256)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.runFetch(ctx, stream, replies) })
	g.Go(func() error { return r.runSplit(ctx, stream.Base(), replies) })
	return g.Wait()
}

// open opens the stream at its position, or where that is lost for good at the earliest place behind it; nil where that is the tail's.
// A tail that has lost its position leaves that to its cursors' catch-ups.
func (r *reader) open(ctx context.Context) (stream Stream, err error) {
	if r.onward == nil {
		stream, err = r.log.source.Open(ctx, r.from)
		lost := lostForGood(err, r.from)
		if r.tail || lost == nil {
			return stream, err
		}
		r.log.locked(func() { r.onward = lost })
	}
	search := plan.NewSearch(r.from.Time, r.onward.First, r.log.tailBase().Time)
	if stream, err = openOnward(ctx, r.log.source, search); err == nil {
		base := stream.Base()
		r.log.logger.Warn("the log no longer holds a position; reading goes on behind it", "position", r.from.String(), "onward", base.String(), "error", r.onward)
		r.log.locked(func() { r.from = base })
		return stream, nil
	}
	if errors.Is(err, ErrPositionLost) && r.log.handOver(r) {
		return nil, nil //nolint:nilnil // nobody needs one
	}
	return nil, err
}

// runFetch reads replies while the foremost cursor wants more.
func (r *reader) runFetch(ctx context.Context, stream Stream, replies chan<- Reply) error {
	for {
		for !r.wants() {
			select {
			case <-r.wanted:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		reply, err := stream.Next(ctx)
		if err != nil {
			return fmt.Errorf("read %s: %w", r.kind(), err)
		}
		r.log.locked(func() { r.queued += int64(reply.Size) })
		select {
		case replies <- reply:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// runSplit turns replies into slots and puts them into the ring.
func (r *reader) runSplit(ctx context.Context, base change.Position, replies <-chan Reply) error {
	splitter := ring.NewSplitter(r.log.cfg.Partitions, base, r.log.cfg.Keep)
	for {
		select {
		case reply := <-replies:
			s, repeated, err := splitter.Split(ring.Reply{
				Events: reply.Events, End: reply.End, Size: reply.Size, At: reply.At, Unproven: reply.Unproven,
			})
			if err != nil {
				return err
			}
			r.log.metrics.Events.Add(float64(len(reply.Events)))
			r.log.metrics.Repeated.Add(float64(repeated))
			if err := r.makeRoom(ctx, s); err != nil {
				return err
			}
			r.log.accept(r, reply, s, splitter.End())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wants reports whether the stream should be read on. While it should not nobody is asked, and so nobody is silent.
func (r *reader) wants() bool {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	waited := r.waits
	r.waits = r.full() || r.tail && l.pausedFor != nil
	if waited && !r.waits {
		r.replied, r.moved = time.Now(), time.Now()
	}
	return !r.waits
}

// full reports whether the foremost cursor has the whole prefetch before it.
func (r *reader) full() bool {
	ahead := r.queued
	if r.members > 0 && r.idle == 0 {
		ahead += r.ring.Behind(r.front)
	}
	return ahead >= r.log.cfg.PrefetchBytes
}

// wake lets the fetch loop look again. It never blocks.
func (r *reader) wake() { nudge(r.wanted) }

// patience is for how long none of the lanes that a new slot would leave behind may get on before it is appended nevertheless.
const patience = 15 * time.Millisecond

// makeRoom waits, before a slot goes into a full ring, for the lanes that have yet to read what it would overwrite: most have only not
// been given a processor or credit yet, and a stream of their own costs everybody more than to wait a little. Who does not get on is
// not waited for.
func (r *reader) makeRoom(ctx context.Context, s *ring.Slot) error {
	left := r.hindered(s)
	if left.lanes == 0 {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	defer r.log.locked(func() { r.crowded = false })
	for left.lanes > 0 {
		select {
		case <-r.room:
			if now := r.hindered(s); now != left {
				left = now
				timer.Reset(patience)
			}
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// hindrance is what keeps a slot out of the ring: so many lanes, which have read so many events of what they have before them.
type hindrance struct{ lanes, read int }

// hindered looks for lanes that have yet to read what the slot would overwrite.
func (r *reader) hindered(s *ring.Slot) (h hindrance) {
	if s == nil {
		return h
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	first := r.ring.FirstAfter(s, r.keep())
	if r.rear >= first {
		return h
	}
	r.rear = r.ring.Next()
	for _, lane := range r.lanes {
		for _, c := range lane {
			if c.idle || c.overwritten() {
				continue
			}
			r.rear = min(r.rear, c.next)
			if c.next < first {
				h.lanes++
				h.read += c.index
			}
		}
	}
	r.crowded = h.lanes > 0
	return h
}

// stepped lets the split loop look again where it waits. It never blocks.
func (r *reader) stepped() {
	if r.crowded {
		nudge(r.room)
	}
}

// keep returns the number of the first slot that must not be overwritten, because the foremost cursor has yet to read it.
func (r *reader) keep() uint64 {
	if r.idle > 0 || r.members == 0 {
		return r.ring.Next() + 1
	}
	return r.front
}

// put appends a slot (nil for a reply of which nothing is kept) and wakes the idle cursors that it concerns.
func (r *reader) put(s *ring.Slot, end change.Position) {
	if s == nil {
		r.ring.Advance(end)
		return
	}
	before := r.ring.End()
	r.ring.Append(s, r.keep())
	for _, c := range r.all {
		c.rouse(s.Seq, before)
	}
	for p := range s.Partitions(len(r.lanes)) {
		for _, c := range r.lanes[p] {
			c.rouse(s.Seq, before)
		}
	}
}

// holds reports whether the ring holds everything behind the position.
func (r *reader) holds(p change.Position) bool { return r.opened && !r.ring.Base().After(p) }

// serves reports whether the cursor can have its place in the reader's ring.
func (r *reader) serves(c *Cursor) bool {
	p := c.place()
	return r.holds(p) && (!r.tail || !c.anew.After(p))
}

// reach returns the position up to which the ring holds everything, of a reader that is not open yet where it will begin.
func (r *reader) reach() (base, end change.Position) {
	if !r.opened {
		return r.from, r.from
	}
	return r.ring.Base(), r.ring.End()
}

// add places a cursor in the ring, behind its position. The ring holds everything behind it.
func (r *reader) add(c *Cursor) {
	c.reader, c.waiting, c.onward = r, nil, nil
	c.next, c.index, c.skipping, c.idle = r.ring.Find(c.position), 0, true, false
	if c.all {
		r.all = append(r.all, c)
	} else {
		r.lanes[c.partition] = append(r.lanes[c.partition], c)
	}
	r.members++
	r.front, r.rear = max(r.front, c.next), min(r.rear, c.next)
	c.signal()
	r.wake()
}

// remove takes a cursor out.
func (r *reader) remove(c *Cursor) {
	if c.idle {
		r.idle--
		c.idle = false
	}
	isIt := func(d *Cursor) bool { return d == c }
	if c.all {
		r.all = slices.DeleteFunc(r.all, isIt)
	} else {
		r.lanes[c.partition] = slices.DeleteFunc(r.lanes[c.partition], isIt)
	}
	c.reader = nil
	r.members--
	r.front = 0
	for _, d := range r.cursors() {
		r.front = max(r.front, d.next)
	}
	r.wake()
	r.stepped()
	if r.members == 0 && !r.tail && r.leave != nil {
		r.leave()
	}
}

// cursors returns the reader's cursors.
func (r *reader) cursors() []*Cursor { return slices.Concat(slices.Concat(r.lanes...), r.all) }

// refused reports whether the log should have had what the reader has lost.
func (r *reader) refused(err error) bool {
	lost, known := errors.AsType[*LostError](err)
	at := change.Later(r.from, r.ring.End())
	return !known || at.IsZero() || lost.Holds(at)
}

// ended reports whether a reader's error is only its own end.
func ended(err error) bool { return err == nil || errors.Is(err, context.Canceled) }
