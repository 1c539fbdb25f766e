package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"mongostream/cmd/bench/blame"
	"mongostream/cmd/bench/figure"
	"mongostream/cmd/bench/machine"
)

// page writes the report as docs/benchmarks.md.
func (o options) page(ctx context.Context, out io.Writer, r *report) error {
	w := bufio.NewWriter(out)
	fmt.Fprint(w, `# Benchmarks

What a node costs over simpler ways to read the same log, in ratios between contenders that ran side by side in one run. This page is
written by `+"`make bench`"+`; the command's documentation (`+"`go doc ./cmd/bench`"+`) says how it measures, and
`+"`go run ./cmd/bench -quick`"+` does it in less than a minute. Micro-benchmarks stand beside the code: `+"`make microbench`"+`.

`)
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
			fmt.Fprintf(w, "| %s | %s | %.4g | %s | %s |\n", title, t.What, t.Value, t.Want, verdict(t))
		}
	}
	fmt.Fprint(w, "\nThe first line of each figure is its headline:\n\n")
	for name, f := range r.each {
		fmt.Fprintf(w, "- `%s`: %s.%s\n", name, f.Of, values(f.Values))
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
	fmt.Fprint(w, legend)
	o.reasons(ctx, w, r)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// legend explains the names of the rounds.
const legend = `
Races:

- unpaced: a backlog is read as fast as possible from a server that has it in memory.
- marks: the same, for so long that the rounds of marks come as often as they do in a node that runs for days: at most every 2 s.
- paced: the end of the log is followed while 120,000 changes a second are written; the server's CPU includes the writing.
- shared: 16 subscribers of a collection each. streams has a change stream for each, tail is one node.
- slow, half: the end of the log is followed at 500 changes a second and at half of what machine, writer and node can do together;
  bare and node take turns in one process.
- memory: events are remembered, without a server.
- grpc: as slow, with a gateway of the Go client in the place of the node's own session.
- index: events are matched with subscriptions: 70 % for a document, 25 % for a field's value or range, 4.9 % with a condition beside
  that, 0.1 % with one that no index helps with.
- encoding: an event of a kilobyte goes to 1,000 sessions as JSON. sessions: bursts of 32 events go to 90 sessions. messages: events of
  300 bytes go through gRPC, and each message is acknowledged.
- backlog, catchup: a node whose tail is at the end of the log catches up with a backlog, unpaced and from a server that sends no more
  than 120,000 events a second.

Contenders:

- raw: a loop of getMore through the driver that discards the replies. bare: a change stream through the driver, undecoded.
- naive: Watch, Next and Decode(bson.M) in one goroutine.
- node: the whole node with 64 partitions, windows, marks in etcd, and a session that acknowledges. node1 and node256 have other
  numbers of partitions, unmarked saves no marks before the last ones, unsubscribed has a session that wants nothing.
- gateway: a node and the Go client. indexed, indexable, few: the index with all subscriptions, with those that it helps with, with 1,000
  of those. linear, rest: every filter asked, or those that no index helps with; the simple ones without CEL, which is faster.
- once, each: all sessions want the event in the same form, or each in its own. alone, stalled: without and with 10 sessions beside them
  that never acknowledge. batched, single: 256 events in a message, or one.
- window, expirable: a lane's window, and golang-lru's expirable LRU in its place.
`

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
	fmt.Fprint(w, "\n## Why\n\nWhere the CPU time went, in the last round of each contender that has missed something.\n")
	for _, key := range slices.Sorted(maps.Keys(missed)) {
		fmt.Fprintf(w, "\n%s: %s\n", key, strings.Join(missed[key], ", "))
		header, lines, err := blame.Top(ctx, o.profileOf(key))
		if err != nil {
			fmt.Fprintf(w, "\nThere is no profile: %v.\n", err)
			continue
		}
		fmt.Fprintf(w, "\n```\n%s\n%s\n```\n", header, strings.Join(lines, "\n"))
	}
}

// profileOf returns the file of a contender's CPU profile.
func (o options) profileOf(key string) string {
	return filepath.Join(o.profile, strings.ReplaceAll(key, "/", "-")+".cpu")
}

// values writes further results behind a figure's headline.
func values(v map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		parts = append(parts, fmt.Sprintf("%s %.4g", strings.ReplaceAll(name, "_", " "), v[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return " Beside it: " + strings.Join(parts, ", ") + "."
}
