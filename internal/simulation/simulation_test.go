package simulation

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/internal/leaktest"
)

// Flags.
var (
	one   = flag.Uint64("seed", 0, "run this seed alone")                                               //nolint:gochecknoglobals // a flag
	told  = flag.Bool("print", false, "print what happens")                                             //nolint:gochecknoglobals // a flag
	first = flag.Uint64("from", 1, "the first of the seeds that TestCluster runs")                      //nolint:gochecknoglobals // a flag
	seeds = flag.Int("seeds", 200, "how many seeds TestCluster runs, an eighth with the race detector") //nolint:gochecknoglobals // a flag
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// run goes through the life of the world of a seed, and returns it.
func run(t *testing.T, seed uint64, breaks breakage) (w *world) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed, breaks)
		w.play()
	})
	return w
}

// simulate runs seeds on all processors, and fails with the first that goes wrong.
func simulate(t *testing.T, from []uint64) (sum figures) {
	t.Helper()
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		const lanes = 4
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				for i := lane; i < len(from); i += lanes {
					w := run(t, from[i], breakage{})
					if *told {
						t.Log(w.script.String())
					}
					mu.Lock()
					sum = sum.add(w.mu.figures)
					mu.Unlock()
					if len(w.mu.wrong) > 0 {
						t.Fatalf("seed %d: go test ./internal/simulation -run TestCluster -seed %d -count 100\n%s\n%s",
							from[i], from[i], strings.Join(w.mu.wrong, "\n"), tail(w.script.String()))
					}
				}
			})
		}
	})
	return sum
}

// tail returns the end of a transcript.
func tail(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-400):], "\n")
}

// kept are the seeds that have failed once.
func kept(t *testing.T) (kept []uint64) {
	t.Helper()
	text, err := os.ReadFile("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		number, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number == "" || number == "#" {
			continue
		}
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, seed)
	}
	return kept
}

// Whatever befalls a cluster: nobody misses anything, nobody hands out what is not its own, and it
// comes to rest.
func TestCluster(t *testing.T) {
	if *one != 0 {
		simulate(t, []uint64{*one})
		return
	}
	from := kept(t)
	for seed := range uint64(*seeds / slowed) {
		from = append(from, *first+seed)
	}
	sum := simulate(t, from)
	t.Logf("%d seeds: %+v", len(from), sum)
	if t.Failed() {
		return
	}
	for name, n := range map[string]int{
		"refused checkpoints": sum.refused, "evictions": sum.evictions, "partitions handed over": sum.handed, "last checkpoints": sum.released,
		"events that came again": sum.repeated, "rewinds": sum.rewound, "events from nodes without a lease": sum.alone, "windows that ended before their client had left": sum.detached,
	} {
		if n == 0 && len(from) >= 200 {
			t.Errorf("no %s in %d seeds: what is tested does not take place", name, len(from))
		}
	}
}

// A check that cannot fail is none: each of these breaks something, and is noticed within seeds
// that CI has time for.
func TestWhatIsBrokenIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		breaks breakage
		says   string
	}{
		"nobody asks for trust":                {breakage{trust: true}, "hands it out without a term"},
		"checkpoints of anybody are taken":     {breakage{fence: true}, "is accepted"},
		"last checkpoints are not saved":       {breakage{release: true}, "hands it over at"},
		"checkpoints are not waited for":       {breakage{ahead: true}, "have been acknowledged"},
		"checkpoints of the past are accepted": {breakage{generation: true}, "have been acknowledged"},
		"ends of windows are not heard":        {breakage{windows: true}, "have come"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				if w := run(t, seed+1, c.breaks); len(w.mu.wrong) > 0 {
					if !strings.Contains(w.mu.wrong[0], c.says) {
						t.Errorf("seed %d notices something else: %s", seed+1, w.mu.wrong[0])
					}
					t.Logf("seed %d: %s", seed+1, w.mu.wrong[0])
					return
				}
			}
			t.Error("nobody has noticed")
		})
	}
}
