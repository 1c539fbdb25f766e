package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/wake"
)

// WriterConfig configures a Writer.
type WriterConfig struct {
	Policy Policy
	// SaveTimeout bounds one round's save. Defaults to 5 s.
	SaveTimeout time.Duration
	// Fingerprint and By are stored in every checkpoint; Partitions is N.
	Fingerprint, By string
	Partitions      int
	// Coverage is the coverage of the node's streams, for every checkpoint.
	Coverage change.Coverage
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// Progress is the current position of a subscriber.
type Progress struct {
	// Checkpoint has the key, the positions, the generation, and the claim or the epoch.
	Checkpoint
	// Events counts the acknowledged events. It makes a checkpoint due earlier.
	Events uint64
}

// A Source is a subscriber whose checkpoints are saved.
type Source interface {
	// Progress returns the current progress, one for each key. It must not block.
	Progress() []Progress
	// Refused reports that the store has rejected a checkpoint: permanently with ErrFenced, or
	// ErrRewound with the outdated generation. The key is not saved again until Progress returns
	// another generation, claim or epoch. Any other error is of the kind RowsOwn: this checkpoint
	// cannot be saved, and is tried again by and by. It must not block.
	Refused(c Checkpoint, err error)
}

// A Writer saves the checkpoints of a node's subscribers in rounds, in the background.
type Writer struct {
	cfg      WriterConfig
	policy   Policy
	coverage *change.Coverage // as checkpoints keep it
	store    Store
	gaps     GapKeeper
	logger   *slog.Logger
	metrics  metrics
	saving   *health.Loop
	hurry    chan struct{} // holds one signal: a subscriber has reached its number of events

	round chan struct{} // held during a save
	pace  pace
	mu    struct {
		sync.Mutex
		keepers map[*Keeper]struct{}
		asked   map[*Keeper]*asked
		lost    []*Gap        // not in the gap log yet, at most MaxGaps; never changed
		last    time.Time     // when the last round began
		failing bool          // the last round failed
		idle    time.Duration // how long a checkpoint waits that advances without events
	}
}

// NewWriter returns a Writer. gaps receives the gaps passed to Lost.
func NewWriter(cfg WriterConfig, store Store, gaps GapKeeper) *Writer {
	cfg.SaveTimeout = cmp.Or(cfg.SaveTimeout, 5*time.Second)
	w := &Writer{
		cfg: cfg, policy: cfg.Policy.withDefaults(), coverage: cfg.Coverage.Bounded(), store: store, gaps: gaps,
		logger:  cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		metrics: newMetrics(cfg.Registerer),
		saving:  health.NewLoop(),
		hurry:   make(chan struct{}, 1), round: make(chan struct{}, 1),
	}
	w.pace.rate = w.policy.IdentityRate
	w.mu.keepers = make(map[*Keeper]struct{})
	w.mu.asked = make(map[*Keeper]*asked)
	w.mu.idle = w.policy.IdleInterval
	return w
}

// SetReach sets the oplog window, 0 if unknown: a checkpoint that advances without events is saved
// at least every quarter of it.
func (w *Writer) SetReach(length time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.idle = w.policy.IdleInterval
	if length > 0 {
		w.mu.idle = min(w.mu.idle, length/4)
	}
}

// Lost records a gap in the gap log before any checkpoint passes it. It never blocks. While the gap
// log cannot be written, at most MaxGaps wait: beyond that the last one grows up to the end of the
// new one.
func (w *Writer) Lost(g Gap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.mu.lost); n < MaxGaps {
		w.mu.lost = append(w.mu.lost, &g)
	} else {
		both := w.mu.lost[n-1].joined(g)
		w.mu.lost[n-1] = &both
	}
	wake.Notify(w.hurry)
}

// A Keeper saves the checkpoints of one Source.
type Keeper struct {
	writer  *Writer
	source  Source
	events  atomic.Int64   // acknowledged ever
	settled atomic.Int64   // of these, those that are completely saved; changed under the writer's mutex
	saved   map[Key]*saved // guarded by the writer's mutex, like the following
	room    chan struct{}  // closed after a save; nil while no caller waits
	ended   bool
}

// A saved is the last saved state of a key.
type saved struct {
	checkpoint Checkpoint
	events     uint64
	at         time.Time // when it was saved, or last unchanged
	shown      time.Time // when the store last received the key
	begun      bool      // something was saved since the key appeared
	refused    bool
	failed     bool      // the store failed the last save
	rests      time.Time // until then a checkpoint that cannot be saved is not tried again
}

// Keep saves the source's checkpoints from now on; begins are the stored ones.
func (w *Writer) Keep(s Source, begins ...Checkpoint) *Keeper {
	k := &Keeper{writer: w, source: s, saved: make(map[Key]*saved)}
	now := time.Now()
	for _, c := range begins {
		k.saved[c.Key] = &saved{checkpoint: c, at: now, shown: now}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.keepers[k] = struct{}{}
	return k
}

// Stands says which checkpoint the store has of a key before the first save: the subscriber is
// saved once it has moved from there.
func (k *Keeper) Stands(c Checkpoint) {
	now := time.Now()
	k.writer.locked(func() { k.saved[c.Key] = &saved{checkpoint: c, at: now.Add(-k.writer.policy.Interval), shown: now} })
}

// Placed says that the subscriber has been moved to where it Stands. Acknowledgements after that
// position are void, because these changes come again: Run removes them.
func (k *Keeper) Placed() { wake.Notify(k.writer.hurry) }

// oldest returns when that of its checkpoints was saved that was saved longest ago. The caller
// holds the writer's mutex.
func (k *Keeper) oldest() (at time.Time) {
	for _, s := range k.saved {
		if at.IsZero() || s.at.Before(at) {
			at = s.at
		}
	}
	return at
}

// Passed counts events that have been acknowledged. It never blocks.
func (k *Keeper) Passed(n int) {
	count := int64(k.writer.policy.EventCount)
	if now := k.events.Add(int64(n)) - k.settled.Load(); now/count != (now-int64(n))/count {
		wake.Notify(k.writer.hurry)
	}
}

// Room returns nil while the subscriber may acknowledge more events, otherwise a channel that is
// closed when something has been saved, or when nothing is left to save.
func (k *Keeper) Room() <-chan struct{} {
	if !k.full() {
		return nil
	}
	k.writer.mu.Lock()
	defer k.writer.mu.Unlock()
	if !k.full() {
		return nil
	}
	if k.room == nil {
		k.room = make(chan struct{})
	}
	return k.room
}

// full reports whether as many events are not saved as may be.
func (k *Keeper) full() bool {
	return k.events.Load()-k.settled.Load() >= int64(k.writer.policy.MaxUnsaved)
}

// An asked is a keeper to save in the next round.
type asked struct {
	reason Reason
	saved  chan struct{} // closed when it has been, or has failed
	err    error
}

// Save saves the present progress, in one round with all concurrent callers, so that thousands that
// leave together do not wait for each other's rounds. Its error is that of the keeper's own
// checkpoints, and of the gap log.
func (k *Keeper) Save(ctx context.Context, reason Reason) error {
	w := k.writer
	a := &asked{reason: reason, saved: make(chan struct{})}
	w.mu.Lock()
	if before := w.mu.asked[k]; before != nil {
		a = before
	}
	w.mu.asked[k] = a
	w.mu.Unlock()
	select {
	case <-a.saved:
		return a.err
	case w.round <- struct{}{}:
		defer func() { <-w.round }()
	case <-ctx.Done():
		w.locked(func() { delete(w.mu.asked, k) })
		return context.Cause(ctx)
	}
	w.mu.Lock()
	all := w.mu.asked
	w.mu.asked = make(map[*Keeper]*asked)
	w.mu.Unlock()
	errs, err := w.saveRound(ctx, time.Now(), slices.Collect(maps.Keys(all)), func(of *Keeper, _ Progress, _ *saved) (Reason, bool) { return all[of].reason, true })
	for of, asks := range all {
		asks.err = errors.Join(errs[of], err)
		close(asks.saved)
	}
	return a.err // perhaps of another round
}

// Refused reports whether the store has refused a checkpoint as that of an earlier owner or
// generation, so that the source cannot save again.
func (k *Keeper) Refused() bool {
	k.writer.mu.Lock()
	defer k.writer.mu.Unlock()
	for _, s := range k.saved {
		if s.refused {
			return true
		}
	}
	return false
}

// End removes the keeper; its checkpoints are no longer saved.
func (k *Keeper) End() {
	k.writer.mu.Lock()
	defer k.writer.mu.Unlock()
	k.ended = true
	delete(k.writer.mu.keepers, k)
}

// Run saves as the policy requires until the context ends. Flush saves the last checkpoints.
func (w *Writer) Run(ctx context.Context) {
	timer := time.NewTimer(w.policy.MinInterval)
	defer timer.Stop()
	wait := func(d time.Duration) {
		timer.Reset(d)
		w.saving.RestFor(d)
	}
	defer w.saving.Rest()
	var again time.Time // after a round that the store failed
	for {
		select {
		case <-timer.C:
		case <-w.hurry:
		case <-ctx.Done():
			return
		}
		w.saving.Work()
		now := time.Now()
		if left := w.lastRound().Add(w.policy.MinInterval).Sub(now); left > 0 {
			wait(left)
			continue
		}
		if left := again.Sub(now); left > 0 { // even if urgent: the store has just failed
			wait(left)
			continue
		}
		if next := w.nextDue(now); next.After(now) {
			wait(next.Sub(now))
			continue
		}
		w.saving.RestFor(w.cfg.SaveTimeout)
		if w.saveDue(ctx, now) != nil { // which has logged it
			rest := max(w.policy.MinInterval, retryAfter)
			again = time.Now().Add(rest)
			wait(rest)
			continue
		}
		wait(w.policy.MinInterval)
	}
}

// saveDue saves due checkpoints, and those that join their round.
func (w *Writer) saveDue(ctx context.Context, now time.Time) error {
	idle := w.idle()
	return w.save(ctx, now, func(_ *Keeper, p Progress, s *saved) (Reason, bool) {
		events := p.Events - min(p.Events, s.events)
		due := !s.rests.After(now) && (!w.policy.due(s.at, events, idle).After(now) || now.Sub(s.shown) >= idle || w.policy.joins(s.at, now, events))
		return w.policy.reason(events), due && w.owes(p.Checkpoint, now) == 0
	})
}

// owes returns how long a checkpoint waits because it is large, and its identity has not paid for
// earlier ones.
func (w *Writer) owes(c Checkpoint, now time.Time) time.Duration {
	wait := w.pace.debt(c.Claim.By, now)
	if wait > 0 && c.Large() == 0 {
		return 0
	}
	return wait
}

// Age returns how long Run has made no progress although it had work. Waiting for a store that does
// not answer counts as progress for at most the timeout of a save.
func (w *Writer) Age() time.Duration { return w.saving.Age() }

// Flush saves everything that has advanced. Its error joins the failures of the store: a checkpoint
// that cannot be saved holds up no others.
func (w *Writer) Flush(ctx context.Context, reason Reason) error {
	return w.save(ctx, time.Now(), func(*Keeper, Progress, *saved) (Reason, bool) { return reason, true })
}

func (w *Writer) lastRound() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.last
}

func (w *Writer) idle() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.idle
}

// nextDue returns when the next checkpoint is due, and removes subscribers that are completely
// saved.
func (w *Writer) nextDue(now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.lost) > 0 {
		return now
	}
	next := now.Add(w.policy.Interval)
	for k := range w.mu.keepers {
		events := k.events.Load() // before the progress, which has at least these
		progress := k.source.Progress()
		unsaved := len(progress) == 0 // without a claim, it is unknown
		for _, p := range progress {
			s := k.of(p, now)
			if s.refused {
				unsaved = true
				continue
			}
			if s.rests.After(now) {
				unsaved = true
				if s.rests.Before(next) {
					next = s.rests
				}
				continue
			}
			if !moved(s.checkpoint, p.Checkpoint) {
				if due := s.shown.Add(w.mu.idle); due.Before(next) && w.owes(p.Checkpoint, now) == 0 {
					next = due
				}
				continue
			}
			unsaved = true
			due := w.policy.due(s.at, p.Events-min(p.Events, s.events), w.mu.idle)
			if paid := now.Add(w.owes(p.Checkpoint, now)); paid.After(due) {
				due = paid
			}
			if due.Before(next) {
				next = due
			}
		}
		if !unsaved && events > k.settled.Load() { // they were saved, or the subscriber was moved back and gets them again
			k.settle(events)
		}
	}
	return next
}

// of returns the last saved state of a key. The caller holds the mutex.
func (k *Keeper) of(p Progress, now time.Time) *saved {
	s := k.saved[p.Key]
	switch {
	case s == nil:
		s = &saved{at: now.Add(-k.writer.policy.Interval), shown: now} // one that begins is saved soon
		k.saved[p.Key] = s
	case s.refused && !s.isOwnedAs(p):
		s.refused = false
	}
	return s
}

// isOwnedAs reports whether a progress is of the same generation, claim and epoch.
func (s *saved) isOwnedAs(p Progress) bool {
	c := &s.checkpoint
	return c.Generation == p.Generation && c.Claim.Number == p.Claim.Number && c.Epoch == p.Epoch
}

// moved reports whether the subscriber has moved since a checkpoint was saved.
func moved(before, now Checkpoint) bool {
	if now.Position.After(before.Position) {
		return true
	}
	for p, at := range now.Positions {
		if at.After(before.In(p)) {
			return true
		}
	}
	return now.Generation != before.Generation || now.Epoch != before.Epoch || !slices.EqualFunc(before.Snapshots, now.Snapshots, sameProgress)
}

// A candidate is a checkpoint of a round before it is saved.
type candidate struct {
	keeper     *Keeper
	checkpoint Checkpoint
	events     uint64
}

// save saves the selected checkpoints that have advanced. It waits for a concurrent save until the
// context ends.
func (w *Writer) save(ctx context.Context, now time.Time, choose func(*Keeper, Progress, *saved) (Reason, bool)) error {
	select {
	case w.round <- struct{}{}:
		defer func() { <-w.round }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w.mu.Lock()
	keepers := slices.Collect(maps.Keys(w.mu.keepers))
	if w.pace.tight(now) { // those of an identity take turns
		slices.SortFunc(keepers, func(a, b *Keeper) int { return a.oldest().Compare(b.oldest()) })
	}
	w.mu.last = now
	w.mu.Unlock()
	errs, err := w.saveRound(ctx, now, keepers, choose)
	for _, of := range errs {
		if KindOf(of) != RowsOwn {
			err = errors.Join(err, of)
		}
	}
	return err
}

// saveRound saves the selected checkpoints of keepers in one call of the store. It returns the
// first failure of each keeper, those of the store before others, and that of the gap log.
func (w *Writer) saveRound(
	ctx context.Context, now time.Time, keepers []*Keeper, choose func(*Keeper, Progress, *saved) (Reason, bool),
) (errs map[*Keeper]error, unrecorded error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.SaveTimeout)
	defer cancel()
	round, taken := w.collect(now, keepers, choose)
	unrecorded = w.record(ctx) // not before: no collected entry is later than the gaps found by now
	if unrecorded != nil {
		round = w.withhold(round, taken)
	}
	if len(round) == 0 {
		if unrecorded != nil {
			w.report([]error{unrecorded})
		}
		return nil, unrecorded
	}
	checkpoints := make([]Checkpoint, len(round))
	for i := range round {
		checkpoints[i] = round[i].checkpoint
	}
	results := w.store.Save(ctx, checkpoints)
	w.metrics.latency.Observe(time.Since(now).Seconds())
	var failed []error
	errs = make(map[*Keeper]error)
	for i, c := range round {
		switch err := results[i]; {
		case err == nil:
			w.metrics.saved.Inc()
			w.note(c, now, false)
		case errors.Is(err, ErrFenced), errors.Is(err, ErrRewound):
			w.logger.Warn("checkpoint rejected", "checkpoint", c.checkpoint.Key.String(), "error", err)
			w.note(c, now, true)
			c.keeper.source.Refused(c.checkpoint, err)
		case KindOf(err) == RowsOwn:
			w.metrics.errors.Inc()
			w.logger.Warn("checkpoint cannot be saved, its subscriber would get more again", "checkpoint", c.checkpoint.Key.String(), "error", err)
			w.rest(c, now.Add(rowRest))
			delete(taken, c.keeper)
			errs[c.keeper] = cmp.Or(errs[c.keeper], err)
			c.keeper.source.Refused(c.checkpoint, err)
		case KindOf(err) == CallersOwn: // the round was cancelled
			delete(taken, c.keeper)
			errs[c.keeper] = err
		default:
			w.metrics.errors.Inc()
			w.fail(c)
			delete(taken, c.keeper)
			errs[c.keeper] = err
			failed = append(failed, err)
		}
	}
	for k, events := range taken {
		w.locked(func() { k.settle(events) })
	}
	if unrecorded != nil {
		failed = append(failed, unrecorded)
	}
	w.report(failed)
	return errs, unrecorded
}

// withhold returns the candidates that pass none of the gaps that the gap log does not have yet.
// The others wait, and with them the events of their keepers.
func (w *Writer) withhold(round []candidate, taken map[*Keeper]int64) []candidate {
	gaps := w.unrecorded()
	return slices.DeleteFunc(round, func(c candidate) bool {
		waits := passes(c.checkpoint, gaps)
		if waits {
			delete(taken, c.keeper)
			w.fail(c)
		}
		return waits
	})
}

// record writes the gaps that are not in the gap log yet.
func (w *Writer) record(ctx context.Context) error {
	for _, g := range w.unrecorded() {
		if err := w.gaps.AddGap(ctx, *g); err != nil {
			return err
		}
		w.locked(func() {
			if w.mu.lost[0] == g { // it may have grown meanwhile
				w.mu.lost = w.mu.lost[1:]
			}
		})
	}
	return nil
}

func (w *Writer) unrecorded() []*Gap {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mu.lost)
}

// passes reports whether a checkpoint is after one of the gaps.
func passes(c Checkpoint, gaps []*Gap) bool {
	for _, g := range gaps {
		if c.Position.After(g.From) {
			return true
		}
		for _, at := range c.Positions {
			if at.After(g.From) {
				return true
			}
		}
	}
	return false
}

// collect makes the checkpoints of a round, and counts the events of their keepers. One that has
// not moved counts as saved, but is shown to the store now and then: so a subscriber that does
// nothing hears of a rewind, too.
func (w *Writer) collect(now time.Time, keepers []*Keeper, choose func(*Keeper, Progress, *saved) (Reason, bool)) (round []candidate, taken map[*Keeper]int64) {
	taken = make(map[*Keeper]int64)
	for _, k := range keepers {
		events := k.events.Load() // before the progress, which has at least these
		progress := k.source.Progress()
		w.mu.Lock()
		current := make(map[Key]struct{}, len(progress))
		for _, p := range progress {
			s := k.of(p, now)
			current[p.Key] = struct{}{}
			w.mu.Unlock()
			reason, chosen := choose(k, p, s)
			w.mu.Lock()
			switch {
			case !chosen || s.refused || k.ended:
				continue
			case !moved(s.checkpoint, p.Checkpoint):
				s.at = now
				s.events = p.Events
				if now.Sub(s.shown) < w.mu.idle {
					continue
				}
			}
			if reason.routine() && !s.begun {
				reason = ReasonBegin
			}
			c := p.Checkpoint
			c.Partitions = w.cfg.Partitions
			c.Fingerprint = w.cfg.Fingerprint
			c.At = now
			c.By = w.cfg.By
			c.Reason = reason
			c.Coverage = w.coverage
			w.pace.charge(c.Claim.By, c.Large(), now)
			round = append(round, candidate{keeper: k, checkpoint: c, events: p.Events})
			taken[k] = events
		}
		maps.DeleteFunc(k.saved, func(key Key, _ *saved) bool { _, there := current[key]; return !there })
		w.mu.Unlock()
	}
	return round, taken
}

// note takes a candidate for saved, or for refused.
func (w *Writer) note(c candidate, at time.Time, refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := c.keeper
	k.saved[c.checkpoint.Key] = &saved{checkpoint: c.checkpoint, events: c.events, at: at, shown: at, begun: true, refused: refused}
}

// fail notes that a candidate could not be saved.
func (w *Writer) fail(c candidate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := c.keeper.saved[c.checkpoint.Key]; s != nil {
		s.failed = true
	}
}

// rest notes that a candidate cannot be saved, and until when it is not tried again.
func (w *Writer) rest(c candidate, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := c.keeper.saved[c.checkpoint.Key]; s != nil {
		s.rests = until
		s.failed = false
	}
}

// settle notes that the first events are saved, and wakes callers that wait for room. Under the
// writer's mutex.
func (k *Keeper) settle(events int64) {
	k.settled.Store(max(k.settled.Load(), events))
	if k.room != nil {
		close(k.room)
		k.room = nil
	}
}

func (w *Writer) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// report logs when saving begins to fail and when it works again.
func (w *Writer) report(failed []error) {
	w.mu.Lock()
	was := w.mu.failing
	w.mu.failing = len(failed) > 0
	w.mu.Unlock()
	switch {
	case len(failed) > 0 && !was:
		w.logger.Warn("saving checkpoints failed, a crash would redeliver more", "checkpoints", len(failed), "error", failed[0])
	case len(failed) == 0 && was:
		w.logger.Info("saving checkpoints recovered")
	}
}

// Failing reports whether the last checkpoints of some subscribers could not be saved. Subscribers
// that have left the node do not count, because nothing would show that the store is back.
func (w *Writer) Failing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.mu.keepers {
		for _, p := range k.source.Progress() {
			if s := k.saved[p.Key]; s != nil && s.failed {
				return true
			}
		}
	}
	return false
}
