package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// A report is what one run found out, in the order in which it is printed.
type report struct {
	PipelineVsRaw        figure `json:"pipeline_vs_raw"`
	PipelineVsNaive      figure `json:"pipeline_vs_naive"`
	Partitions256Vs1     figure `json:"partitions_256_vs_1"`
	Streams16VsTail      figure `json:"streams_16_vs_tail"`
	CheckpointsOnVsOff   figure `json:"checkpoints_on_vs_off"`
	DedupVsExpirable     figure `json:"dedup_vs_expirable"`
	CatchupVsRaw         figure `json:"catchup_vs_raw"`
	AddedLatencyMS       figure `json:"added_latency_ms"`
	RSSMiB               figure `json:"rss_mib"`
	AllocationsPerEvents figure `json:"allocs_per_event"`
}

// each yields the figures with their names.
func (r *report) each(yield func(name string, f *figure) bool) {
	for _, f := range []struct {
		name string
		*figure
	}{
		{"pipeline_vs_raw", &r.PipelineVsRaw}, {"pipeline_vs_naive", &r.PipelineVsNaive}, {"partitions_256_vs_1", &r.Partitions256Vs1},
		{"streams_16_vs_tail", &r.Streams16VsTail}, {"checkpoints_on_vs_off", &r.CheckpointsOnVsOff}, {"dedup_vs_expirable", &r.DedupVsExpirable},
		{"catchup_vs_raw", &r.CatchupVsRaw}, {"added_latency_ms", &r.AddedLatencyMS}, {"rss_mib", &r.RSSMiB},
		{"allocs_per_event", &r.AllocationsPerEvents},
	} {
		if !yield(f.name, f.figure) {
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

// A figure is one result.
type figure struct {
	// Ratio is the headline; nil where the figure is void.
	Ratio *float64 `json:"ratio"`
	// Of says what it is a ratio of, or its unit.
	Of string `json:"of"`
	// Void says why there is no figure.
	Void string `json:"void,omitempty"`
	// Targets are what is to be reached; the first is of the headline.
	Targets []target `json:"targets"`
	// Values are further results.
	Values map[string]float64 `json:"values,omitempty"`
	// From is what everything was computed from, by race and contender.
	From map[string]measurement `json:"from"`
}

// A target is a bound on a value.
type target struct {
	What    string  `json:"what"`
	Value   float64 `json:"value"`
	Bound   float64 `json:"bound"`
	Want    string  `json:"want"`
	Reached bool    `json:"reached"`

	of string // the race and contender whose profile says why it is missed
}

// by says whose profile explains a miss, where it is not the figure's first contender.
func (t target) by(key string) target {
	t.of = key
	return t
}

func atLeast(what string, value, bound float64) target {
	return target{What: what, Value: value, Bound: bound, Want: fmt.Sprintf("≥ %.4g", bound), Reached: value >= bound}
}

func atMost(what string, value, bound float64) target {
	return target{What: what, Value: value, Bound: bound, Want: fmt.Sprintf("≤ %.4g", bound), Reached: value <= bound}
}

// A stat is one quantity over the rounds.
type stat struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
}

// sample makes a stat of the rounds' values; the median of an even number of them is the mean of the middle two.
func sample(values []float64) stat {
	if len(values) == 0 {
		return stat{Rounds: []float64{}}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return stat{Median: round((sorted[(n-1)/2] + sorted[n/2]) / 2), Rounds: values}
}

// round leaves five digits, so that nobody reads more into a figure than there is.
func round(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0 // JSON knows no others
	}
	scale := math.Pow(10, 5-math.Ceil(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// A measurement is what the rounds of one contender in one race were like.
type measurement struct {
	Events          int    `json:"events"` // in each round
	Void            string `json:"void,omitempty"`
	EventsPerSecond stat   `json:"events_per_s"`
	ClientCPU       stat   `json:"client_cpu_us_per_event"`
	ServerCPU       *stat  `json:"server_cpu_us_per_event,omitempty"`
	Examined        *stat  `json:"examined_per_event,omitempty"`
	Allocations     stat   `json:"allocs_per_event"`
	RSS             stat   `json:"peak_rss_mib"`
	P50             *stat  `json:"p50_ms,omitempty"`
	P99             *stat  `json:"p99_ms,omitempty"`
	// CatchUp is the number of rounds in which a node read through a catch-up.
	CatchUp int `json:"catch_up_rounds,omitempty"`
}

// measurement computes what a contender's rounds were like. One bad round makes it void.
func (b *bench) measurement(key string) (m measurement) {
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
	over := func(value func(o outcome) (float64, bool)) *stat {
		values := []float64{}
		for _, o := range outcomes {
			if v, known := value(o); known && o.Events > 0 {
				values = append(values, round(v))
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
	micros := func(seconds float64, o outcome) float64 { return seconds * 1e6 / float64(o.Events) }
	m.EventsPerSecond = always(func(o outcome) float64 { return float64(o.Events) / o.Elapsed.Seconds() })
	m.ClientCPU = always(func(o outcome) float64 { return micros(o.CPU.Seconds(), o) })
	m.Allocations = always(func(o outcome) float64 { return float64(o.Mallocs) / float64(o.Events) })
	m.RSS = always(func(o outcome) float64 { return float64(o.PeakRSS) / (1 << 20) })
	m.ServerCPU = over(func(o outcome) (float64, bool) { return micros(o.serverCPU.Seconds(), o), o.serverCPU >= 0 })
	m.Examined = over(func(o outcome) (float64, bool) { return float64(o.examined) / float64(o.sent), o.sent > 0 })
	m.P50 = over(func(o outcome) (float64, bool) { return o.P50, o.P99 > 0 })
	m.P99 = over(func(o outcome) (float64, bool) { return o.P99, o.P99 > 0 })
	return m
}

// A figuring computes a figure from measurements.
type figuring struct {
	bench *bench
	first string // of the keys
	figure
}

// from makes a figure of the measurements of races and contenders, void where one of them is.
func (b *bench) from(of string, keys ...string) *figuring {
	f := &figuring{bench: b, first: keys[0], figure: figure{Of: of, From: make(map[string]measurement, len(keys)), Values: make(map[string]float64)}}
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
func (f *figuring) of(key string) measurement { return f.From[key] }

// done sets the headline and the targets. A void figure has neither.
func (f *figuring) done(ratio float64, targets ...target) figure {
	f.Targets = []target{}
	if f.Void != "" {
		f.Values = nil
		return f.figure
	}
	ratio = round(ratio)
	f.Ratio = &ratio
	for _, t := range targets {
		t.Value, t.Bound, t.of = round(t.Value), round(t.Bound), cmp.Or(t.of, f.first)
		f.Targets = append(f.Targets, t)
	}
	for name, v := range f.Values {
		f.Values[name] = round(v)
	}
	return f.figure
}

// rate returns the ratio of two contenders' events a second: the median of the rounds' ratios, because what else the machine does
// weighs on both sides of a round alike, and on two rounds it does not.
func (f *figuring) rate(a, b string) float64 {
	over, under := f.of(a).EventsPerSecond.Rounds, f.of(b).EventsPerSecond.Rounds
	ratios := make([]float64, min(len(over), len(under)))
	for i := range ratios {
		ratios[i] = over[i] / under[i]
	}
	return sample(ratios).Median
}
