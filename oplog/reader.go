package oplog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/wake"
)

// A reader is one change stream, its ring, and its cursors. The log's mutex guards everything
// except what its loops own.
type reader struct {
	log   *Log
	tail  bool
	from  change.Position // after which it reads
	begun time.Time       // no stream of it was opened earlier
	limit int64           // of the ring's bytes

	readerState // under the log's lock

	wanted chan struct{} // wakes the fetch loop
	room   chan struct{} // wakes the split loop

	// Of the loops, one after the other.
	splitter *splitter
	attempts int // to open the current position, since the last progress
}

// A readerState is shared by the loops of a reader, its cursors and the log.
type readerState struct {
	leave   func() // ends the reader
	ending  bool   // it was ended
	opened  bool   // the ring has begun
	reading bool   // a stream is open
	ring    ring
	cursors map[*Cursor]struct{}
	scope   Scope // of a catch-up: the namespaces that it has, if that is settled
	settled bool
	live    *Cursor // the cursor with which the tail keeps pace, nil if there is none
	idle    int     // cursors that have read everything
	front   uint64  // number of the next slot of the foremost cursor
	queued  int64   // bytes fetched but not in the ring yet

	position change.Position // the latest position read

	replied, moved time.Time // when the last reply arrived, and the last one with progress; not before the end of the last pause

	waits    bool // the fetch loop is waiting
	drained  bool // the last reply had all that there was
	retained bool // it reads, or is to read, the retained log
	joins    bool // it waits for a stream of MongoDB, because the retained log has ended
	crowded  bool // the split loop waits for cursors

	// The state of a catch-up at the last check: its distance from the tail, and its front.
	distance time.Duration
	seen     uint64
}

func newReader(l *Log, tail bool, from change.Position) *reader {
	limit := l.cfg.RingBytes
	if !tail {
		limit /= 4
	}
	s := &splitter{
		partitioner: l.partitioner, keep: l.cfg.Keep, watched: l.cfg.Namespaces,
		detector: gap.NewDetector(l.cfg.MaxGap, from), end: from,
	}
	if l.cfg.Dedup != nil {
		s.window = dedup.NewWindow(*l.cfg.Dedup)
	}
	return &reader{
		log: l, tail: tail, from: from, begun: time.Now(), limit: limit, wanted: make(chan struct{}, 1), room: make(chan struct{}, 1), splitter: s,
		readerState: readerState{cursors: make(map[*Cursor]struct{}), seen: math.MaxUint64},
	}
}

// kind is the reader's label in metrics and logs.
func (r *reader) kind() string {
	if r.tail {
		return "tail"
	}
	return "catchup"
}

// errReadAgain says that the log must be read again after the splitter's end, from a new stream.
var errReadAgain = errors.New("read again")

// run reads until the context ends, the last cursor has left a catch-up, or the source fails
// permanently. It handles rejected positions itself, except one that is later than MongoDB's time
// (ErrAhead).
func (r *reader) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.log.locked(func() { r.leave = func() { r.ending = true; cancel() } })
	open := r.from
	var refused error
	for {
		err := r.follow(ctx, open, refused)
		if r.splitter.end.After(open) {
			r.attempts = 0
		}
		open = r.splitter.end
		refused = nil
		switch {
		case errors.Is(err, ErrJoin):
			open = change.At(open.Time)
		case errors.Is(err, errReadAgain):
			r.log.metrics.reread.Inc()
			r.log.metrics.gaps.Inc()
			r.log.logger.Info("cluster time jumped after an unproven reopening; reading the stretch again", "reader", r.kind(), "from", open.String())
			open = change.At(open.Time)
		case errors.Is(err, ErrPositionLost):
			refused = err
		default:
			return err
		}
		if err := r.join(ctx); err != nil {
			return err
		}
	}
}

// follow opens a stream, and reads it until it fails or the context ends.
func (r *reader) follow(ctx context.Context, from change.Position, refused error) error {
	stream, err := r.open(ctx, from, refused)
	if err != nil {
		return err
	}
	base := stream.Base()
	if r.splitter.end.IsZero() {
		r.splitter.begin(base)
	}
	r.log.opened(r, base)
	err = r.read(ctx, stream)
	stream.Close()
	r.log.locked(func() { r.reading, r.queued = false, 0 })
	return err
}

// join waits until the reader may open a stream of MongoDB.
func (r *reader) join(ctx context.Context) error {
	for !r.tail && !r.log.admits(r) {
		select {
		case <-r.wanted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// read reads a stream until it fails or the context ends. Entries that were fetched before the
// failure count as read.
func (r *reader) read(ctx context.Context, stream Stream) error {
	replies := make(chan Reply, 256)
	var failed error
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(replies)
		failed = r.runFetch(ctx, stream, replies)
		return nil
	})
	g.Go(func() error { return r.runSplit(ctx, replies) })
	if err := g.Wait(); err != nil {
		return err
	}
	return failed
}

// runFetch fetches replies while they are wanted.
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

// runSplit converts replies to slots and adds them to the ring.
func (r *reader) runSplit(ctx context.Context, replies <-chan Reply) error {
	m := r.log.metrics
	for {
		select {
		case reply, more := <-replies:
			if !more {
				return nil
			}
			slots, again, err := r.splitter.split(reply)
			m.events.Add(float64(len(reply.Events)))
			m.repeated.Add(float64(r.splitter.repeated))
			m.duplicates.Add(float64(r.splitter.duplicates))
			m.rescanned.Add(float64(r.splitter.rescanned))
			if w := r.splitter.window; w != nil && r.tail {
				m.window.Set(float64(w.Len()))
			}
			m.jumps.Add(float64(r.splitter.jumps))
			switch {
			case err != nil:
				return err
			case again:
				return errReadAgain
			}
			for _, s := range slots {
				if s.loss != nil {
					if s.told { // of old, as the segments have it: a reader that meets it here keeps it
						s.loss.Namespaces = r.log.namespaces(s.loss)
					} else {
						s.held = r.lost(s.loss)
					}
				}
				if err := r.makeRoom(ctx, s); err != nil {
					return err
				}
				s.at = reply.At
				r.log.accept(r, s)
			}
			r.log.reached(r, reply, r.splitter.end)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wants reports whether the stream should be read.
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

// full reports whether the cursor with which the reader keeps pace, the live or the foremost one,
// has the whole prefetch ahead of it.
func (r *reader) full() bool {
	ahead := r.queued
	switch {
	case r.live != nil && !r.live.idle:
		ahead += r.ring.ahead(r.live.next)
	case r.live == nil && len(r.cursors) > 0 && r.idle == 0:
		ahead += r.ring.ahead(r.front)
	}
	return ahead >= r.log.cfg.PrefetchBytes
}

// notify wakes the fetch loop. It never blocks.
func (r *reader) notify() { wake.Notify(r.wanted) }

const (
	// patience bounds the wait while none of the cursors that would lose entries to a new slot
	// makes progress; longest bounds the wait while some do, so that slow cursors do not hold up
	// the others.
	patience = 15 * time.Millisecond
	longest  = 250 * time.Millisecond
)

// makeRoom waits, before a slot is added to the full ring of a catch-up, for cursors that still
// need the entries that it would overwrite. Most of them only lack CPU time, and a short wait is
// cheaper than another stream.
func (r *reader) makeRoom(ctx context.Context, s *slot) error {
	left := r.crowd(s)
	if left == (crowd{}) {
		return nil
	}
	timer, end := time.NewTimer(patience), time.NewTimer(longest)
	defer timer.Stop()
	defer end.Stop()
	defer r.log.locked(func() { r.crowded = false })
	for left.cursors > 0 {
		select {
		case <-r.room:
			if now := r.crowd(s); now != left {
				left = now
				timer.Reset(patience)
			}
		case <-timer.C:
			return nil
		case <-end.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// A crowd is the set of cursors that a new slot would cut off, with their progress.
type crowd struct {
	cursors int
	read    uint64
}

// crowd returns the cursors that have not read the entries that the slot would overwrite. The tail
// waits for none: the live cursor keeps its slots anyway.
func (r *reader) crowd(s *slot) (c crowd) {
	if r.tail {
		return c
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	first := r.ring.firstAfter(s, r.keep())
	for cursor := range r.cursors {
		if !cursor.idle && !cursor.overwritten() && cursor.next < first {
			c.cursors++
			c.read += cursor.next
		}
	}
	r.crowded = c.cursors > 0
	return c
}

// progressed wakes the split loop if it waits for cursors. It never blocks.
func (r *reader) progressed() {
	if r.crowded {
		wake.Notify(r.room)
	}
}

// keep returns the number of the first slot that must not be overwritten, because the cursor with
// which the reader keeps pace needs it.
func (r *reader) keep() uint64 {
	switch {
	case r.live != nil && !r.live.idle:
		return r.live.next
	case r.live != nil, r.idle > 0, len(r.cursors) == 0:
		return r.ring.next + 1
	}
	return r.front
}

// put appends a slot and wakes idle cursors.
func (r *reader) put(s *slot) {
	before := r.ring.end
	r.ring.append(s, r.keep())
	if r.idle == 0 {
		return
	}
	for c := range r.cursors {
		c.wake(s.seq, before)
	}
}

// passed records the progress of a cursor.
func (r *reader) passed(c *Cursor) {
	if c.next > r.front || c.idle {
		r.front = max(r.front, c.next)
		r.notify()
	} else if c.live {
		r.notify()
	}
	r.progressed()
}

// holds reports whether the ring holds everything after the position.
func (r *reader) holds(p change.Position) bool { return r.opened && p.Covers(r.ring.base) }

// serves reports whether the ring holds everything after the place of a cursor, read as late as the
// cursor asks for.
func (r *reader) serves(c *Cursor) bool {
	return r.holds(c.place()) && !r.begun.Before(c.reread.Since)
}

// reach returns the range that the ring holds, or will hold if the reader is not open yet.
func (r *reader) reach() (base, end change.Position) {
	if !r.opened {
		return r.from, r.from
	}
	return r.ring.base, r.ring.end
}

// add places a cursor after its position in the ring, which must hold everything after it.
func (r *reader) add(c *Cursor) {
	c.reader = r
	c.waiting = nil
	c.unites = false
	c.next = r.ring.find(c.position)
	c.skipping = true
	c.idle = false
	r.cursors[c] = struct{}{}
	if c.live && r.tail {
		r.live = c
	}
	r.front = max(r.front, c.next)
	c.signal()
	r.notify()
}

// remove removes a cursor.
func (r *reader) remove(c *Cursor) {
	if c.idle {
		r.idle--
		c.idle = false
	}
	delete(r.cursors, c)
	if r.live == c {
		r.live = nil
	}
	c.reader = nil
	r.front = 0
	for d := range r.cursors {
		r.front = max(r.front, d.next)
	}
	r.notify()
	r.progressed()
	if len(r.cursors) == 0 && !r.tail && r.leave != nil {
		r.leave()
	}
}
