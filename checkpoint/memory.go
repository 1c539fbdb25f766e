package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/checkpoint/row"
)

// Memory keeps the marks of one cluster in this process, for tests and demonstrations. They are lost with it.
//
// It is as strict as the other stores: it takes a mark only with the epoch that [Memory.Claim] gave the partition to.
type Memory struct {
	row.Memory // the gateways' rows, which nothing else here touches
	key.Local  // the keys that seal cursors, likewise

	partitions int

	mu struct {
		sync.Mutex

		origin *Origin
		kept   map[change.Partition]*kept
		gaps   map[string]Gap
	}
}

// A kept is what there is of one partition.
type kept struct {
	owner   change.Epoch
	ended   bool // the owner's term was ended by a rewind
	mark    *Mark
	trail   Trail
	history []Mark // oldest first
}

var (
	_ Store         = (*Memory)(nil)
	_ Claimer       = (*Memory)(nil)
	_ OriginKeeper  = (*Memory)(nil)
	_ HistoryKeeper = (*Memory)(nil)
	_ GapKeeper     = (*Memory)(nil)
	_ Rewinder      = (*Memory)(nil)
	_ Adopter       = (*Memory)(nil)
)

// NewMemory makes a store without marks for the given number of partitions.
func NewMemory(partitions int) *Memory {
	m := &Memory{partitions: partitions}
	m.mu.kept = make(map[change.Partition]*kept)
	m.mu.gaps = make(map[string]Gap)
	return m
}

// lock locks the store unless the context has ended. Unlocking is the caller's.
func (m *Memory) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	return nil
}

// at returns what there is of a partition, which it makes where there is nothing.
func (m *Memory) at(p change.Partition) *kept {
	k, ok := m.mu.kept[p]
	if !ok {
		k = &kept{}
		m.mu.kept[p] = k
	}
	return k
}

// Save implements [Store].
func (m *Memory) Save(ctx context.Context, marks []Mark) []error {
	results := make([]error, len(marks))
	for i, mark := range marks {
		results[i] = m.save(ctx, mark.Trimmed())
	}
	return results
}

func (m *Memory) save(ctx context.Context, mark Mark) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	k := m.at(mark.Partition)
	switch {
	case k.owner != mark.Epoch || k.ended:
		return fmt.Errorf("partition %d, epoch %s, owner %s: %w", mark.Partition, mark.Epoch, k.owner, ErrFenced)
	case int(mark.Partition) >= m.partitions:
		return fmt.Errorf("partition %d of %d", mark.Partition, m.partitions)
	case mark.Position.IsZero():
		return errors.New("a mark without a position")
	case k.mark == nil:
	case mark.Generation != 0 && mark.Generation < k.mark.Generation:
		return fmt.Errorf("partition %d, generation %d of %d: %w", mark.Partition, mark.Generation, k.mark.Generation, ErrFenced)
	case !mark.Position.After(k.mark.Position):
		return nil
	default:
		mark.Generation = max(mark.Generation, k.mark.Generation)
	}
	k.put(mark)
	return nil
}

// put makes m the mark.
func (k *kept) put(m Mark) {
	m.Position, m.At = m.Position.Clone(), m.At.UTC()
	k.mark = &m
	var entry bool
	if k.trail, entry = k.trail.Next(m); entry {
		k.history = append(k.history, m)
		k.history = k.history[max(0, len(k.history)-HistoryLength):]
	}
}

// clone returns a mark that aliases nothing.
func (m Mark) clone() Mark {
	m.Position = m.Position.Clone()
	return m
}

// Load implements [Store].
func (m *Memory) Load(ctx context.Context, p change.Partition) (Mark, error) {
	if err := m.lock(ctx); err != nil {
		return Mark{}, err
	}
	defer m.mu.Unlock()
	if k := m.at(p); k.mark != nil {
		return k.mark.clone(), nil
	}
	return Mark{}, ErrNoMark
}

// List implements [Store].
func (m *Memory) List(ctx context.Context) ([]Mark, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var marks []Mark
	for _, p := range slices.Sorted(maps.Keys(m.mu.kept)) {
		if k := m.at(p); k.mark != nil {
			marks = append(marks, k.mark.clone())
		}
	}
	return marks, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, p change.Partition) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	k := m.at(p)
	k.mark, k.trail, k.history = nil, Trail{}, nil
	return nil
}

// Claim implements [Claimer]. Where it returns ErrFenced it has claimed nothing.
func (m *Memory) Claim(ctx context.Context, terms []change.Term) ([]Mark, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for _, term := range terms {
		k := m.at(term.Partition)
		if c := k.owner.Compare(term.Epoch); c > 0 || c == 0 && k.ended || m.mu.origin != nil && term.Epoch.Incarnation < m.mu.origin.Incarnation {
			return nil, fmt.Errorf("partition %d, epoch %s, owner %s: %w", term.Partition, term.Epoch, k.owner, ErrFenced)
		}
	}
	marks := make([]Mark, len(terms))
	for i, term := range terms {
		k := m.at(term.Partition)
		k.owner, k.ended = term.Epoch, false
		marks[i].Partition = term.Partition
		if k.mark != nil {
			marks[i] = k.mark.clone()
		}
	}
	return marks, nil
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

// Found implements [OriginKeeper].
func (m *Memory) Found(ctx context.Context, o Origin) (Origin, error) {
	if o.Partitions != m.partitions {
		return Origin{}, fmt.Errorf("an origin of %d partitions for marks of %d", o.Partitions, m.partitions)
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
	for _, k := range m.mu.kept {
		k.ended = true
	}
	return nil
}

// Rewind implements [Rewinder].
func (m *Memory) Rewind(ctx context.Context, p change.Partition, to change.Position, by, why string) (Mark, error) {
	if err := m.lock(ctx); err != nil {
		return Mark{}, err
	}
	defer m.mu.Unlock()
	if m.mu.origin == nil {
		return Mark{}, ErrNoOrigin
	}
	k := m.at(p)
	next, err := m.mu.origin.Rewound(p, k.mark, to, by, why)
	if err != nil {
		return Mark{}, err
	}
	k.put(next)
	k.ended = true
	return next.clone(), nil
}

// History implements [HistoryKeeper].
func (m *Memory) History(ctx context.Context, p change.Partition) ([]Mark, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var marks []Mark
	for _, mark := range slices.Backward(m.at(p).history) {
		marks = append(marks, mark.clone())
	}
	return marks, nil
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
	g.Found = g.Found.UTC()
	m.mu.gaps[id] = g.Clone()
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
		gaps = append(gaps, g.Clone())
	}
	SortGaps(gaps)
	return gaps
}
