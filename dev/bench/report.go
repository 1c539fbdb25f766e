package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A report has the results of one run, by name.
type report map[string]metric

// order returns the print order of the figures.
func order() []string {
	return []string{
		"node_vs_raw", "node_vs_naive", "json_vs_bson", "partitions_4096_vs_1", "checkpoints_on_vs_off", "catchup_vs_raw", "added_latency_ms",
		"sse_1000_vs_1", "event_streams", "snapshot_vs_find", "snapshot_live_p99", "snapshot_busy", "snapshot_rss", "handoff_pause_ms", "tenants_p99", "sink_kafka_vs_bare", "sink_nats_vs_bare", "sink_http_vs_bare", "sink_file_vs_bare",
		"retention_on_vs_off", "retained_catchup_vs_oplog", "retained_200_vs_1", "rss_mib", "allocs_per_event",
	}
}

// report computes the figures from the outcomes.
func (b *bench) report() *report {
	r := report{
		"node_vs_raw": b.nodeVsRaw(), "node_vs_naive": b.nodeVsNaive(), "json_vs_bson": b.jsonVsBSON(), "partitions_4096_vs_1": b.partitionsManyVsOne(),
		"checkpoints_on_vs_off": b.checkpointsOnVsOff(), "catchup_vs_raw": b.catchupVsRaw(), "added_latency_ms": b.addedLatency(),
		"sse_1000_vs_1": b.manyVsOneBrowser(), "event_streams": b.crowded(), "snapshot_vs_find": b.snapshotVsFind(), "snapshot_live_p99": b.snapshotLiveP99(), "snapshot_busy": b.snapshotBusy(),
		"snapshot_rss": b.snapshotRSS(), "handoff_pause_ms": b.handoffPause(), "tenants_p99": b.tenantsP99(),
		"sink_kafka_vs_bare": b.sinkVsBare(toKafka, toTransactions), "sink_nats_vs_bare": b.sinkVsBare(toJetStream),
		"sink_http_vs_bare": b.sinkVsBare(toHTTP), "sink_file_vs_bare": b.sinkVsBare(toFile),
		"retention_on_vs_off": b.retentionOnVsOff(), "retained_catchup_vs_oplog": b.retainedCatchup(), "retained_200_vs_1": b.retainedReturners(),
		"rss_mib": b.rss(), "allocs_per_event": b.allocations(),
	}
	if b.uri != "" { // whose oplog cannot be truncated
		delete(r, "retained_catchup_vs_oplog")
		delete(r, "retained_200_vs_1")
	}
	if b.race != "" { // a figure whose races were not to run is none
		maps.DeleteFunc(r, func(_ string, f metric) bool {
			for key := range f.From {
				if len(b.outcomes[key]) == 0 {
					return true
				}
			}
			return false
		})
	}
	return &r
}

// each yields the figures with their names.
func (r *report) each(yield func(name string, f metric) bool) {
	for _, name := range order() {
		if f, ok := (*r)[name]; ok && !yield(name, f) {
			return
		}
	}
}

// verdict returns an error if a figure is void.
func (r *report) verdict() error {
	var errs []error
	for name, f := range r.each {
		if f.Void != "" {
			errs = append(errs, fmt.Errorf("%s is void: %s", name, f.Void))
		}
	}
	return errors.Join(errs...)
}

// measurement summarizes the rounds of a contender. One bad round makes it void.
func (b *bench) measurement(key string) (m measurement) {
	outcomes := b.outcomes[key]
	if len(outcomes) == 0 {
		m.Void = "it did not run"
	}
	told := make([]map[string]float64, len(outcomes))
	for i, o := range outcomes {
		m.Events = max(m.Events, o.Events)
		told[i] = o.Values
		if o.Fault != "" && m.Void == "" {
			m.Void = fmt.Sprintf("round %d: %s", i+1, o.Fault)
		}
	}
	over := func(value func(o outcome) (float64, bool)) *stat {
		values := []float64{}
		for _, o := range outcomes {
			if v, known := value(o); known && o.Events > 0 {
				values = append(values, fiveDigits(v))
			}
		}
		if len(values) == 0 {
			return nil
		}
		s := sample(values)
		return &s
	}
	always := func(value func(o outcome) float64) stat {
		if s := over(func(o outcome) (float64, bool) { return value(o), true }); s != nil {
			return *s
		}
		return sample(nil)
	}
	micros := func(d time.Duration, o outcome) float64 { return d.Seconds() * 1e6 / float64(o.Events) }
	m.EventsPerSecond = always(func(o outcome) float64 { return float64(o.Events) / o.Elapsed.Seconds() })
	m.CPU = always(func(o outcome) float64 { return micros(o.CPU, o) })
	m.ClientCPU = over(func(o outcome) (float64, bool) { return micros(o.clientCPU, o), o.clientCPU >= 0 })
	m.ServerCPU = over(func(o outcome) (float64, bool) { return micros(o.serverCPU, o), o.serverCPU >= 0 })
	m.Examined = over(func(o outcome) (float64, bool) { return float64(o.examined) / float64(o.Events), o.examined >= 0 })
	m.Allocations = always(func(o outcome) float64 { return float64(o.Mallocs) / float64(o.Events) })
	m.RSS = always(func(o outcome) float64 { return float64(o.PeakRSS) / (1 << 20) })
	m.Values = samples(told)
	m.P50 = over(func(o outcome) (float64, bool) { return o.P50, o.P99 > 0 })
	m.P99 = over(func(o outcome) (float64, bool) { return o.P99, o.P99 > 0 })
	return m
}

// A metricBuilder computes a figure from measurements.
type metricBuilder struct {
	metric

	first string // of the keys
}

// from starts a figure from the measurements of races and contenders. It is void if one of them is.
func (b *bench) from(of string, keys ...string) *metricBuilder {
	f := &metricBuilder{first: keys[0], metric: metric{Of: of, From: make(map[string]measurement, len(keys)), Values: make(map[string]float64)}}
	for _, key := range keys {
		m := b.measurement(key)
		if f.From[key] = m; m.Void != "" && f.Void == "" {
			f.Void = key + ": " + m.Void
		}
	}
	return f
}

func (f *metricBuilder) of(key string) measurement { return f.From[key] }

// rate returns the ratio of two contenders' events a second, cpu that of their CPU time per event.
func (f *metricBuilder) rate(over, under string) float64 {
	return ratioOf(f.of(over).EventsPerSecond, f.of(under).EventsPerSecond)
}

func (f *metricBuilder) cpu(over, under string) float64 {
	return ratioOf(f.of(over).CPU, f.of(under).CPU)
}

// done completes the figure. It does not call compute if the figure is void.
func (f *metricBuilder) done(compute func() (ratio float64, targets []target)) metric {
	if f.Void != "" {
		f.set(0, nil)
		return f.metric
	}
	ratio, targets := compute()
	for i := range targets {
		targets[i].Key = f.first
	}
	f.set(ratio, targets)
	return f.metric
}

func (b *bench) nodeVsRaw() metric {
	f := b.from("events/s of a node's client ÷ events/s of a raw loop of getMore, paced", "paced/node", "paced/raw", "unpaced/node", "unpaced/raw")
	return f.done(func() (float64, []target) {
		beyond := func(group string) float64 { return f.of(group+"/node").CPU.Median - f.of(group+"/raw").CPU.Median }
		f.Values["unpaced_ratio"] = f.rate("unpaced/node", "unpaced/raw")
		f.Values["unpaced_cpu_us_over_raw"] = beyond("unpaced")
		ratio := f.rate("paced/node", "paced/raw")
		return ratio, []target{atLeast("events/s", ratio, 0.98), atMost("node's CPU over raw, µs an event", beyond("paced"), 1.5)}
	})
}

func (b *bench) nodeVsNaive() metric {
	f := b.from("CPU of a node for an event ÷ CPU of Watch, Next, Decode(bson.M) in one goroutine, unpaced", "unpaced/node", "unpaced/naive")
	return f.done(func() (float64, []target) {
		f.Values["events_per_s_ratio"] = f.rate("unpaced/node", "unpaced/naive")
		ratio := f.cpu("unpaced/node", "unpaced/naive")
		return ratio, []target{atMost("CPU", ratio, 0.25)}
	})
}

func (b *bench) jsonVsBSON() metric {
	f := b.from("CPU of a node for an event as JSON ÷ as BSON, unpaced", "text/json", "text/bson")
	return f.done(func() (float64, []target) {
		f.Values["events_per_s_ratio"] = f.rate("text/json", "text/bson")
		ratio := f.cpu("text/json", "text/bson")
		return ratio, []target{atMost("CPU", ratio, 2)}
	})
}

func (b *bench) partitionsManyVsOne() metric {
	const many, one = "unpaced/node4096", "unpaced/node1"
	f := b.from("events/s with 4096 partitions ÷ events/s with 1, unpaced", many, one)
	return f.done(func() (float64, []target) {
		f.Values["cpu_ratio"] = f.cpu(many, one)
		ratio := f.rate(many, one)
		return ratio, []target{atLeast("events/s", ratio, 0.97)}
	})
}

func (b *bench) checkpointsOnVsOff() metric {
	const on, off = "checkpoints/on", "checkpoints/off"
	f := b.from("events/s with checkpoints in etcd ÷ events/s without, unpaced", on, off)
	return f.done(func() (float64, []target) {
		f.Values["cpu_ratio"] = f.cpu(on, off)
		ratio := f.rate(on, off)
		return ratio, []target{atLeast("events/s", ratio, 0.98)}
	})
}

func (b *bench) catchupVsRaw() metric {
	f := b.from("events/s of a client that catches up ÷ events/s of a raw loop of getMore over the same backlog, paced", "catchup/node", "catchup/raw")
	return f.done(func() (float64, []target) {
		ratio := f.rate("catchup/node", "catchup/raw")
		return ratio, []target{atLeast("events/s", ratio, 0.95)}
	})
}

func (b *bench) addedLatency() metric {
	f := b.from("ms from a change to a client's handler, median at half of the capacity: through a node, less those of a bare stream",
		"half/node", "half/bare", "slow/node", "slow/bare")
	return f.done(func() (float64, []target) {
		added := func(load string) (p50, p99 float64) {
			n, r := f.of(load+"/node"), f.of(load+"/bare")
			return n.P50.Median - r.P50.Median, n.P99.Median - r.P99.Median
		}
		p50, p99 := added("half")
		f.Values["at_500_events_per_s_p50"], f.Values["at_500_events_per_s_p99"] = added("slow")
		f.Values["half_capacity_events_per_s"] = b.capacity() / 2
		return p50, []target{atMost("p50", p50, 0.2), atMost("p99", p99, 2)}
	})
}

func (b *bench) manyVsOneBrowser() metric {
	f := b.from(fmt.Sprintf("CPU of a node for an event that one of %d SSE clients wants, with different filters ÷ that one client wants", b.scale.sse.count),
		"sse/many", "sse/one")
	return f.done(func() (float64, []target) {
		ratio := f.cpu("sse/many", "sse/one")
		return ratio, []target{atMost("CPU", ratio, 3)}
	})
}

func (b *bench) handoffPause() metric {
	const moved, windowless, restarted = "handoff/moved", "handoff/windowless", "handoff/restarted"
	f := b.from("ms that a document stood still at most while its partition was handed over, 99th percentile of documents", moved, windowless, restarted)
	return f.done(func() (float64, []target) {
		for name, s := range f.of(moved).Values {
			f.Values[name] = s.Median
		}
		f.Values["restarted_p99"] = f.of(restarted).P99.Median
		f.Values["windowless_p99"] = f.of(windowless).P99.Median
		f.Values["windowless_p99_before"] = f.of(windowless).Values["p99_before"].Median
		p99 := *f.of(moved).P99
		return p99.Median, []target{
			atMost("over that without a handoff", ratioOf(p99, f.of(moved).Values["p99_before"]), 1.5),
			atLeast("below that of a node that is stopped and started again", ratioOf(*f.of(restarted).P99, p99), 10),
		}
	})
}

// sampleMiB is the memory of a node in the sample deployments (deploy/kubernetes, deploy/systemd),
// and sampleLimit Go's limit within it, in bytes. No key bounds a node's whole memory; the defaults
// of the keys that bound its parts, such as gateway.queue_bytes, must fit together.
const sampleMiB, sampleLimit = 1024, 900 << 20

func (b *bench) tenantsP99() metric {
	const alone, besieged = "tenants/alone", "tenants/besieged"
	f := b.from("p99 of 10 honest identities beside 10 hostile ones ÷ p99 without these, at 2,000 events/s", besieged, alone)
	return f.done(func() (float64, []target) {
		m := f.of(besieged)
		f.Values["p99_ms"] = m.P99.Median
		f.Values["p99_ms_alone"] = f.of(alone).P99.Median
		for _, name := range []string{"attempts", "refused", "reconnects"} {
			f.Values[name] = m.Values[name].Median
		}
		ratio := ratioOf(*m.P99, *f.of(alone).P99)
		return ratio, []target{
			atMost("p99", ratio, 5),
			atMost("ms that /livez took at most", slices.Max(m.Values["livez_max_ms"].Rounds), 100),
			atMost("MiB", slices.Max(m.RSS.Rounds), sampleMiB),
		}
	})
}

// sinkVsBare returns the figure of a target, together with the values of the other targets that use
// the same broker.
func (b *bench) sinkVsBare(kind string, others ...string) metric {
	var keys []string
	for _, kind := range append([]string{kind}, others...) {
		for _, mode := range []string{"", "_unpaced"} {
			keys = append(keys, "sinks/"+kind+mode, "sinks/"+kind+"_bare"+mode)
		}
	}
	f := b.from("events/s of a sink ÷ events/s of a loop that only publishes the same messages to the same target, paced", keys...)
	return f.done(func() (float64, []target) {
		for i := 0; i < len(keys); i += 2 {
			name := strings.TrimPrefix(keys[i], "sinks/")
			f.Values[name+"_events_per_s"] = f.of(keys[i]).EventsPerSecond.Median
			f.Values[name+"_ratio"] = f.rate(keys[i], keys[i+1])
			if raw := b.measurement("unpaced/raw"); raw.Void == "" && strings.HasSuffix(name, "_unpaced") {
				bare := f.of(keys[i+1]).CPU.Median
				f.Values[name+"_limit"] = bare / (raw.CPU.Median + bare)
			}
		}
		ratio := f.rate(keys[0], keys[1])
		return ratio, []target{atLeast("events/s", ratio, 0.9), atLeast("events/s of the sink", f.of(keys[0]).EventsPerSecond.Median, 50_000)}
	})
}

// The default sizes of a node's queues: ring and prefetch of its tail and of a catch-up, and a
// session's credit.
const (
	ringMiB, prefetchMiB, creditMiB = 48, 16, 16
	boundMiB                        = 128 + 2*(ringMiB+prefetchMiB) + creditMiB
)

func (b *bench) rss() metric {
	f := b.from("MiB resident at most, over all rounds of the node with 64 partitions and one client", "paced/node", "unpaced/node", "checkpoints/on", "catchup/node")
	return f.done(func() (peak float64, _ []target) {
		for _, m := range f.From {
			peak = max(peak, slices.Max(m.RSS.Rounds))
		}
		return peak, []target{atMost("MiB", peak, boundMiB)}
	})
}

func (b *bench) allocations() metric {
	f := b.from("allocations of the node for a delivered event, unpaced", "unpaced/node", "paced/node", "text/json")
	return f.done(func() (float64, []target) {
		f.Values["paced"] = f.of("paced/node").Allocations.Median
		f.Values["as_json"] = f.of("text/json").Allocations.Median
		a := f.of("unpaced/node").Allocations.Median
		return a, []target{atMost("an event", a, 3)}
	})
}

// measurements returns the measurements of all figures, by race and contender.
func (r *report) measurements() map[string]measurement {
	all := make(map[string]measurement)
	for _, f := range r.each {
		maps.Copy(all, f.From)
	}
	return all
}
