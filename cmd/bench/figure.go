package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/mongostream/streamer/cmd/bench/figure"
)

// A report is what one run found out, in the order in which it is printed.
type report struct {
	PipelineVsRaw        figure.Figure `json:"pipeline_vs_raw"`
	PipelineVsNaive      figure.Figure `json:"pipeline_vs_naive"`
	Partitions256Vs1     figure.Figure `json:"partitions_256_vs_1"`
	Streams16VsTail      figure.Figure `json:"streams_16_vs_tail"`
	CheckpointsOnVsOff   figure.Figure `json:"checkpoints_on_vs_off"`
	DedupVsExpirable     figure.Figure `json:"dedup_vs_expirable"`
	CatchupVsRaw         figure.Figure `json:"catchup_vs_raw"`
	AddedLatencyMS       figure.Figure `json:"added_latency_ms"`
	RSSMiB               figure.Figure `json:"rss_mib"`
	AllocationsPerEvents figure.Figure `json:"allocs_per_event"`

	// Of gateways; nil where they were not measured.
	Subscriptions100kVsLinear *figure.Figure `json:"subscriptions_100k_vs_linear,omitempty"`
	BatchesVsSingle           *figure.Figure `json:"batches_vs_single,omitempty"`
	EncodeOnce1000Sessions    *figure.Figure `json:"encode_once_1000_sessions,omitempty"`
	Stalled10Percent          *figure.Figure `json:"stalled_10_percent,omitempty"`
	GRPCLatencyMS             *figure.Figure `json:"grpc_latency_ms,omitempty"`
	HandoffGapP99MS           *figure.Figure `json:"handoff_gap_p99_ms,omitempty"`
	RestartGapP99MS           *figure.Figure `json:"restart_gap_p99_ms,omitempty"`
	HandoffVsRestart          *figure.Figure `json:"handoff_vs_restart,omitempty"`
}

// each yields the figures with their names.
func (r *report) each(yield func(name string, f *figure.Figure) bool) {
	for _, f := range []struct {
		name string
		*figure.Figure
	}{
		{"pipeline_vs_raw", &r.PipelineVsRaw}, {"pipeline_vs_naive", &r.PipelineVsNaive}, {"partitions_256_vs_1", &r.Partitions256Vs1},
		{"streams_16_vs_tail", &r.Streams16VsTail}, {"checkpoints_on_vs_off", &r.CheckpointsOnVsOff}, {"dedup_vs_expirable", &r.DedupVsExpirable},
		{"catchup_vs_raw", &r.CatchupVsRaw}, {"added_latency_ms", &r.AddedLatencyMS}, {"rss_mib", &r.RSSMiB},
		{"allocs_per_event", &r.AllocationsPerEvents}, {"subscriptions_100k_vs_linear", r.Subscriptions100kVsLinear},
		{"batches_vs_single", r.BatchesVsSingle}, {"encode_once_1000_sessions", r.EncodeOnce1000Sessions}, {"stalled_10_percent", r.Stalled10Percent},
		{"grpc_latency_ms", r.GRPCLatencyMS}, {"handoff_gap_p99_ms", r.HandoffGapP99MS}, {"restart_gap_p99_ms", r.RestartGapP99MS},
		{"handoff_vs_restart", r.HandoffVsRestart},
	} {
		if f.Figure != nil && !yield(f.name, f.Figure) {
			return
		}
	}
}

// verdict is an error where a figure is void.
func (r *report) verdict() error {
	var errs []error
	for name, f := range r.each {
		if f.Void != "" {
			errs = append(errs, fmt.Errorf("%s is void: %s", name, f.Void))
		}
	}
	return errors.Join(errs...)
}

// measurement computes what a contender's rounds were like. One bad round makes it void.
func (b *bench) measurement(key string) (m figure.Measurement) {
	outcomes := b.outcomes[key]
	if len(outcomes) == 0 {
		m.Void = "it did not run"
	}
	for i, o := range outcomes {
		m.Events = max(m.Events, o.Events)
		if o.Fault != "" && m.Void == "" {
			m.Void = fmt.Sprintf("round %d: %s", i+1, o.Fault)
		}
		if o.CatchUp {
			m.CatchUp++
		}
	}
	over := func(value func(o outcome) (float64, bool)) *figure.Stat {
		values := []float64{}
		for _, o := range outcomes {
			if v, known := value(o); known && o.Events > 0 {
				values = append(values, figure.Round(v))
			}
		}
		if len(values) == 0 {
			return nil
		}
		s := figure.Sample(values)
		return &s
	}
	always := func(value func(o outcome) float64) figure.Stat {
		if s := over(func(o outcome) (float64, bool) { return value(o), true }); s != nil {
			return *s
		}
		return figure.Sample(nil)
	}
	micros := func(seconds float64, o outcome) float64 { return seconds * 1e6 / float64(o.Events) }
	m.EventsPerSecond = always(func(o outcome) float64 { return float64(o.Events) / o.Elapsed.Seconds() })
	m.ClientCPU = always(func(o outcome) float64 { return micros(o.CPU.Seconds(), o) })
	m.Allocations = always(func(o outcome) float64 { return float64(o.Mallocs) / float64(o.Events) })
	m.RSS = always(func(o outcome) float64 { return float64(o.PeakRSS) / (1 << 20) })
	m.ServerCPU = over(func(o outcome) (float64, bool) { return micros(o.serverCPU.Seconds(), o), o.serverCPU >= 0 })
	m.Examined = over(func(o outcome) (float64, bool) { return float64(o.examined) / float64(o.sent), o.sent > 0 })
	told := make([]map[string]float64, len(outcomes))
	for i, o := range outcomes {
		told[i] = o.Values
	}
	m.Values = figure.Samples(told)
	m.P50 = over(func(o outcome) (float64, bool) { return o.P50, o.P99 > 0 })
	m.P99 = over(func(o outcome) (float64, bool) { return o.P99, o.P99 > 0 })
	return m
}

// A figuring computes a figure from measurements.
type figuring struct {
	bench *bench
	first string // of the keys
	figure.Figure
}

// from makes a figure of the measurements of races and contenders, void where one of them is.
func (b *bench) from(of string, keys ...string) *figuring {
	f := &figuring{bench: b, first: keys[0], Figure: figure.Figure{Of: of, From: make(map[string]figure.Measurement, len(keys)), Values: make(map[string]float64)}}
	for _, key := range keys {
		m := b.measurement(key)
		f.From[key] = m
		if m.Void != "" && f.Void == "" {
			f.Void = key + ": " + m.Void
		}
	}
	return f
}

// of returns a measurement that the figure is computed from.
func (f *figuring) of(key string) figure.Measurement { return f.From[key] }

// done sets the headline and the targets. A void figure has neither.
func (f *figuring) done(ratio float64, targets ...figure.Target) figure.Figure {
	for i := range targets {
		targets[i].Key = cmp.Or(targets[i].Key, f.first)
	}
	f.Figure.Set(ratio, targets)
	return f.Figure
}

// rate returns the ratio of two contenders' events a second.
func (f *figuring) rate(a, b string) float64 {
	return figure.Ratio(f.of(a).EventsPerSecond, f.of(b).EventsPerSecond)
}
