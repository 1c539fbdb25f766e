package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wiring"
)

func runCommand() *cobra.Command {
	var file, output string
	var takeOver bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a node",
		Long: `Run a node until SIGTERM or Ctrl-C; a second signal ends it at once.

With -o json the node writes every event to standard output as one line of JSON, and acknowledges it once it is written. After a
crash it continues after the last saved checkpoint, so that nothing is lost and little is redelivered.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(file, os.Environ())
			if err != nil {
				return err
			}
			switch output {
			case "":
				return run(cmd.Context(), cfg, takeOver, false)
			case "json":
				return run(cmd.Context(), cfg, takeOver, true)
			}
			return fmt.Errorf("unknown output %q: use -o json", output)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "configuration file; without one, the defaults and the environment")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json: write events to standard output")
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "take over from another process that owns the same checkpoints")
	return cmd
}

// run runs a node; printing, it writes events to standard output.
func run(ctx context.Context, cfg config.Config, takeOver, printing bool) error {
	wiring.SpareMemory()
	service, err := wiring.Assemble(ctx, wiring.Options{
		Config: cfg, Version: versionText(), Process: rand.Text(), TakeOver: takeOver, Logger: cfg.Log.Logger(os.Stderr, slog.LevelDebug),
	})
	if err != nil && ctx.Err() != nil {
		return nil // stopped before it started
	}
	if err != nil {
		return err
	}
	if !printing {
		return service.Run(ctx)
	}
	signal.Ignore(syscall.SIGPIPE) // a closed output is an error of writing, and the node stops as planned
	printed, err := service.Share(context.WithoutCancel(ctx), "stdout")
	if err != nil {
		service.Close()
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := printEvents(context.WithoutCancel(ctx), printed, service.Origin().Cluster, os.Stdout)
		switch fault.Of(err) {
		case fault.LogHistoryLost, fault.LogAhead: // an operator must act; the node serves others meanwhile, and /health says why
			complain(err)
			err = nil
		default:
			cancel() // nobody reads standard output any more
		}
		done <- err
	}()
	err = service.Run(ctx)
	printed.Session().Close(nil)
	last := time.NewTimer(lastWrite)
	defer last.Stop()
	select {
	case printErr := <-done:
		return errors.Join(err, printErr)
	case <-last.C: // what cannot be written is not acknowledged; it ends with the process
		return err
	}
}

// lastWrite bounds how long a write under way is waited for once the node has stopped.
const lastWrite = time.Second
