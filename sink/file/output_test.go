package file

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/sink"
)

// A writer takes a bounded number of bytes and then fails once.
type writer struct {
	bytes.Buffer

	room int // -1: any
}

var errFull = errors.New("full")

func (w *writer) Write(b []byte) (int, error) {
	if w.room < 0 || len(b) <= w.room {
		return w.Buffer.Write(b)
	}
	n, _ := w.Buffer.Write(b[:w.room])
	w.room = -1
	return n, errFull
}

func messages(from, to int) (all []*sink.Message) {
	for i := from; i < to; i++ {
		all = append(all, &sink.Message{Value: fmt.Appendf(nil, "line %d", i)})
	}
	return all
}

// Wherever a write ends, lines are whole and in order, and what was not acknowledged follows. Only
// the line that was cut may come twice.
func TestLinesAreWholeWhereverAWriteEnds(t *testing.T) {
	t.Parallel()
	const lines = 3
	for room := range len("line 0\n") * lines {
		for again := range len("line 0\n") {
			w := &writer{room: room}
			o := NewOutput(w)
			done, err := o.write(t.Context(), messages(0, lines))
			if !errors.Is(err, errFull) || done != room/len("line 0\n") {
				t.Fatalf("%d bytes: %d lines, %v", room, done, err)
			}
			w.room = again // which may end in the line that was cut
			for done < lines {
				n, err := o.write(t.Context(), messages(done, lines))
				if err != nil && !errors.Is(err, errFull) {
					t.Fatal(err)
				}
				done += n
			}
			next := 0
			for line := range strings.Lines(w.String()) {
				switch line {
				case fmt.Sprintf("line %d\n", next):
					next++
				case fmt.Sprintf("line %d\n", next-1):
				default:
					t.Fatalf("%d bytes, then %d: %q", room, again, w.String())
				}
			}
			if next != lines || strings.Count(w.String(), "\n") > lines+2 {
				t.Errorf("%d bytes, then %d: %q", room, again, w.String())
			}
		}
	}
}

// A blocked writer takes nothing before it is told to.
type blocked struct {
	bytes.Buffer

	open chan struct{}
}

func (b *blocked) Write(text []byte) (int, error) {
	<-b.open
	return b.Buffer.Write(text)
}

// A target can be closed while nobody reads, and the next one writes after it.
func TestTargetIsClosedWhileNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &blocked{open: make(chan struct{})}
		o := NewOutput(w)
		first := make(chan error, 1)
		target := o.Target()
		go func() { first <- sink.One(t.Context(), target, messages(0, 1)[0]) }()
		synctest.Wait()
		target.Close()
		if err := <-first; err == nil {
			t.Error("what nobody has read is acknowledged")
		}
		second := make(chan error, 1)
		target = o.Target()
		go func() { second <- sink.One(t.Context(), target, messages(1, 2)[0]) }()
		synctest.Wait()
		if len(second) > 0 || w.Len() > 0 {
			t.Errorf("%q was written", w.String())
		}
		close(w.open)
		if err := <-second; err != nil || w.String() != "line 0\nline 1\n" {
			t.Errorf("%v: %q", err, w.String())
		}
		target.Close()
	})
}

// What one write holds is bounded, up to a line.
func TestWritesAreBounded(t *testing.T) {
	t.Parallel()
	w := &writer{room: -1}
	o := NewOutput(w)
	long := &sink.Message{Value: bytes.Repeat([]byte("x"), outputBytes/2)}
	n, err := o.write(t.Context(), []*sink.Message{long, long, long, long})
	if err != nil || n != 2 || w.Len() != outputBytes+2 {
		t.Errorf("%d lines, %d bytes, %v", n, w.Len(), err)
	}
}
