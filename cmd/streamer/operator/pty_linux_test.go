package operator

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// onTerminal returns what do writes to a terminal of so many columns.
func onTerminal(t *testing.T, columns uint16, do func(*os.File)) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	do(terminal)
	fmt.Fprint(terminal, "\x04")
	defer terminal.Close()
	var all []byte
	for buffer := make([]byte, 4096); !bytes.HasSuffix(all, []byte("\x04")); {
		n, err := master.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, buffer[:n]...)
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(all), "\x04"), "\r\n", "\n")
}

func TestTablesOnATerminalAreColouredAndFit(t *testing.T) {
	table := func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "CHECK\tRESULT\tSAYS")
		fmt.Fprintln(w, "mongodb\tfail\tno server answers within thirty seconds\x1b[2J")
	}
	write := func(f *os.File) {
		if err := printResult(Terminal{f}, "", nil, table); err != nil {
			t.Error(err)
		}
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	text := onTerminal(t, 45, write)
	if want := "CHECK    RESULT  SAYS\nmongodb  " + red + "fail" + plain + "    no server answers within\n                 thirty seconds" + `\u001b[2J` + "\n"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
	t.Setenv("NO_COLOR", "1")
	if text := onTerminal(t, 45, write); strings.Contains(text, "\x1b") {
		t.Errorf("colours although nobody wants them: %q", text)
	}
	var pipe strings.Builder
	if err := printResult(&pipe, "", nil, table); err != nil || strings.Contains(pipe.String(), "\x1b") || strings.Count(pipe.String(), "\n") != 2 {
		t.Errorf("%v: %q", err, pipe.String())
	}
}

func TestProgressIsABarOrLines(t *testing.T) {
	show := func(p *progress) {
		for _, left := range []int{10, 5, 0} {
			p.left(left)
		}
		p.end()
	}
	text := onTerminal(t, 80, func(f *os.File) { show(&progress{w: Terminal{f}, unit: "partitions"}) })
	for _, want := range []string{
		"\r[" + strings.Repeat(".", 30) + "] 0 of 10 partitions", "\r[" + strings.Repeat("#", 15) + strings.Repeat(".", 15) + "] 5 of 10 partitions",
		"\r[" + strings.Repeat("#", 30) + "] 10 of 10 partitions\x1b[K\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	var pipe strings.Builder
	show(&progress{w: Terminal{&pipe}, unit: "partitions"})
	if want := "10 partitions left\n5 partitions left\n0 partitions left\n"; pipe.String() != want {
		t.Errorf("%q", pipe.String())
	}
}
