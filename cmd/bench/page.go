package main

import (
	"bufio"
	"context"
	_ "embed" // of the page's texts
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mongostream/streamer/cmd/bench/blame"
	"github.com/mongostream/streamer/cmd/bench/figure"
	"github.com/mongostream/streamer/cmd/bench/machine"
)

// page writes the report as docs/benchmarks.md.
func (o options) page(ctx context.Context, out io.Writer, r *report) error {
	w := bufio.NewWriter(out)
	fmt.Fprint(w, head)
	mongo := "development MongoDB, serving from memory"
	if o.uri != "" {
		mongo = "the one of -uri"
	}
	fmt.Fprint(w, "| machine | |\n|---|---|\n")
	for _, fact := range append(machine.Facts(), machine.Fact{Name: "MongoDB", Value: mongo}, machine.Fact{Name: "command", Value: "`" + o.command + "`"}) {
		fmt.Fprintf(w, "| %s | %s |\n", fact.Name, fact.Value)
	}
	fmt.Fprint(w, "\n## Figures\n\n| figure | of what | measured | wanted | |\n|---|---|---|---|---|\n")
	for name, f := range r.each {
		if f.Void != "" {
			fmt.Fprintf(w, "| `%s` | %s | void | | |\n", name, f.Void)
			continue
		}
		for i, t := range f.Targets {
			title := ""
			if i == 0 {
				title = "`" + name + "`"
			}
			fmt.Fprintf(w, "| %s | %s | %.4g | %s | %s |\n", title, t.What, t.Value, t.Want, t.Verdict())
		}
	}
	fmt.Fprint(w, "\nThe first line of each figure is its headline:\n\n")
	for name, f := range r.each {
		fmt.Fprintf(w, "- `%s`: %s.%s\n", name, f.Of, f.Beside())
	}
	fmt.Fprintf(w, "\n## Rounds\n\nMedians over %d rounds, in brackets the least and the greatest.\n\n", o.scale.rounds)
	fmt.Fprint(w, "| race/contender | events a round | events/s | client CPU, µs/event | server CPU, µs/event | allocations/event | peak MiB | p50, ms | p99, ms |\n")
	fmt.Fprint(w, "|---|---|---|---|---|---|---|---|---|\n")
	all := make(map[string]figure.Measurement)
	for _, f := range r.each {
		maps.Copy(all, f.From)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		m := all[key]
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s | %s | %s |\n", key, m.Events, m.EventsPerSecond.Span(), m.ClientCPU.Span(), m.ServerCPU.Span(),
			m.Allocations.Span(), m.RSS.Span(), m.P50.Span(), m.P99.Span())
	}
	fmt.Fprint(w, "\n", legend)
	o.reasons(ctx, w, r)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// head is what the page begins with, legend explains the names of the rounds.
var (
	//go:embed head.md
	head string
	//go:embed legend.md
	legend string
)

// reasons writes where the CPU time went of the contenders that have missed what they were to reach, as far as there are profiles.
func (o options) reasons(ctx context.Context, w io.Writer, r *report) {
	missed := make(map[string][]string)
	for name, f := range r.each {
		for _, t := range f.Targets {
			if !t.Reached {
				missed[t.Key] = append(missed[t.Key], fmt.Sprintf("`%s` (%s)", name, t.What))
			}
		}
	}
	if len(missed) == 0 || o.profile == "" {
		return
	}
	blame.Write(ctx, w, missed, o.profileOf)
}

// profileOf returns the file of a contender's CPU profile.
func (o options) profileOf(key string) string {
	return filepath.Join(o.profile, strings.ReplaceAll(key, "/", "-")+".cpu")
}
