package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/leaktest"
)

// The test's own program is every worker of the benchmark, with contenders beside the real ones
// that need no server.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != workerArgument {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // of the workers: there are many
		leaktest.Main(m)
		return
	}
	known := contenders()
	for name, spoil := range map[string]func([]int64) []int64{
		"honest":     func(seqs []int64) []int64 { return seqs },
		"dropping":   func(seqs []int64) []int64 { return slices.Delete(seqs, 3, 4) },
		"reordering": func(seqs []int64) []int64 { seqs[3], seqs[4] = seqs[4], seqs[3]; return seqs },
		"doubling":   func(seqs []int64) []int64 { return slices.Insert(seqs, 3, seqs[2]) },
		"stopping":   func(seqs []int64) []int64 { return seqs[:len(seqs)-1] },
	} {
		known[name] = func() contender { return &pretender{spoil: spoil} }
	}
	serve := func() error { return serveWorker(context.Background(), os.Args[2], os.Stdin, os.Stdout) }
	switch os.Args[2] {
	case "contender":
		serve = func() error { return serveContender(context.Background(), os.Stdin, os.Stdout, known) }
	case "test":
		serve = func() error { return serveRequests(context.Background(), os.Stdin, os.Stdout, testHandlers()) }
	}
	if err := serve(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// A pretender makes up the changes of one document and spoils their order.
type pretender struct {
	round *round
	spoil func([]int64) []int64
}

func (p *pretender) Open(_ context.Context, r *round) error {
	p.round = r
	r.begin()
	return nil
}

func (p *pretender) Read(ctx context.Context) error {
	seqs := make([]int64, p.round.Events)
	for i := range seqs {
		seqs[i] = int64(i + 1)
	}
	for _, seq := range p.spoil(seqs) {
		p.round.check.change(1, seq, 0, time.Now())
	}
	if !p.round.check.done() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

func (p *pretender) Close() error { return nil }

// tiny is a scale at which figures mean nothing.
func tiny() scale {
	return scale{
		rounds: 1, unpaced: 6400, naive: 1000, text: 1000, kept: 6400, paced: 20 * time.Millisecond, behind: 6400, delays: 20 * time.Millisecond,
		documents: 640, timeout: time.Minute, slow: 500, pace: 10_000, sse: streams{10, 640, 5000}, crowd: streams{100, 5, 100}, moves: 1, moved: 500,
		stock: 2000, shelf: 200_000, scan: 500 * time.Millisecond, rescan: 50_000, sieges: 1, siege: 200 * time.Millisecond, published: 500,
		retained: 100 * time.Millisecond,
	}
}

func TestRunHasEveryFigureWithWhatItWasComputedFrom(t *testing.T) {
	o := flags{scale: tiny(), attacks: attackNames(), output: "json"}
	r, err := measure(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := o.print(t.Context(), &out, r); err != nil {
		t.Fatal(err)
	}
	var figures map[string]struct {
		Ratio  *float64           `json:"ratio"`
		Values map[string]float64 `json:"values"`
		From   map[string]struct {
			Events int `json:"events"`
			Rate   struct {
				Median float64   `json:"median"`
				Rounds []float64 `json:"rounds"`
			} `json:"events_per_s"`
		} `json:"from"`
	}
	if err := json.Unmarshal(out.Bytes(), &figures); err != nil {
		t.Fatal(err)
	}
	for _, name := range order() {
		f, found := figures[name]
		if !found || f.Ratio == nil || len(f.From) == 0 {
			t.Errorf("%s: %+v", name, f)
		}
		for key, m := range f.From {
			if m.Events == 0 || len(m.Rate.Rounds) != 1 || m.Rate.Median <= 0 {
				t.Errorf("%s, %s: %+v", name, key, m)
			}
		}
	}
	if v := figures["handoff_pause_ms"].Values; v["partitions"] != partitions/2 || v["move_took_s"] <= 0 {
		t.Errorf("%v, want %v partitions to have changed hands", v, partitions/2)
	}
	if len(figures) != len(order()) {
		t.Errorf("%d figures, want %d", len(figures), len(order()))
	}
	for _, output := range []string{"", "markdown"} {
		o.output = output
		out.Reset()
		if err := o.print(t.Context(), &out, r); err != nil || !strings.Contains(out.String(), "partitions_4096_vs_1") {
			t.Errorf("output %q: %v\n%s", output, err, out.String())
		}
	}
}

// The siege in short: nothing of the honest identities' changes is missing, and their sessions
// live.
func TestOneRaceHasItsFiguresOnly(t *testing.T) {
	r, err := measure(t.Context(), flags{scale: tiny(), race: "tenants", attacks: attackNames()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name, f := range r.each {
		if names = append(names, name); f.Ratio == nil {
			t.Errorf("%s: %s", name, f.Void)
		}
	}
	if !slices.Equal(names, []string{"tenants_p99"}) {
		t.Errorf("figures %q", names)
	}
	besieged := (*r)["tenants_p99"].From["tenants/besieged"]
	values := besieged.Values
	if besieged.Void != "" || values["reconnects"].Median != 0 {
		t.Errorf("honest sessions: void %q, %v reconnects", besieged.Void, values["reconnects"].Median)
	}
	for _, attack := range attacks() {
		if values[attack.name+"_attempts"].Median == 0 {
			t.Errorf("the attack %s made no attempt", attack.name)
		}
	}
	var races []string
	for _, race := range (&bench{flags: flags{race: "half"}}).chosen() {
		races = append(races, race.name)
	}
	if !slices.Equal(races, []string{"unpaced", "paced", "half"}) {
		t.Errorf("races %q", races)
	}
}

func TestOtherServerIsWrittenTo(t *testing.T) {
	b := &bench{
		flags:    flags{scale: tiny(), uri: devmongotest.Start(t, devmongo.Config{}).URI()},
		notes:    io.Discard,
		begun:    time.Now(),
		outcomes: make(map[string][]outcome),
	}
	if err := b.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, race := range b.races() {
		if slices.Contains([]string{"unpaced", "paced", "catch-up"}, race.name) {
			if err := race.run(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
	for key := range b.outcomes {
		if m := b.measurement(key); m.Void != "" || m.EventsPerSecond.Median <= 0 || m.ServerCPU != nil {
			t.Errorf("%s: %+v", key, m)
		}
	}
	if f := b.catchupVsRaw(); f.Ratio == nil {
		t.Errorf("%+v", f)
	}
}

func TestContenderThatDropsOrReordersIsVoid(t *testing.T) {
	run := func(t *testing.T, name string) outcome {
		t.Helper()
		p, err := startWorker("contender", io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		job := scenario{Contender: name, Events: 10, Documents: 1, Timeout: time.Minute}
		if name == "dropping" || name == "stopping" { // it never has all events
			job.Timeout = time.Second
		}
		var o outcome
		if err := errors.Join(p.call(t.Context(), "open", job, &none{}), p.call(t.Context(), "read", none{}, &o.result), p.close()); err != nil {
			t.Fatal(err)
		}
		return o
	}
	honest := run(t, "honest")
	for _, name := range []string{"honest", "dropping", "reordering", "doubling", "stopping"} {
		t.Run(name, func(t *testing.T) {
			b := &bench{outcomes: map[string][]outcome{
				"paced/node": {honest, run(t, name), honest}, "paced/raw": {honest}, "unpaced/node": {honest}, "unpaced/raw": {honest},
			}}
			f := b.nodeVsRaw()
			r := report{"node_vs_raw": f}
			err := r.verdict()
			if name == "honest" {
				if err != nil || f.Ratio == nil {
					t.Errorf("ratio %v, %v", f.Ratio, err)
				}
				return
			}
			if err == nil || f.Ratio != nil || !strings.Contains(f.Void, "paced/node: round 2: ") {
				t.Errorf("ratio %v, void %q, %v", f.Ratio, f.Void, err)
			}
		})
	}
}

func TestContendersTakeTurns(t *testing.T) {
	var order []int
	for round := range 4 {
		order = append(order, sequence(round, 2)...)
	}
	if !slices.Equal(order, []int{0, 1, 1, 0, 0, 1, 1, 0}) {
		t.Error(order)
	}
}

func TestMediansKeepFiveDigits(t *testing.T) {
	for _, tt := range []struct {
		rounds []float64
		want   float64
	}{
		{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}, {[]float64{123456.7}, 123460}, {[]float64{0.000123456789}, 0.00012346}, {nil, 0},
		{[]float64{-1.23456789}, -1.2346},
	} {
		if got := sample(tt.rounds).Median; got != tt.want {
			t.Errorf("median of %v: %v, want %v", tt.rounds, got, tt.want)
		}
	}
}

func TestCommandLineIsStrict(t *testing.T) {
	for _, args := range [][]string{{"-o", "yaml"}, {"x"}, {"-rounds", "3"}, {"-attacks", "hellos,x"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
	o, err := parse([]string{"-quick", "-o", "json"}, io.Discard)
	if err != nil || o.scale.rounds != 3 || o.output != "json" || o.command != "bench -quick -o json" {
		t.Errorf("%+v, %v", o, err)
	}
	if full().rounds < 7 {
		t.Error("too few rounds")
	}
}
