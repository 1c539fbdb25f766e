package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// testHandlers are those of the worker that these tests start.
func testHandlers() map[string]handler {
	return map[string]handler{
		"double": handle(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
		"fail":   handle(func(context.Context, none) (none, error) { return none{}, errors.New("it fails") }),
		"hang":   handle(func(context.Context, none) (none, error) { select {} }),
		"spin": handle(func(_ context.Context, length time.Duration) (none, error) {
			for begun := time.Now(); time.Since(begun) < length; {
			}
			return none{}, nil
		}),
	}
}

func startTestWorker(t *testing.T) *worker {
	t.Helper()
	p, err := startWorker("test", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPartAnswersUntilItIsClosed(t *testing.T) {
	p := startTestWorker(t)
	var doubled int
	if err := p.call(t.Context(), "double", 21, &doubled); err != nil || doubled != 42 {
		t.Errorf("double 21: %d, %v", doubled, err)
	}
	if err := p.call(t.Context(), "fail", none{}, &none{}); err == nil || !strings.Contains(err.Error(), "it fails") {
		t.Errorf("fail: %v", err)
	}
	if err := p.call(t.Context(), "unknown", none{}, &none{}); err == nil {
		t.Error("a method that does not exist is answered")
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if err := p.call(t.Context(), "double", 1, &doubled); err == nil {
		t.Error("a worker that has ended answers")
	}
}

func TestPartDoesNotOutliveItsCaller(t *testing.T) {
	p := startTestWorker(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.call(ctx, "hang", none{}, &none{}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if err := p.close(); err == nil {
		t.Error("it was not killed")
	}
}

func TestPartTellsItsCPUTime(t *testing.T) {
	p := startTestWorker(t)
	before, err := p.cpu()
	if err != nil {
		t.Fatal(err)
	}
	for spent := time.Duration(0); spent < 3*tick; {
		if err := p.call(t.Context(), "spin", tick, &none{}); err != nil {
			t.Fatal(err)
		}
		now, err := p.cpu()
		if err != nil {
			t.Fatal(err)
		}
		spent = now - before
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

func TestCPUTimeIsFoundBehindAnyName(t *testing.T) {
	const fields = " S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20"
	for _, name := range []string{"(bench)", "(a b)", "(a) S 9 (b)"} {
		if d, err := cpuOf("7 " + name + fields); err != nil || d != 3*time.Second {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
	for _, bad := range []string{"", "7 (a", "7 (a) S 1", "7 (a) S 1 2 3 4 5 6 7 8 9 10 x 50 0"} {
		if _, err := cpuOf(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func FuzzCPUTime(f *testing.F) {
	f.Add("7 (a) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20")
	f.Fuzz(func(_ *testing.T, stat string) { _, _ = cpuOf(stat) })
}

func TestGarbageEndsAPart(t *testing.T) {
	if err := serveRequests(t.Context(), strings.NewReader("{}garbage"), io.Discard, nil); err == nil {
		t.Error("garbage is taken")
	}
	var out bytes.Buffer
	if err := serveRequests(t.Context(), strings.NewReader(""), &out, nil); err != nil || out.Len() != 0 {
		t.Errorf("an empty input: %v, %s", err, out.String())
	}
}
