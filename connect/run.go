package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redpanda-data/benthos/v4/public/service"

	"github.com/mongostream/streamer/client"
)

// A run is the life of a client. It reconnects by itself and resumes after the accepted changes.
type run struct {
	in     *input
	client *client.Client
	queue  *queue
	cancel context.CancelFunc
	over   chan struct{}        // closed when the client has ended
	err    error                // why; set before over is closed
	open   int                  // messages in the policy; of ReadBatch
	closed service.MessageBatch // a batch of the policy that its processors have not completed; of ReadBatch

	mu struct {
		sync.Mutex
		here    bool          // there is a session
		failed  error         // why the last attempt failed
		changed chan struct{} // closed when these change; then replaced
	}
}

// progressInterval is how often the position of a quiet stream is acknowledged.
const progressInterval = time.Second

// begin starts a client.
func (in *input) begin() (*run, error) {
	r := &run{in: in, over: make(chan struct{})}
	r.mu.changed = make(chan struct{})
	cfg := in.client
	cfg.OnNotice, cfg.Logger = r.notice, slog.New(&logger{in.log})
	c, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	r.client, r.queue = c, newQueue(c.Position, c.Acknowledge)
	if err := c.Subscribe(in.sub, r.queue.add); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	go func() {
		r.err = c.Run(ctx)
		r.cancel()
		close(r.over)
	}()
	go r.runProgress(ctx)
	return r, nil
}

// runProgress acknowledges the position of a quiet stream.
func (r *run) runProgress(ctx context.Context) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.queue.progress()
			r.in.unacknowledged.Set(int64(r.queue.under()))
		case <-ctx.Done():
			return
		}
	}
}

// set records whether there is a session, and why not.
func (r *run) set(here bool, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.here, r.mu.failed = here, failed
	signal(&r.mu.changed)
}

// state returns whether there is a session, a channel that is closed when that changes, and why the
// last attempt failed.
func (r *run) state() (here bool, changed <-chan struct{}, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed, r.mu.failed = r.mu.failed, nil // it is returned once
	return r.mu.here, r.mu.changed, failed
}

func (r *run) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// connected waits until there is a session. It returns why an attempt failed meanwhile.
func (r *run) connected(ctx context.Context) error {
	for {
		here, changed, failed := r.state()
		switch {
		case here:
			return nil
		case failed != nil:
			return failed
		}
		select {
		case <-changed:
		case <-r.over:
			return r.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// batch waits for messages. It delivers all changes that the client has handed over before it says
// that there is no session.
func (r *run) batch(ctx context.Context, policy *service.Batcher) (service.MessageBatch, error) {
	if len(r.closed) > 0 {
		return r.process(ctx)
	}
	for {
		most := maxBatch
		if policy != nil {
			most = 1
		}
		changes, more := r.queue.take(most)
		if len(changes) > 0 && policy == nil {
			batch := make(service.MessageBatch, len(changes))
			for i := range changes {
				batch[i] = message(changes[i])
			}
			return batch, nil
		}
		if len(changes) > 0 {
			r.open++
			if policy.Add(message(changes[0])) {
				return r.flush(ctx, policy)
			}
			continue
		}
		due, err := r.wait(ctx, more, policy)
		if due {
			return r.flush(ctx, policy)
		}
		if err != nil {
			return nil, err
		}
	}
}

// flush ends the batch of the policy.
func (r *run) flush(ctx context.Context, policy *service.Batcher) (batch service.MessageBatch, err error) {
	r.open = 0
	if r.closed, err = policy.Flush(ctx); err != nil {
		return nil, err
	}
	return r.process(ctx)
}

// process runs the processors on a copy of the closed batch. It forgets the batch only when all of
// them have completed it: otherwise the next call processes it again.
func (r *run) process(ctx context.Context) (service.MessageBatch, error) {
	results, err := service.ExecuteProcessors(ctx, r.in.processors, r.closed.Copy())
	if ctx.Err() != nil { // a processor that was cut short may have removed messages
		return nil, ctx.Err()
	}
	if err != nil {
		// Not wrapped: the engine passes over some errors in silence, and ends the input at others.
		return nil, errors.New("process batch: " + err.Error())
	}
	r.closed = nil
	return slices.Concat(results...), nil
}

// wait waits for a change, or for the end of the policy's period.
func (r *run) wait(ctx context.Context, more <-chan struct{}, policy *service.Batcher) (due bool, err error) {
	var period <-chan time.Time
	if r.open > 0 {
		rest, _ := policy.UntilNext()
		timer := time.NewTimer(rest)
		defer timer.Stop()
		period = timer.C
	}
	here, changed := r.hasSession()
	gone := r.over
	if r.open > 0 { // the batch is delivered first
		gone, changed = nil, nil
	} else if !here {
		return false, service.ErrNotConnected
	}
	select {
	case <-more:
	case <-changed:
	case <-gone:
		return false, service.ErrNotConnected
	case <-period:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

// hasSession returns whether there is a session, and a channel that is closed when that may have
// changed.
func (r *run) hasSession() (here bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.here, r.mu.changed
}

// close ends the client, which sends the last acknowledgement.
func (r *run) close(ctx context.Context) error {
	r.queue.progress()
	r.cancel()
	select {
	case <-r.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notice handles a notice of the client. Losses come in their place: everything before them has
// been handed over.
func (r *run) notice(ctx context.Context, n client.Notice) error {
	log := r.in.log
	switch n := n.(type) {
	case client.Resync:
		return r.loss(ctx, n)
	case client.Rewound:
		r.in.rewinds.Incr(1)
		log.Warnf("The subscriber was rewound to %s: changes come again. %s", n.To.UTC().Format(time.RFC3339), n.Advice)
	case client.SnapshotBegun:
		log.Infof("The snapshot (%s) begins, with about %d documents", n.Reason, n.Estimated)
	case client.SnapshotDone:
		log.Infof("The snapshot (%s) is complete after %d documents", n.Reason, n.Read)
	case client.SnapshotCancelled:
		log.Warnf("An operator has ended the snapshot (%s) after %d of about %d documents", n.Reason, n.Read, n.Estimated)
	case client.Connected:
		r.set(true, nil)
	case client.Disconnected:
		r.set(false, n.Err)
	case client.Service:
		r.service(n)
	}
	return nil
}

// service takes a notice about the service.
func (r *run) service(n client.Service) {
	switch n.Kind {
	case client.FilterFailed:
		r.in.filterFailures.Incr(1)
		r.in.log.Errorf("A change was not delivered: %s %s", n.Code, n.Text)
	case client.FilterSuspended, client.Degraded, client.CollectionMissing, client.SubscriberReplaced:
		r.in.log.Warnf("%s: %s", n.Kind, n.Text)
	default:
		r.in.log.Infof("%s: %s", n.Kind, n.Text)
	}
}

// errLoss says that the input stops at a loss.
var errLoss = errors.New("the input stops at a loss: read the documents again, then set on_loss: continue, or snapshot, and restart")

// loss does what on_loss says. Before the input stops, everything before the loss is accepted and
// acknowledged.
func (r *run) loss(ctx context.Context, n client.Resync) error {
	r.in.losses.Incr(1)
	r.in.log.Errorf("Loss: %s", lost(n))
	if r.in.onLoss != lossStops {
		return nil
	}
	r.in.stop(fmt.Errorf("%w: %s", errLoss, lost(n)))
	if err := r.queue.rest(ctx); err != nil {
		return err
	}
	r.queue.progress()
	return errLoss
}

// A logger passes the client's messages to the engine's logger.
type logger struct{ to *service.Logger }

// Enabled implements slog.Handler.
func (*logger) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *logger) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	switch {
	case r.Level >= slog.LevelError:
		l.to.Error(text)
	case r.Level >= slog.LevelWarn:
		l.to.Warn(text)
	case r.Level >= slog.LevelInfo:
		l.to.Info(text)
	default:
		l.to.Debug(text)
	}
	return nil
}

// WithAttrs implements slog.Handler. The client uses none.
func (l *logger) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *logger) WithGroup(string) slog.Handler { return l }
