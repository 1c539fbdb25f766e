package stream

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb"
)

// A shardedScene is a scene behind a router with two shards, which write nothing by themselves:
// even _ids are on the first one. Its source ticks until the test ends.
type shardedScene struct {
	*scene
	log      *safeBuffer
	registry *prometheus.Registry
}

func newShardedScene(t *testing.T, release string, adjust func(*devmongo.Profile), prepare func(s *shardedScene)) *shardedScene {
	t.Helper()
	server := devmongotest.Start(t, devmongo.Config{Release: release, Preset: "sharded", Adjust: func(p *devmongo.Profile) {
		p.NoopEvery, p.ConfigNoopEvery = 0, 0
		adjust(p)
	}})
	s := &shardedScene{log: &safeBuffer{}, registry: prometheus.NewRegistry()}
	c, err := mongodb.Dial(t.Context(), mongodb.Config{URI: server.URI() + "&heartbeatFrequencyMS=500", Application: "ticking", Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	source, err := NewSource(SourceConfig{
		MaxAwait: 20 * time.Millisecond, MinReopen: time.Millisecond, Tick: 10 * time.Millisecond, Registerer: s.registry,
	}, c)
	if err != nil {
		t.Fatal(err)
	}
	s.scene = &scene{T: t, client: c, coll: c.Driver().Database("shop").Collection("c"), source: source}
	prepare(s)
	if err := source.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { source.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return s
}

// A safeBuffer is a log that can be read while it is written.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), text)
}

// metric returns the sum of a metric, of one shard where that is named; of a histogram, how often
// something was observed.
func (s *shardedScene) metric(name, shard string) (sum float64) {
	s.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (shard == "" || strings.Contains(m.String(), shard)) {
				sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

const (
	metricTicks = "streamer_mongodb_shard_ticks_total"
	metricWait  = "streamer_mongodb_shard_wait_seconds"
)

// A change of one shard arrives although nothing is written to the other, nor by the config
// servers.
func TestTickLetsChangesPassThatWaitForOtherShards(t *testing.T) {
	s := newShardedScene(t, "7.0", func(*devmongo.Profile) {}, func(*shardedScene) {})
	stream := s.open(change.Position{})
	for id := range 5 {
		s.insert(2 * id)
		if got := s.read(stream, 1)[0].ID().Data[0]; int(got) != 2*id {
			t.Errorf("document %d has come", got)
		}
	}
	s.insert(1, 3, 10)
	if events := s.read(stream, 3); events[0].ID().Data[0] != 1 || events[2].ID().Data[0] != 10 {
		t.Errorf("%v", events)
	}
	for _, shard := range []string{"sh0", "sh1"} {
		if n := s.metric(metricTicks, shard); n < 5 {
			t.Errorf("%s was ticked %v times", shard, n)
		}
	}
	if n := s.metric(metricWait, ""); n < 5 {
		t.Errorf("%v waits were measured", n)
	}
}

// Where ticks are refused it is said once, and changes come with the shards' own no-ops.
func TestTickThatIsRefusedIsToldOnce(t *testing.T) {
	denied := func(s *shardedScene) {
		s.fail("alwaysOn", bson.D{{Key: "failCommands", Value: bson.A{"appendOplogNote"}}, {Key: "errorCode", Value: 13}})
	}
	for name, c := range map[string]struct {
		release string
		prepare func(*shardedScene)
	}{
		"by a mongos that does not know it": {"4.4", func(*shardedScene) {}},
		"for want of the right":             {"7.0", denied},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShardedScene(t, c.release, func(p *devmongo.Profile) { p.NoopEvery = 100 * time.Millisecond }, c.prepare)
			stream := s.open(change.Position{})
			for id := range 5 {
				s.insert(2 * id)
				s.read(stream, 1)
			}
			if n := s.log.count("shards are not asked to advance"); n != 1 {
				t.Errorf("told %d times", n)
			}
			if n := s.metric("streamer_mongodb_ticks_failed_total", ""); n != 1 {
				t.Errorf("%v ticks failed", n)
			}
			if n := s.metric(metricTicks, ""); n != 0 {
				t.Errorf("%v shards are said to have been moved on", n)
			}
		})
	}
}

func TestConfigServersThatMayNotBeReadAreToldOfOnce(t *testing.T) {
	s := newShardedScene(t, "7.0", func(p *devmongo.Profile) { p.ConfigNoopEvery = 50 * time.Millisecond }, func(s *shardedScene) {
		s.fail("alwaysOn", bson.D{{Key: "failCommands", Value: bson.A{"find"}}, {Key: "errorCode", Value: 13}})
	})
	stream := s.open(change.Position{})
	for id := range 5 {
		s.insert(2 * id)
		s.read(stream, 1)
	}
	if n := s.log.count("config servers are not asked to advance"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestTicksRestWhereNothingMayWait(t *testing.T) {
	at := func(i uint32) change.Timestamp { return change.Timestamp{T: 1000, I: i} }
	type look struct {
		cluster, position uint32
		due               bool
		ticked            uint32 // the cluster's time after the tick, 0 for none
		all               bool
	}
	for name, looks := range map[string][]look{
		"the first look knows of nothing":                    {{10, 10, false, 0, false}},
		"a change waits for another shard":                   {{10, 10, false, 0, false}, {11, 10, true, 14, true}, {14, 12, false, 0, false}, {14, 12, false, 0, false}},
		"the next one does too":                              {{10, 10, false, 0, false}, {11, 10, true, 14, true}, {14, 12, false, 0, false}, {15, 12, true, 18, true}},
		"a change of the same time as another shard's no-op": {{10, 10, false, 0, false}, {11, 11, false, 0, false}, {11, 11, true, 13, true}, {13, 12, false, 0, false}},
		"shards that write all the time need no tick":        {{10, 10, false, 0, false}, {20, 15, false, 0, false}, {30, 25, false, 0, false}, {40, 35, false, 0, false}},
		"one of many is behind":                              {{10, 10, false, 0, false}, {20, 10, true, 21, false}, {30, 22, false, 0, false}, {40, 22, true, 41, false}},
		"a shard has written beside the tick":                {{10, 10, false, 0, false}, {11, 10, true, 12, false}, {12, 12, false, 0, false}, {12, 12, true, 14, true}, {14, 13, false, 0, false}},
	} {
		var p pacer
		for i, l := range looks {
			if due := p.due(at(l.cluster), at(l.position)); due != l.due {
				t.Errorf("%s, look %d: due %t", name, i, due)
			}
			if l.ticked > 0 {
				p.ticked(at(l.ticked), l.all)
			}
		}
	}
}

func TestWaitForTheSlowestShardIsMeasured(t *testing.T) {
	var p progress
	at := func(i uint32) change.Timestamp { return change.Timestamp{T: 1000, I: i} }
	begun := time.Now()
	for i, step := range []struct {
		cluster, position uint32
		after             time.Duration
		took              time.Duration // 0 for none
	}{
		{10, 10, 0, 0},
		{12, 10, time.Second, 0},                   // from here on 12 is awaited
		{15, 11, 2 * time.Second, 0},               // a later time does not begin another wait
		{15, 13, 3 * time.Second, 2 * time.Second}, // and here 15 begins to be
		{15, 15, 7 * time.Second, 4 * time.Second},
		{15, 15, 9 * time.Second, 0},
	} {
		took, reached := p.note(mongodb.ClusterTime{Timestamp: at(step.cluster)}, at(step.position), begun.Add(step.after))
		if took != step.took || reached != (step.took > 0) {
			t.Errorf("step %d: %v, %t", i, took, reached)
		}
	}
}

// How long an empty answer is waited for decides how long a change of another shard waits.
func TestWaitIsShortOnShardedClusters(t *testing.T) {
	for preset, want := range map[string]time.Duration{"": time.Second, "sharded": 100 * time.Millisecond} {
		c := devmongo.Config{Release: "7.0", Preset: preset}
		server := devmongotest.Start(t, c)
		client, err := mongodb.Dial(t.Context(), mongodb.Config{URI: server.URI()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		source, err := NewSource(SourceConfig{}, client)
		if err != nil {
			t.Fatal(err)
		}
		if got := source.MaxAwait(); got != want {
			t.Errorf("%q: %v", preset, got)
		}
	}
}
