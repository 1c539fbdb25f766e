package rescan

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/retry"
)

// A Collection is one whose documents are read again after a loss.
type Collection struct {
	Namespace change.Namespace
	// UpdatedAt is a field with the time of the last change, by which pages leave out what is older than the loss; empty reads everything.
	UpdatedAt string
}

// A Reader reads documents of collections, in the order of their _ids.
type Reader interface {
	// Page reads with majority concern. It blocks on the network until the context ends.
	Page(ctx context.Context, r Request) (Page, error)
}

// A Request says which documents to read.
type Request struct {
	Collection Collection
	// Since leaves out documents whose UpdatedAt is before it.
	Since time.Time
	// After is the last _id read before, as a document {_id: …}; nil for the first page.
	After []byte
	Limit int
}

// A Page is a stretch of a collection.
type Page struct {
	// Documents are raw BSON.
	Documents [][]byte
	// At is the operation time at which they were read.
	At change.Timestamp
	// Last is the last document's _id as a document {_id: …}, nil where there was none.
	Last []byte
	// Done says that there are no further documents.
	Done bool
}

// A Lane takes documents in.
type Lane interface {
	// Partition returns which documents are the lane's.
	Partition() change.Partition
	// Ended is closed when the lane is no longer this node's.
	Ended() <-chan struct{}
	// Open begins to note what the stream changes, before a page is read.
	Open()
	// Enter gives the lane its documents of a page that was read at the time. The channel is closed when they are acknowledged.
	Enter(at change.Timestamp, docs []change.Event) <-chan struct{}
}

// A Job is one lane's loss that is to be made good for one collection.
type Job struct {
	Lane       Lane
	Collection Collection
	// Since is the time from which on changes were lost, After the last _id that an earlier run has read.
	Since time.Time
	After []byte
	// Save keeps how far the collection has been read, durably when it returns nil.
	Save func(ctx context.Context, after []byte, done bool) error
}

// Config configures a Runner.
type Config struct {
	// Collections are those to read again; none turns rescans off.
	Collections []Collection
	// Reader reads their documents. Required with collections.
	Reader Reader
	// PageSize is the number of documents read at a time. Defaults to 500.
	PageSize int
	// Rate is the most documents a second. Defaults to 1000.
	Rate int
}

// A Runner reads collections again, one page at a time for all the lanes that have lost the same.
type Runner struct {
	cfg         Config
	partitioner change.Partitioner
	logger      *slog.Logger
	kick        chan struct{}

	mu      sync.Mutex
	waiting []Job
}

// NewRunner makes a Runner for a cluster of so many partitions.
func NewRunner(cfg Config, partitions int, logger *slog.Logger) *Runner {
	cfg.PageSize, cfg.Rate = cmp.Or(cfg.PageSize, 500), cmp.Or(cfg.Rate, 1000)
	return &Runner{cfg: cfg, partitioner: change.NewPartitioner(partitions), logger: logger, kick: make(chan struct{}, 1)}
}

// Add queues a job. It never blocks.
func (r *Runner) Add(j Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, j)
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// take returns jobs that can share their pages: of one collection, and as far as each other.
func (r *Runner) take() (group []Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(j Job) bool {
		if len(group) > 0 && (group[0].Collection != j.Collection || string(group[0].After) != string(j.After)) {
			return false
		}
		group = append(group, j)
		return true
	})
	return group
}

// gather is how long a loss waits for others like it: lanes find a common loss one after the other.
const gather = 500 * time.Millisecond

// Run makes good what is queued, until the context ends, which is no error.
func (r *Runner) Run(ctx context.Context) error {
	for {
		select {
		case <-r.kick:
		case <-ctx.Done():
			return nil
		}
		if retry.Sleep(ctx, gather) != nil {
			return nil
		}
		for group := r.take(); len(group) > 0; group = r.take() {
			if r.collection(ctx, group) != nil {
				return nil
			}
		}
	}
}

// collection reads one collection for a group of lanes. Its error is the context's.
func (r *Runner) collection(ctx context.Context, group []Job) error {
	request := Request{Collection: group[0].Collection, After: group[0].After, Limit: r.cfg.PageSize, Since: group[0].Since}
	for _, j := range group {
		if j.Since.Before(request.Since) {
			request.Since = j.Since
		}
	}
	for {
		group = slices.DeleteFunc(group, Job.ended)
		if len(group) == 0 {
			return nil
		}
		begun := time.Now()
		for _, j := range group {
			j.Lane.Open()
		}
		page, err := r.page(ctx, request)
		if err != nil {
			return err
		}
		if err := r.enter(ctx, group, page); err != nil {
			return err
		}
		if page.Last != nil {
			request.After = page.Last
		}
		if err := r.save(ctx, group, request.After, page.Done); err != nil || page.Done {
			return err
		}
		least := time.Duration(len(page.Documents)) * time.Second / time.Duration(r.cfg.Rate)
		if err := retry.Sleep(ctx, least-time.Since(begun)); err != nil {
			return err
		}
	}
}

func (j Job) ended() bool {
	select {
	case <-j.Lane.Ended():
		return true
	default:
		return false
	}
}

// page reads a page and goes on trying until the context ends.
func (r *Runner) page(ctx context.Context, request Request) (page Page, err error) {
	err = retry.Until(ctx, func() error {
		page, err = r.cfg.Reader.Page(ctx, request)
		return err
	}, func(err error) {
		r.logger.Warn("documents cannot be read again", "namespace", request.Collection.Namespace.String(), "error", err)
	})
	return page, err
}

// enter gives each lane its documents of a page, and waits until they are acknowledged or the lane has ended.
func (r *Runner) enter(ctx context.Context, group []Job, page Page) error {
	mine := make(map[change.Partition][]change.Event)
	for _, doc := range page.Documents {
		e, err := change.Rescanned(group[0].Collection.Namespace, doc, page.At)
		if err != nil {
			r.logger.Error("document cannot be delivered again", "error", err)
			continue
		}
		p, _ := r.partitioner.Of(&e)
		mine[p] = append(mine[p], e)
	}
	entered := make([]<-chan struct{}, len(group))
	for i, j := range group {
		entered[i] = j.Lane.Enter(page.At, mine[j.Lane.Partition()])
	}
	for i, j := range group {
		select {
		case <-entered[i]:
		case <-j.Lane.Ended():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// save notes how far the collection has been read.
func (r *Runner) save(ctx context.Context, group []Job, after []byte, done bool) error {
	for _, j := range group {
		err := retry.Until(ctx, func() error { return j.Save(ctx, after, done) }, func(err error) {
			r.logger.Warn("the progress of a rescan cannot be saved; it waits", "error", err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
