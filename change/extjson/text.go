package extjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// appendString appends text as a JSON string.
func appendString(b, text []byte) []byte {
	b = append(b, '"')
	n := plain(text)
	b = append(b, text[:n]...)
	if n < len(text) {
		b = appendEscaped(b, text[n:])
	}
	return append(b, '"')
}

// appendExact appends text as a JSON string that differs for every text: a byte that is not UTF-8
// is \udcXX, half of a surrogate pair, which no UTF-8 is. Control characters and code points that
// are no characters are escaped, because they may not be in attributes of CloudEvents.
func appendExact(b, text []byte) []byte {
	b = append(b, '"')
	for len(text) > 0 {
		if n := plain(text); n > 0 {
			if control := bytes.IndexByte(text[:n], 0x7F); control >= 0 {
				n = control
			}
			if n > 0 {
				b = append(b, text[:n]...)
				text = text[n:]
				continue
			}
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			b = appendUnit(b, lowSurrogate|rune(text[0]))
		case r < 0x7F:
			b = appendEscape(b, text[0])
		case r <= 0x9F, r == '\u2028', r == '\u2029', r >= 0xFDD0 && r <= 0xFDEF, r&0xFFFE == 0xFFFE:
			for _, unit := range utf16.AppendRune(nil, r) {
				b = appendUnit(b, rune(unit))
			}
		default:
			b = append(b, text[:size]...)
		}
		text = text[size:]
	}
	return append(b, '"')
}

// lowSurrogate is half of a surrogate pair. With a byte added, it represents that byte.
const lowSurrogate = 0xDC00

// appendUnit appends a unit of UTF-16 as an escape.
func appendUnit(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&0xF], hexDigits[r>>4&0xF], hexDigits[r&0xF])
}

// appendEscaped appends text that may need escapes. It also escapes line separators, for readers
// that parse JSON as JavaScript.
func appendEscaped(b, text []byte) []byte {
	done := 0 // text[:done] has been appended
	for at := 0; at < len(text); at += plain(text[at:]) {
		if c := text[at]; c < utf8.RuneSelf {
			b = appendEscape(append(b, text[done:at]...), c)
			at++
			done = at
		}
		for at < len(text) && text[at] >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(text[at:])
			isInvalid := r == utf8.RuneError && size == 1
			if isInvalid || r == '\u2028' || r == '\u2029' {
				b = appendUnit(append(b, text[done:at]...), r)
				done = at + size
			}
			at += size
		}
	}
	return append(b, text[done:]...)
}

const hexDigits = "0123456789abcdef"

// appendEscape appends an ASCII character that must be escaped.
func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	}
	return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
}

// plain returns how many characters at the beginning of text are ASCII and need no escape.
func plain(text []byte) int {
	at := 0
	for ; at+8 <= len(text); at += 8 {
		if special := specials(binary.LittleEndian.Uint64(text[at:])); special != 0 {
			return at + bits.TrailingZeros64(special)/8
		}
	}
	for at < len(text) && isPlain(text[at]) {
		at++
	}
	return at
}

// isPlain reports whether a character is ASCII and needs no escape.
func isPlain(c byte) bool {
	return ' ' <= c && c < utf8.RuneSelf && c != '"' && c != '\\'
}

// specials checks eight characters at once. The lowest set bit belongs to the first of them that
// needs an escape.
func specials(eight uint64) uint64 {
	const (
		each = 0x0101010101010101
		top  = 0x80 * each
	)
	control := (eight - ' '*each) &^ eight
	quote := eight ^ '"'*each
	backslash := eight ^ '\\'*each
	quote = (quote - each) &^ quote
	backslash = (backslash - each) &^ backslash
	return (eight | control | quote | backslash) & top
}

// appendOptions appends the options of a regular expression in alphabetical order, the order that
// BSON requires.
func appendOptions(b, options []byte) []byte {
	for i, c := range options {
		if c >= utf8.RuneSelf || i > 0 && c < options[i-1] {
			characters := []rune(string(options))
			slices.Sort(characters)
			return appendString(b, []byte(string(characters)))
		}
	}
	return appendString(b, options)
}
