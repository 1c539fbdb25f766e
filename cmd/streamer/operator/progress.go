package operator

import (
	"fmt"
	"io"
	"strings"
)

// A progress shows how far long work is: on a terminal as a bar, elsewhere as lines. It is used by
// one goroutine.
type progress struct {
	w io.Writer
	// unit names what is counted, in the plural.
	unit  string
	total int
	drawn bool
}

// barWidth is the width of a bar, in characters.
const barWidth = 30

// left shows how much is left. What was left at first is all.
func (p *progress) left(n int) {
	p.total = max(p.total, n)
	if terminalWidth(p.w) == 0 {
		fmt.Fprintf(p.w, "%d %s left\n", n, p.unit)
		return
	}
	filled := barWidth
	if p.total > 0 {
		filled = barWidth * (p.total - n) / p.total
	}
	p.drawn = true
	_, _ = fmt.Fprintf(inner(p.w), "\r[%s%s] %d of %d %s\x1b[K", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), p.total-n, p.total, p.unit)
}

// end ends the line of a bar.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.w)
	}
	p.drawn = false
}
