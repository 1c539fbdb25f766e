package blame

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// Lines are how many lines Top returns at most.
const Lines = 16

// telling are the functions that say something: the project's, the driver's round trip, and what the runtime does for them.
var telling = regexp.MustCompile(`mongostream/|BatchCursor\)\.Next$|syscall.*Syscall6$|runtime\.(gcBgMarkWorker|mallocgc|memmove|memclrNoHeapPointers|schedule|selectgo)$`)

// Top returns the header and the telling lines of a profile of this program, those first that have the most with what they call.
func Top(ctx context.Context, file string) (header string, lines []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("find this program: %w", err)
	}
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", "-nodecount=200", self, file).Output()
	if err != nil {
		return "", nil, fmt.Errorf("read profile %s: %w", file, err)
	}
	header, lines = pick(string(out))
	return header, lines, nil
}

// pick finds the telling lines in what pprof prints.
func pick(out string) (header string, lines []string) {
	for line := range strings.Lines(out) {
		line = strings.TrimRight(strings.TrimSuffix(strings.TrimSpace(line), " (inline)"), " ")
		switch {
		case strings.HasPrefix(line, "Duration:"):
			header = line
		case strings.HasPrefix(line, "flat "):
			lines = append(lines, line)
		case len(lines) > 0 && len(lines) <= Lines && telling.MatchString(line):
			lines = append(lines, short(line))
		}
	}
	return header, lines
}

// generic is what stands in the brackets of a function with type parameters.
var generic = regexp.MustCompile(`\[go\.shape.*\]`)

func short(line string) string { return generic.ReplaceAllString(line, "[…]") }
