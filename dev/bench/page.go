package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed" // of the page's texts
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
)

// print writes the report in the requested form.
func (o flags) print(ctx context.Context, out io.Writer, r *report) error {
	switch o.output {
	case "json":
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		return nil
	case "markdown":
		return o.page(ctx, out, r)
	}
	return table(out, r)
}

// table writes a line for each target, with a summary.
func table(out io.Writer, r *report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "figure\tof what\tmeasured\twanted\t")
	for name, f := range r.each {
		if f.Void != "" {
			fmt.Fprintf(w, "%s\t%s\tvoid\t\t\n", name, f.Void)
			continue
		}
		for _, t := range f.Targets {
			fmt.Fprintf(w, "%s\t%s\t%.4g\t%s\t%s\n", name, t.What, t.Value, t.Want, t.verdict())
			name = ""
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

// page writes the report as docs/benchmarks.md.
func (o flags) page(ctx context.Context, out io.Writer, r *report) error {
	w := bufio.NewWriter(out)
	fmt.Fprint(w, head)
	mongo := "development MongoDB, serving from memory"
	if o.uri != "" {
		mongo = "the one of -uri"
	}
	fmt.Fprint(w, "| machine | |\n|---|---|\n")
	for _, f := range append(facts(), fact{Name: "MongoDB", Value: mongo}, fact{Name: "command", Value: "`" + o.command + "`"}) {
		fmt.Fprintf(w, "| %s | %s |\n", f.Name, f.Value)
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
			fmt.Fprintf(w, "| %s | %s | %.4g | %s | %s |\n", title, t.What, t.Value, t.Want, t.verdict())
		}
	}
	fmt.Fprint(w, "\nThe first line of each figure is its headline:\n\n")
	for name, f := range r.each {
		fmt.Fprintf(w, "- `%s`: %s.%s\n", name, f.Of, f.otherValues())
	}
	fmt.Fprintf(w, "\n## Rounds\n\nMedians over %d rounds, in brackets the least and the greatest.\n\n", o.scale.rounds)
	fmt.Fprint(w, "| race/contender | events a round | events/s | CPU, µs/event | its clients' CPU | server CPU, µs/event | allocations/event | peak MiB | p50, ms | p99, ms |\n")
	fmt.Fprint(w, "|---|---|---|---|---|---|---|---|---|---|\n")
	all := r.measurements()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		m := all[key]
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s | %s | %s | %s |\n", key, m.Events, m.EventsPerSecond.span(), m.CPU.span(), m.ClientCPU.span(), m.ServerCPU.span(),
			m.Allocations.span(), m.RSS.span(), m.P50.span(), m.P99.span())
	}
	fmt.Fprint(w, "\n", legend)
	o.reasons(ctx, w, r)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// head is the beginning of the page, legend explains the names of the rounds.
var (
	//go:embed head.md
	head string
	//go:embed legend.md
	legend string
)

// causes says why figures are missed where they are, and where their limits are.
//
//nolint:gochecknoglobals // constant
var causes = map[string]string{
	"node_vs_raw": "the driver's change stream counts, parses and checks each reply before a node gets it, which raw discards: " +
		"`go test -run '^$' -bench Reply ./internal/mongodb/stream` measures that alone. " +
		"The rest is to parse, match and encode the events, and to write them to a socket; `bench -quick -race paced -profile DIR` shows the shares.",
	"partitions_4096_vs_1": "the events of a batch are of as many partitions, so that the client queues each by itself: " +
		"what differs most is the CPU of the clients. `go test -run '^$' -bench Client ./client` measures these alone.",
	"catchup_vs_raw": "the server sends nothing between a reply and the next request, and the driver's change stream checks the events of a reply before it makes that: " +
		"`go test -run '^$' -bench Reply ./internal/mongodb/stream` measures for how long.",
	"added_latency_ms": "at half of the capacity the cores are busy, and a change passes six goroutines of the node and three of the client, each of which may have to wait for a core. " +
		"The values at 500 events a second are without such waits.",
	"snapshot_vs_find": "a document is copied into an event, sent, and received once more, so that one more process wants the cores. " +
		"`limit` is what that leaves to a node that needs no more CPU than find; `bench -quick -race snapshot -profile DIR` shows what it needs. " +
		"Paced, the server sends nothing between a page and the request for the next one, which begins at its last document.",
}

// reasons writes why targets were missed: the causes that are known, and the CPU profiles of the
// contenders, as far as there are any.
func (o flags) reasons(ctx context.Context, w io.Writer, r *report) {
	missed := make(map[string][]string)
	for name, f := range r.each {
		for _, t := range f.Targets {
			if !t.Reached {
				missed[t.Key] = append(missed[t.Key], fmt.Sprintf("`%s` (%s)", name, t.What))
			}
		}
	}
	if len(missed) == 0 {
		return
	}
	fmt.Fprint(w, "\n## Why\n\n")
	for name, f := range r.each {
		if cause := causes[name]; cause != "" && f.misses() {
			fmt.Fprintf(w, "- `%s`: %s\n", name, cause)
		}
	}
	if o.profile != "" {
		writeProfile(ctx, w, missed, o.profileOf)
	}
}

// profileOf returns the file of a contender's CPU profile.
func (o flags) profileOf(key string) string {
	return filepath.Join(o.profile, strings.ReplaceAll(key, "/", "-")+".cpu")
}

// A fact is a line about the environment of a run.
type fact struct{ Name, Value string }

// facts returns the machine and the versions, as far as they are known.
func facts() []fact {
	all := []fact{
		{"CPU", fmt.Sprintf("%s, %d cores", lineOf("/proc/cpuinfo", "model name"), runtime.NumCPU())},
		{"memory", lineOf("/proc/meminfo", "MemTotal")},
		{"system", fmt.Sprintf("%s/%s %s", runtime.GOOS, runtime.GOARCH, strings.TrimSpace(textOf("/proc/sys/kernel/osrelease")))},
		{"Go", runtime.Version()},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "go.mongodb.org/mongo-driver/v2", "go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/server/v3":
				all = append(all, fact{dep.Path, dep.Version})
			}
		}
		all = append(all, fact{"commit", commit(info)})
	}
	return all
}

// commit returns the commit of the program, if the build recorded it.
func commit(info *debug.BuildInfo) string {
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := cmp.Or(settings["vcs.revision"], "unknown")
	if settings["vcs.modified"] == "true" {
		revision += ", with changes"
	}
	return revision
}

// lineOf returns the value of the first line of a file of names and values.
func lineOf(path, name string) string {
	for l := range strings.Lines(textOf(path)) {
		if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func textOf(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	return string(text)
}
