package operator

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A progress shows how far long work is: on a terminal as a bar, elsewhere as lines. It is used by
// one goroutine.
type progress struct {
	w io.Writer
	// unit names the counted things, in the plural.
	unit string
	// every is the least time between two lines that are not on a terminal.
	every time.Duration
	// now is the clock. Defaults to time.Now.
	now func() time.Time

	total int
	drawn bool
	begun time.Time // when it was first shown, and how many were done then
	first int
	lined time.Time // when the last line was written
	// complete says that nothing was left in the last line.
	complete bool
}

const (
	// barWidth is the width of a bar, in characters.
	barWidth = 30
	// linesEvery is how often a line says how far work is that takes many steps.
	linesEvery = 5 * time.Second
	// ratedAfter is how long work must have lasted before its rate means something.
	ratedAfter = time.Second
)

// left shows how much is left. The first number is the total.
func (p *progress) left(n int) {
	p.total = max(p.total, n)
	p.show(p.total-n, p.total)
}

// show shows how much of all is done.
func (p *progress) show(done, total int) {
	now := time.Now
	if p.now != nil {
		now = p.now
	}
	at := now()
	if p.begun.IsZero() {
		p.begun = at
		p.first = done
	}
	p.total = total
	if terminalWidth(p.w) == 0 {
		due := p.lined.IsZero() || at.Sub(p.lined) >= p.every
		complete := done >= total
		if complete {
			due = !p.complete // at once, and once
		}
		if due {
			fmt.Fprintf(p.w, "%d %s left%s\n", max(total-done, 0), p.unit, p.pace(at, done))
			p.lined = at
			p.complete = complete
		}
		return
	}
	filled := barWidth
	if total > 0 {
		filled = barWidth * min(done, total) / total
	}
	p.drawn = true
	_, _ = fmt.Fprintf(inner(p.w), "\r[%s%s] %d of %d %s%s\x1b[K", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), done, total, p.unit, p.pace(at, done))
}

// pace returns how fast the work is, and how long the rest may take, once that is known.
func (p *progress) pace(at time.Time, done int) string {
	lasted := at.Sub(p.begun)
	if lasted < ratedAfter || done <= p.first || done >= p.total {
		return ""
	}
	rate := float64(done-p.first) / lasted.Seconds()
	return fmt.Sprintf(", %.1f a second, about %s to go", rate, formatDuration(seconds(float64(p.total-done)/rate)))
}

// end ends the line of a bar.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.w)
	}
	p.drawn = false
}
