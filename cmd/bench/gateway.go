package main

import (
	"context"
	"errors"

	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/cmd/bench/figure"
	"github.com/mongostream/streamer/cmd/bench/part"
	"github.com/mongostream/streamer/cmd/bench/server"
)

// gatewayRaces are the races of what gateways cost.
func (b *bench) gatewayRaces() []race {
	return []race{
		{"grpc", func(ctx context.Context) error {
			return b.delays(ctx, []load{{"grpc", b.scale.slow}}, []entry{{name: "bare", contender: "bare"}, {name: "gateway", contender: "gateway"}})
		}},
		{"index", func(ctx context.Context) error {
			return b.raceInMemory(ctx, "index", map[string]int{
				"indexed": b.scale.matched, "indexable": b.scale.matched, "few": b.scale.matched, "linear": b.scale.linear, "rest": b.scale.matched / 10,
			}, "indexed", "linear", "rest", "indexable", "few")
		}},
		{"encoding", func(ctx context.Context) error {
			return b.raceInMemory(ctx, "encoding", map[string]int{"once": b.scale.handed, "each": b.scale.handed}, "once", "each")
		}},
		{"stalled", func(ctx context.Context) error {
			return b.raceInMemory(ctx, "sessions", map[string]int{"alone": b.scale.followed, "stalled": b.scale.followed}, "alone", "stalled")
		}},
		{"handoff", b.raceHandoffs},
		{"messages", func(ctx context.Context) error {
			return b.raceInMemory(ctx, "messages", map[string]int{"batched": b.scale.sent, "single": b.scale.sent}, "batched", "single")
		}},
	}
}

// raceHandoffs lets partitions change hands in two ways, each in a cluster of its own that writes for itself.
func (b *bench) raceHandoffs(ctx context.Context) error {
	entries := []entry{{name: "moved", contender: "moved"}, {name: "restarted", contender: "restarted"}}
	for round := range b.scale.moves {
		for _, i := range contender.Sequence(round, len(entries)) {
			data := server.Data{DB: b.name(), Collections: 1}
			job := b.job(entries[i].contender, data, 0)
			job.Rate = b.scale.moved
			if err := errors.Join(b.enter(ctx, "handoff", entries[i], job, nil), b.drop(ctx, data)); err != nil {
				return err
			}
		}
	}
	return nil
}

// raceInMemory lets contenders that need no server do so many steps each, in turns in one process: what they prepare they keep there.
func (b *bench) raceInMemory(ctx context.Context, group string, steps map[string]int, names ...string) error {
	p, err := part.Start("contender", b.notes)
	if err != nil {
		return err
	}
	for round := range b.scale.rounds {
		for _, i := range contender.Sequence(round, len(names)) {
			j := contender.Job{
				Contender: names[i], Collections: 1, Timeout: b.scale.timeout, Steps: steps[names[i]], Subscriptions: b.scale.subscriptions,
			}
			if err := b.round(ctx, p, group, entry{name: names[i]}, j, nil); err != nil {
				return errors.Join(err, p.Close())
			}
		}
	}
	return p.Close()
}

// micros is what a step costs, in microseconds of the clock.
func (f *figuring) micros(key string) float64 { return 1e6 / f.of(key).EventsPerSecond.Median }

func (b *bench) subscriptionsVsLinear() figure.Figure {
	const indexed, linear, rest, indexable, few = "index/indexed", "index/linear", "index/rest", "index/indexable", "index/few"
	f := b.from("time of an event with every filter asked ÷ with the index of subscriptions", indexed, linear, rest, indexable, few)
	if f.Void != "" {
		return f.done(0)
	}
	f.Values["subscriptions"] = float64(b.scale.subscriptions)
	f.Values["us_per_event"], f.Values["us_of_filters_without_an_index"] = f.micros(indexed), f.micros(rest)
	ratio, beyond := f.rate(indexed, linear), f.micros(indexed)-f.micros(rest)
	return f.done(ratio, figure.AtLeast("time", ratio, 400), figure.AtMost("µs an event, beside filters that no index helps with", beyond, 5).By(indexed),
		figure.AtMost("time over that with 1,000 subscriptions, without those filters", f.micros(indexable)/f.micros(few), 2).By(indexable))
}

func (b *bench) batchesVsSingle() figure.Figure {
	f := b.from("CPU of an event through gRPC in a message of its own ÷ in a batch of 256", "messages/batched", "messages/single")
	if f.Void != "" {
		return f.done(0)
	}
	ratio := f.of("messages/single").ClientCPU.Median / f.of("messages/batched").ClientCPU.Median
	return f.done(ratio, figure.AtLeast("CPU", ratio, 8))
}

func (b *bench) encodeOnce() figure.Figure {
	f := b.from("CPU of an event to 1,000 sessions, written for each ÷ written once", "encoding/once", "encoding/each")
	if f.Void != "" {
		return f.done(0)
	}
	ratio := f.of("encoding/each").ClientCPU.Median / f.of("encoding/once").ClientCPU.Median
	return f.done(ratio, figure.AtLeast("CPU", ratio, 5))
}

func (b *bench) stalledSessions() figure.Figure {
	const alone, stalled = "sessions/alone", "sessions/stalled"
	f := b.from("events/s of 90 sessions beside 10 that stall ÷ without them", stalled, alone)
	if f.Void != "" {
		return f.done(0)
	}
	ratio := f.rate(stalled, alone)
	return f.done(ratio, figure.AtLeast("events/s", ratio, 0.97), figure.AtMost("p99", f.of(stalled).P99.Median/f.of(alone).P99.Median, 1.2))
}

// The contenders whose partitions change hands.
const moved, restarted = "handoff/moved", "handoff/restarted"

func (b *bench) handoffGap() figure.Figure {
	f := b.gap(moved, "its partition was handed over from node to node")
	if f.Void != "" {
		return f.done(0)
	}
	return f.done(f.of(moved).P99.Median, figure.AtMost("ms", f.of(moved).P99.Median, 50))
}

func (b *bench) restartGap() figure.Figure {
	f := b.gap(restarted, "the only node was stopped and started again")
	if f.Void != "" {
		return f.done(0)
	}
	return f.done(f.of(restarted).P99.Median)
}

// gap is how long documents stood still for a contender, with what only that knows.
func (b *bench) gap(key, while string) *figuring {
	f := b.from("ms that a document stood still at most, 99th percentile of documents, while "+while, key)
	for name, s := range f.of(key).Values {
		f.Values[name] = s.Median
	}
	return f
}

func (b *bench) handoffVsRestart() figure.Figure {
	f := b.from("time that a document stood still when a node was stopped and started again ÷ when its partition was handed over", moved, restarted)
	if f.Void != "" {
		return f.done(0)
	}
	ratio := figure.Ratio(*f.of(restarted).P99, *f.of(moved).P99)
	return f.done(ratio, figure.AtLeast("time", ratio, 10))
}

func (b *bench) grpcLatency() figure.Figure {
	f := b.from("ms from a change to its arrival, 99th percentile at 500 events/s: a gateway's less a bare stream's in the same process",
		"grpc/gateway", "grpc/bare")
	if f.Void != "" {
		return f.done(0)
	}
	p50, p99 := f.of("grpc/gateway").P50.Median-f.of("grpc/bare").P50.Median, f.of("grpc/gateway").P99.Median-f.of("grpc/bare").P99.Median
	f.Values["p50"] = p50
	return f.done(p99, figure.AtMost("p99 at 500 events/s", p99, 3))
}
