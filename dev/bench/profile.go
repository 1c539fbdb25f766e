package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// blameLines are how many lines topOf returns at most.
const blameLines = 16

// telling matches the informative functions: the project's own, the driver's round trip, and the
// runtime's work for them.
var telling = regexp.MustCompile(`github\.com/mongostream/streamer/|BatchCursor\)\.Next$|syscall.*Syscall6$|runtime\.(gcBgMarkWorker|mallocgc|memmove|memclrNoHeapPointers|schedule|selectgo)$`)

// profileTop returns the header and the informative lines of a profile of this program, ordered by
// cumulative time.
func profileTop(ctx context.Context, file string) (header string, lines []string, err error) {
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

// pick finds the informative lines in the output of pprof.
func pick(out string) (header string, lines []string) {
	for line := range strings.Lines(out) {
		line = strings.TrimRight(strings.TrimSuffix(strings.TrimSpace(line), " (inline)"), " ")
		switch {
		case strings.HasPrefix(line, "Duration:"):
			header = line
		case strings.HasPrefix(line, "flat "):
			lines = append(lines, line)
		case len(lines) > 0 && len(lines) <= blameLines && telling.MatchString(line):
			lines = append(lines, withoutTypes(line))
		}
	}
	return header, lines
}

// generic matches the type arguments of a generic function.
var generic = regexp.MustCompile(`\[go\.shape.*\]`)

func withoutTypes(line string) string { return generic.ReplaceAllString(line, "[…]") }

// writeProfile writes the CPU profiles of the contenders that have missed a target. file returns
// the profile of a contender.
func writeProfile(ctx context.Context, w io.Writer, missed map[string][]string, file func(key string) string) {
	fmt.Fprint(w, "\nWhere the CPU time went, in the last round of each contender that has missed something.\n")
	for _, key := range slices.Sorted(maps.Keys(missed)) {
		fmt.Fprintf(w, "\n%s: %s\n", key, strings.Join(missed[key], ", "))
		header, lines, err := profileTop(ctx, file(key))
		if err != nil {
			fmt.Fprintf(w, "\nThere is no profile: %v.\n", err)
			continue
		}
		fmt.Fprintf(w, "\n```text\n%s\n%s\n```\n", header, strings.Join(lines, "\n"))
	}
}
