package operator

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// A Terminal writes text in which others have chosen words: documents, names, notices, errors of
// servers. It writes characters that a terminal would obey (control characters except line breaks
// and tabs: C0, C1 and DEL), and those that falsify the shown text (bidirectional controls, line
// separators), as \uXXXX. In JSON such characters occur in strings alone, where that is the same
// character.
type Terminal struct{ io.Writer }

// Write implements io.Writer. A character must not be divided between two calls.
func (t Terminal) Write(text []byte) (int, error) {
	_, err := io.WriteString(t.Writer, escape(string(text), func(r rune) bool { return r != '\n' && r != '\t' && commands(r) }))
	if err != nil {
		return 0, err
	}
	return len(text), nil
}

// commands reports whether a terminal takes a character for something else than itself.
func commands(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// printable returns a foreign text as one word or cell: it escapes unprintable characters,
// including line breaks and tabs.
func printable(s string) string { return escape(s, func(r rune) bool { return !unicode.IsPrint(r) }) }

// escape writes the characters for which escaped returns true, and bytes that are not UTF-8, as
// \uXXXX.
func escape(s string, escaped func(rune) bool) string {
	if strings.IndexFunc(s, escaped) < 0 {
		return strings.ToValidUTF8(s, string(unicode.ReplacementChar))
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !escaped(r):
			b.WriteRune(r)
		case r > 0xffff:
			r1, r2 := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00 // as JSON writes it
			fmt.Fprintf(&b, `\u%04x\u%04x`, r1, r2)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
