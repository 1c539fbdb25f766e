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
)

// ManagerConfig configures a Manager.
type ManagerConfig struct {
	Policy Policy
	// SaveTimeout bounds one round's save. Defaults to 5 s.
	SaveTimeout time.Duration
	// Fingerprint and By go into every mark.
	Fingerprint string
	By          string
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// A Manager saves the marks of the partitions that a node owns, in rounds, off the path of the events.
type Manager struct {
	cfg     ManagerConfig
	policy  Policy
	store   Store
	logger  *slog.Logger
	metrics metrics
	hurry   chan struct{} // some partition has passed its number of events

	round chan struct{} // holds one signal while a save is under way
	mu    struct {
		sync.Mutex
		keepers map[change.Partition]*Keeper
		last    time.Time     // when the last round began
		failing bool          // the last round had an error
		idle    time.Duration // how long a partition on which nothing happened waits
	}
}

// NewManager makes a Manager.
func NewManager(cfg ManagerConfig, store Store) *Manager {
	cfg.SaveTimeout = cmp.Or(cfg.SaveTimeout, 5*time.Second)
	m := &Manager{
		cfg: cfg, policy: cfg.Policy.withDefaults(), store: store,
		logger:  cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		metrics: newMetrics(cfg.Registerer),
		hurry:   make(chan struct{}, 1), round: make(chan struct{}, 1),
	}
	m.mu.keepers, m.mu.idle = make(map[change.Partition]*Keeper), m.policy.IdleInterval
	return m
}

// SetReach tells over how much log time MongoDB's log reaches, 0 where that cannot be known: a partition on which nothing happens is
// saved at least every quarter of it.
func (m *Manager) SetReach(length time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.idle = m.policy.IdleInterval
	if length > 0 {
		m.mu.idle = min(m.mu.idle, length/4)
	}
}

// A Keeper keeps the mark of one term.
type Keeper struct {
	manager  *Manager
	term     change.Term
	lowWater func() change.Position
	lost     func(error)

	events  atomic.Int64  // passed since the last save
	room    chan struct{} // closed when events has gone down; nil while nobody waits
	saved   change.Position
	savedAt time.Time
	failed  bool   // the last mark could not be saved
	because Reason // of the next mark, unless the round has a better one; empty for none
	sealed  bool   // no mark is saved
}

// Begin takes over the mark of a term, which stands at the position from. lowWater tells how far the partition has been
// acknowledged, from any goroutine; lost is called once when the store has refused the term.
func (m *Manager) Begin(term change.Term, from change.Position, lowWater func() change.Position, lost func(error)) *Keeper {
	k := &Keeper{manager: m, term: term, lowWater: lowWater, lost: lost, saved: from, savedAt: time.Now(), because: ReasonBegin}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.keepers[term.Partition] = k
	return k
}

// Because gives the next mark that would be a routine one a reason, and with it a place in the history.
func (k *Keeper) Because(reason Reason) {
	k.manager.mu.Lock()
	defer k.manager.mu.Unlock()
	k.because = reason
}

// Passed counts events that have passed the partition. It never blocks.
func (k *Keeper) Passed(n int) {
	count := int64(k.manager.policy.EventCount)
	if now := k.events.Add(int64(n)); now >= count && now-int64(n) < count {
		select {
		case k.manager.hurry <- struct{}{}:
		default:
		}
	}
}

// Room returns nil while the partition may pass further events, otherwise a channel that is closed when a mark has been saved.
func (k *Keeper) Room() <-chan struct{} {
	if k.events.Load() < int64(k.manager.policy.MaxUnsaved) {
		return nil
	}
	m := k.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.events.Load() < int64(m.policy.MaxUnsaved) {
		return nil
	}
	if k.room == nil {
		k.room = make(chan struct{})
	}
	return k.room
}

// Seal ends the saving of the term's marks until Unseal, and returns the one to be saved instead, by somebody else: everything before it has
// been acknowledged. It has no position where nothing has been acknowledged behind the one that is saved. Sealing again returns a later one,
// if there is one.
func (k *Keeper) Seal() Mark {
	m := k.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	k.sealed = true
	at := k.lowWater()
	if !at.After(k.saved) {
		at = change.Position{} // what is saved stays, and with it who has saved it and why
	}
	return m.mark(k, at, time.Now(), ReasonHandoff)
}

// Unseal undoes Seal.
func (k *Keeper) Unseal() {
	k.manager.mu.Lock()
	defer k.manager.mu.Unlock()
	k.sealed = false
}

// End leaves the manager: the term's mark is saved no more.
func (k *Keeper) End() {
	m := k.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.keepers[k.term.Partition] == k {
		delete(m.mu.keepers, k.term.Partition)
	}
}

// Run saves marks as the policy says until the context ends; the last marks are Flush's.
func (m *Manager) Run(ctx context.Context) error {
	timer := time.NewTimer(m.policy.MinGap)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-m.hurry:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		if wait := m.lastRound().Add(m.policy.MinGap).Sub(now); wait > 0 {
			timer.Reset(wait)
			continue
		}
		if m.anyDue(now) {
			// What fails is logged by save and tried again in the next round.
			_ = m.save(ctx, now, func(k *Keeper) (Reason, bool) {
				events := int(k.events.Load())
				due := !m.due(k).After(now)
				return m.policy.reason(events), due || m.policy.joins(events)
			})
		}
		timer.Reset(max(time.Until(m.nextDue()), m.policy.MinGap))
	}
}

// Flush saves every partition that has moved. Its error joins those of the partitions that could not be saved.
func (m *Manager) Flush(ctx context.Context, reason Reason) error {
	return m.save(ctx, time.Now(), func(*Keeper) (Reason, bool) { return reason, true })
}

// Save saves those partitions that have moved, as Flush does all.
func (m *Manager) Save(ctx context.Context, reason Reason, keepers ...*Keeper) error {
	return m.save(ctx, time.Now(), func(k *Keeper) (Reason, bool) { return reason, slices.Contains(keepers, k) })
}

func (m *Manager) lastRound() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.last
}

func (m *Manager) anyDue(now time.Time) bool { return !m.nextDue().After(now) }

// nextDue returns when the next partition is due.
func (m *Manager) nextDue() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := time.Now().Add(m.policy.Interval)
	for _, k := range m.mu.keepers {
		if due := m.due(k); due.Before(next) {
			next = due
		}
	}
	return next
}

// due returns when a partition is due, under the mutex.
func (m *Manager) due(k *Keeper) time.Time {
	return m.policy.due(k.savedAt, int(k.events.Load()), m.mu.idle)
}

// save saves the marks of the chosen partitions that have moved, in one call of the store. Another save is waited for, until the context
// ends.
func (m *Manager) save(ctx context.Context, now time.Time, choose func(*Keeper) (Reason, bool)) error {
	select {
	case m.round <- struct{}{}:
		defer func() { <-m.round }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	round := m.collect(now, choose)
	if len(round) == 0 {
		return nil
	}
	marks := make([]Mark, len(round))
	for i := range round {
		marks[i] = round[i].mark.Trimmed()
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.SaveTimeout)
	defer cancel()
	results := m.store.Save(ctx, marks)
	m.metrics.latency.Observe(time.Since(now).Seconds())
	var failed []error
	for i, candidate := range round {
		k := candidate.keeper
		switch err := results[i]; {
		case err == nil:
			m.metrics.saved.Inc()
			m.note(candidate, now)
		case errors.Is(err, ErrFenced):
			m.logger.Warn("mark refused: the term is over", "partition", k.term.Partition, "epoch", k.term.Epoch.String())
			k.End()
			k.lost(err)
		default:
			m.metrics.errors.Inc()
			m.miss(k)
			failed = append(failed, err)
		}
	}
	m.report(failed)
	return errors.Join(failed...)
}

// A candidate is a mark of a round before it is saved.
type candidate struct {
	keeper *Keeper
	mark   Mark
	events int64 // passed when the mark was taken
}

// collect makes the marks of a round. A partition whose term has ended is left out; one that has not moved counts as saved.
func (m *Manager) collect(now time.Time, choose func(*Keeper) (Reason, bool)) (round []candidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.last = now
	for _, p := range slices.Sorted(maps.Keys(m.mu.keepers)) {
		k := m.mu.keepers[p]
		if k.sealed || k.term.Err() != nil {
			continue
		}
		reason, chosen := choose(k)
		if !chosen {
			continue
		}
		events := k.events.Load()
		low := k.lowWater()
		if !low.After(k.saved) {
			k.savedAt = now
			continue
		}
		if reason.routine() && k.because != "" {
			reason = k.because
		}
		round = append(round, candidate{keeper: k, events: events, mark: m.mark(k, low, now, reason)})
	}
	return round
}

// mark makes a mark of a term.
func (m *Manager) mark(k *Keeper, at change.Position, now time.Time, reason Reason) Mark {
	return Mark{
		Partition: k.term.Partition, Position: at, Fingerprint: m.cfg.Fingerprint, Epoch: k.term.Epoch, At: now, By: m.cfg.By, Reason: reason,
	}
}

// note takes a candidate for saved.
func (m *Manager) note(c candidate, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := c.keeper
	k.saved, k.savedAt, k.failed = c.mark.Position, at, false
	if c.mark.Reason == k.because {
		k.because = ""
	}
	k.events.Add(-c.events)
	if k.room != nil {
		close(k.room)
		k.room = nil
	}
}

// report logs when saving begins to fail and when it works again.
func (m *Manager) report(failed []error) {
	m.mu.Lock()
	was := m.mu.failing
	m.mu.failing = len(failed) > 0
	m.mu.Unlock()
	switch {
	case len(failed) > 0 && !was:
		m.logger.Warn("marks cannot be saved; events go on and will be delivered again after a crash", "marks", len(failed), "error", failed[0])
	case len(failed) == 0 && was:
		m.logger.Info("marks are saved again")
	}
}

// miss takes in that a mark could not be saved.
func (m *Manager) miss(k *Keeper) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.failed = true
}

// Failing reports whether there are partitions whose last marks could not be saved. Those that the node has no longer do not count: nothing
// would ever show that the store is back.
func (m *Manager) Failing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.mu.keepers {
		if k.failed {
			return true
		}
	}
	return false
}
