package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// A metric is one result.
type metric struct {
	// Ratio is the headline; nil if the figure is void.
	Ratio *float64 `json:"ratio"`
	// Of describes the ratio, or gives its unit.
	Of string `json:"of"`
	// Void is the reason if there is no figure.
	Void string `json:"void,omitempty"`
	// Targets are the targets; the first is that of the headline.
	Targets []target `json:"targets"`
	// Values are further results.
	Values map[string]float64 `json:"values,omitempty"`
	// From has the measurements from which the figure was computed, by race and contender.
	From map[string]measurement `json:"from"`
}

// set sets the headline and the targets. A void figure has neither.
func (f *metric) set(ratio float64, targets []target) {
	f.Targets = []target{}
	if f.Void != "" {
		f.Values = nil
		return
	}
	ratio = fiveDigits(ratio)
	f.Ratio = &ratio
	for _, t := range targets {
		t.Value, t.Bound = fiveDigits(t.Value), fiveDigits(t.Bound)
		f.Targets = append(f.Targets, t)
	}
	for name, v := range f.Values {
		f.Values[name] = fiveDigits(v)
	}
}

// otherValues writes further results after the headline.
func (f *metric) otherValues() string {
	var values []string
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		values = append(values, fmt.Sprintf("%s %.4g", strings.ReplaceAll(name, "_", " "), f.Values[name]))
	}
	if len(values) == 0 {
		return ""
	}
	return " Beside it: " + strings.Join(values, ", ") + "."
}

// misses reports whether a target is missed.
func (f *metric) misses() bool {
	return slices.ContainsFunc(f.Targets, func(t target) bool { return !t.Reached })
}

// A target is a bound on a value.
type target struct {
	What    string  `json:"what"`
	Value   float64 `json:"value"`
	Bound   float64 `json:"bound"`
	Want    string  `json:"want"`
	Reached bool    `json:"reached"`

	// Key is the race and contender whose profile says why it is missed.
	Key string `json:"-"`
}

// verdict returns whether it was reached.
func (t target) verdict() string {
	if t.Reached {
		return "reached"
	}
	return "missed"
}

// atLeast returns a target that is reached at or above the bound.
func atLeast(what string, value, bound float64) target {
	return target{What: what, Value: value, Bound: bound, Want: fmt.Sprintf("≥ %.4g", bound), Reached: value >= bound}
}

// atMost returns a target that is reached at or below the bound.
func atMost(what string, value, bound float64) target {
	return target{What: what, Value: value, Bound: bound, Want: fmt.Sprintf("≤ %.4g", bound), Reached: value <= bound}
}

// A stat is one quantity over the rounds.
type stat struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
}

// sample makes a stat of the rounds' values; the median of an even number of them is the mean of
// the middle two.
func sample(values []float64) stat {
	if len(values) == 0 {
		return stat{Rounds: []float64{}}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return stat{Median: fiveDigits((sorted[(n-1)/2] + sorted[n/2]) / 2), Rounds: values}
}

// samples makes a stat of each value of the rounds, nil if there are none.
func samples(rounds []map[string]float64) (stats map[string]stat) {
	values := make(map[string][]float64)
	for _, round := range rounds {
		for name, v := range round {
			values[name] = append(values[name], fiveDigits(v))
		}
	}
	for name, v := range values {
		if stats == nil {
			stats = make(map[string]stat)
		}
		stats[name] = sample(v)
	}
	return stats
}

// ratioOf returns the median of the rounds' ratios, because other load on the machine affects both
// sides of one round equally, but not two rounds.
func ratioOf(over, under stat) float64 {
	ratios := make([]float64, min(len(over.Rounds), len(under.Rounds)))
	for i := range ratios {
		ratios[i] = over.Rounds[i] / under.Rounds[i]
	}
	return sample(ratios).Median
}

// fiveDigits rounds to five digits, so that a figure does not look more precise than it is.
func fiveDigits(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0 // JSON has no infinities or NaN
	}
	scale := math.Pow(10, 5-math.Ceil(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// A measurement summarizes the rounds of one contender in one race.
type measurement struct {
	Events          int    `json:"events"` // in each round
	Void            string `json:"void,omitempty"`
	EventsPerSecond stat   `json:"events_per_s"`
	// CPU is the CPU time of the measured process: the node, or a contender that reads MongoDB
	// itself. ClientCPU is that of a node's clients.
	CPU       stat  `json:"cpu_us_per_event"`
	ClientCPU *stat `json:"client_cpu_us_per_event,omitempty"`
	ServerCPU *stat `json:"server_cpu_us_per_event,omitempty"`
	// Examined are the entries that MongoDB's change streams have looked at.
	Examined    *stat `json:"server_entries_per_event,omitempty"`
	Allocations stat  `json:"allocs_per_event"`
	RSS         stat  `json:"peak_rss_mib"`
	P50         *stat `json:"p50_ms,omitempty"`
	P99         *stat `json:"p99_ms,omitempty"`
	// Values are results that only this contender has.
	Values map[string]stat `json:"values,omitempty"`
}

// span writes the median and the range of the rounds.
func (s *stat) span() string {
	if s == nil || len(s.Rounds) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s–%s)", short(s.Median), short(slices.Min(s.Rounds)), short(slices.Max(s.Rounds)))
}

// short writes a value with few digits.
func short(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
