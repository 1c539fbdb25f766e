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

		kept map[string]Row
	}
}

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
	if stands, ok := m.mu.kept[r.Gateway]; ok {
		if err := r.Over(stands, time.Now()); err != nil {
			return err
		}
	}
	if m.mu.kept == nil {
		m.mu.kept = make(map[string]Row)
	}
	m.mu.kept[r.Gateway] = r
	if len(m.mu.kept) > MaxRows {
		oldest := slices.MinFunc(slices.Collect(maps.Values(m.mu.kept)), func(a, b Row) int { return a.SeenAt.Compare(b.SeenAt) })
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
	if !ok || stands.Expired(time.Now()) {
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
	now := time.Now()
	maps.DeleteFunc(m.mu.kept, func(_ string, r Row) bool { return r.Expired(now) })
	rows := make([]Row, 0, len(m.mu.kept))
	for _, r := range m.mu.kept {
		rows = append(rows, r.clone())
	}
	Sort(rows)
	return rows, nil
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
