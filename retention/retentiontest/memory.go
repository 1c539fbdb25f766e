package retentiontest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mongostream/streamer/retention"
)

// A Memory is a store in memory.
type Memory struct {
	// Before, if set, is called before each operation (put, get, list, delete, now) and may block;
	// an error fails the operation without an effect. After is the same after the effect.
	Before, After func(ctx context.Context, op, key string) error
	// Clock is the store's clock. Defaults to the wall clock.
	Clock func() time.Time
	// Page is how many objects a listing returns. Defaults to 1000.
	Page int

	mu      sync.Mutex
	objects map[string]object
	written int
}

type object struct {
	data     []byte
	modified time.Time
	version  int
}

var _ retention.Store = (*Memory)(nil)

func (m *Memory) now() time.Time {
	if m.Clock != nil {
		return m.Clock()
	}
	return time.Now()
}

// do runs an operation between the hooks.
func (m *Memory) do(ctx context.Context, op, key string, effect func() error) error {
	if m.Before != nil {
		if err := m.Before(ctx, op, key); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	err := effect()
	m.mu.Unlock()
	if m.After != nil {
		if lost := m.After(ctx, op, key); lost != nil {
			return lost
		}
	}
	return err
}

// Put implements retention.Store.
func (m *Memory) Put(ctx context.Context, key string, data []byte) error {
	return m.do(ctx, "put", key, func() error {
		if _, there := m.objects[key]; there {
			return retention.ErrExists
		}
		if m.objects == nil {
			m.objects = make(map[string]object)
		}
		m.written++
		m.objects[key] = object{data: bytes.Clone(data), modified: m.now(), version: m.written}
		return nil
	})
}

// Replace replaces an object as buckets do: the new one is new.
func (m *Memory) Replace(ctx context.Context, key string, data []byte, version string) error {
	return m.do(ctx, "replace", key, func() error {
		o, there := m.objects[key]
		switch {
		case !there:
			return retention.ErrNotFound
		case strconv.Itoa(o.version) != version:
			return retention.ErrChanged
		}
		m.written++
		m.objects[key] = object{data: bytes.Clone(data), modified: m.now(), version: m.written}
		return nil
	})
}

// Hold does nothing: Replace notices others.
func (m *Memory) Hold(context.Context, string) (release func(), err error) { return func() {}, nil }

// Get implements retention.Store.
func (m *Memory) Get(ctx context.Context, key string, offset, n int64) (data []byte, about retention.Object, err error) {
	err = m.do(ctx, "get", key, func() error {
		o, there := m.objects[key]
		if !there {
			return retention.ErrNotFound
		}
		size := int64(len(o.data))
		from := min(offset, size)
		data = bytes.Clone(o.data[from:min(size, from+n)])
		about = describe(key, o)
		return nil
	})
	return data, about, err
}

func describe(key string, o object) retention.Object {
	return retention.Object{Name: key[strings.LastIndexByte(key, '/')+1:], Size: int64(len(o.data)), Modified: o.modified, Version: strconv.Itoa(o.version)}
}

// List implements retention.Store.
func (m *Memory) List(ctx context.Context, folder, after string) (objects []retention.Object, more bool, err error) {
	err = m.do(ctx, "list", folder, func() error {
		page := m.Page
		if page == 0 {
			page = 1000
		}
		for _, key := range slices.Sorted(maps.Keys(m.objects)) {
			name, within := strings.CutPrefix(key, folder+"/")
			if !within || strings.Contains(name, "/") || name <= after {
				continue
			}
			if more = len(objects) == page; more {
				break
			}
			objects = append(objects, describe(key, m.objects[key]))
		}
		return nil
	})
	return objects, more, err
}

// Delete implements retention.Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	return m.do(ctx, "delete", key, func() error {
		delete(m.objects, key)
		return nil
	})
}

// Now implements retention.Store.
func (m *Memory) Now(ctx context.Context) (now time.Time, err error) {
	err = m.do(ctx, "now", "", func() error {
		now = m.now()
		return nil
	})
	return now, err
}

// Keys returns all keys, sorted.
func (m *Memory) Keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.objects))
}

// Damage changes the bytes of an object in place, as disks do.
func (m *Memory) Damage(key string, change func([]byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.objects[key]
	o.data = change(bytes.Clone(o.data))
	m.objects[key] = o
}
