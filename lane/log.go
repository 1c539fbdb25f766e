package lane

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/lane/figure"
	"github.com/mongostream/streamer/lane/ring"
)

// Config configures a Log.
type Config struct {
	// Partitions is N. Required.
	Partitions int
	// RingBytes bounds the tail's ring; a catch-up's ring has a quarter of it. Defaults to 48 MiB.
	RingBytes int64
	// PrefetchBytes bounds what a reader fetches before its foremost cursor. Defaults to 16 MiB. One reply more may be under way.
	PrefetchBytes int64
	// MaxStreams bounds the change streams open at a time, the tail included. Defaults to 5, at least 2.
	MaxStreams int
	// Neighbourhood is how far back in the log a cursor may stand behind another and still share a catch-up with it while
	// another catch-up would be free. Defaults to 1 minute.
	Neighbourhood time.Duration
	// Patience is for how long a catch-up may come no nearer to the tail before the tail is paused for it. Defaults to 30 s.
	Patience time.Duration
	// Keep says which events are kept; nil keeps all. It must not keep the event.
	Keep func(*change.Event) bool
	// Logger defaults to a logger that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// A Log is the node's view of MongoDB's log: the tail, the catch-ups, and the cursors in them.
type Log struct {
	cfg     Config
	source  Source
	logger  *slog.Logger
	metrics *figure.Counters
	kick    chan struct{} // wakes the loop that opens catch-ups

	mu        sync.Mutex
	tail      *reader
	catchups  map[*reader]struct{}
	behind    map[*Cursor]struct{} // cursors without a reader
	alarms    map[*Cursor]struct{} // cursors that wait for a time
	pausedFor *reader              // the catch-up for which the tail waits
	floor     change.Timestamp     // what stands before it is about to be lost
	late      bool                 // the tail takes long to open for the first time
	refused   bool                 // the tail was refused, and has read nothing since
	err       error                // why Run has ended
}

// NewLog makes a Log over a source. Cursors may be made at once; they move when Run does.
func NewLog(cfg Config, source Source) *Log {
	cfg.RingBytes = cmp.Or(cfg.RingBytes, 48<<20)
	cfg.PrefetchBytes = cmp.Or(cfg.PrefetchBytes, 16<<20)
	cfg.MaxStreams = max(cmp.Or(cfg.MaxStreams, 5), 2)
	cfg.Neighbourhood = cmp.Or(cfg.Neighbourhood, time.Minute)
	cfg.Patience = cmp.Or(cfg.Patience, 30*time.Second)
	l := &Log{
		cfg:      cfg,
		source:   source,
		logger:   cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		kick:     make(chan struct{}, 1),
		catchups: make(map[*reader]struct{}),
		behind:   make(map[*Cursor]struct{}),
		alarms:   make(map[*Cursor]struct{}),
	}
	l.metrics = figure.NewCounters(cfg.Registerer, l.Stats)
	l.tail = newReader(l, true, change.Position{})
	return l
}

// Lane returns a cursor of one partition.
func (l *Log) Lane(p change.Partition, start Start) *Cursor {
	return l.cursor(&Cursor{partition: p}, start)
}

// All returns a cursor of every partition, in the order of the whole log.
func (l *Log) All(start Start) *Cursor {
	return l.cursor(&Cursor{all: true}, start)
}

func (l *Log) cursor(c *Cursor, start Start) *Cursor {
	c.log, c.signals = l, make(chan struct{}, 1)
	c.position, c.open, c.anew = start.Position, start.open(), start.Anew
	if start.Onward {
		c.onward = &LostError{Err: errors.New("given up")}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.place(c)
	return c
}

// SetFloor says before which time positions are about to be lost: cursors that stand there are served before all others, and if
// need be at the expense of another catch-up.
func (l *Log) SetFloor(t change.Timestamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = t
	if len(l.behind) > 0 {
		l.stir()
	}
}

// End returns the position up to which the tail has read, zero before it is open.
func (l *Log) End() change.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail.ring.End()
}

// place gives a cursor without a reader its place: in the tail where that holds what it wants, else among those behind. A cursor
// without any position begins at the tail's end.
func (l *Log) place(c *Cursor) {
	if l.err != nil {
		c.fail(l.err)
		return
	}
	if l.tail.opened && c.position.IsZero() {
		c.advance(l.tail.ring.End())
	}
	if l.tail.serves(c) {
		l.tail.add(c)
		return
	}
	if _, known := l.behind[c]; !known {
		l.behind[c] = struct{}{}
		l.stir()
	}
}

// join moves a cursor from a catch-up to the tail, whose ring holds everything behind its position.
func (l *Log) join(c *Cursor) {
	c.leave()
	l.tail.add(c)
	l.metrics.Joins.Inc()
}

// accept puts a slot into a reader's ring, and lets the idle cursors of a catch-up that has reached the tail join it.
func (l *Log) accept(r *reader, reply Reply, s *ring.Slot, end change.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.queued -= int64(reply.Size)
	r.replied = reply.At
	if end.After(r.ring.End()) {
		r.moved = reply.At
	}
	if r.tail && l.refused {
		l.refused = false
		l.stir()
	}
	r.put(s, end)
	r.wake()
	for c := range l.alarms {
		if c.reader == r && c.idle && c.rings() {
			c.signal()
		}
	}
	if r.tail || !l.tail.holds(r.ring.End()) {
		return
	}
	for _, c := range r.cursors() {
		if c.idle && l.tail.serves(c) {
			l.join(c)
		}
	}
}

// opened begins a reader's ring at the base and places the cursors that waited for it.
func (l *Log) opened(r *reader, base change.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ring, r.opened = ring.New(r.limit, base), true
	if r.replied.IsZero() {
		r.replied, r.moved = time.Now(), time.Now()
	}
	for c := range l.behind {
		if r.tail && c.position.IsZero() {
			c.advance(base)
		}
		if c.waiting == r || r.tail && r.serves(c) {
			delete(l.behind, c)
			if r.onward != nil {
				c.goesOn(r.onward, base)
			}
			r.add(c)
		}
	}
	if !r.tail && r.members == 0 {
		r.leave() // who it was opened for has gone
	}
	l.stir()
}

// nudge leaves a signal in a channel that holds one.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// stir wakes the loop that opens catch-ups. It never blocks.
func (l *Log) stir() { nudge(l.kick) }

func (l *Log) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Run reads the log until the context ends, which is no error, or the source fails for good. The tail is opened at the position,
// zero for now.
func (l *Log) Run(ctx context.Context, from change.Position) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.runTail(ctx, from); !ended(err) {
			cancel(err)
		}
	})
	wg.Go(func() { l.runCatchups(ctx, cancel) })
	wg.Wait()
	err := context.Cause(ctx)
	l.failAll(err)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// tailPatience is how long the tail may take to open before catch-ups are opened all the same.
const tailPatience = 5 * time.Second

// runTail keeps the tail open. Where the log has wrapped past the tail itself it begins anew at the log's end: its cursors are
// then behind, and each learns from its catch-up what it has lost, unless the log should have had what the tail was refused. Then that
// waits until the tail has read something: a server that refuses everything says nothing about what it has.
func (l *Log) runTail(ctx context.Context, from change.Position) error {
	defer time.AfterFunc(tailPatience, func() { l.locked(func() { l.late = true; l.stir() }) }).Stop()
	for {
		l.locked(func() { l.tail.from = from })
		err := l.tail.run(ctx)
		if !errors.Is(err, ErrPositionLost) {
			return err
		}
		l.logger.Warn("the log has wrapped past the tail; the tail begins anew at its end", "error", err)
		from = change.Position{}
		l.locked(func() {
			old := l.tail
			l.tail, l.refused = newReader(l, true, from), old.refused(err)
			l.tail.replied, l.tail.moved = old.replied, old.moved // it has yet to show that it does better
			for _, c := range old.cursors() {
				c.leave()
			}
		})
	}
}

// failAll makes every cursor return the error, those to come too.
func (l *Log) failAll(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	for _, c := range l.tail.cursors() {
		c.fail(err)
	}
	for c := range l.behind {
		c.fail(err)
	}
}
