package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/cmd/streamer/operator"
	"github.com/mongostream/streamer/fault"
)

// version is set when a release is built; otherwise the build information tells what there is.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal stops softly; from then on a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	if err := command().ExecuteContext(ctx); err != nil {
		bounded(lastLines, func() { complain(err) })
		os.Exit(1) //nolint:gocritic // stop has nothing left to undo
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "streamer",
		Short:         "Reads MongoDB's oplog once and serves it to any number of subscribers",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(operator.FlagError)
	root.AddCommand(runCommand(), explainCommand(), versionCommand())
	root.AddCommand(operator.Commands()...)
	return root
}

// complain tells a person what is wrong and what to do about it: each fault with its code and
// remedy.
func complain(err error) {
	w := operator.Terminal{Writer: os.Stderr}
	for _, e := range spread(err) {
		fmt.Fprintln(w, "streamer:", e)
		if f, ok := errors.AsType[*fault.Error](e); ok {
			fmt.Fprintln(w, "  remedy:", f.Remedy())
			fmt.Fprintf(w, "  more:   streamer explain %s\n", f.Code)
		}
	}
}

// spread returns the errors that were joined in err.
func spread(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, spread(e)...)
		}
		return all
	}
	return []error{err}
}

// versionText returns the release's version, or what the build knows of its commit.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
