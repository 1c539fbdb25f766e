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

// A Transcript is what happened when. Its methods may be called from any goroutine.
type Transcript struct {
	start time.Time

	mu struct {
		sync.Mutex
		lines []line
	}
}

// A line is something that happened, also more than once on end.
type line struct {
	first, last time.Duration
	text        string
	times       int
}

// BeginTranscript begins a Transcript now.
func BeginTranscript() *Transcript { return &Transcript{start: time.Now()} }

// Now is how long ago it began.
func (tr *Transcript) Now() time.Duration { return time.Since(tr.start) }

// Say writes a line down.
func (tr *Transcript) Say(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	now, text := tr.Now(), strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	if n := len(tr.mu.lines); n > 0 && tr.mu.lines[n-1].text == text {
		tr.mu.lines[n-1].last = now
		tr.mu.lines[n-1].times++
		return
	}
	tr.mu.lines = append(tr.mu.lines, line{first: now, last: now, text: text, times: 1})
}

// String returns the lines in the order in which they were written down.
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

// Sort has what happened at one moment told by one speaker after the other: goroutines that wake at
// the same moment do so in no order.
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

// CompareTranscript holds what happened against testdata/name.txt.
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

// logsSorted sorts the log lines of each moment that follow each other: goroutines write them, and
// which one comes first within a moment is chance.
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
