package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
)

// Memory is an in-memory store for tests and demonstrations. It is as strict as the other stores: it accepts a shared checkpoint only with
// the epoch of the last ClaimTerms.
type Memory struct {
	partitions int

	mu struct {
		sync.Mutex

		origin *Origin
		kept   map[Key]*kept
		owners map[Key]change.Epoch // of shared checkpoints
		gaps   map[string]Gap
		saved  uint64
	}
}

// A kept is one checkpoint with its history.
type kept struct {
	Checkpoint

	trail   Trail
	history []Checkpoint // oldest first
	saved   uint64       // increases with each save of any key
}

var (
	_ Store        = (*Memory)(nil)
	_ Claimer      = (*Memory)(nil)
	_ OriginKeeper = (*Memory)(nil)
	_ GapKeeper    = (*Memory)(nil)
	_ Rewinder     = (*Memory)(nil)
	_ Adopter      = (*Memory)(nil)
)

// NewMemory returns an empty store for a number of partitions.
func NewMemory(partitions int) *Memory {
	m := &Memory{partitions: partitions}
	m.mu.kept, m.mu.owners, m.mu.gaps = make(map[Key]*kept), make(map[Key]change.Epoch), make(map[string]Gap)
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
func (m *Memory) current(k Key) *Checkpoint {
	if there := m.mu.kept[k]; there != nil {
		return &there.Checkpoint
	}
	return nil
}

// put stores c.
func (m *Memory) put(c Checkpoint) {
	k := m.mu.kept[c.Key]
	if k == nil {
		k = &kept{}
		m.mu.kept[c.Key] = k
	}
	m.mu.saved++
	k.Checkpoint, k.saved = c.Clone(), m.mu.saved
	var entry bool
	if k.trail, entry = k.trail.Next(c); entry {
		k.history = append(k.history, c.Entry().Clone())
		k.history = k.history[max(0, len(k.history)-HistoryLength):]
	}
	m.makeRoom()
}

// makeRoom removes the exclusive subscribers without an identity beyond MaxSubscribers that were saved longest ago.
func (m *Memory) makeRoom() {
	if len(m.mu.kept) <= MaxSubscribers {
		return
	}
	var all []*kept
	for key, k := range m.mu.kept {
		if !key.Shared && Owner(key.Subscriber) == "" {
			all = append(all, k)
		}
	}
	if len(all) <= MaxSubscribers {
		return
	}
	oldest := slices.MinFunc(all, func(a, b *kept) int { return cmp.Compare(a.saved, b.saved) })
	delete(m.mu.kept, oldest.Key)
}

// Save implements [Store].
func (m *Memory) Save(ctx context.Context, checkpoints []Checkpoint) []error {
	results := make([]error, len(checkpoints))
	for i, c := range checkpoints {
		results[i] = m.save(ctx, c)
	}
	return results
}

func (m *Memory) save(ctx context.Context, c Checkpoint) error {
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
	if owner := m.mu.owners[c.Key]; c.Shared && (owner != c.Epoch || m.mu.origin != nil && c.Epoch.Incarnation < m.mu.origin.Incarnation) {
		return fmt.Errorf("%s, epoch %s, owner %s: %w", c.Key, c.Epoch, owner, ErrFenced)
	}
	stored := m.current(c.Key)
	if stored == nil && !c.Shared {
		return fmt.Errorf("%s has not been claimed: %w", c.Key, ErrFenced)
	}
	merged, changed, err := Merge(stored, c)
	if err == nil && changed {
		m.put(merged)
	}
	return err
}

// Load implements [Store].
func (m *Memory) Load(ctx context.Context, subscriber string) ([]Checkpoint, error) {
	return m.list(ctx, func(k Key) bool { return k.Subscriber == subscriber })
}

// List implements [Store].
func (m *Memory) List(ctx context.Context) ([]Checkpoint, error) {
	return m.list(ctx, func(Key) bool { return true })
}

func (m *Memory) list(ctx context.Context, wanted func(Key) bool) (all []Checkpoint, err error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for key, k := range m.mu.kept {
		if wanted(key) {
			all = append(all, k.Checkpoint.Clone())
		}
	}
	Sort(all)
	return all, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, subscriber string) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for key := range m.mu.kept {
		if key.Subscriber == subscriber {
			delete(m.mu.kept, key)
		}
	}
	return nil
}

// History implements [Store].
func (m *Memory) History(ctx context.Context, k Key) (entries []Checkpoint, err error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if there := m.mu.kept[k]; there != nil {
		for _, c := range slices.Backward(there.history) {
			entries = append(entries, c.Clone())
		}
	}
	return entries, nil
}

// ClaimTerms implements [Claimer]. If it returns ErrFenced, it has claimed nothing.
func (m *Memory) ClaimTerms(ctx context.Context, subscriber string, terms []change.Term) ([]Checkpoint, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	key := func(t change.Term) Key { return Key{Subscriber: subscriber, Shared: true, Partition: t.Partition} }
	for _, t := range terms {
		if owner := m.mu.owners[key(t)]; owner.Compare(t.Epoch) > 0 || m.mu.origin != nil && t.Epoch.Incarnation < m.mu.origin.Incarnation {
			return nil, fmt.Errorf("%s, epoch %s, owner %s: %w", key(t), t.Epoch, owner, ErrFenced)
		}
	}
	claimed := make([]Checkpoint, len(terms))
	for i, t := range terms {
		m.mu.owners[key(t)] = t.Epoch
		claimed[i] = Checkpoint{Key: key(t), Partitions: m.partitions}
		if stored := m.current(key(t)); stored != nil {
			claimed[i] = stored.Clone()
		}
	}
	return claimed, nil
}

// ClaimName implements [Claimer].
func (m *Memory) ClaimName(ctx context.Context, c Claim, first Checkpoint) (Checkpoint, error) {
	first, err := first.Trimmed()
	if err != nil {
		return Checkpoint{}, err
	}
	if err := m.lock(ctx); err != nil {
		return Checkpoint{}, err
	}
	defer m.mu.Unlock()
	stored := m.current(first.Key)
	claim, err := c.Claimed(stored, time.Now())
	if err == nil && stored == nil {
		err = HasRoom(first.Subscriber, m.names(Owner(first.Subscriber)))
	}
	if err != nil {
		return Checkpoint{}, err
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
		m.mu.kept[next.Key].Checkpoint, m.mu.kept[next.Key].saved = next, m.mu.saved
	}
	return next.Clone(), nil
}

// names returns how many exclusive subscribers an identity has. The caller holds the mutex.
func (m *Memory) names(owner string) (n int) {
	for key := range m.mu.kept {
		if !key.Shared && Owner(key.Subscriber) == owner {
			n++
		}
	}
	return n
}

// Rewind implements [Rewinder].
func (m *Memory) Rewind(ctx context.Context, k Key, to change.Position, by, why string) (Checkpoint, error) {
	if err := m.lock(ctx); err != nil {
		return Checkpoint{}, err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		return Checkpoint{}, ErrNoOrigin
	}
	stored := m.current(k)
	if stored == nil {
		return Checkpoint{}, fmt.Errorf("%s: %w", k, ErrNone)
	}
	next, err := stored.Rewound(to, m.mu.origin.Incarnation, by, why)
	if err != nil {
		return Checkpoint{}, err
	}
	m.put(next)
	return next.Clone(), nil
}

// Put implements [Rewinder].
func (m *Memory) Put(ctx context.Context, c Checkpoint) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		return ErrNoOrigin
	}
	next, err := c.Imported(m.current(c.Key), *m.mu.origin)
	if err == nil {
		m.put(next)
	}
	return err
}

// Origin implements [OriginKeeper].
func (m *Memory) Origin(ctx context.Context) (Origin, error) {
	if err := m.lock(ctx); err != nil {
		return Origin{}, err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		return Origin{}, ErrNoOrigin
	}
	return *m.mu.origin, nil
}

// Create implements [OriginKeeper].
func (m *Memory) Create(ctx context.Context, o Origin) (Origin, error) {
	if o.Partitions != m.partitions {
		return Origin{}, fmt.Errorf("an origin of %d partitions for checkpoints of %d", o.Partitions, m.partitions)
	}
	if err := m.lock(ctx); err != nil {
		return Origin{}, err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		m.mu.origin = &o
	}
	return *m.mu.origin, nil
}

// Complete implements [OriginKeeper].
func (m *Memory) Complete(ctx context.Context, b Backend) (Origin, error) {
	if err := m.lock(ctx); err != nil {
		return Origin{}, err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		return Origin{}, ErrNoOrigin
	}
	m.mu.origin.Backend = m.mu.origin.Backend.With(b)
	return *m.mu.origin, nil
}

// Adopt implements [Adopter].
func (m *Memory) Adopt(ctx context.Context, last, next Origin) error {
	if err := next.Follows(last); err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil || !m.mu.origin.Equal(last) {
		return ErrOriginMoved
	}
	next.Backend = next.Backend.With(m.mu.origin.Backend)
	m.mu.origin = &next
	return nil
}

// AddGap implements [GapKeeper].
func (m *Memory) AddGap(ctx context.Context, g Gap) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	g, id := g.Trimmed(), g.ID()
	if known, ok := m.mu.gaps[id]; ok {
		g = known.Again(g)
	}
	m.mu.gaps[id] = g
	if len(m.mu.gaps) > MaxGaps {
		delete(m.mu.gaps, m.sortedGaps()[0].ID())
	}
	return nil
}

// Gaps implements [GapKeeper].
func (m *Memory) Gaps(ctx context.Context) ([]Gap, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return m.sortedGaps(), nil
}

func (m *Memory) sortedGaps() []Gap {
	gaps := make([]Gap, 0, len(m.mu.gaps))
	for _, g := range m.mu.gaps {
		gaps = append(gaps, g.Trimmed())
	}
	SortGaps(gaps)
	return gaps
}
