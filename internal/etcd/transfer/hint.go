package transfer

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/retry"
)

// Hints implements [ledger.Keeper]. A signal is due whenever the watch has begun, since what happened before is not told.
func (k *Keeper) Hints(ctx context.Context) <-chan struct{} {
	signals := make(chan struct{}, 1)
	go func() {
		defer close(signals)
		again := retry.Backoff{First: 100 * time.Millisecond, Longest: time.Second}
		for failures := 1; ctx.Err() == nil; failures++ {
			if k.watch(ctx, signals) {
				failures = 0
			}
			_ = again.Wait(ctx, max(failures, 1))
		}
	}()
	return signals
}

// watch watches until it breaks, and reports whether it had begun.
func (k *Keeper) watch(ctx context.Context, signals chan<- struct{}) (begun bool) {
	watching, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), etcd.WatchAtMost)
	defer cancel()
	for resp := range k.etcd.Watch(watching, k.keys.Handoffs(), clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		created := resp.Created && !resp.Canceled
		begun = begun || created
		if created || len(resp.Events) > 0 {
			select {
			case signals <- struct{}{}:
			default:
			}
		}
	}
	return begun
}
