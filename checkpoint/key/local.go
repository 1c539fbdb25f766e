package key

import (
	"context"
	"slices"
	"sync"
)

// Local keeps keys in this process, for tests and demonstrations. The zero value is empty.
type Local struct {
	mu struct {
		sync.Mutex

		keys Set
	}
}

var _ Keeper = (*Local)(nil)

// Keys implements [Keeper].
func (l *Local) Keys(ctx context.Context) (Set, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.keys), nil
}

// AddKey implements [Keeper].
func (l *Local) AddKey(ctx context.Context, key Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	keys, _, err := l.mu.keys.Add(key)
	if err == nil {
		l.mu.keys = keys
	}
	return err
}
