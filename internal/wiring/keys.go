package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/gateway/connect/standing"
	"github.com/mongostream/streamer/gateway/cursor"
)

const (
	// keysEvery is how often the keys are read, and rotated where they are due. What another node has added meanwhile is found when the
	// first cursor comes that was sealed with it.
	keysEvery = time.Minute
	// keysApart is how far apart at least are the readings that cursors ask for: anybody can forge one of a key to come.
	keysApart = 100 * time.Millisecond
	// keysTimeout bounds a reading, for which a connection waits.
	keysTimeout = 2 * time.Second
)

// cursorKeys is the node's keyring, and what it takes to keep it as it stands in the store. A store that is away harms nothing that has been
// read: cursors are sealed and opened with that.
type cursorKeys struct {
	*cursor.Keyring

	keeper checkpoint.KeyKeeper
	now    func(context.Context) (change.Timestamp, error)
	logger *slog.Logger

	reading chan struct{} // holds one while somebody reads
	read    time.Time     // when that ended last; who reads may look and write
}

var _ standing.Cursors = (*cursorKeys)(nil)

func newKeyring(cfg cursor.Config, keeper checkpoint.KeyKeeper, now func(context.Context) (change.Timestamp, error), logger *slog.Logger) *cursorKeys {
	return &cursorKeys{Keyring: cursor.NewKeyring(cfg), keeper: keeper, now: now, logger: logger, reading: make(chan struct{}, 1)}
}

// openKeys reads the keys, and adds the first. A node that cannot read them serves without cursors until it can.
func (s *Service) openKeys(ctx context.Context) error {
	s.keys = newKeyring(cursor.Config{
		Cluster: s.origin.Cluster, Partitions: s.opts.Config.Cluster.Partitions, Fingerprint: s.source.Fingerprint(),
	}, s.keeper, s.mongo.Now, s.logger)
	s.keys.refresh(ctx, func() bool { return true })
	return ctx.Err()
}

// run keeps the keys as they stand in the store until the context ends.
func (k *cursorKeys) run(ctx context.Context) {
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.refresh(ctx, func() bool { return true })
		case <-ctx.Done():
			return
		}
	}
}

// Open implements standing.Cursors.
func (k *cursorKeys) Open(ctx context.Context, p change.Partition, sealed []byte) (change.Position, error) {
	if k.Lacks(sealed) {
		k.refresh(ctx, func() bool { return k.Lacks(sealed) && time.Since(k.read) >= keysApart })
	}
	return k.Keyring.Open(p, sealed)
}

// refresh waits until nobody reads the keys, and reads them if that is needed then.
func (k *cursorKeys) refresh(ctx context.Context, needed func() bool) {
	select {
	case k.reading <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-k.reading }()
	if !needed() {
		return
	}
	reading, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	if err := k.look(reading); err != nil && ctx.Err() == nil {
		k.logger.Warn("the keys of cursors cannot be read or rotated", "error", err)
	}
	k.read = time.Now()
}

// look reads the keys, adds one where it is due, and takes what stands then.
func (k *cursorKeys) look(ctx context.Context) error {
	keys, err := k.keeper.Keys(ctx)
	if err != nil {
		return err
	}
	rotated, failure := k.rotate(ctx, keys)
	if failure == nil {
		keys = rotated
	}
	return errors.Join(failure, k.Turn(keys))
}

// rotate adds a key where it is due, and returns those that stand then. Of nodes that do it at once one succeeds, and the others find
// its key.
func (k *cursorKeys) rotate(ctx context.Context, keys checkpoint.Keys) (checkpoint.Keys, error) {
	now, err := k.now(ctx)
	if err != nil {
		return nil, fmt.Errorf("how old the keys are: %w", err)
	}
	if !keys.Due(now.Time()) {
		return keys, nil
	}
	next := keys.Next(now.Time())
	switch err := k.keeper.AddKey(ctx, next); {
	case err == nil:
		k.logger.Info("cursors are sealed with a new key", "serial", next.Serial)
	case !errors.Is(err, checkpoint.ErrKeysMoved):
		return nil, err
	}
	return k.keeper.Keys(ctx)
}
