package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// terminal opens a terminal of a size: what a program writes to one end comes out of the other.
func terminal(t *testing.T, width, height uint16) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return program, person
}

// On a terminal the demo draws pictures that fit, and leaves the page with the summary as it was.
func TestDemoFitsTheTerminalItRunsIn(t *testing.T) {
	for _, size := range [][2]uint16{{80, 24}, {45, 12}} {
		program, person := terminal(t, size[0], size[1])
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended, http := make(chan error, 1), taken(t)
		go func() {
			err := command(ctx, []string{"-http", http, "-grpc", "127.0.0.1:0", "-rate", "50"}, program, io.Discard)
			_ = program.Close()
			ended <- err
		}()
		var all strings.Builder
		for piece := make([]byte, 4096); ; {
			n, err := person.Read(piece)
			all.Write(piece[:n])
			if err != nil {
				break // the program has closed its end
			}
			if text := all.String(); strings.Count(text, home) > 2 && strings.Contains(text, "missing 0 ✓") && strings.ContainsAny(text, sparks) {
				stop()
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		before, rest, shown := strings.Cut(all.String(), otherPage)
		pictures, after, left := strings.Cut(rest, usualPage)
		if !shown || !left || !strings.Contains(before, "is in use: this demo is at 127.0.0.1:") || !strings.Contains(after, " 0 missing") {
			t.Fatalf("%q", &all)
		}
		drawn := strings.Split(pictures, home)[1:]
		for _, picture := range drawn {
			lines := strings.Split(strings.ReplaceAll(strings.TrimSuffix(picture, restOfPage), restOfLine, ""), "\r\n")
			if len(lines) > int(size[1]) || !strings.HasPrefix(lines[1], "http://127.0.0.1:") {
				t.Errorf("%v: %q", size, lines)
			}
			for _, line := range lines {
				if utf8.RuneCountInString(line) > int(size[0]) {
					t.Errorf("%v: %q", size, line)
				}
			}
		}
		if len(drawn) < 2 || !strings.Contains(pictures, "missing 0 ✓") || !strings.ContainsAny(pictures, sparks) {
			t.Errorf("%v: %d pictures: %q", size, len(drawn), pictures)
		}
	}
}
