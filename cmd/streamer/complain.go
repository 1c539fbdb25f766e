package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/mongostream/streamer/cmd/streamer/operator"
	"github.com/mongostream/streamer/fault"
)

// complain prints errors for people: each error with its code, and after the last one of a code the
// remedy.
func complain(err error) {
	w := operator.Terminal{Writer: os.Stderr}
	all := operator.Spread(err)
	for i, e := range all {
		fmt.Fprintln(w, "streamer:", e)
		f, ok := errors.AsType[*fault.Error](e)
		if ok && !slices.ContainsFunc(all[i+1:], func(later error) bool { return fault.Of(later) == f.Code }) {
			fmt.Fprintln(w, "  remedy:", f.Remedy())
			fmt.Fprintf(w, "  more:   streamer explain %s, %s\n", f.Code, f.Code.URL())
		}
	}
}
