package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/sink"
)

// Sorted by name, the full files have the lines in the order in which they were written: also those
// of one moment, of earlier processes, and after the clock has gone back. The oldest are deleted.
// Other files are left alone.
func TestNamesOfFullFilesSortInTheirOrder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out[1].jsonl") // not a pattern
	others := []string{path + ".2000.bak", path + ".20000101T000000.gz"}
	for _, name := range others {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	write := func(ctx context.Context, target *Target, n int) {
		for range n {
			line := fmt.Sprintf("line %02d", len(lines))
			if err := sink.One(ctx, target, &sink.Message{Value: []byte(line)}); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
	}
	check := func(when string, keep int) {
		t.Helper()
		var got []string
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries { // sorted by name
			name := filepath.Join(filepath.Dir(path), e.Name())
			if slices.Contains(others, name) {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.TrimSuffix(string(text), "\n"))
		}
		if want := lines[max(0, len(lines)-keep):]; !slices.Equal(got, want) {
			t.Errorf("%s: %q instead of %q", when, got, want)
		}
		for _, name := range others {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	// Each bubble is a process whose clock begins at the same time and stands still but for sleep.
	process := func(ahead time.Duration, keep int, use func(context.Context, *Target)) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(ahead)
			target := New(Config{Path: path, MaxSize: 1, Keep: keep}) // each line fills a file
			defer target.Close()
			use(t.Context(), target)
		})
	}
	process(time.Hour, 100, func(ctx context.Context, target *Target) {
		write(ctx, target, 3)
		check("at one moment", 100)
		time.Sleep(time.Nanosecond)
		write(ctx, target, 3)
		check("a moment later", 100)
	})
	process(0, 100, func(ctx context.Context, target *Target) {
		write(ctx, target, 3)
		check("in another process, before the first", 100)
	})
	process(2*time.Hour, 100, func(ctx context.Context, target *Target) {
		write(ctx, target, 3)
		check("when the clock is right again", 100)
	})
	process(0, 5, func(ctx context.Context, target *Target) {
		write(ctx, target, 3)
		check("when the oldest are deleted", 5)
	})
	process(3*time.Hour, 5, func(ctx context.Context, target *Target) {
		write(ctx, target, 1)
		moved := len(lines)
		names, _, err := target.full()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		lines = lines[moved:]
		last := target.last
		write(ctx, target, 2)
		check("when somebody has moved the full files away", 5)
		if !target.last.After(last) {
			t.Errorf("a name is used again: %v after %v", target.last, last)
		}
	})
}

// Lines that are acknowledged are in the file at the path, or where others have moved it: also when
// it was deleted, moved, truncated or written by others, as by logrotate.
func TestFileThatOthersChangeHasWhatIsAcknowledged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(path string) error
		want   string
	}{
		"deleted":   {os.Remove, "line 2\nline 3\n"},
		"moved":     {func(path string) error { return os.Rename(path, path+".1") }, "line 2\nline 3\n"},
		"truncated": {func(path string) error { return os.Truncate(path, 0) }, "line 2\nline 3\n"},
		"written":   {func(path string) error { return os.WriteFile(path, []byte("line 1\nother\n"), 0o600) }, "line 1\nother\nline 2\nline 3\n"},
	} {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		target := New(Config{Path: path})
		defer target.Close()
		for i, line := range []string{"line 1", "line 2", "line 3"} {
			if err := sink.One(t.Context(), target, &sink.Message{Value: []byte(line)}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if i == 0 {
				if err := c.change(path); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	t.Run("while it is written", func(t *testing.T) {
		target := New(Config{Path: filepath.Join(t.TempDir(), "out.jsonl")})
		defer target.Close()
		if err := target.open(); err != nil {
			t.Fatal(err)
		}
		if target.holds(1) || !target.holds(0) || os.Remove(target.cfg.Path) != nil || target.holds(0) {
			t.Error("a file that others have changed counts as the sink's")
		}
	})
}
