package retention

import (
	"context"
	"errors"
	"time"
)

// ErrExists says that there is an object of this key already.
var ErrExists = errors.New("object exists already")

// ErrNotFound says that there is no object of this key.
var ErrNotFound = errors.New("object does not exist")

// An Object describes an object of a store.
type Object struct {
	// Name is the last part of its key.
	Name string
	Size int64
	// Modified is when it was created, by the store's clock.
	Modified time.Time
	// Version identifies the contents, in stores that tell whether an object was replaced.
	Version string
}

// A Store keeps immutable objects. A key is a folder and a name, separated by a slash; folders need
// not be created. Its methods are safe for concurrent use and end with their contexts.
type Store interface {
	// Put creates an object durably, if there is none: otherwise it returns ErrExists. After any
	// other error it is not known whether the object was created, but never a part of it.
	Put(ctx context.Context, key string, data []byte) error
	// Get returns up to n bytes of an object from an offset; fewer where it ends before. The caller
	// owns them. It returns ErrNotFound where there is no object.
	Get(ctx context.Context, key string, offset, n int64) ([]byte, Object, error)
	// List returns the objects of a folder whose names are after a name, in the order of their
	// names. There may be more after the last one.
	List(ctx context.Context, folder, after string) (objects []Object, more bool, err error)
	// Delete deletes an object. It returns nil where there is none.
	Delete(ctx context.Context, key string) error
	// Now returns the time by the clock of Modified.
	Now(ctx context.Context) (time.Time, error)
}

// storeTimeout bounds a request to a store.
const storeTimeout = time.Minute

// A bounded is a store each of whose requests ends within a bounded time.
type bounded struct{ store Store }

// Put implements Store.
func (b bounded) Put(ctx context.Context, key string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return b.store.Put(ctx, key, data)
}

// Get implements Store.
func (b bounded) Get(ctx context.Context, key string, offset, n int64) ([]byte, Object, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return b.store.Get(ctx, key, offset, n)
}

// List implements Store.
func (b bounded) List(ctx context.Context, folder, after string) ([]Object, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return b.store.List(ctx, folder, after)
}

// Delete implements Store.
func (b bounded) Delete(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return b.store.Delete(ctx, key)
}

// Now implements Store.
func (b bounded) Now(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return b.store.Now(ctx)
}
