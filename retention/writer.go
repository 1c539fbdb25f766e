package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/oplog"
)

// ErrHistory says that MongoDB does not have the last change of the chain where the chain has it:
// it was restored from a backup.
var ErrHistory = errors.New("MongoDB has another history than the retained log")

// errOvertaken says that another node has written the number.
var errOvertaken = errors.New("another node wrote the segment")

// WriterConfig configures a Writer.
type WriterConfig struct {
	// Node is written into headers, and so is Version. Node must be unique and is required.
	Node, Version string
	// Coverage is the coverage of the node's stream.
	Coverage Coverage
	// Shared says that other nodes may write to the chain. The store is probed before the first
	// segment then.
	Shared bool
	// Rank orders the nodes that may take over: the node of rank 0 does first. Defaults to 0.
	Rank func() int
	// Interval is after how long a segment ends. Defaults to 5 minutes. In a short oplog it is an
	// eighth of it.
	Interval time.Duration
	// Size is after how many bytes of changes a segment ends. Defaults to 16 MiB.
	Size int64
	// Window returns the length of the oplog, zero if unknown. Optional.
	Window func() time.Duration
	// MaxAge and MaxBytes bound the chain; zero keeps everything.
	MaxAge   time.Duration
	MaxBytes int64
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// A Writer extends a chain by the changes of a cursor of the log. The tail does not wait for this
// cursor: a slow store delays no reader. Its draft has at most a segment, compressed, and the open
// blocks.
type Writer struct {
	cfg     WriterConfig
	chain   *Chain
	log     *oplog.Log
	encoder *zstd.Encoder
	metrics *metrics
	probed  bool      // or need not be
	expired time.Time // when expiry was tried last

	mu struct {
		sync.Mutex
		since   time.Time // of the trouble
		trouble error
	}
}

// NewWriter returns a Writer.
func NewWriter(cfg WriterConfig, chain *Chain, log *oplog.Log) *Writer {
	cfg.Interval = cmp.Or(cfg.Interval, 5*time.Minute)
	cfg.Size = cmp.Or(cfg.Size, 16<<20)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Rank == nil {
		cfg.Rank = func() int { return 0 }
	}
	if cfg.Window == nil {
		cfg.Window = func() time.Duration { return 0 }
	}
	return &Writer{cfg: cfg, chain: chain, log: log, encoder: newEncoder(), metrics: newMetrics(cfg.Registerer), probed: !cfg.Shared}
}

// Trouble returns why nothing can be written, and since when; nil while all is well.
func (w *Writer) Trouble() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.since, w.mu.trouble
}

// report records whether the store, or MongoDB's history, keeps the writer from writing.
func (w *Writer) report(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && w.mu.trouble != nil:
		w.cfg.Logger.Info("retained log can be written again", "after", time.Since(w.mu.since).Truncate(time.Millisecond))
		w.mu.since = time.Time{}
	case err != nil && w.mu.trouble == nil:
		w.cfg.Logger.Warn("cannot write the retained log", "error", err)
		w.mu.since = time.Now()
	}
	w.mu.trouble = err
	if err != nil {
		w.metrics.failures.Inc()
	}
}

// Interval returns after how long a segment ends now.
func (w *Writer) Interval() time.Duration { return w.limits().interval }

// limits returns when segments end now.
func (w *Writer) limits() limits {
	return limitsFor(w.cfg.Interval, w.cfg.Size, w.cfg.Window(), w.cfg.Shared)
}

// Run writes until the context ends, and then returns nil, or until MongoDB turns out to have
// another history (ErrHistory).
func (w *Writer) Run(ctx context.Context) error {
	backoff := retry.Backoff{First: time.Second, Longest: 30 * time.Second}
	for attempt := 1; ; attempt++ {
		err := w.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrHistory):
			w.report(err)
			return err
		case errors.Is(err, errOvertaken):
			w.cfg.Logger.Debug("another node wrote the next segment of the retained log")
			attempt = 0
		case errors.Is(err, context.Canceled): // the log has ended before this context
		default:
			w.report(err)
		}
		if backoff.Wait(ctx, max(1, attempt)) != nil {
			return nil
		}
	}
}

// turn waits until it is this node's turn, and writes until it fails or another node has written.
func (w *Writer) turn(ctx context.Context) error {
	if err := w.probe(ctx); err != nil {
		return err
	}
	head, found, err := w.chain.Head(ctx)
	if err != nil {
		return err
	}
	if found && w.cfg.Shared && head.Writer != w.cfg.Node {
		if head, err = w.follow(ctx, head); err != nil {
			return err
		}
		w.cfg.Logger.Debug("taking over the retained log", "from", head.Writer, "segment", head.Number)
	}
	s := newSession(w, head, found)
	defer s.close()
	return s.run(ctx)
}

// probe looks once whether several nodes may write to the store.
func (w *Writer) probe(ctx context.Context) error {
	if w.probed {
		return nil
	}
	versioned, err := w.chain.Probe(ctx)
	if err != nil {
		if fault.Of(err) != fault.RetentionCondition && ctx.Err() == nil {
			w.expire(ctx) // the store may be full
		}
		return fmt.Errorf("probe the store: %w", err)
	}
	if versioned {
		w.cfg.Logger.Warn("the bucket keeps versions of deleted segments: expiry frees no space and deletes no document", "code", fault.RetentionVersions)
	}
	w.probed = true
	return nil
}

// follow reads the segments of another node, until none has come for so long that this node takes
// over: by the store's clock, or since this node has seen the last one, if that clock has stopped
// or jumped back.
func (w *Writer) follow(ctx context.Context, head Head) (Head, error) {
	seen := time.Now()
	for {
		wait := w.limits().interval
		patience := time.Duration(takeOver+w.cfg.Rank()) * wait
		if _, lacks := w.cfg.Coverage.Lacks(head.Coverage); lacks {
			patience += takeOver * wait // a node that reads as much as the writer comes first
		}
		now, err := w.chain.store.Now(ctx)
		if err != nil {
			return head, err
		}
		w.report(nil)
		if max(now.Sub(head.Modified), time.Since(seen)) > patience {
			return head, nil
		}
		if err := retry.Sleep(ctx, wait); err != nil {
			return head, err
		}
		for {
			h, about, err := w.chain.Header(ctx, head.Next)
			if errors.Is(err, ErrNotFound) {
				break
			}
			if err != nil {
				return head, err
			}
			head = Head{Header: h, Object: about, Next: h.Number + 1}
			seen = time.Now()
		}
	}
}

// commit writes a segment. It retries until it is known whether the segment is the one of its
// number, and returns errOvertaken if it is not.
func (w *Writer) commit(ctx context.Context, segment []byte, h *Header) error {
	backoff := retry.Backoff{First: 500 * time.Millisecond, Longest: 30 * time.Second}
	for attempt := 1; ; attempt++ {
		err := w.put(ctx, segment, h)
		if err == nil || errors.Is(err, errOvertaken) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.report(fmt.Errorf("write segment %d: %w", h.Number, err))
		w.expire(ctx) // the disk may be full
		if err := backoff.Wait(ctx, attempt); err != nil {
			return err
		}
	}
}

// put tries to write a segment once. Whatever the store answers, also that it was written, the
// object under the number decides. An object below the floor does not count, because its number may
// have been deleted before.
func (w *Writer) put(ctx context.Context, segment []byte, h *Header) error {
	answer := w.chain.store.Put(ctx, w.chain.segment(h.Number), segment)
	there, _, err := w.chain.Header(ctx, h.Number)
	switch {
	case err == nil && there.ID == h.ID: // also if the answer was lost
	case err == nil:
		return errOvertaken
	case answer == nil:
		return fmt.Errorf("the store has answered that it is written: %w", err)
	case errors.Is(err, errDamaged), errors.Is(err, ErrFormat):
		return errOvertaken
	case errors.Is(err, ErrNotFound):
		return answer
	default:
		return errors.Join(answer, err)
	}
	floor, err := w.chain.Floor(ctx)
	if err != nil {
		return err
	}
	if h.Number < floor {
		return errOvertaken
	}
	return nil
}
