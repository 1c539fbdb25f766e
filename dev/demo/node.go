package main

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wiring"
)

// nodeCommand runs one node of a cluster, configured by a file, if there is one, and the
// environment; a fleet starts it as a process of its own, so that it can be killed like one.
func nodeCommand(ctx context.Context, file string, notes io.Writer) error {
	var environment []string
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "STREAMER_") {
			environment = append(environment, variable)
		}
	}
	cfg, err := config.Load(file, environment)
	if err != nil {
		return err
	}
	service, err := wiring.Assemble(ctx, wiring.Options{
		Config: cfg, Version: "demo", Process: rand.Text(), StallHub: stall(ctx, "hub"), StallSink: stall(ctx, "sink"),
		Logger: cfg.Log.Logger(notes, slog.LevelDebug).With("node", cfg.Node.ID),
	})
	if err != nil {
		return err
	}
	return service.Run(ctx)
}
