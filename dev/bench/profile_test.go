package main

import (
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"
)

const printed = `File: bench
Type: cpu
Duration: 4s, Total samples = 1.84s (45.96%)
Showing nodes accounting for 0.93s, 50.54% of 1.84s total
      flat  flat%   sum%        cum   cum%
         0     0%     0%      0.92s 50.00%  golang.org/x/sync/errgroup.(*Group).Go.func1
     0.01s  0.54%  0.54%      0.72s 39.13%  github.com/mongostream/streamer/streamer.(*Hub).pass
         0     0%     0%      0.10s  5.43%  github.com/mongostream/streamer/streamer.(*Queue[go.shape.*mongostream/streamer.Batch]).Note (inline)
     0.19s 10.33% 31.52%      0.19s 10.33%  runtime.memmove
         0     0% 31.52%      0.19s 10.33%  net.(*conn).Read
`

func TestPickKeepsWhatTells(t *testing.T) {
	header, lines := pick(printed)
	if header != "Duration: 4s, Total samples = 1.84s (45.96%)" || len(lines) != 4 || !strings.HasSuffix(lines[1], "(*Hub).pass") ||
		!strings.HasSuffix(lines[2], "streamer.(*Queue[…]).Note") || !strings.HasSuffix(lines[3], "runtime.memmove") {
		t.Errorf("%q, %q", header, lines)
	}
}

// The page says of a missed figure why it is, and of no other.
func TestPageHasTheCausesOfWhatIsMissed(t *testing.T) {
	for name := range causes {
		if !slices.Contains(order(), name) {
			t.Errorf("%s is no figure", name)
		}
	}
	r := &report{
		"node_vs_raw":      {Targets: []target{atLeast("events/s", 1, 0.98), atMost("CPU", 2, 1.5)}},
		"snapshot_vs_find": {Targets: []target{atLeast("documents/s", 1, 0.8)}},
	}
	var page strings.Builder
	flags{}.reasons(t.Context(), &page, r)
	if got := page.String(); !strings.Contains(got, causes["node_vs_raw"]) || strings.Contains(got, "snapshot_vs_find") {
		t.Errorf("the page has %q", got)
	}
}

func TestProfileOfThisProgramIsRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "cpu")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		t.Fatal(err)
	}
	spun := 0
	for used := cpu(); cpu()-used < 100*time.Millisecond; { // samples are taken of CPU time
		spun += spin()
	}
	pprof.StopCPUProfile()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	header, lines, err := profileTop(t.Context(), name)
	if err != nil || !strings.HasPrefix(header, "Duration: ") || !strings.Contains(strings.Join(lines, "\n"), "bench.spin") {
		t.Errorf("%q, %q, %v, %d", header, lines, err, spun)
	}
	if _, _, err := profileTop(t.Context(), name+".missing"); err == nil {
		t.Error("a profile is read that is not there")
	}
}

//go:noinline
func spin() (sum int) {
	for i := range 100_000 {
		sum += i * i
	}
	return sum
}
