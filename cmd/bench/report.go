package main

import "github.com/mongostream/streamer/cmd/bench/figure"

// report computes the figures from the outcomes.
func (b *bench) report() *report {
	r := &report{
		PipelineVsRaw: b.pipelineVsRaw(), PipelineVsNaive: b.pipelineVsNaive(), Partitions256Vs1: b.partitions256Vs1(), Streams16VsTail: b.streams16VsTail(),
		CheckpointsOnVsOff: b.checkpointsOnVsOff(), DedupVsExpirable: b.dedupVsExpirable(), CatchupVsRaw: b.catchupVsRaw(), AddedLatencyMS: b.addedLatency(),
		RSSMiB: b.rss(), AllocationsPerEvents: b.allocations(),
	}
	if b.gateway {
		r.Subscriptions100kVsLinear, r.BatchesVsSingle = new(b.subscriptionsVsLinear()), new(b.batchesVsSingle())
		r.HandoffGapP99MS, r.RestartGapP99MS, r.HandoffVsRestart = new(b.handoffGap()), new(b.restartGap()), new(b.handoffVsRestart())
		r.EncodeOnce1000Sessions, r.Stalled10Percent, r.GRPCLatencyMS = new(b.encodeOnce()), new(b.stalledSessions()), new(b.grpcLatency())
	}
	return r
}

func (b *bench) pipelineVsRaw() figure.Figure {
	f := b.from("events/s of the node ÷ events/s of a raw loop of getMore, paced", "paced/node", "paced/raw", "unpaced/node", "unpaced/raw")
	f.Values["unpaced_ratio"] = f.rate("unpaced/node", "unpaced/raw")
	f.Values["unpaced_client_cpu_us_over_raw"] = f.of("unpaced/node").ClientCPU.Median - f.of("unpaced/raw").ClientCPU.Median
	ratio := f.rate("paced/node", "paced/raw")
	return f.done(ratio, figure.AtLeast("events/s", ratio, 0.95),
		figure.AtMost("client CPU over raw, µs an event", f.of("paced/node").ClientCPU.Median-f.of("paced/raw").ClientCPU.Median, 1.5))
}

func (b *bench) pipelineVsNaive() figure.Figure {
	f := b.from("events/s of the node ÷ events/s of Watch, Next, Decode(bson.M) in one goroutine, unpaced", "unpaced/node", "unpaced/naive")
	ratio := f.rate("unpaced/node", "unpaced/naive")
	return f.done(ratio, figure.AtLeast("events/s", ratio, 4),
		figure.AtMost("client CPU", f.of("unpaced/node").ClientCPU.Median/f.of("unpaced/naive").ClientCPU.Median, 1.0/6))
}

func (b *bench) partitions256Vs1() figure.Figure {
	const many, one = "unpaced/node256", "unpaced/node1"
	f := b.from("events/s with 256 partitions ÷ events/s with 1, unpaced", many, one)
	if m, o := f.of(many).ServerCPU, f.of(one).ServerCPU; m != nil && o != nil {
		f.Values["server_cpu_ratio"] = m.Median / o.Median
	}
	f.Values["client_cpu_ratio"] = f.of(many).ClientCPU.Median / f.of(one).ClientCPU.Median
	ratio := f.rate(many, one)
	return f.done(ratio, figure.AtLeast("events/s", ratio, 0.95))
}

func (b *bench) streams16VsTail() figure.Figure {
	const streams, tail = "shared/streams", "shared/tail"
	f := b.from("server's CPU per event of 16 filtered change streams ÷ that of one tail with 16 subscribers", streams, tail)
	cpu := 0.0
	if s, t := f.of(streams).ServerCPU, f.of(tail).ServerCPU; s != nil && t != nil {
		cpu = s.Median / t.Median
		f.Values["server_cpu_ratio"] = cpu
	}
	if b.uri != "" {
		if cpu == 0 && f.Void == "" {
			f.Void = "the server does not tell its CPU time"
		}
		return f.done(cpu, figure.AtLeast("server CPU", cpu, 12))
	}
	f.Of = "log entries that the server examines per event delivered by 16 filtered change streams ÷ by one tail with 16 subscribers"
	ratio := 0.0
	if s, t := f.of(streams).Examined, f.of(tail).Examined; s != nil && t != nil {
		ratio = s.Median / t.Median
	}
	return f.done(ratio, figure.AtLeast("entries examined", ratio, 12))
}

func (b *bench) checkpointsOnVsOff() figure.Figure {
	f := b.from("events/s with marks in etcd ÷ events/s without any before the last, unpaced", "marks/node", "marks/unmarked")
	f.Values["client_cpu_ratio"] = f.of("marks/node").ClientCPU.Median / f.of("marks/unmarked").ClientCPU.Median
	ratio := f.rate("marks/node", "marks/unmarked")
	return f.done(ratio, figure.AtLeast("events/s", ratio, 0.98))
}

func (b *bench) dedupVsExpirable() figure.Figure {
	f := b.from("events/s through a lane's window ÷ events/s through golang-lru's expirable LRU", "memory/window", "memory/expirable")
	ratio := f.rate("memory/window", "memory/expirable")
	return f.done(ratio, figure.AtLeast("events/s", ratio, 2))
}

func (b *bench) catchupVsRaw() figure.Figure {
	f := b.from("events/s of a node that catches up ÷ events/s of a raw loop of getMore over the same backlog, paced",
		"catchup/node", "catchup/raw", "backlog/node", "backlog/raw")
	f.Values["unpaced_ratio"] = f.rate("backlog/node", "backlog/raw")
	if f.Void == "" && f.of("catchup/node").CatchUp == 0 {
		f.Void = "the node did not read through a catch-up"
	}
	ratio := f.rate("catchup/node", "catchup/raw")
	return f.done(ratio, figure.AtLeast("events/s", ratio, 0.90))
}

func (b *bench) addedLatency() figure.Figure {
	f := b.from("ms from a change to its arrival, median at 500 events/s: a node's less a bare stream's in the same process",
		"slow/node", "slow/bare", "half/node", "half/bare")
	if f.Void != "" {
		return f.done(0)
	}
	added := func(load string) (p50, p99 float64) {
		n, r := f.of(load+"/node"), f.of(load+"/bare")
		return n.P50.Median - r.P50.Median, n.P99.Median - r.P99.Median
	}
	slow50, slow99 := added("slow")
	half50, half99 := added("half")
	f.Values["p50"], f.Values["p99"], f.Values["half_capacity_p50"], f.Values["half_capacity_p99"] = slow50, slow99, half50, half99
	f.Values["half_capacity_events_per_s"] = b.capacity() / 2
	return f.done(slow50, figure.AtMost("p50 at 500 events/s", slow50, 0.2), figure.AtMost("p99 at 500 events/s", slow99, 1),
		figure.AtMost("p50 at half capacity", half50, 0.2).By("half/node"), figure.AtMost("p99 at half capacity", half99, 1).By("half/node"))
}

// What a node's memory is bounded by: its default ring and prefetch.
const (
	ringMiB, prefetchMiB = 48, 16
	boundMiB             = 64 + 3*(ringMiB+prefetchMiB)
)

func (b *bench) rss() figure.Figure {
	f := b.from("MiB resident at most, over all rounds of the node with 64 partitions", "unpaced/node", "marks/node", "paced/node", "backlog/node", "catchup/node")
	peak := 0.0
	for _, m := range f.From {
		for _, v := range m.RSS.Rounds {
			peak = max(peak, v)
		}
	}
	return f.done(peak, figure.AtMost("MiB", peak, boundMiB))
}

func (b *bench) allocations() figure.Figure {
	f := b.from("allocations per delivered event, unpaced", "unpaced/node", "unpaced/unsubscribed", "paced/node", "memory/window")
	delivered, nobody := f.of("unpaced/node").Allocations.Median, f.of("unpaced/unsubscribed").Allocations.Median
	own := f.of("memory/window").Allocations.Median
	f.Values["unsubscribed"], f.Values["window"], f.Values["unsubscribed_beyond_window"] = nobody, own, nobody-own
	f.Values["delivered_paced"] = f.of("paced/node").Allocations.Median
	return f.done(delivered, figure.AtMost("per delivered event", delivered, 3), figure.AtMost("per event that nobody subscribes to, beyond the window's own", nobody-own, 0.05))
}
