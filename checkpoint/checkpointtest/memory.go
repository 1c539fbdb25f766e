package checkpointtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// Memory is an in-memory store, for tests of code that uses stores. It is as strict as the others:
// it accepts a shared checkpoint only with the epoch of the last ClaimTerms.
type Memory struct {
	partitions int

	mu struct {
		sync.Mutex

		origin *checkpoint.Origin
		kept   map[checkpoint.Key]*kept
		lost   map[checkpoint.Key][]checkpoint.Checkpoint // histories of lost checkpoints
		owners map[checkpoint.Key]change.Epoch            // of shared checkpoints
		gaps   map[string]checkpoint.Gap
		saved  uint64
	}
}

// A kept is one checkpoint with its history.
type kept struct {
	checkpoint.Checkpoint

	trail   checkpoint.Trail
	history []checkpoint.Checkpoint // oldest first
	saved   uint64                  // increases with each save of any key
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store for a number of partitions.
func NewMemory(partitions int) *Memory {
	m := &Memory{partitions: partitions}
	m.mu.lost = make(map[checkpoint.Key][]checkpoint.Checkpoint)
	m.mu.kept, m.mu.owners, m.mu.gaps = make(map[checkpoint.Key]*kept), make(map[checkpoint.Key]change.Epoch), make(map[string]checkpoint.Gap)
	return m
}

// lock locks the store unless the context has ended. The caller unlocks it.
func (m *Memory) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	return nil
}

// current returns the checkpoint of a key, nil if there is none.
func (m *Memory) current(k checkpoint.Key) *checkpoint.Checkpoint {
	if there := m.mu.kept[k]; there != nil {
		return &there.Checkpoint
	}
	return nil
}

// put stores c.
func (m *Memory) put(c checkpoint.Checkpoint) {
	k := m.mu.kept[c.Key]
	if k == nil {
		k = &kept{}
		m.mu.kept[c.Key] = k
	}
	m.mu.saved++
	k.Checkpoint = c.Clone()
	k.saved = m.mu.saved
	var entry bool
	if k.trail, entry = k.trail.Next(c); entry {
		k.history = append(k.history, c.Entry().Clone())
		k.history = k.history[max(0, len(k.history)-checkpoint.HistoryLength):]
	}
	m.makeRoom()
}

// makeRoom removes the exclusive subscribers without an identity beyond MaxSubscribers that were
// saved longest ago.
func (m *Memory) makeRoom() {
	if len(m.mu.kept) <= checkpoint.MaxSubscribers {
		return
	}
	var all []*kept
	for key, k := range m.mu.kept {
		if !key.Shared && checkpoint.Owner(key.Subscriber) == "" {
			all = append(all, k)
		}
	}
	if len(all) <= checkpoint.MaxSubscribers {
		return
	}
	oldest := slices.MinFunc(all, func(a, b *kept) int { return cmp.Compare(a.saved, b.saved) })
	delete(m.mu.kept, oldest.Key)
}

// Save implements [checkpoint.Store].
func (m *Memory) Save(ctx context.Context, checkpoints []checkpoint.Checkpoint) []error {
	results := make([]error, len(checkpoints))
	for i, c := range checkpoints {
		results[i] = m.save(ctx, c)
	}
	return results
}

func (m *Memory) save(ctx context.Context, c checkpoint.Checkpoint) error {
	c, err := c.Trimmed()
	if err != nil {
		return err
	}
	if c.Shared && c.Partitions != m.partitions {
		return fmt.Errorf("%s of %d partitions, there are %d", c.Key, c.Partitions, m.partitions)
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	owner := m.mu.owners[c.Key]
	isOutdated := m.mu.origin != nil && c.Epoch.Incarnation < m.mu.origin.Incarnation
	if c.Shared && (owner != c.Epoch || isOutdated) {
		return fmt.Errorf("%s, epoch %s, owner %s: %w", c.Key, c.Epoch, owner, checkpoint.ErrFenced)
	}
	stored := m.current(c.Key)
	if stored == nil && !c.Shared {
		return fmt.Errorf("%s has not been claimed: %w", c.Key, checkpoint.ErrFenced)
	}
	merged, changed, err := checkpoint.Merge(stored, c)
	if err == nil && changed {
		m.put(merged)
	}
	return err
}

// Load implements [checkpoint.Store].
func (m *Memory) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	return m.list(ctx, func(k checkpoint.Key) bool { return k.Subscriber == subscriber })
}

// List implements [checkpoint.Store].
func (m *Memory) List(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	return m.list(ctx, func(checkpoint.Key) bool { return true })
}

func (m *Memory) list(ctx context.Context, wanted func(checkpoint.Key) bool) (all []checkpoint.Checkpoint, err error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for key, k := range m.mu.kept {
		if wanted(key) {
			all = append(all, k.Checkpoint.Clone())
		}
	}
	checkpoint.Sort(all)
	return all, nil
}

// Delete implements [checkpoint.Store].
func (m *Memory) Delete(ctx context.Context, subscriber string) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	ofSubscriber := func(k checkpoint.Key) bool { return k.Subscriber == subscriber }
	maps.DeleteFunc(m.mu.kept, func(k checkpoint.Key, _ *kept) bool { return ofSubscriber(k) })
	maps.DeleteFunc(m.mu.lost, func(k checkpoint.Key, _ []checkpoint.Checkpoint) bool { return ofSubscriber(k) })
	return nil
}

// Lose removes a checkpoint by accident, with or without its history. A checkpoint with only a
// history is not listed.
func (m *Memory) Lose(k checkpoint.Key, history bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if there := m.mu.kept[k]; there != nil && !history {
		m.mu.lost[k] = there.history
	}
	delete(m.mu.kept, k)
}

// History implements [checkpoint.Store].
func (m *Memory) History(ctx context.Context, k checkpoint.Key) (entries []checkpoint.Checkpoint, err error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if there := m.mu.kept[k]; there != nil {
		for _, c := range slices.Backward(there.history) {
			entries = append(entries, c.Clone())
		}
		return entries, nil
	}
	for _, c := range slices.Backward(m.mu.lost[k]) {
		entries = append(entries, c.Clone())
	}
	return entries, nil
}

// ClaimTerms implements [checkpoint.Claimer]. If it returns checkpoint.ErrFenced, it has claimed
// nothing.
func (m *Memory) ClaimTerms(ctx context.Context, subscriber string, terms []change.Term) ([]checkpoint.Checkpoint, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	key := func(t change.Term) checkpoint.Key {
		return checkpoint.Key{Subscriber: subscriber, Shared: true, Partition: t.Partition}
	}
	for _, t := range terms {
		if owner := m.mu.owners[key(t)]; owner.Compare(t.Epoch) > 0 || m.mu.origin != nil && t.Epoch.Incarnation < m.mu.origin.Incarnation {
			return nil, fmt.Errorf("%s, epoch %s, owner %s: %w", key(t), t.Epoch, owner, checkpoint.ErrFenced)
		}
	}
	claimed := make([]checkpoint.Checkpoint, len(terms))
	for i, t := range terms {
		m.mu.owners[key(t)] = t.Epoch
		claimed[i] = checkpoint.Checkpoint{Key: key(t), Partitions: m.partitions}
		if stored := m.current(key(t)); stored != nil {
			claimed[i] = stored.Clone()
		}
	}
	return claimed, nil
}

// ClaimName implements [checkpoint.Claimer].
func (m *Memory) ClaimName(ctx context.Context, c checkpoint.Claim, first checkpoint.Checkpoint) (checkpoint.Checkpoint, error) {
	first, err := first.Trimmed()
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	if err := m.lock(ctx); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	defer m.mu.Unlock()
	stored := m.current(first.Key)
	claim, err := c.Claimed(stored, time.Now())
	if err == nil && stored == nil {
		err = checkpoint.HasRoom(first.Subscriber, m.names(checkpoint.Owner(first.Subscriber)))
	}
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	next := first
	if stored != nil {
		next = stored.Clone()
	}
	next.Claim = claim
	if stored == nil {
		m.put(next)
	} else {
		m.mu.saved++
		m.mu.kept[next.Key].Checkpoint = next
		m.mu.kept[next.Key].saved = m.mu.saved
	}
	return next.Clone(), nil
}

// names returns how many exclusive subscribers an identity has. The caller holds the mutex.
func (m *Memory) names(owner string) (n int) {
	for key := range m.mu.kept {
		if !key.Shared && checkpoint.Owner(key.Subscriber) == owner {
			n++
		}
	}
	return n
}

// Rewind implements [checkpoint.Rewinder].
func (m *Memory) Rewind(ctx context.Context, k checkpoint.Key, to change.Position, by, why string) (checkpoint.Checkpoint, error) {
	if err := m.lock(ctx); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		return checkpoint.Checkpoint{}, checkpoint.ErrNoOrigin
	}
	stored := m.current(k)
	if stored == nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("%s: %w", k, checkpoint.ErrNone)
	}
	next, err := stored.Rewound(to, m.mu.origin.Incarnation, by, why)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	m.put(next)
	return next.Clone(), nil
}

// Put implements [checkpoint.Rewinder].
func (m *Memory) Put(ctx context.Context, c checkpoint.Checkpoint) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		return checkpoint.ErrNoOrigin
	}
	next, err := c.Imported(m.current(c.Key), *m.mu.origin)
	if err == nil {
		m.put(next)
	}
	return err
}

// Origin implements [checkpoint.OriginKeeper].
func (m *Memory) Origin(ctx context.Context) (checkpoint.Origin, error) {
	if err := m.lock(ctx); err != nil {
		return checkpoint.Origin{}, err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		return checkpoint.Origin{}, checkpoint.ErrNoOrigin
	}
	return *m.mu.origin, nil
}

// Create implements [checkpoint.OriginKeeper].
func (m *Memory) Create(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
	if o.Partitions != m.partitions {
		return checkpoint.Origin{}, fmt.Errorf("an origin of %d partitions for checkpoints of %d", o.Partitions, m.partitions)
	}
	if err := m.lock(ctx); err != nil {
		return checkpoint.Origin{}, err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		m.mu.origin = &o
	}
	return *m.mu.origin, nil
}

// Complete implements [checkpoint.OriginKeeper].
func (m *Memory) Complete(ctx context.Context, b checkpoint.Backend) (checkpoint.Origin, error) {
	if err := m.lock(ctx); err != nil {
		return checkpoint.Origin{}, err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		return checkpoint.Origin{}, checkpoint.ErrNoOrigin
	}
	m.mu.origin.Backend = m.mu.origin.Backend.With(b)
	return *m.mu.origin, nil
}

// Adopt implements [checkpoint.Adopter].
func (m *Memory) Adopt(ctx context.Context, last, next checkpoint.Origin) error {
	if err := next.Follows(last); err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil || !m.mu.origin.Equal(last) {
		return checkpoint.ErrOriginMoved
	}
	next.Backend = next.Backend.With(m.mu.origin.Backend)
	m.mu.origin = &next
	return nil
}

// AddGap implements [checkpoint.GapKeeper].
func (m *Memory) AddGap(ctx context.Context, g checkpoint.Gap) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	g, id := g.Trimmed(), g.ID()
	if known, ok := m.mu.gaps[id]; ok {
		g = known.Again(g)
	}
	m.mu.gaps[id] = g
	if len(m.mu.gaps) > checkpoint.MaxGaps {
		delete(m.mu.gaps, m.sortedGaps()[0].ID())
	}
	return nil
}

// Gaps implements [checkpoint.GapKeeper].
func (m *Memory) Gaps(ctx context.Context) ([]checkpoint.Gap, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return m.sortedGaps(), nil
}

func (m *Memory) sortedGaps() []checkpoint.Gap {
	gaps := make([]checkpoint.Gap, 0, len(m.mu.gaps))
	for _, g := range m.mu.gaps {
		gaps = append(gaps, g.Trimmed())
	}
	checkpoint.SortGaps(gaps)
	return gaps
}
