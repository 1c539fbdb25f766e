package file

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/mongostream/streamer/sink"
)

// An Output takes lines and, like standard output, cannot be truncated: it completes a partly
// written line before it writes anything else. A write cannot be canceled. One that waits for a
// reader outlives its target, and the next target waits for it.
type Output struct {
	w    io.Writer
	busy chan struct{} // holds one value while a write is under way; its sender owns the following fields
	text []byte
	ends []int  // of the lines in text
	rest []byte // of a line that was written in part
}

// NewOutput returns an Output that writes to w, a call for many lines.
func NewOutput(w io.Writer) *Output { return &Output{w: w, busy: make(chan struct{}, 1)} }

// An OutputTarget writes messages to an Output.
type OutputTarget struct{ sink.Serial }

var _ sink.Target = (*OutputTarget)(nil)

// Target returns a target. It has no timeout, because a reader may pause for any time.
func (o *Output) Target() *OutputTarget {
	return &OutputTarget{sink.Serial{Send: o.write, Batch: batch, Parallel: 1, Together: true}}
}

// Check implements sink.Target.
func (t *OutputTarget) Check(context.Context) (string, error) { return "nothing to reach", nil }

// outputBytes bounds the bytes of one write, up to a line: the ownership of lines that wait for a
// reader is not checked again.
const outputBytes = 64 << 10

// write writes messages as lines, and returns how many of them are written. If the context ends
// earlier, they may still be written.
func (o *Output) write(ctx context.Context, messages []*sink.Message) (int, error) {
	select {
	case o.busy <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if messages = sink.Owned(messages); len(messages) == 0 { // the wait may have been long
		<-o.busy
		return 0, sink.ErrReplaced
	}
	o.text = append(o.text[:0], o.rest...)
	o.ends = o.ends[:0]
	for _, m := range messages {
		o.text = append(append(o.text, m.Value...), '\n')
		if o.ends = append(o.ends, len(o.text)); len(o.text) >= outputBytes {
			break
		}
	}
	type outcome struct {
		lines int
		err   error
	}
	over := make(chan outcome, 1)
	go func() {
		n, err := o.w.Write(o.text)
		if err != nil {
			err = fmt.Errorf("write output: %w", err)
		}
		lines := o.settle(n)
		<-o.busy
		over <- outcome{lines, err}
	}()
	select {
	case done := <-over:
		return done.lines, done.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// settle returns how many lines are in the first n bytes of the text, and keeps the rest of a
// partial one.
func (o *Output) settle(n int) (lines int) {
	begun := len(o.rest) // of the partial line
	for lines < len(o.ends) && o.ends[lines] <= n {
		begun = o.ends[lines]
		lines++
	}
	switch {
	case n == begun:
		o.rest = o.rest[:0]
	case n < begun: // of an earlier line
		o.rest = slices.Clone(o.text[n:begun])
	default:
		o.rest = slices.Clone(o.text[n:o.ends[lines]])
	}
	if cap(o.text) > 16*outputBytes { // a long line is rare
		o.text = nil
	}
	return lines
}
