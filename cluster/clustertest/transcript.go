package clustertest

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata anew") //nolint:gochecknoglobals // a flag

// A Transcript records events with their times. Its methods may be called from any goroutine.
type Transcript struct {
	start time.Time

	mu struct {
		sync.Mutex
		lines []line
	}
}

// A line is an event, with the number of its repetitions in a row.
type line struct {
	first, last time.Duration
	text        string
	times       int
}

// BeginTranscript begins a Transcript now.
func BeginTranscript() *Transcript { return &Transcript{start: time.Now()} }

// Now returns the time since its beginning.
func (tr *Transcript) Now() time.Duration { return time.Since(tr.start) }

// Say records a line.
func (tr *Transcript) Say(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	now := tr.Now()
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	if n := len(tr.mu.lines); n > 0 && tr.mu.lines[n-1].text == text {
		tr.mu.lines[n-1].last = now
		tr.mu.lines[n-1].times++
		return
	}
	tr.mu.lines = append(tr.mu.lines, line{first: now, last: now, text: text, times: 1})
}

// String returns the lines in the order in which they were recorded.
func (tr *Transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var b strings.Builder
	for _, l := range tr.mu.lines {
		fmt.Fprintf(&b, "%8.3fs  %s", l.first.Seconds(), l.text)
		if l.times > 1 {
			fmt.Fprintf(&b, "  (%d times, the last at %.3fs)", l.times, l.last.Seconds())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Sort groups the lines of one moment by speaker, because goroutines that wake at the same moment
// run in any order.
func (tr *Transcript) Sort(speaker func(text string) string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	slices.SortStableFunc(tr.mu.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(speaker(a.text), speaker(b.text)))
	})
}

// Write takes log lines.
func (tr *Transcript) Write(line []byte) (int, error) {
	tr.Say("%s", strings.TrimSpace(string(line)))
	return len(line), nil
}

// Logger returns a logger that writes into the transcript.
func (tr *Transcript) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(tr, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// CompareTranscript compares a transcript with testdata/name.txt.
func CompareTranscript(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(logsSorted(string(want)), logsSorted(got)); diff != "" {
		t.Errorf("it went otherwise (-want +got); see the flag -rewrite:\n%s", diff)
	}
}

// logsSorted sorts adjacent log lines of the same moment, because goroutines write them in any
// order.
func logsSorted(text string) string {
	lines := strings.Split(text, "\n")
	moment := func(line string) string {
		at, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(strings.TrimSpace(what), "level=") {
			return ""
		}
		return at
	}
	for from := 0; from < len(lines); {
		to := from + 1
		for at := moment(lines[from]); at != "" && to < len(lines) && moment(lines[to]) == at; {
			to++
		}
		slices.Sort(lines[from:to])
		from = to
	}
	return strings.Join(lines, "\n")
}
