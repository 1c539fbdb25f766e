package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	version := flags.String("version", "dev", "version of what is in the image, and its name in the archive")
	revision := flags.String("revision", "", "commit that it was built from")
	path := flags.String("o", "streamer.oci.tar", "the archive")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b := build{version: *version, revision: *revision}
	for _, arg := range flags.Args() {
		name, binary, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("%q is not PLATFORM=BINARY", arg)
		}
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return err
		}
		b.binaries = append(b.binaries, binaryFor{*platform, binary})
	}
	index, err := b.index()
	if err != nil {
		return err
	}
	return write(index, b.version, *path)
}
