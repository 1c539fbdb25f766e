package operator

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth returns how many columns the terminal at w has, 0 where there is none.
func terminalWidth(w io.Writer) int {
	if t, ok := w.(Terminal); ok {
		return terminalWidth(t.Writer)
	}
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	switch {
	case err != nil:
		return 0
	case size.Col == 0: // a terminal that does not say
		return 80
	}
	return int(size.Col)
}

// coloured reports whether output there may have colours (no-color.org).
func coloured(w io.Writer) bool {
	return terminalWidth(w) > 0 && !noColour()
}
