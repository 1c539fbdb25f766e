package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A screen is one picture of the demo.
type screen struct {
	title   string
	address string // of the first node's page
	elapsed time.Duration
	rates   []float64 // changes a second in the last seconds; the last one is the newest
	facts   []string  // the most important lines
	body    []string  // the rest, shown as far as there is room
}

// ending is the last line of a picture.
const ending = "Ctrl-C stops and reports"

// lines draws the screen for a terminal of a width and a height: never more lines, and none longer.
func (s *screen) lines(width, height int) []string {
	elapsed := duration(s.elapsed)
	title := s.title
	if gap := width - len([]rune(title)) - len(elapsed); gap > 0 {
		title += strings.Repeat(" ", gap) + elapsed
	}
	all := []string{title}
	if s.address != "" {
		all = append(all, s.address)
	}
	if n := len(s.rates); n > 0 {
		text := thousands(int(s.rates[n-1]+0.5)) + "/s "
		all = append(all, text+sparkline(s.rates, min(60, width-len(text))))
	}
	all = append(all, wrapped(s.facts, width)...)
	room := height - len(all) - 3 // two empty lines and the ending
	if body := s.body; room > 0 && len(body) > 0 {
		if len(body) > room {
			body = append(slices.Clone(body[:room-1]), fmt.Sprintf("… and %d more", len(body)-room+1))
		}
		all = append(append(append(all, ""), body...), "")
	}
	all = append(all[:min(len(all), max(height-1, 0))], ending)
	for i, line := range all {
		if runes := []rune(line); len(runes) > width {
			all[i] = string(runes[:max(width-1, 0)]) + "…"
		}
	}
	return all
}

// line is the screen as one line for a file.
func (s *screen) line() string {
	rate := 0.0
	if n := len(s.rates); n > 0 {
		rate = s.rates[n-1]
	}
	return fmt.Sprintf("%s · %s/s · %s", duration(s.elapsed), thousands(int(rate+0.5)), strings.Join(s.facts, " · "))
}

// wrapped joins facts to lines of a width.
func wrapped(facts []string, width int) (lines []string) {
	for _, fact := range facts {
		if n := len(lines); n > 0 && len([]rune(lines[n-1]))+3+len([]rune(fact)) <= width {
			lines[n-1] += " · " + fact
			continue
		}
		lines = append(lines, fact)
	}
	return lines
}

// sparks are the bars of a sparkline, the lowest first.
const sparks = "▁▂▃▄▅▆▇█"

// sparkline draws the last values.
func sparkline(values []float64, width int) string {
	bars := []rune(sparks)
	values = values[max(0, len(values)-max(width, 0)):]
	highest := 1.0
	for _, v := range values {
		highest = max(highest, v)
	}
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(bars[int(max(v, 0)/highest*float64(len(bars)-1)+0.5)])
	}
	return b.String()
}

// thousands writes a number with commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// duration writes a time to the second.
func duration(d time.Duration) string { return d.Truncate(time.Second).String() }

// table aligns cells. Columns that do not fit into the width are left out, from the right.
func table(rows [][]string, width int) (lines []string) {
	lines = make([]string, len(rows))
	const gap = "  "
	for column := range rows[0] {
		wide := 0
		for _, row := range rows {
			wide = max(wide, len([]rune(row[column])))
		}
		before := ""
		if column > 0 {
			before = gap
		}
		if len([]rune(lines[0]+before))+wide > width {
			break
		}
		for i, row := range rows {
			lines[i] += before + strings.Repeat(" ", wide-len([]rune(row[column]))) + row[column]
		}
	}
	return lines
}

// A teller writes events: on a terminal into the picture, and again at the end; elsewhere at once.
type teller struct {
	mu     sync.Mutex
	to     io.Writer
	held   bool // while a picture is shown
	events []string
}

// tell reports an event.
func (t *teller) tell(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := fmt.Sprintf(format, args...); t.held {
		t.events = append(t.events, text)
	} else {
		fmt.Fprintln(t.to, text)
	}
}

// hold keeps events for the picture; release writes them all.
func (t *teller) hold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = true
}

func (t *teller) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, text := range t.events {
		fmt.Fprintln(t.to, text)
	}
	t.held, t.events = false, nil
}

// newest returns the events, the newest first.
func (t *teller) newest() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.events)
	slices.Reverse(all)
	return all
}

// size returns the columns and lines of a terminal; ok is false for anything else.
func size(out io.Writer) (width, height int, ok bool) {
	file, is := out.(*os.File)
	if !is {
		return 0, 0, false
	}
	s, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil || s.Col == 0 || s.Row == 0 {
		return 0, 0, false
	}
	return int(s.Col), int(s.Row), true
}

// How often a picture is drawn, and a line is written where there is no terminal.
const (
	pictureEvery = 500 * time.Millisecond
	lineEvery    = 10 * time.Second
)

// Commands for a terminal: show another page, and the former one again; go to the upper left
// corner; clear the rest of a line, and of the page.
const (
	otherPage, usualPage = "\x1b[?1049h", "\x1b[?1049l"
	home                 = "\x1b[H"
	restOfLine           = "\x1b[K"
	restOfPage           = "\x1b[J"
)

// show shows what look returns for a width until the context ends: a picture on a terminal, a line
// now and then elsewhere, which asks for no body by the width 0. The function it returns waits for
// the end.
func (d *demo) show(ctx context.Context, count func() int, look func(width int) screen) (wait func()) {
	if d.json {
		return func() {}
	}
	_, _, terminal := size(d.out)
	every := lineEvery
	if terminal {
		every = pictureEvery
		d.news.hold()
		fmt.Fprint(d.out, otherPage)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		begun := time.Now()
		rates := meter{at: time.Now(), count: count()}
		for ctx.Err() == nil {
			if width, height, ok := size(d.out); ok {
				s := look(width)
				s.elapsed = time.Since(begun)
				s.rates = rates.rates
				fmt.Fprint(d.out, home+strings.Join(s.lines(width, height), restOfLine+"\n")+restOfLine+restOfPage)
			}
			select {
			case now := <-tick.C:
				rates.take(now, count())
			case <-ctx.Done():
				return
			}
			if !terminal {
				s := look(0)
				s.elapsed = time.Since(begun)
				s.rates = rates.rates
				fmt.Fprintln(d.out, s.line())
			}
		}
	}()
	return func() {
		<-done
		if terminal {
			fmt.Fprint(d.out, usualPage)
			d.news.release()
		}
	}
}

// A meter measures a rate.
type meter struct {
	at    time.Time
	count int
	rates []float64
}

// ratesKept bounds the rates of a meter.
const ratesKept = 200

// take takes the count until now: a rate for each second that has passed.
func (m *meter) take(now time.Time, count int) {
	took := now.Sub(m.at)
	if took < time.Second {
		return
	}
	m.rates = append(m.rates, float64(count-m.count)/took.Seconds())
	m.rates = m.rates[max(0, len(m.rates)-ratesKept):]
	m.at = now
	m.count = count
}
