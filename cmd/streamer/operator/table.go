package operator

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// writeTable writes the lines of human, with tabs between cells, as a table. On a terminal states
// have colours, and the last column is wrapped within itself.
func writeTable(w io.Writer, human func(*tabwriter.Writer)) error {
	columns := terminalWidth(w)
	if columns == 0 {
		return align(Terminal{w}, human)
	}
	var cells bytes.Buffer
	const oneTab = 1 << 20 // cells are padded to this width with tabs: with one
	t := tabwriter.NewWriter(&cells, 0, oneTab, 1, '\t', 0)
	human(t)
	if err := t.Flush(); err != nil {
		return err
	}
	safe := escape(cells.String(), func(r rune) bool { return r != '\n' && r != '\t' && commands(r) })
	var aligned bytes.Buffer
	if err := align(&aligned, func(t *tabwriter.Writer) { _, _ = io.WriteString(t, safe) }); err != nil {
		return err
	}
	lines := strings.Split(aligned.String(), "\n")
	for i, line := range strings.Split(safe, "\n") {
		lines[i] = fit(lines[i], strings.Split(line, "\t"), columns, coloured(w))
	}
	_, err := io.WriteString(inner(w), strings.Join(lines, "\n"))
	return err
}

// align aligns columns.
func align(w io.Writer, human func(*tabwriter.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	human(t)
	return t.Flush()
}

// inner returns the writer of a Terminal.
func inner(w io.Writer) io.Writer {
	if t, ok := w.(Terminal); ok {
		return inner(t.Writer)
	}
	return w
}

// narrowest is the least width to which a column is wrapped.
const narrowest = 20

// fit wraps the last cell of an aligned line within its column where the line is too wide, and
// paints the cells that are states.
func fit(line string, cells []string, columns int, colours bool) string {
	last := cells[len(cells)-1]
	start := utf8.RuneCountInString(line) - utf8.RuneCountInString(last)
	var wrapped strings.Builder
	if utf8.RuneCountInString(line) > columns && columns-start >= narrowest && strings.HasSuffix(line, last) {
		parts := wrap(last, columns-start)
		line = strings.TrimSuffix(line, last) + parts[0]
		for _, part := range parts[1:] {
			wrapped.WriteString("\n" + strings.Repeat(" ", start) + part)
		}
	}
	if colours {
		line = paintStates(line, cells)
	}
	return line + wrapped.String()
}

// wrap breaks a text into lines of at most so many characters, at spaces where there are some.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		} else if line != "" {
			line += " "
		}
		line += word
		for utf8.RuneCountInString(line) > width {
			runes := []rune(line)
			lines = append(lines, string(runes[:width]))
			line = string(runes[width:])
		}
	}
	return append(lines, line)
}

// paintStates paints the cells that are one of the states.
func paintStates(line string, cells []string) string {
	var b strings.Builder
	for _, cell := range cells {
		word := strings.TrimSpace(cell)
		at := strings.Index(line, word)
		if word == "" || at < 0 || strings.TrimSpace(line[:at]) != "" {
			continue
		}
		b.WriteString(line[:at])
		if colour := colourOfState(word); colour != "" {
			word = colour + word + plain
		}
		b.WriteString(word)
		line = line[at+len(strings.TrimSpace(cell)):]
	}
	return b.String() + line
}

// colourOfState returns the colour of a state, "" for none.
func colourOfState(word string) string {
	switch word {
	case "ok", "healthy", "streaming", "running", "yes, live":
		return green
	case "warn", "warning", "degraded", "lagging", "starting", "paused", "retrying", "stalled", "waiting", "yes, catching up", "yes, without credit":
		return yellow
	case "fail", "critical", "unhealthy", "dead", "stuck", "stale", "halted", "not there", "yes, acknowledges nothing":
		return red
	case "skip", "idle", "info":
		return dim
	}
	return ""
}

// watchEvery is how often --watch looks again.
const watchEvery = 2

// clearScreen moves to the beginning and clears the screen.
const clearScreen = "\x1b[H\x1b[2J"

// beginLook begins one of the looks of --watch: on a terminal in place of the one before.
func beginLook(w io.Writer, first bool) {
	switch {
	case terminalWidth(w) > 0:
		_, _ = io.WriteString(inner(w), clearScreen)
	case !first:
		fmt.Fprintln(w)
	}
}

// noColour reports whether the user wants none (no-color.org).
func noColour() bool { return os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" }
