package row

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory keeps rows in this process, for tests and demonstrations. The zero value is empty.
type Memory struct {
	mu struct {
		sync.Mutex

		kept map[string]memorized
	}
}

// A memorized row is one with when it was saved, by this process's clock.
type memorized struct {
	Row

	saved time.Time
}

func (r memorized) age() time.Duration { return time.Since(r.saved) }

var _ Keeper = (*Memory)(nil)

// SaveRow implements [Keeper].
func (m *Memory) SaveRow(ctx context.Context, r Row) error {
	r, err := r.Trimmed()
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if stands, ok := m.mu.kept[r.Gateway]; ok && stands.age() <= Life {
		if err := r.Over(stands.Row); err != nil {
			return err
		}
	}
	if m.mu.kept == nil {
		m.mu.kept = make(map[string]memorized)
	}
	m.mu.kept[r.Gateway] = memorized{r, time.Now()}
	if len(m.mu.kept) > MaxRows {
		oldest := slices.MinFunc(slices.Collect(maps.Values(m.mu.kept)), func(a, b memorized) int { return a.saved.Compare(b.saved) })
		delete(m.mu.kept, oldest.Gateway)
	}
	return nil
}

// Row implements [Keeper].
func (m *Memory) Row(ctx context.Context, gateway string) (row Row, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return Row{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stands, ok := m.mu.kept[gateway]
	if !ok || stands.age() > Life {
		return Row{}, false, nil
	}
	return stands.clone(), true, nil
}

// Rows implements [Keeper].
func (m *Memory) Rows(ctx context.Context) ([]Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.mu.kept, func(_ string, r memorized) bool { return r.age() > Life })
	rows := make([]Row, 0, len(m.mu.kept))
	for _, r := range m.mu.kept {
		row := r.clone()
		row.Age = r.age()
		rows = append(rows, row)
	}
	Sort(rows)
	return rows, nil
}

// Grow makes a gateway's row older by so long, for tests.
func (m *Memory) Grow(gateway string, by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.mu.kept[gateway]; ok {
		r.saved = r.saved.Add(-by)
		m.mu.kept[gateway] = r
	}
}

// DeleteRow implements [Keeper].
func (m *Memory) DeleteRow(ctx context.Context, gateway string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.kept, gateway)
	return nil
}

// clone returns a row that aliases nothing.
func (r Row) clone() Row {
	r.Base, r.Positions = r.Base.Clone(), maps.Clone(r.Positions)
	for p, position := range r.Positions {
		r.Positions[p] = position.Clone()
	}
	return r
}
