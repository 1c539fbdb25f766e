package notice

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/retry"
)

// MaxBatch bounds the notices in one Append.
const MaxBatch = 100

// A Store keeps a bounded number of a cluster's notices for a bounded time. All methods may block
// on the network until the context ends.
type Store interface {
	// Append adds notices of this process, at most MaxBatch, ordered by ID, and removes the oldest
	// beyond the bound. Repeating an Append changes nothing.
	Append(ctx context.Context, notices []Notice) error
	// Read returns the notices that other processes have added after a place, oldest first, and the
	// new place. Place 0 is before everything. If the store was restored and the place is later
	// than its content, Read returns the notices that it has not returned before.
	Read(ctx context.Context, after int64) (notices []Notice, place int64, err error)
	// Wait returns when other processes may have added something after the place, or after a few
	// seconds.
	Wait(ctx context.Context, after int64) error
}

// RecorderConfig configures a Recorder.
type RecorderConfig struct {
	// Pause is the pause after each batch. Defaults to 250 ms.
	Pause time.Duration
	// Timeout bounds each read and write. Defaults to 5 s.
	Timeout time.Duration
	// Bound is the number of notices that may wait while the store is unavailable; of each History;
	// beyond it the oldest are dropped. Defaults to 1000.
	Bound int
	// Logger logs when the store becomes unavailable and recovers. Defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// A Recorder writes a board's own notices to the cluster's history and adds those of other nodes to
// the board.
type Recorder struct {
	cfg     RecorderConfig
	board   *Board
	store   Store
	metrics recorderMetrics
	writing *health.Loop
	reading *health.Loop
	place   int64 // up to where the history was read
	loaded  bool  // further notices are new

	mu struct {
		sync.Mutex

		collected uint64 // up to which ID of the board
		dropped   uint64 // how many of operators were dropped
		waiting   []Notice
		writing   []Notice      // the batch under way
		changed   chan struct{} // closed and replaced when these have changed
	}
	more chan struct{} // holds one signal: notices wait
}

// NewRecorder returns a Recorder.
func NewRecorder(cfg RecorderConfig, board *Board, store Store) *Recorder {
	cfg.Pause = cmp.Or(cfg.Pause, 250*time.Millisecond)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.Bound = cmp.Or(cfg.Bound, 1000)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	r := &Recorder{cfg: cfg, board: board, store: store, metrics: newRecorderMetrics(cfg.Registerer), writing: health.NewLoop(), reading: health.NewLoop(), more: make(chan struct{}, 1)}
	r.mu.changed = make(chan struct{})
	return r
}

// Load adds the history to the board before new notices are posted. If it is not called or fails,
// Run does so later. It must not run concurrently with Run.
func (r *Recorder) Load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	notices, place, err := r.store.Read(ctx, r.place)
	if err != nil {
		r.metrics.failures.Inc()
		return err
	}
	if !r.loaded {
		for i := range notices {
			notices[i].Past = true
		}
	}
	if len(notices) > 0 {
		r.board.Relay(notices...)
	}
	r.place = place
	r.loaded = true
	return nil
}

// Age returns how long the Recorder has made no progress although it had something to write or to
// read; a store that does not answer is not a stall.
func (r *Recorder) Age() time.Duration { return max(r.writing.Age(), r.reading.Age()) }

// Run records until the context ends, and then makes one last attempt to write waiting notices. It
// retries while the store is unavailable.
func (r *Recorder) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.runReading(ctx) })
	written := make(chan struct{})
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		defer close(written)
		r.runWriting(ctx, writing)
	}()
	r.runCollecting(ctx)
	limit := time.AfterFunc(r.cfg.Timeout, stop)
	defer limit.Stop()
	wg.Wait()
	<-written
}

// runCollecting collects the board's own notices until the context ends.
func (r *Recorder) runCollecting(ctx context.Context) {
	var last uint64
	var seen tally
	for {
		notices, _, posted, err := r.board.follow(ctx, last)
		if err != nil {
			close(r.more)
			return
		}
		last = notices[len(notices)-1].ID
		seen.add(notices...)
		r.mu.Lock()
		r.drop(tally{all: posted.all - seen.all, operated: posted.operated - seen.operated}) // the board no longer had them
		seen = posted
		for _, n := range notices {
			if !n.Relayed {
				r.mu.waiting = append(r.mu.waiting, n)
			}
		}
		r.mu.collected = last
		waiting, removed := newest(r.mu.waiting, r.cfg.Bound)
		if len(removed) > 0 {
			r.drop(tallied(removed))
			r.mu.waiting = append([]Notice(nil), waiting...)
		}
		r.change()
		r.mu.Unlock()
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
}

// drop notes how many notices will never be in the history. The caller holds the mutex.
func (r *Recorder) drop(lost tally) {
	r.mu.dropped += lost.operated
	r.metrics.dropped.Add(float64(lost.all))
}

// take removes and returns the next batch.
func (r *Recorder) take() []Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.mu.waiting), MaxBatch)
	batch := r.mu.waiting[:n:n]
	r.mu.waiting = r.mu.waiting[n:]
	r.mu.writing = batch
	r.change()
	return batch
}

// change tells those that wait in Flush. The caller holds the mutex.
func (r *Recorder) change() {
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// ErrDropped says that too many notices of operators waited for the history.
var ErrDropped = errors.New("more notices of operators waited for the history than are kept, and the oldest were dropped")

// Flush waits until the notices of operators that were posted on the board before are in the
// history; the notices of others too, unless they were dropped. It returns the context's cause if
// that ends first, and ErrDropped if notices of operators were dropped meanwhile.
func (r *Recorder) Flush(ctx context.Context) error {
	last := r.board.last()
	r.mu.Lock()
	before := r.mu.dropped
	r.mu.Unlock()
	for {
		r.mu.Lock()
		over := r.mu.collected >= last
		for _, left := range [][]Notice{r.mu.writing, r.mu.waiting} {
			over = over && (len(left) == 0 || left[0].ID > last)
		}
		changed := r.mu.changed
		dropped := r.mu.dropped > before
		r.mu.Unlock()
		switch {
		case dropped:
			return ErrDropped
		case over:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// runWriting writes batches until more is closed or the hard context ends. It pauses between
// batches until the soft context ends.
func (r *Recorder) runWriting(soft, hard context.Context) {
	for range r.more {
		r.writing.Work()
		for batch := r.take(); len(batch) > 0; batch = r.take() {
			if !r.write(soft, hard, batch) {
				continue
			}
			r.metrics.written.Add(float64(len(batch)))
			r.wrote()
			_ = retry.Backoff{First: r.cfg.Pause, Longest: r.cfg.Pause}.Wait(soft, 1) // stopping: at once
			r.writing.Work()
		}
		r.writing.Rest()
	}
}

// wrote notes that the batch under way is in the history.
func (r *Recorder) wrote() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.writing = nil
	r.change()
}

// write writes a batch with retries; after the soft context has ended, in one attempt.
func (r *Recorder) write(soft, hard context.Context, batch []Notice) bool {
	backoff := retry.Backoff{First: 200 * time.Millisecond, Longest: 10 * time.Second}
	for failures := 1; ; failures++ {
		ctx, cancel := context.WithTimeout(hard, r.cfg.Timeout)
		r.writing.RestFor(r.cfg.Timeout)
		err := r.store.Append(ctx, batch)
		cancel()
		if err == nil {
			if failures > 1 {
				r.cfg.Logger.Info("writing notice history recovered", "failures", failures-1)
			}
			return true
		}
		r.metrics.failures.Inc()
		if failures == 1 {
			r.cfg.Logger.Warn("writing notice history failed", "error", err)
		}
		if soft.Err() != nil {
			r.mu.Lock()
			r.drop(tallied(batch))
			r.change()
			r.mu.Unlock()
			return false
		}
		r.writing.Rest()
		_ = backoff.Wait(soft, failures)
	}
}

// runReading adds the notices of other nodes to the board until the context ends.
func (r *Recorder) runReading(ctx context.Context) {
	backoff := retry.Backoff{First: 200 * time.Millisecond, Longest: 10 * time.Second}
	for failures := 0; ctx.Err() == nil; {
		r.reading.RestFor(r.cfg.Timeout)
		err := r.Load(ctx)
		r.reading.Rest()
		if err == nil {
			failures = 0
			err = r.store.Wait(ctx, r.place)
		}
		if err == nil || ctx.Err() != nil {
			_ = retry.Backoff{First: r.cfg.Pause, Longest: r.cfg.Pause}.Wait(ctx, 1) // collect further notices into one read
			continue
		}
		if failures++; failures == 1 {
			r.cfg.Logger.Warn("reading notice history failed", "error", err)
		}
		_ = backoff.Wait(ctx, failures)
	}
}
