package fault

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Code names one condition for ever: STRM-SUBJECT-CONDITION.
type Code string

// An Entry is the entry of a code in the catalogue.
type Entry struct {
	Code Code
	// Summary names the problem in one line.
	Summary string
	// Meaning explains the cause and the consequences.
	Meaning string
	// Remedy says what to do, as an instruction.
	Remedy string
}

// An Error is a condition of the catalogue met in the world.
type Error struct {
	Code Code
	Err  error // what exactly was met
}

// New makes an error of a code of the catalogue; it panics on a code that is not in it.
func New(code Code, cause error) *Error {
	if _, ok := Lookup(code); !ok {
		panic("fault: code not in the catalogue: " + string(code))
	}
	return &Error{Code: code, Err: cause}
}

// Newf is New with a formatted cause.
func Newf(code Code, format string, args ...any) *Error {
	return New(code, fmt.Errorf(format, args...))
}

// Error returns code and cause in one line.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Remedy returns what to do.
func (e *Error) Remedy() string {
	entry, _ := Lookup(e.Code)
	return entry.Remedy
}

// Of returns the code of the first fault in err's tree, or "".
func Of(err error) Code {
	if f, ok := errors.AsType[*Error](err); ok {
		return f.Code
	}
	return ""
}

// Public returns the public part of an error: its code, a text, and the remedy. The text is the
// error's own if the client's request or session is at fault. Other texts may contain hosts of
// MongoDB and etcd, files, or names of other subscribers, because they wrap errors of drivers: they
// are replaced by the summary of the catalogue, and only the log has them.
func Public(err error) (code Code, text, remedy string) {
	f, ok := errors.AsType[*Error](err)
	if !ok {
		return "", "the node could not serve the request; its log says why", ""
	}
	if IsPublic(err) {
		return f.Code, f.Err.Error(), f.Remedy()
	}
	entry, _ := Lookup(f.Code)
	return f.Code, entry.Summary, entry.Remedy
}

// IsPublic reports whether clients may see the text of an error.
func IsPublic(err error) bool {
	switch code := Of(err); code {
	case LogHistoryLost, NodeStopping, CommandBadArgument:
		return true
	default:
		subject, _, _ := strings.Cut(strings.TrimPrefix(string(code), "STRM-"), "-")
		return slices.Contains([]string{"ACCESS", "FILTER", "SESSION"}, subject)
	}
}

// Lookup returns the catalogue's entry of a code; case does not matter.
func Lookup(code Code) (Entry, bool) {
	i := slices.IndexFunc(catalogue, func(e Entry) bool { return strings.EqualFold(string(e.Code), string(code)) })
	if i < 0 {
		return Entry{}, false
	}
	return catalogue[i], true
}

// Catalogue returns all entries in the order of their codes.
func Catalogue() []Entry { return slices.Clone(catalogue) }
