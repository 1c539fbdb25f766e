package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/internal/wiring"
)

// againArgument tells a node's process that it is not the node's first.
const againArgument = "again"

// anyPort is where a node listens whose address is in use.
const anyPort = "127.0.0.1:0"

// assembleAnywhere makes a node, with any free port in place of an address that is in use. Only the
// node's own listener detects that: an address that is free now may be in use when it listens.
func assembleAnywhere(ctx context.Context, opts wiring.Options) (service *wiring.Service, err error) {
	http := opts.Config.HTTP.Listen
	grpc := opts.Config.GRPC.Listen
	for _, at := range [][2]string{{http, grpc}, {anyPort, grpc}, {http, anyPort}, {anyPort, anyPort}} {
		opts.Config.HTTP.Listen, opts.Config.GRPC.Listen = at[0], at[1]
		if service, err = wiring.Assemble(ctx, opts); fault.Of(err) != fault.NodeAddressInUse {
			break
		}
	}
	return service, err
}

// assembleAgain makes a node that others know at its addresses: while one is in use, it waits.
func assembleAgain(ctx context.Context, opts wiring.Options) (*wiring.Service, error) {
	for attempt := 1; ; attempt++ {
		service, err := wiring.Assemble(ctx, opts)
		if fault.Of(err) != fault.NodeAddressInUse {
			return service, err
		}
		if (retry.Backoff{First: 50 * time.Millisecond, Longest: time.Second}).Wait(ctx, attempt) != nil {
			return nil, err
		}
	}
}

// nodeCommand runs one node of a cluster, configured by a file, if there is one, and the
// environment; a fleet starts it as a process of its own, so that it can be killed like one. In its
// first life it tells where it listens; in later ones it listens there again.
func nodeCommand(ctx context.Context, file string, again bool, told, notes io.Writer) error {
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
	assemble := assembleAnywhere
	if again {
		assemble = assembleAgain
	}
	service, err := assemble(ctx, wiring.Options{
		Config: cfg, Version: "demo", Process: rand.Text(), StallHub: stall(ctx, "hub"), StallSink: stall(ctx, "sink"),
		Logger: cfg.Log.Logger(notes, slog.LevelDebug).With("node", cfg.Node.ID),
	})
	if err != nil {
		return err
	}
	if !again {
		fmt.Fprintln(told, service.Addr(), service.Gateway())
	}
	return service.Run(ctx)
}
