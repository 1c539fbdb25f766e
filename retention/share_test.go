package retention_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/retention"
	"github.com/mongostream/streamer/retention/retentiontest"
)

// A countedStore counts how often each byte of its objects is read, without their headers.
type countedStore struct {
	*retentiontest.Memory

	mu   sync.Mutex
	read map[string][]int
	look func() // at each read
}

func (s *countedStore) Get(ctx context.Context, key string, offset, n int64) ([]byte, retention.Object, error) {
	data, about, err := s.Memory.Get(ctx, key, offset, n)
	if offset == 0 && n == 4<<10 {
		return data, about, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look(); s.read == nil {
		s.read = make(map[string][]int)
	}
	for counts := s.read[key]; int64(len(counts)) < offset+int64(len(data)); counts = s.read[key] {
		s.read[key] = append(counts, make([]int, 1+len(data))...)
	}
	for i := range data {
		s.read[key][offset+int64(i)]++
	}
	return data, about, err
}

// most returns how often the byte was read that was read most often, and the bytes read in all.
func (s *countedStore) most() (most, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, counts := range s.read {
		for _, n := range counts {
			most, all = max(most, n), all+n
		}
	}
	return most, all
}

// gauge returns a metric of the retained log.
func gauge(t *testing.T, r prometheus.Gatherer, name string) int {
	families, err := r.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		if f.GetName() == "streamer_retention_"+name {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Errorf("no metric %s", name)
	return 0
}

// Two hundred cursors, some of them slow, read the retained log: it fetches each block about once
// for all of them, within the memory and the number of readers that it may use, and MongoDB has no
// more streams than it may have. With less memory it fetches more, and they still get everything.
func TestReadersShareWhatTheyFetch(t *testing.T) {
	for _, c := range []struct {
		cache, most int
	}{{0, 2}, {150_000, 200}} {
		t.Run(fmt.Sprint(c.cache), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { shareReading(t, c.cache, c.most) })
		})
	}
}

func shareReading(t *testing.T, limit, most int) {
	const maxStreams = 5
	mongo, store, registry := newMongo(), &countedStore{Memory: &retentiontest.Memory{}, look: func() {}}, prometheus.NewRegistry()
	n := startWith(t, mongo, store, retention.WriterConfig{Size: 200_000}, func(cfg *retention.SourceConfig) {
		cfg.CacheBytes, cfg.Registerer = int64(limit), registry
	})
	defer n.stop()
	var all []changetest.Event
	for i := range 300 {
		all = append(all, mongo.Append(changetest.Event{ID: int64(i), Coll: fmt.Sprint("c", i%3), Pad: 2000, Noise: true})...)
		if i%10 == 0 {
			n.pass(time.Second)
		}
	}
	n.pass(3 * time.Minute)
	mongo.Truncate(1)
	first, last := mongo.Reach()
	n.log.SetReach(gap.Reach{First: first, Retained: all[0].Time, Last: last}, all[0].Time)
	held, readers := 0, 0
	store.mu.Lock()
	store.look = func() {
		held, readers = max(held, gauge(t, registry, "cache_bytes")), max(readers, n.log.Stats().Retained)
	}
	store.mu.Unlock()
	var reading sync.WaitGroup
	for i := range 200 {
		reading.Go(func() {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			c := n.log.Cursor(oplog.Start{Position: all[0].Position()})
			defer c.Close()
			for want := positions(all[1:]); len(want) > 0; {
				b, err := c.Next(t.Context())
				if err != nil || b.Loss() != nil {
					t.Errorf("cursor %d: %v, loss %v", i, err, b.Loss())
					return
				}
				for k := range b.Len() {
					if len(want) == 0 || b.Event(k).Position().Compare(want[0]) != 0 {
						t.Errorf("cursor %d: another change %d before the end", i, len(want))
						return
					}
					want = want[1:]
				}
				time.Sleep(time.Duration(i%4) * 20 * time.Millisecond)
			}
		})
	}
	reading.Wait()
	synctest.Wait()
	got, bytes := store.most()
	t.Logf("a byte was read %d times at most, %d bytes in all; %d bytes were held at most, by %d readers", got, bytes, held, readers)
	if got > most {
		t.Errorf("a byte was read %d times", got)
	}
	if limit > 0 && held > limit {
		t.Errorf("%d bytes were held", held)
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	if after := gauge(t, registry, "cache_bytes"); after != 0 {
		t.Errorf("%d bytes are held for nobody", after)
	}
	if readers > maxStreams-1 {
		t.Errorf("%d readers of the retained log", readers)
	}
	if _, streams, _ := mongo.Streams(); streams > maxStreams {
		t.Errorf("%d streams of MongoDB at a time", streams)
	}
}

// A staleStore lists segments late, as stores do that list from another copy.
type staleStore struct{ *retentiontest.Memory }

func (s staleStore) List(ctx context.Context, folder, after string) ([]retention.Object, bool, error) {
	objects, more, err := s.Memory.List(ctx, folder, after)
	if strings.HasSuffix(folder, "/seg") {
		late := s.Clock().Add(-2 * time.Minute)
		objects = slices.DeleteFunc(objects, func(o retention.Object) bool { return o.Modified.After(late) })
	}
	return objects, more, err
}

// Lists that lack the newest segments, and a store's clock that jumps, cost nothing: writers that
// take an old segment for the last one find its number taken, and readers ask for the next one.
func TestStaleListsAndJumpingClocksLoseNothing(t *testing.T) {
	for name, jump := range map[string]time.Duration{"same time": 0, "an hour ahead": time.Hour, "a day ahead": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var jumped time.Duration
				mongo, store := newMongo(), staleStore{&retentiontest.Memory{Clock: func() time.Time { return time.Now().Add(jumped) }}}
				var all []changetest.Event
				for round := range 4 {
					n := start(t, mongo, store, retention.WriterConfig{Node: fmt.Sprint("n", round%2), Shared: true, MaxAge: 72 * time.Hour})
					all = append(all, write(mongo, 60, int64(1000*round))...)
					n.pass(5 * time.Minute)
					jumped += jump / 4
					n.pass(5 * time.Minute)
					n.stop()
				}
				n := start(t, mongo, store, retention.WriterConfig{Shared: true})
				defer n.stop()
				n.pass(30 * time.Minute)
				mongo.Truncate(1)
				got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
				if err := same(got, positions(all[1:])); err != nil || len(losses) > 0 || len(n.lost) > 0 {
					t.Errorf("%v, losses %v, %v", err, losses, n.lost)
				}
				events := 0
				for _, h := range verify(t, store.Memory) {
					events += h.Events
				}
				if events != len(all) {
					t.Errorf("%d changes are stored, %d were written", events, len(all))
				}
			})
		})
	}
}
