package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/cmd/streamer/operator"
)

// version is set when a release is built; otherwise the build information is used.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal stops softly; from then on a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	if err := command().ExecuteContext(ctx); err != nil {
		bounded(lastLines, func() { complain(err) })
		os.Exit(operator.ExitCode(err)) //nolint:gocritic // stop has nothing left to undo
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "streamer",
		Short:         "Reads MongoDB's oplog once and serves it to any number of subscribers",
		Long:          "Reads MongoDB's oplog once and serves it to any number of subscribers.\n\n" + operator.ExitCodes,
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(operator.FlagError)
	root.SetVersionTemplate("streamer {{.Version}}\n")
	operator.Group(root, runCommand(), explainCommand(), versionCommand())
	return root
}

// versionText returns the release's version, or the commit of the build.
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
