package notice

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/internal/retry"
)

// MaxBatch is how many notices a Store is given at once, at most.
const MaxBatch = 100

// A Store keeps what the nodes of a cluster have posted: a bounded number of notices, for a bounded time. All methods may block on the
// network until the context ends.
type Store interface {
	// Append adds notices of this process, up to MaxBatch, in the order of their ids, and lets the oldest of all go beyond the bound. To
	// append one again changes nothing.
	Append(ctx context.Context, notices []Notice) error
	// Read returns what other processes have added after a place, oldest first, and the place after that. Place 0 is before all. After the
	// store was restored from a copy, a place may be later than all that there is: then Read returns what it has not returned before.
	Read(ctx context.Context, after int64) (notices []Notice, place int64, err error)
	// Wait returns when others may have added something after the place, and after some seconds at most.
	Wait(ctx context.Context, after int64) error
}

// RecorderConfig configures a Recorder.
type RecorderConfig struct {
	// Pause is how long to leave the history alone after each batch. Defaults to 250 ms.
	Pause time.Duration
	// Timeout bounds each reading and writing. Defaults to 5 s.
	Timeout time.Duration
	// Bound is how many notices may wait while the history is away; beyond it the oldest go, and are counted. Defaults to 1000.
	Bound int
	// Logger hears when the history goes away and comes back. Defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// A Recorder writes a board's own notices into the history of the cluster, and puts on the board what others write there.
type Recorder struct {
	cfg     RecorderConfig
	board   *Board
	store   Store
	metrics recorderMetrics
	place   int64 // up to where the history is on the board
	loaded  bool  // what comes now is news

	mu struct {
		sync.Mutex

		waiting []Notice
	}
	more chan struct{} // holds one while something waits
}

// NewRecorder makes a Recorder.
func NewRecorder(cfg RecorderConfig, board *Board, store Store) *Recorder {
	cfg.Pause = cmp.Or(cfg.Pause, 250*time.Millisecond)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.Bound = cmp.Or(cfg.Bound, 1000)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Recorder{cfg: cfg, board: board, store: store, metrics: newRecorderMetrics(cfg.Registerer), more: make(chan struct{}, 1)}
}

// Load puts the history on the board, for readers to find before what is posted from now on. Without it, or where it fails, Run does so
// when it can. It must not be called beside Run.
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
	r.place, r.loaded = place, true
	return nil
}

// Run records until the context ends; what waits then is written in one last attempt. A history that is away is tried again and again,
// and blocks nobody.
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

// runCollecting takes the board's own notices until the context ends, and those that were posted before that.
func (r *Recorder) runCollecting(ctx context.Context) {
	var last uint64
	for {
		notices, missed, err := r.board.Follow(ctx, last)
		if err != nil {
			close(r.more)
			return
		}
		last = notices[len(notices)-1].ID
		r.metrics.dropped.Add(float64(missed))
		r.mu.Lock()
		for _, n := range notices {
			if !n.Relayed {
				r.mu.waiting = append(r.mu.waiting, n)
			}
		}
		if over := len(r.mu.waiting) - r.cfg.Bound; over > 0 {
			r.metrics.dropped.Add(float64(over))
			r.mu.waiting = append([]Notice(nil), r.mu.waiting[over:]...)
		}
		r.mu.Unlock()
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
}

// take returns the next batch, which waits no more.
func (r *Recorder) take() []Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.mu.waiting), MaxBatch)
	batch := r.mu.waiting[:n:n]
	r.mu.waiting = r.mu.waiting[n:]
	return batch
}

// runWriting writes batches until nothing more comes, or the hard context ends. Between them it waits, unless the soft one has ended.
func (r *Recorder) runWriting(soft, hard context.Context) {
	for range r.more {
		for batch := r.take(); len(batch) > 0; batch = r.take() {
			if !r.write(soft, hard, batch) {
				continue
			}
			r.metrics.written.Add(float64(len(batch)))
			_ = retry.Backoff{First: r.cfg.Pause, Longest: r.cfg.Pause}.Wait(soft, 1) // stopping: at once
		}
	}
}

// write writes a batch, however often it takes; once the soft context has ended, in one attempt.
func (r *Recorder) write(soft, hard context.Context, batch []Notice) bool {
	backoff := retry.Backoff{First: 200 * time.Millisecond, Longest: 10 * time.Second}
	for failures := 1; ; failures++ {
		ctx, cancel := context.WithTimeout(hard, r.cfg.Timeout)
		err := r.store.Append(ctx, batch)
		cancel()
		if err == nil {
			if failures > 1 {
				r.cfg.Logger.Info("notices are written into the cluster's history again", "failures", failures-1)
			}
			return true
		}
		r.metrics.failures.Inc()
		if failures == 1 {
			r.cfg.Logger.Warn("notices cannot be written into the cluster's history", "error", err)
		}
		if soft.Err() != nil {
			r.metrics.dropped.Add(float64(len(batch)))
			return false
		}
		_ = backoff.Wait(soft, failures)
	}
}

// runReading puts on the board what others write, until the context ends.
func (r *Recorder) runReading(ctx context.Context) {
	backoff := retry.Backoff{First: 200 * time.Millisecond, Longest: 10 * time.Second}
	for failures := 0; ctx.Err() == nil; {
		err := r.Load(ctx)
		if err == nil {
			failures = 0
			err = r.store.Wait(ctx, r.place)
		}
		if err == nil || ctx.Err() != nil {
			_ = retry.Backoff{First: r.cfg.Pause, Longest: r.cfg.Pause}.Wait(ctx, 1) // what comes meanwhile is read at once
			continue
		}
		if failures++; failures == 1 {
			r.cfg.Logger.Warn("the cluster's history of notices cannot be read", "error", err)
		}
		_ = backoff.Wait(ctx, failures)
	}
}
