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
	last := make(statuses)
	watches.Go(func() {
		s.watch(ctx, signals, func(events []*clientv3.Event) bool {
			s.hear(events)
			return last.news(events)
		}, s.keys.members(), clientv3.WithPrefix())
	})
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

// hear notes when heartbeats arrived, and forgets nodes whose heartbeats are gone.
func (s *ClusterStore) hear(events []*clientv3.Event) {
	for _, e := range events {
		switch node, ok := nodeOf(s.keys, string(e.Kv.Key)); {
		case !ok:
		case e.Type == clientv3.EventTypeDelete:
			s.heard.Delete(node)
		default:
			s.heard.Store(node, arrival{e.Kv.ModRevision, time.Now()})
		}
	}
}

// An arrival is that of a heartbeat.
type arrival struct {
	beat int64 // the revision
	at   time.Time
}

// Heard returns the revision of the last heartbeat of a node that arrived while the cluster's keys
// were watched, and when it did; zero for none. A view shows a heartbeat only when it is taken.
func (s *ClusterStore) Heard(node string) (beat int64, at time.Time) {
	last, _ := s.heard.Load(node)
	heard, _ := last.(arrival)
	return heard.beat, heard.at
}

// A heading is the beginning of a heartbeat: what others must know at once.
type heading struct {
	status cluster.Status
	news   uint64
}

// statuses are those of the members whose heartbeats have been seen, by key.
type statuses map[string]heading

// news reports whether heartbeats contain a relevant change: a member that joins, leaves, or
// changes its status or its problems.
func (s statuses) news(events []*clientv3.Event) (found bool) {
	for _, e := range events {
		key := string(e.Kv.Key)
		if e.Type == clientv3.EventTypeDelete {
			delete(s, key)
			found = true
			continue
		}
		now := headingOf(e.Kv.Value)
		if last, seen := s[key]; !seen || e.IsCreate() || last != now {
			found = true
		}
		s[key] = now
	}
	return found
}

// headingOf returns the beginning of a heartbeat. It reads no further than the status and what
// follows it, because partitions and metrics, most of a heartbeat, come later, and every node reads
// every heartbeat.
func headingOf(heartbeat []byte) (said heading) {
	fields := json.NewDecoder(bytes.NewReader(heartbeat))
	if open, err := fields.Token(); err != nil || open != json.Delim('{') {
		return heading{}
	}
	for fields.More() {
		var other json.RawMessage
		name, err := fields.Token()
		switch {
		case err != nil:
			return heading{}
		case name == "status":
			if fields.Decode(&said.status) != nil {
				return heading{}
			}
		case name == "news" && said.status != "":
			if fields.Decode(&said.news) != nil {
				return heading{}
			}
			return said
		case said.status != "": // there is none
			return said
		case fields.Decode(&other) != nil:
			return heading{}
		}
	}
	return said
}
