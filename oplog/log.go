package oplog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/wake"
)

// Config configures a Log.
type Config struct {
	// Partitions is N. Required.
	Partitions int
	// Reach asks MongoDB for the extent of its oplog, until there is an answer or the context ends.
	// Required.
	Reach func(ctx context.Context) (gap.Reach, error)
	// RingBytes bounds the tail's ring; a catch-up's ring has a quarter of it. Defaults to 48 MiB.
	RingBytes int64
	// PrefetchBytes bounds how far a reader fetches ahead of the cursor that it keeps pace with, in
	// bytes. Defaults to 16 MiB. It may be exceeded by one reply.
	PrefetchBytes int64
	// MaxStreams bounds the open change streams, including the tail. With those that read the
	// retained log there are at most twice as many catch-ups. Defaults to 5, at least 2.
	MaxStreams int
	// Neighbourhood is the log time within which cursors share a catch-up even if another one could
	// be opened. Defaults to 1 minute.
	Neighbourhood time.Duration
	// Patience is how long a catch-up may make no progress towards the tail before the tail pauses
	// for it. Defaults to 30 s.
	Patience time.Duration
	// MaxGap is the jump of cluster time that is suspicious after a stream was reopened without
	// proof. Defaults to 5 minutes.
	MaxGap time.Duration
	// Dedup configures the deduplication window of each reader; nil disables it.
	Dedup *dedup.Config
	// Keep selects the events to keep; nil keeps all. It must not retain the event.
	Keep func(*change.Event) bool
	// Namespaces are the watched namespaces, as db.coll or db.*; empty means all.
	Namespaces []string
	// Lost is called with each loss of the tail when it finds it. It must not block. Optional.
	// Losses of catch-ups reach their cursors alone.
	Lost func(Loss)
	// Logger defaults to a logger that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// A Log is the node's view of MongoDB's oplog: the tail, the catch-ups, and their cursors.
type Log struct {
	cfg     Config
	source  Source
	logger  *slog.Logger
	metrics *metrics
	kick    chan struct{} // wakes the loop that opens catch-ups

	partitioner change.Partitioner

	mu        sync.Mutex
	tail      *reader
	catchups  map[*reader]struct{}
	waiting   map[*Cursor]struct{} // cursors without a reader
	pausedFor *reader              // the catch-up for which the tail is paused
	reach     gap.Reach            // the extent of the oplog
	floor     change.Timestamp     // earlier positions are about to leave the oplog
	late      bool                 // opening the tail for the first time takes long
	err       error                // why Run has ended
}

// New returns a Log of a source. Cursors may be created at once; they advance while Run runs.
func New(cfg Config, source Source) *Log {
	cfg.RingBytes = cmp.Or(cfg.RingBytes, 48<<20)
	cfg.PrefetchBytes = cmp.Or(cfg.PrefetchBytes, 16<<20)
	cfg.MaxStreams = max(cmp.Or(cfg.MaxStreams, 5), 2)
	cfg.Neighbourhood = cmp.Or(cfg.Neighbourhood, time.Minute)
	cfg.Patience = cmp.Or(cfg.Patience, 30*time.Second)
	l := &Log{
		cfg: cfg,

		partitioner: change.NewPartitioner(cfg.Partitions),
		source:      source,
		logger:      cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		kick:        make(chan struct{}, 1),
		catchups:    make(map[*reader]struct{}),
		waiting:     make(map[*Cursor]struct{}),
	}
	l.metrics = newMetrics(cfg.Registerer, l.Stats)
	l.tail = newReader(l, true, change.Position{})
	return l
}

// UseIDFormat assigns documents to partitions by the format that the cluster's origin names,
// instead of the latest one. It must be called before Run, because an origin may be made from data
// of the log.
func (l *Log) UseIDFormat(f change.IDFormat) {
	l.partitioner = f.Partitioner(l.cfg.Partitions)
	l.tail.splitter.partitioner = l.partitioner
}

// Partitioner assigns documents to partitions as the log does.
func (l *Log) Partitioner() change.Partitioner { return l.partitioner }

// Cursor returns a cursor of everything after the start.
func (l *Log) Cursor(start Start) *Cursor {
	c := &Cursor{
		log: l, live: start.Live, signals: make(chan struct{}, 1), position: start.Position,
		open: start.Open, scope: start.Scope, reread: start.Reread,
	}
	if c.open.IsZero() {
		c.open = c.position
	}
	if c.reread.isOver(c.position, false) {
		c.reread = Reread{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := start.Instead; old != nil {
		defer old.fail(context.Canceled)
		r := old.reader
		isOpen := r != nil && l.err == nil
		if isOpen && r.serves(c) && r.scope.covers(c.scope) {
			r.add(c)
			return c
		}
	}
	l.place(c)
	return c
}

// aheadSlack is how far a position may be later than MongoDB's time, because servers report
// slightly different times.
const aheadSlack = 15 * time.Second

// SetReach applies the current extent of the oplog. Cursors before the floor are served first, if
// necessary at the expense of another catch-up. Cursors later than the deployment's own time fail
// with ErrAhead.
func (l *Log) SetReach(reach gap.Reach, floor change.Timestamp) {
	reach.Slack += aheadSlack
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cursors := range []map[*Cursor]struct{}{l.tail.cursors, l.waiting} {
		for c := range maps.Clone(cursors) {
			if p := c.place(); p.After(l.tail.ring.end) && reach.Ahead(p) {
				c.fail(fmt.Errorf("%w: %s is after %s", ErrAhead, p, reach.Last))
			}
		}
	}
	l.reach = reach
	l.floor = floor
	l.notify() // for those that wait, and for catch-ups that do
}

// End returns the position up to which the tail has read, zero before it is open.
func (l *Log) End() change.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail.ring.end
}

// Drained returns the position up to which the tail has read, if MongoDB had nothing more then: no
// event of its time follows.
func (l *Log) Drained() (end change.Position, drained bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail.ring.end, l.tail.opened && l.tail.drained
}

// place assigns a cursor to the tail if that holds its position, else adds it to the waiting
// cursors. A cursor without a position begins at the tail's end.
func (l *Log) place(c *Cursor) {
	if l.err != nil {
		c.fail(l.err)
		return
	}
	if l.tail.opened && c.position.IsZero() {
		c.advance(l.tail.ring.end)
	}
	if l.tail.serves(c) {
		delete(l.waiting, c)
		l.tail.add(c)
		return
	}
	if _, known := l.waiting[c]; !known {
		l.waiting[c] = struct{}{}
		l.notify()
	}
}

// join moves a cursor from a catch-up to the tail, whose ring holds everything after its position.
func (l *Log) join(c *Cursor) {
	c.leave()
	l.tail.add(c)
	l.metrics.joins.Inc()
}

// accept adds a slot to a reader's ring.
func (l *Log) accept(r *reader, s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.put(s)
}

// reached records that a reply has been added to the ring, and moves idle cursors of a catch-up to
// the tail if the tail holds their position.
func (l *Log) reached(r *reader, reply Reply, end change.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.queued -= int64(reply.Size)
	if r.replied = reply.At; r.retained != reply.Retained {
		r.retained = reply.Retained
		l.notify()
	}
	drained := reply.Drained && !reply.Unproven
	turned := drained && !r.drained
	r.drained = drained
	if end.After(r.ring.end) || turned {
		r.ring.end = change.Later(r.ring.end, end)
		for c := range r.cursors {
			if c.idle {
				c.signal()
			}
		}
	}
	if end.After(r.position) {
		r.position = end
		r.moved = reply.At
	}
	r.notify()
	if r.tail || !l.tail.holds(r.ring.end) {
		return
	}
	for c := range maps.Clone(r.cursors) {
		if c.idle && l.tail.serves(c) {
			l.join(c)
		}
	}
}

// opened initializes a reader's ring, if that is new, and places the cursors that waited for it.
func (l *Log) opened(r *reader, base change.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.reading = true
	if r.opened {
		return
	}
	from := r.from
	if from.IsZero() {
		from = base
	}
	r.ring = newRing(r.limit, from)
	r.opened = true
	if r.replied.IsZero() {
		r.replied, r.moved = time.Now(), time.Now()
	}
	for c := range l.waiting {
		if r.tail && c.position.IsZero() {
			c.advance(from)
		}
		if c.waiting == r || r.tail && r.serves(c) {
			delete(l.waiting, c)
			r.add(c)
		}
	}
	if !r.tail && len(r.cursors) == 0 {
		r.leave() // its cursors have left
	}
	l.notify()
}

// namespaces returns the namespaces of a loss.
func (l *Log) namespaces(loss *Loss) []string {
	if len(loss.Namespaces) > 0 {
		return loss.Namespaces
	}
	return l.cfg.Namespaces
}

// lost reports a loss that the reader has found. One of a catch-up is of the subscribers that read
// there: however many of them come back too late, nobody else hears of it. held says that the tail
// still has the stretch: it is no loss yet, but one of those that come too late for the tail, too.
func (r *reader) lost(loss *Loss) (held bool) {
	l := r.log
	loss.Namespaces = l.namespaces(loss)
	loss.Tail = r.tail
	l.locked(func() { held = !r.tail && loss.isGone() && l.tail.holds(loss.From) })
	if held {
		l.logger.Info("reading from memory what MongoDB no longer has", "from", loss.From.String(), "to", loss.To.String())
		return true
	}
	r.countLoss(loss)
	if !r.tail {
		return false
	}
	l.metrics.losses.WithLabelValues(string(loss.Reason)).Inc()
	if l.cfg.Lost != nil {
		l.cfg.Lost(*loss)
	}
	return false
}

// countLoss counts and logs a loss that somebody gets.
func (r *reader) countLoss(loss *Loss) {
	r.log.metrics.gaps.Inc()
	r.log.logger.Warn("changes may have been missed", "reader", r.kind(), "reason", string(loss.Reason), "from", loss.From.String(), "to", loss.To.String())
}

// notify wakes the loop that opens catch-ups. It never blocks.
func (l *Log) notify() { wake.Notify(l.kick) }

func (l *Log) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Run reads the log until the context ends, and then returns nil, or until the source fails
// permanently. The tail is opened at from; zero means now.
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

// tailPatience is how long the tail may take to open before catch-ups are opened regardless.
const tailPatience = 5 * time.Second

// runTail keeps the tail open. If MongoDB turns out to be earlier than the tail, the tail restarts
// at MongoDB's present, because the positions of its cursors belong to another log.
func (l *Log) runTail(ctx context.Context, from change.Position) error {
	defer time.AfterFunc(tailPatience, func() { l.locked(func() { l.late = true; l.notify() }) }).Stop()
	l.locked(func() { l.tail = l.replaceTail(from, nil) })
	for {
		err := l.tail.run(ctx)
		if !errors.Is(err, ErrAhead) {
			return err
		}
		l.logger.Error("MongoDB is earlier than the last position read, restarting at its present", "error", err)
		l.locked(func() { l.tail = l.replaceTail(change.Position{}, err) })
	}
}

// replaceTail returns a new tail at from. The cursors of the old one fail with the error.
func (l *Log) replaceTail(from change.Position, err error) *reader {
	next := newReader(l, true, from)
	next.replied, next.moved = l.tail.replied, l.tail.moved // until it makes progress
	for c := range maps.Clone(l.tail.cursors) {
		c.fail(err)
	}
	return next
}

// failAll makes every current and future cursor return the error.
func (l *Log) failAll(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	for c := range maps.Clone(l.tail.cursors) {
		c.fail(err)
	}
	for _, c := range slices.Collect(maps.Keys(l.waiting)) {
		c.fail(err)
	}
}
