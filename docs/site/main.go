package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", "../..", "the repository")
	out := flag.String("o", "../../bin/site", "where the site is written")
	flag.Parse()
	pages, err := build(*root, *out)
	if err != nil {
		for _, e := range spread(err) {
			fmt.Fprintln(os.Stderr, "site:", e)
		}
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s\n", pages, *out)
}

// spread returns the errors that were joined in err.
func spread(err error) []error {
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
