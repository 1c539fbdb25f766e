package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// --watch looks every two seconds until the context ends. An error is shown in the place of what
// could not be read, unless nothing could be read yet; without --watch there is one look.
func TestWatchLooksAgain(t *testing.T) {
	away := errors.New("no node there")
	for name, tt := range map[string]struct {
		watch bool
		looks []error // what each look ends with; the context ends in the last one
		text  string
		err   error
	}{
		"once":                 {false, []error{nil}, "look 1\n", nil},
		"once, in vain":        {false, []error{away}, "look 1\n", away},
		"again and again":      {true, []error{nil, nil, nil}, "look 1\n\nlook 2\n\nlook 3\n", nil},
		"away for a while":     {true, []error{nil, away, nil}, "look 1\n\nlook 2\nno node there\n\nlook 3\n", nil},
		"nothing there":        {true, []error{away}, "look 1\n", away},
		"ended while it looks": {true, []error{nil, context.Canceled}, "look 1\n\nlook 2\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var text bytes.Buffer
				n := 0
				begun := time.Now()
				err := look(ctx, &text, tt.watch, func(w io.Writer) error {
					n++
					if n == len(tt.looks) && tt.err == nil {
						cancel()
					}
					fmt.Fprintln(w, "look", n)
					return tt.looks[n-1]
				})
				if !errors.Is(err, tt.err) || text.String() != tt.text || time.Since(begun) != time.Duration(n-1)*watchEvery*time.Second {
					t.Errorf("%v after %v: %q", err, time.Since(begun), text.String())
				}
			})
		})
	}
}

// What takes many steps says how fast it is, and how long the rest may take, but not at each step
// where nobody looks at a terminal, and only once that nothing is left.
func TestProgressTellsItsPace(t *testing.T) {
	var text strings.Builder
	at := time.Unix(1000, 0)
	p := progress{w: &text, unit: "documents", every: 5 * time.Second, now: func() time.Time { return at }}
	for _, step := range []struct {
		after       time.Duration
		done, total int
	}{{0, 100, 1000}, {4 * time.Second, 400, 1000}, {time.Second, 500, 1000}, {time.Second, 600, 1000}, {time.Second, 1000, 1000}, {time.Second, 1000, 1000}, {6 * time.Second, 1010, 1010}} {
		at = at.Add(step.after)
		p.show(step.done, step.total)
	}
	if want := "900 documents left\n500 documents left, 80.0 a second, about 6s to go\n0 documents left\n"; text.String() != want {
		t.Errorf("%q, want %q", text.String(), want)
	}
}
