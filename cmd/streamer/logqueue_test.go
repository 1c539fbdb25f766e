package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A gated writer writes only while its gate is open.
type gated struct {
	gate  chan struct{}
	waits chan struct{} // holds one signal: a line has come
	got   bytes.Buffer
}

func (g *gated) Write(p []byte) (int, error) {
	select {
	case g.waits <- struct{}{}:
	default:
	}
	<-g.gate
	return g.got.Write(p)
}

// Whoever logs never waits for the reader of the log; what does not fit is counted, and told in its
// place.
func TestLogNeverBlocks(t *testing.T) {
	t.Parallel()
	w := &gated{gate: make(chan struct{}), waits: make(chan struct{}, 1)}
	q := newLogQueue(w, func(n uint64) []byte { return fmt.Appendf(nil, "dropped %d\n", n) })
	line, written := strings.Repeat("x", 1023)+"\n", 1
	fmt.Fprint(q, line)
	<-w.waits
	for ; ; written++ {
		if _, err := fmt.Fprint(q, line); err != nil {
			t.Fatal(err)
		}
		if dropped, _ := q.State(); dropped > 0 {
			break
		}
	}
	fmt.Fprint(q, line)
	if dropped, stuck := q.State(); dropped != 2 || stuck <= 0 {
		t.Errorf("%d dropped, stuck for %s", dropped, stuck)
	}
	q.Close(0) // does not wait for a reader either
	close(w.gate)
	<-q.done
	lines := slices.Collect(strings.Lines(w.got.String()))
	if len(lines) != written+1 || lines[written] != "dropped 2\n" || written < maxLogQueue>>10 {
		t.Errorf("%d lines of %d, the last is %q", len(lines), written, lines[len(lines)-1])
	}
	if _, stuck := q.State(); stuck != 0 {
		t.Errorf("everything is written, stuck for %s", stuck)
	}
}

// A process that ends tells why, unless nobody reads.
func TestComplaintsEndAProcessThatNobodyReads(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		bounded(time.Millisecond, func() { _, _ = w.Write(make([]byte, 1<<20)) }) // more than a pipe takes
	}()
	patience := time.NewTimer(3 * time.Minute)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		t.Error("it waits for a reader")
	}
}
