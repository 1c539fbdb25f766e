package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/breaker"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// Config configures a Sink.
type Config struct {
	// Name is the name of the sink, Subscriber that of its subscriber. Cluster is part of the
	// messages' ids. Required.
	Name, Subscriber, Cluster string
	// Format is the format of the messages' values. LongText writes integers beyond 2^53 as text.
	Format   Format
	LongText bool
	// Attempts is how often the sink tries a message that the target refuses. Defaults to 5.
	Attempts int
	// DeadLetter takes permanently refused messages; nil halts the sink instead.
	DeadLetter Target
	// AckTimeout is how long a target may take to report an outcome. Defaults to 10 s.
	AckTimeout time.Duration
	// Renew makes a new target and dead-letter target, for a restart of the sink. Required for
	// Restart.
	Renew func() (target, deadLetter Target, err error)
	// CheckNamespaces checks whether the sink's namespaces can have changes: an error halts the
	// sink, missing describes namespaces that do not exist yet. Optional.
	CheckNamespaces func(context.Context) (missing []string, err error)
	// Stall is called before each batch, and delays it. It is for demonstrations of a sink that
	// makes no progress; nil otherwise. It must return when its context ends.
	Stall func(ctx context.Context)
	// StallAfter is how long the target may acknowledge nothing before the sink counts as stalled.
	// Defaults to 10 s.
	StallAfter time.Duration
	// Breaker guards the attempts after a failure. Required.
	Breaker *breaker.Breaker
	// Board receives notices. Optional.
	Board *notice.Board
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics are the metrics of the node's sinks. Required.
	Metrics *Metrics
	// Tracer records batches. Defaults to none.
	Tracer trace.Tracer
}

// A Sink publishes a shared subscriber to a target.
type Sink struct {
	cfg     Config
	shared  *streamer.Shared
	target  Target
	encode  *encoder
	metrics metrics

	signal chan struct{}   // holds one signal: a message has failed, everything has an outcome, or an operator pauses or resumes
	acked  chan struct{}   // holds one signal: batches are over
	steps  health.Progress // of the caller of Age

	loop loop // only the goroutine of Run touches it
	mu   guarded

	published, dead, retried atomic.Uint64
}

// A loop is the state of the loop that publishes.
type loop struct {
	batches []*delivery.Batch           // received and not published yet
	faults  uint64                      // when the last batch was begun
	took    time.Time                   // when they were received, zero without a tracer
	counts  map[change.Partition]*count // of messages
	leases  map[change.Partition]lease  // of the batch that is being encoded
	outage  outage
}

// guarded is what the loop, the target's reports, acknowledgements and operators share, under its
// lock.
type guarded struct {
	sync.Mutex
	restart  context.CancelCauseFunc // ends the present loop, nil while none runs
	backlog  int                     // received batches that are not published yet
	faults   uint64                  // counts failures, after which a target may still have a message
	step     uint64                  // counts the progress of the oldest batch, and the attempts after a failure
	flights  []*flight               // batches that are not over, in order
	ack      uint64                  // the last batch that is over and not acknowledged
	underWay int                     // messages
	failed   bool                    // a message waits for another attempt
	paused   bool
	resumed  bool // all failed messages must be tried again, whatever their outcome
	halted   error
	parked   map[string]closed // destinations that wait
	stalled  bool
	moved    time.Time     // when the target last acknowledged something, or had nothing to acknowledge
	slow     time.Duration // how long the target takes to acknowledge something, at most, of late
	waited   time.Time     // when a message last waited for the target, at the last check
	silent   time.Time     // when the target stopped acknowledging waiting messages, zero while it acknowledges
	last     error
}

// An outage is a series of failed attempts.
type outage struct {
	since, logged time.Time
	attempts      int
}

// A flight is a batch on its way.
type flight struct {
	shared   *streamer.Shared
	seq      uint64
	messages []*Message
	left     int // messages that are not over
	span     span
	pages    []*page // which nothing needs once it is over, and all before it
	faults   uint64  // when it was begun
}

// New returns a Sink. Run runs it and closes the target.
func New(cfg Config, shared *streamer.Shared, target Target) *Sink {
	cfg.Attempts, cfg.StallAfter = cmp.Or(cfg.Attempts, 5), cmp.Or(cfg.StallAfter, 10*time.Second)
	cfg.AckTimeout = cmp.Or(cfg.AckTimeout, 10*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)).With("sink", cfg.Name)
	s := &Sink{
		cfg: cfg, shared: shared, target: target, encode: newEncoder(cfg), metrics: cfg.Metrics.of(cfg.Name),
		signal: make(chan struct{}, 1), acked: make(chan struct{}, 1), loop: loop{counts: make(map[change.Partition]*count), leases: make(map[change.Partition]lease)},
	}
	s.mu.moved = time.Now()
	return s
}

// Run publishes until the subscriber's session ends, and returns the reason unless that was
// planned.
func (s *Sink) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.endSpans()
	defer s.close()
	defer cancel(nil)
	s.checkNamespaces(ctx)
	received := make(chan []*delivery.Batch)
	wg.Go(func() {
		for {
			batches, err := s.shared.Receive(ctx)
			if err != nil {
				cancel(err)
				return
			}
			s.mu.Lock()
			s.mu.backlog += len(batches)
			s.mu.Unlock()
			select {
			case received <- batches:
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Go(func() { s.runAcks(ctx) })
	wg.Go(func() { s.watch(ctx) })
	return planned(s.runLoops(ctx, received))
}

// run publishes received batches until the context ends.
func (s *Sink) run(ctx context.Context, received <-chan []*delivery.Batch) error {
	for {
		for len(s.loop.batches) > 0 {
			if err := s.take(ctx, s.loop.batches[0]); err != nil {
				return err
			}
		}
		s.target.Flush()
		if err := s.recover(ctx); err != nil {
			return err
		}
		from := received
		if s.rests() {
			from = nil
		}
		select {
		case s.loop.batches = <-from:
			s.loop.took = s.now()
		case <-s.signal:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// planned returns nil for a planned end of a session.
func planned(err error) error {
	if errors.Is(err, delivery.ErrClosed) || errors.Is(err, context.Canceled) || fault.Of(err) == fault.NodeStopping {
		return nil
	}
	return err
}

func (s *Sink) close() {
	s.target.Close()
	if s.cfg.DeadLetter != nil {
		s.cfg.DeadLetter.Close()
	}
}

// take publishes a batch.
func (s *Sink) take(ctx context.Context, b *delivery.Batch) error {
	for s.rests() { // batches that were received together with a failed one
		if err := s.await(ctx); err != nil {
			return err
		}
		if err := s.recover(ctx); err != nil {
			return err
		}
	}
	if s.cfg.Stall != nil {
		if s.cfg.Stall(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if b.Loss != nil && b.Loss.Kind == delivery.Rewound {
		if err := s.shared.AwaitPlaces(ctx); err != nil {
			return err
		}
	}
	f := &flight{shared: s.shared, seq: b.Seq, span: s.beginSpan(ctx, b)}
	var err error
	f.faults = s.fresh()
	if f.messages, err = s.messages(b); err != nil {
		f.span.fail(err)
		return err
	}
	f.pages = slices.Clone(s.encode.full)
	f.left = len(f.messages)
	report := s.done
	for _, m := range f.messages {
		m.flight = f
		m.report = report
	}
	alone := b.Loss != nil // earlier messages are published before the loss, later ones after it
	if alone {
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	s.loop.batches = s.loop.batches[1:]
	s.shared.Session().Recycle(b) // the messages have copies of its events
	f.span.published(len(f.messages))
	s.mu.Lock()
	s.mu.backlog--
	if len(s.mu.flights) == 0 {
		s.mu.step++
	}
	s.mu.flights = append(s.mu.flights, f)
	s.finish()
	s.mu.Unlock()
	s.publish(ctx, f.messages)
	if alone {
		return s.settle(ctx)
	}
	return nil
}

// fresh has the messages of the next batch made in other pages than those of before the last
// failure, and returns the number of failures.
func (s *Sink) fresh() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.encode.full = s.encode.full[:0]
	if s.loop.faults != s.mu.faults {
		s.loop.faults = s.mu.faults
		s.encode.page = nil
	}
	return s.mu.faults
}

// settle waits until nothing is under way, recovering from failures.
func (s *Sink) settle(ctx context.Context) error {
	s.target.Flush()
	for {
		s.mu.Lock()
		open := len(s.mu.flights)
		s.mu.Unlock()
		if open == 0 {
			return nil
		}
		if err := s.await(ctx); err != nil {
			return err
		}
		if err := s.recover(ctx); err != nil {
			return err
		}
	}
}

// publish passes messages to the target, except those that wait.
func (s *Sink) publish(ctx context.Context, messages []*Message) {
	for i, m := range messages {
		switch s.begin(m) {
		case waiting:
			s.abandon(messages[i:])
			return
		case underWay:
			s.target.Publish(ctx, m)
		case parked, over:
		}
	}
}

// begin notes that a message is under way, unless another message has failed, or its destination
// waits, and returns its state.
func (s *Sink) begin(m *Message) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failed || s.parks(m) {
		return m.state
	}
	if s.mu.underWay == 0 {
		s.mu.moved = time.Now()
	}
	m.state = underWay
	m.alone = false
	s.mu.underWay++
	s.attempt(m)
	return underWay
}

// abandon leaves messages to the recovery.
func (s *Sink) abandon(messages []*Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		if !s.parks(m) {
			m.err = ErrEarlier
		}
	}
}

// done processes the outcome of an attempt.
func (s *Sink) done(m *Message, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.flight == nil {
		return // of an ended loop: the message is published again
	}
	s.mu.underWay--
	m.err = err
	if err != nil {
		s.mu.faults++
		s.mu.step++
		m.state = waiting
		s.mu.failed = true
		if !errors.Is(err, ErrEarlier) {
			s.mu.last = err
			s.fails(err)
		}
		wake.Notify(s.signal)
		return
	}
	s.acknowledged()
	s.end(m)
	if s.mu.failed && s.mu.underWay == 0 {
		wake.Notify(s.signal)
	}
}

// end ends a message. The caller holds the mutex.
func (s *Sink) end(m *Message) {
	m.state = over
	m.flight.left--
	if len(s.mu.flights) > 0 && m.flight == s.mu.flights[0] {
		s.mu.step++
	}
	if m.flight.left == 0 && !s.mu.failed {
		s.finish()
	}
}

// finish releases the finished batches at the front for acknowledgement. The caller holds the
// mutex. After a failure it releases none, because a finished message after the failed one may be
// published again.
func (s *Sink) finish() {
	n := 0
	for n < len(s.mu.flights) && s.mu.flights[n].left == 0 {
		s.mu.ack = s.mu.flights[n].seq
		s.mu.flights[n].span.acknowledged()
		if s.mu.flights[n].faults == s.mu.faults {
			s.encode.recycle(s.mu.flights[n].pages)
		}
		n++
	}
	if n == 0 {
		return
	}
	s.mu.flights = slices.Delete(s.mu.flights, 0, n)
	s.mu.step++
	wake.Notify(s.acked)
	if len(s.mu.flights) == 0 {
		wake.Notify(s.signal)
	}
}

// runAcks acknowledges batches until the context ends.
func (s *Sink) runAcks(ctx context.Context) {
	for {
		select {
		case <-s.acked:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		seq := s.mu.ack
		s.mu.Unlock()
		if err := s.shared.Ack(seq); err != nil {
			s.cfg.Logger.Error("acknowledging failed", "error", err) // cannot happen: the batch was received
		}
	}
}

// rests reports whether the sink publishes nothing new: a message has failed, one waits that
// nothing may overtake, or the sink is paused or halted.
func (s *Sink) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, everythingWaits := s.mu.parked[""]
	return everythingWaits || s.holds()
}

// holds reports whether the sink attempts nothing but what has failed. The caller holds the mutex.
func (s *Sink) holds() bool { return s.mu.failed || s.mu.paused || s.mu.halted != nil }

// await waits for a signal.
func (s *Sink) await(ctx context.Context) error {
	select {
	case <-s.signal:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// backoff returns the wait between attempts to reach an unreachable target.
func backoff() retry.Backoff {
	return retry.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}
}

// recover publishes failed messages again, until all have succeeded or the sink halts.
func (s *Sink) recover(ctx context.Context) error {
	s.reopen(time.Now())
	for failures := 0; ; {
		if first, _ := s.again(); first == nil {
			return nil
		}
		if err := s.quiet(ctx); err != nil {
			return err
		}
		first, again := s.again()
		if first == nil { // messages that were under way may have failed, too
			return nil
		}
		s.mu.Lock()
		s.mu.step++
		idle := s.mu.paused || s.mu.halted != nil || s.mu.resumed // a change of these is signaled
		s.mu.Unlock()
		if idle {
			return nil
		}
		switch settled, err := s.judge(ctx, first); {
		case err != nil:
			return err
		case settled:
			failures = 0
			continue
		}
		failed := first.err != nil && !errors.Is(first.err, ErrEarlier)
		if failures > 0 || failed && !first.isAmong() {
			failures++
			if err := backoff().Wait(ctx, failures); err != nil {
				return err
			}
		}
		retry := s.beginRetry(ctx, first)
		err := s.cfg.Breaker.Do(func() error { return s.try(ctx, first) })
		retry.end(err)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			if errors.Is(err, breaker.ErrOpen) { // nothing was tried: wait before the next time
				failures = max(failures, 1)
			}
			s.complain(err)
			continue
		}
		failures = 0
		s.recovered()
		if len(again) > 1 && again[1].isAmong() {
			continue // each of them alone, or they would be refused together again
		}
		s.repeat(ctx, again[1:])
	}
}

// isAmong reports whether the message was refused together with others, one of which may be the
// cause.
func (m *Message) isAmong() bool {
	refused, is := errors.AsType[*RefusedError](m.err)
	return is && refused.Among && !m.alone
}

// summaryEvery is the time between the log lines of an outage.
const summaryEvery = time.Minute

// complain logs an error that will be retried: the first one of an outage, and then a summary every
// minute.
func (s *Sink) complain(err error) {
	if errors.Is(err, breaker.ErrOpen) {
		return
	}
	now := time.Now()
	o := &s.loop.outage
	o.attempts++
	switch {
	case o.attempts == 1:
		o.since = now
		o.logged = now
		s.cfg.Logger.Warn("publishing failed, it is repeated", "error", err)
	case now.Sub(o.logged) >= summaryEvery:
		o.logged = now
		s.cfg.Logger.Warn("publishing still fails", "for", now.Sub(o.since).Round(time.Second), "attempts", o.attempts, "error", err)
	}
}

// recovered logs the end of an outage.
func (s *Sink) recovered() {
	if o := s.loop.outage; o.attempts > 0 {
		s.cfg.Logger.Info("publishing recovered", "after", time.Since(o.since).Round(time.Second), "attempts", o.attempts)
	}
	s.loop.outage = outage{}
}

// quiet waits until nothing is under way.
func (s *Sink) quiet(ctx context.Context) error {
	s.target.Flush()
	for {
		s.mu.Lock()
		busy := s.mu.underWay > 0
		s.mu.Unlock()
		if !busy {
			s.target.Flush()
			return nil
		}
		if err := s.await(ctx); err != nil {
			return err
		}
	}
}

// again returns the messages to publish again, in order, and the first of them; nil if none has
// failed. It drops messages of partitions that the node has lost. A message that followed a failed
// one in its order is published again, even if it was acknowledged.
func (s *Sink) again() (first *Message, again []*Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropParked()
	if !s.mu.failed {
		s.mu.resumed = false
		s.opened()
		return nil, nil
	}
	failed := make(map[order]bool)
	for _, f := range s.mu.flights {
		for _, m := range f.messages {
			if m.state == underWay || m.state == parked {
				continue
			}
			if m.state == waiting && s.mu.resumed {
				m.err = ErrEarlier
			}
			if m.state == waiting {
				if !m.owned() {
					m.state = over
					f.left--
					continue
				}
				failed[s.order(m)] = true
			}
			if len(failed) == 0 || !failed[s.order(m)] {
				continue
			}
			again = append(again, m)
		}
	}
	s.mu.resumed = false
	if len(again) > 0 {
		return again[0], again
	}
	if s.mu.underWay == 0 {
		s.mu.failed = false
		s.finish()
		s.opened()
	}
	return nil, nil
}

// judge handles a message that the target has refused: it tries again, writes the message as a dead
// letter (settled), has it wait, or halts the sink.
func (s *Sink) judge(ctx context.Context, m *Message) (settled bool, err error) {
	if errors.Is(m.err, ErrGone) {
		s.halt(m.err)
		return true, nil
	}
	refused, is := errors.AsType[*RefusedError](m.err)
	if !is {
		return false, nil
	}
	if m.isAmong() {
		return false, nil
	}
	m.attempts++
	cause := m.err
	isClosed := refused.Destination && s.triesAgain(m)
	if m.attempts < s.cfg.Attempts && !refused.Final && !isClosed {
		return false, nil
	}
	err = fmt.Errorf("change %s of %s was refused %d times: %w", m.ID, m.Namespace(), m.attempts, cause)
	switch {
	case refused.Destination:
		m.attempts = 0
		s.wait(m, err)
		return true, nil
	case s.cfg.DeadLetter == nil:
		s.refuse(m, err)
		return true, nil
	}
	err = One(ctx, s.cfg.DeadLetter, m)
	letter, refuses := errors.AsType[*RefusedError](err)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case errors.Is(err, ErrReplaced): // it is dropped
		return true, nil
	case err != nil && (errors.Is(err, ErrGone) || refuses && !letter.Destination):
		s.halt(fmt.Errorf("write dead letter: %w", err))
		return true, nil
	case err != nil: // it has had its attempts: the next refusal is a dead letter
		s.wait(m, fmt.Errorf("write dead letter: %w", err))
		return true, nil
	}
	s.dead.Add(1)
	s.metrics.dead.Inc()
	s.cfg.Logger.Warn("change was refused and is a dead letter", "id", m.ID, "namespace", m.DB+"."+m.Coll, "attempts", m.attempts, "error", cause)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(m)
	return true, nil
}

// try publishes a message alone.
func (s *Sink) try(ctx context.Context, m *Message) error {
	s.mu.Lock()
	s.attempt(m)
	m.alone = true
	s.mu.Unlock()
	err := One(ctx, s.target, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.err = err; err != nil {
		s.mu.faults++
		s.mu.last = err
		s.fails(err)
		return err
	}
	s.acknowledged()
	s.end(m)
	return nil
}

// acknowledged notes that the target has acknowledged a message. The caller holds the mutex.
func (s *Sink) acknowledged() {
	s.published.Add(1)
	s.metrics.published.Inc()
	now := time.Now()
	if !s.mu.failed {
		s.mu.slow = max(now.Sub(s.mu.moved), s.mu.slow*9/10)
		s.mu.last = nil
	}
	s.mu.moved = now
	s.mu.silent = time.Time{}
}

// fails notes when the target stopped acknowledging. A target that refuses something still answers.
// The caller holds the mutex.
func (s *Sink) fails(err error) {
	_, refused := errors.AsType[*RefusedError](err)
	switch {
	case refused, errors.Is(err, ErrReplaced), errors.Is(err, context.Canceled):
	case s.mu.silent.IsZero():
		s.mu.silent = time.Now()
	}
}

// attempt notes that the sink passes a message to the target; every time but the first is a retry.
// The caller holds the mutex.
func (s *Sink) attempt(m *Message) {
	if m.tried {
		s.retried.Add(1)
		s.metrics.retries.Inc()
	}
	m.tried = true
}

// repeat publishes messages again, and lets new ones follow. Finished messages need another attempt
// if an earlier one of their partition has failed.
func (s *Sink) repeat(ctx context.Context, messages []*Message) {
	s.mu.Lock()
	for _, m := range messages {
		if m.state == over {
			m.flight.left++
		}
		m.state = waiting
	}
	s.mu.failed = s.mu.resumed // what an operator has released meanwhile needs an attempt, too
	s.finish()
	s.mu.Unlock()
	s.publish(ctx, messages)
	s.target.Flush()
}

// Pause stops publishing until Resume. Messages under way are still acknowledged.
func (s *Sink) Pause() { s.hold(func() { s.mu.paused = true }) }

// Resume publishes again, also after the sink has halted.
func (s *Sink) Resume() {
	s.hold(func() {
		s.mu.paused = false
		s.mu.halted = nil
		s.mu.moved = time.Now()
		s.unpark()
		s.mu.resumed = true
	})
}

// hold changes the state that decides whether the sink publishes.
func (s *Sink) hold(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.stall()
	wake.Notify(s.signal)
}

// stall says whether the sink publishes. The caller holds the mutex.
func (s *Sink) stall() {
	s.shared.Stall(s.mu.paused || s.mu.halted != nil || len(s.mu.parked) > 0 || s.mu.stalled)
}

// checkNamespaces halts a sink whose namespaces cannot have changes, and tells operators which ones
// do not exist yet.
func (s *Sink) checkNamespaces(ctx context.Context) {
	if s.cfg.CheckNamespaces == nil {
		return
	}
	missing, err := s.cfg.CheckNamespaces(ctx)
	if err != nil {
		s.halt(err)
	}
	posted, _ := s.cfg.Board.Since(0)
	for _, text := range missing {
		text = fmt.Sprintf("sink %s: %s", s.cfg.Name, text)
		if slices.ContainsFunc(posted, func(n notice.Notice) bool { return n.Kind == notice.KindCollectionMissing && n.Text == text }) {
			continue // by another node, or before a restart
		}
		s.cfg.Board.Post(notice.Notice{
			Channel: notice.Health, Kind: notice.KindCollectionMissing, Level: notice.Warning, Text: text,
			Fields: map[string]any{"sink": s.cfg.Name, "code": string(fault.MongoMissing)},
		})
	}
}

// halt stops publishing until an operator resumes the sink: its status says why.
func (s *Sink) halt(err error) {
	s.cfg.Logger.Warn("sink halted", "error", err)
	s.hold(func() { s.mu.halted = err })
}
