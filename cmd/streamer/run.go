package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/cmd/streamer/operator"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wiring"
)

func runCommand() *cobra.Command {
	var file, output, uri string
	var takeOver bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a node",
		Long: `Run a node until SIGTERM or Ctrl-C; a second signal ends it at once.

With -o json the node has a sink of type stdout, too: it writes every event to standard output as one line of JSON, and acknowledges it
once it is written. After a crash it continues after the last saved checkpoint, so that nothing is lost and little is redelivered. The
node stops when the reader closes the pipe.

With --mongodb-uri, and without a file and variables for etcd or several nodes, one node runs with nothing else: it keeps its checkpoints in
MongoDB.`,
		Args: operator.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			environment, inMongoDB := operator.Alone(os.Environ(), file, uri)
			cfg, err := config.Load(file, environment)
			if err != nil {
				return err
			}
			if inMongoDB {
				cfg.Log.Logger(cmd.ErrOrStderr(), slog.LevelInfo).Info("checkpoints are kept in MongoDB, because nothing names etcd: this node runs alone",
					"database", cfg.Reliability.Checkpoint.Database)
			}
			ctx, stop := context.WithCancelCause(cmd.Context())
			defer stop(nil)
			stdout := io.Writer(os.Stdout)
			switch output {
			case "":
			case "json":
				if err := cfg.AddStdout(); err != nil {
					return err
				}
				stdout = endingPipe{os.Stdout, stop}
			default:
				return fault.Newf(fault.CommandBadArgument, "unknown output %q: use -o json", output)
			}
			uriFile, err := config.URIFile(file, environment)
			if err != nil {
				return err
			}
			return run(ctx, cfg, uriFile, takeOver, stdout)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "configuration file; without one, the defaults and the environment")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json: write events to standard output")
	operator.URIFlag(cmd, &uri)
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "take over from another process that owns the same checkpoints")
	return cmd
}

// run runs a node.
func run(ctx context.Context, cfg config.Config, uriFile string, takeOver bool, stdout io.Writer) error {
	defer wiring.SpareMemory()()
	if slices.ContainsFunc(cfg.Sinks, func(s config.Sink) bool { return s.Type == config.SinkStdout }) {
		signal.Ignore(syscall.SIGPIPE) // a closed pipe is an error of the sink
	}
	queue := newLogQueue(os.Stderr, func(lines uint64) []byte {
		var line bytes.Buffer
		cfg.Log.Logger(&line, slog.LevelDebug).Warn("dropped log lines: nobody read standard error", "lines", lines)
		return line.Bytes()
	})
	defer queue.Close(lastLines)
	service, err := wiring.Assemble(ctx, wiring.Options{
		Config: cfg, URIFile: uriFile, Version: versionText(), Process: rand.Text(), TakeOver: takeOver, Stdout: stdout,
		Logger: cfg.Log.Logger(queue, slog.LevelDebug), LogState: queue.State,
	})
	if err != nil && ctx.Err() != nil {
		return nil // stopped before it started
	}
	if err != nil {
		return err
	}
	err = service.Run(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, syscall.EPIPE) {
		err = errors.Join(err, cause)
	}
	return err
}

// An endingPipe stops the node when its reader has closed it, as commands of a pipeline do.
type endingPipe struct {
	*os.File
	stop context.CancelCauseFunc
}

func (p endingPipe) Write(b []byte) (int, error) {
	n, err := p.File.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.stop(fmt.Errorf("write events: %w", err))
	}
	return n, err
}
