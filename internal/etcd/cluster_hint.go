package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/retry"
)

// How long is waited before a watch that broke is begun again.
const (
	watchFirst   = 100 * time.Millisecond
	watchLongest = time.Second
)

// Hints implements [cluster.Store]. Marks and other keys of the cluster are not watched: a round of
// marks would wake every member.
func (s *ClusterStore) Hints(ctx context.Context) <-chan struct{} {
	ctx = clientv3.WithRequireLeader(ctx) // a server that has lost its cluster ends the watch
	signals := make(chan struct{}, 1)
	var watches sync.WaitGroup
	for _, key := range []string{s.keys.origin(), s.keys.plan()} {
		watches.Go(func() { s.watch(ctx, signals, anything, key) })
	}
	for _, prefix := range []string{s.candidates(), s.keys.owners(), s.keys.directives()} {
		watches.Go(func() { s.watch(ctx, signals, anything, prefix, clientv3.WithPrefix()) })
	}
	watches.Go(func() { s.watch(ctx, signals, make(statuses).news, s.keys.members(), clientv3.WithPrefix()) })
	go func() {
		watches.Wait()
		close(signals)
	}()
	return signals
}

// watch signals relevant changes of keys. It starts without a revision, so it misses changes from
// before its start. Therefore it sends a signal whenever it has started, and whenever the client
// had to restart it.
func (s *ClusterStore) watch(
	ctx context.Context, signals chan<- struct{}, news func([]*clientv3.Event) bool, key string, options ...clientv3.OpOption,
) {
	options = append(options, clientv3.WithCreatedNotify())
	again := retry.Backoff{First: watchFirst, Longest: watchLongest}
	for failures := 1; ctx.Err() == nil; failures++ {
		watching, cancel := context.WithTimeout(ctx, watchMax)
		for resp := range s.etcd.Watch(watching, key, options...) {
			begun := resp.Created && !resp.Canceled
			if begun {
				failures = 0
			}
			if begun || news(resp.Events) {
				select {
				case signals <- struct{}{}:
				default:
				}
			}
		}
		cancel()
		_ = again.Wait(ctx, max(failures, 1))
	}
}

// anything takes all changes for news.
func anything(events []*clientv3.Event) bool { return len(events) > 0 }

// statuses are those of the members whose heartbeats have been seen, by key.
type statuses map[string]cluster.Status

// news reports whether heartbeats contain a relevant change: a member that joins, leaves, or
// changes its status.
func (s statuses) news(events []*clientv3.Event) (found bool) {
	for _, e := range events {
		key := string(e.Kv.Key)
		if e.Type == clientv3.EventTypeDelete {
			delete(s, key)
			found = true
			continue
		}
		status := statusOf(e.Kv.Value)
		if last, seen := s[key]; !seen || e.IsCreate() || last != status {
			found = true
		}
		s[key] = status
	}
	return found
}

// statusOf returns the status in a heartbeat, empty if there is none. It reads no further, because
// partitions and metrics, most of a heartbeat, come after it, and every node reads every heartbeat.
func statusOf(heartbeat []byte) cluster.Status {
	fields := json.NewDecoder(bytes.NewReader(heartbeat))
	if open, err := fields.Token(); err != nil || open != json.Delim('{') {
		return ""
	}
	for fields.More() {
		var status cluster.Status
		var other json.RawMessage
		name, err := fields.Token()
		switch {
		case err != nil:
			return ""
		case name == "status":
			if fields.Decode(&status) != nil {
				return ""
			}
			return status
		case fields.Decode(&other) != nil:
			return ""
		}
	}
	return ""
}
