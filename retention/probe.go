package retention

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
)

// probeCleanup bounds how long the last deletions of a probe may take after its context has ended:
// they leave small objects only.
const probeCleanup = 5 * time.Second

// Probe looks whether the store does what retention relies on, with small objects of random names
// that it deletes: an object is created only where there is none, it is read and listed as it was
// written, and it is gone after its deletion. A store that overwrites objects is the fault
// RetentionCondition. Versioned says that the store keeps versions of deleted objects.
func (c *Chain) Probe(ctx context.Context) (versioned bool, err error) {
	folder := c.prefix + "/probe"
	object := strings.ToLower(rand.Text())
	key := folder + "/" + object
	defer func() {
		last, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(probeCleanup, cancel) })()
		for _, k := range []string{key, key + "-race"} {
			err = errors.Join(err, c.store.Delete(last, k))
		}
	}()
	first, second := []byte("first "+object), []byte("second "+object)
	if err := c.store.Put(ctx, key, first); err != nil {
		return false, fmt.Errorf("create an object: %w", err)
	}
	if err := c.createdOnce(ctx, key, second); err != nil {
		return false, err
	}
	if err := c.oneCreates(ctx, key+"-race"); err != nil {
		return false, err
	}
	got, _, err := c.store.Get(ctx, key, 6, int64(len(first)))
	switch {
	case err != nil:
		return false, fmt.Errorf("read an object: %w", err)
	case !bytes.Equal(got, first[6:]):
		return false, fault.Newf(fault.RetentionStore, "the store returned other bytes than were written")
	}
	listed, _, err := c.store.List(ctx, folder, object[:len(object)-1])
	switch {
	case err != nil:
		return false, fmt.Errorf("list objects: %w", err)
	case len(listed) == 0 || listed[0].Name != object:
		return false, fault.Newf(fault.RetentionStore, "the store does not list an object that it has")
	}
	if err := c.store.Delete(ctx, key); err != nil {
		return false, fmt.Errorf("delete an object: %w", err)
	}
	switch _, _, err := c.store.Get(ctx, key, 0, 1); {
	case err == nil:
		return false, fault.Newf(fault.RetentionStore, "the store has an object that it has deleted")
	case !errors.Is(err, ErrNotFound):
		return false, fmt.Errorf("read a deleted object: %w", err)
	}
	store, knows := c.store.(bounded).store.(interface{ Versioned() bool })
	return knows && store.Versioned(), nil
}

// overwrites is the fault of a store without conditional writes.
func overwrites() error {
	return fault.Newf(fault.RetentionCondition, "the store created an object that it had already")
}

// createdOnce creates an object that exists, which the store must refuse.
func (c *Chain) createdOnce(ctx context.Context, key string, data []byte) error {
	switch err := c.store.Put(ctx, key, data); {
	case err == nil:
		return overwrites()
	case errors.Is(err, ErrExists):
		return nil
	default:
		return fmt.Errorf("create an object that exists: %w", err)
	}
}

// oneCreates lets several create an object at once. The store may fail for all of them, but must
// not tell two that they did.
func (c *Chain) oneCreates(ctx context.Context, key string) error {
	const writers = 4
	outcomes := make(chan error, writers)
	for n := range writers {
		go func() { outcomes <- c.store.Put(ctx, key, []byte{byte(n)}) }()
	}
	won := 0
	for range writers {
		if <-outcomes == nil {
			won++
		}
	}
	if won > 1 {
		return overwrites()
	}
	return nil
}
