package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wiring"
)

// A nodeConfig configures a node's process at its start.
type nodeConfig struct {
	// Settings are environment variables.
	Settings []string
	Process  string
	// Ready says that the node must read the oplog before the worker answers.
	Ready bool
	// File is the text of the configuration file, empty for none.
	File string
	// Memory is the value of GOMEMLIMIT in bytes, 0 for none.
	Memory int64
}

// load loads the configuration.
func (c nodeConfig) load() (cfg config.Config, err error) {
	if c.File == "" {
		return config.Load("", c.Settings)
	}
	file, err := os.CreateTemp("", "streamer-bench-*.yaml")
	if err != nil {
		return cfg, fmt.Errorf("write a configuration: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.WriteString(c.File)
	if err := errors.Join(err, file.Close()); err != nil {
		return cfg, fmt.Errorf("write a configuration: %w", err)
	}
	return config.Load(file.Name(), c.Settings)
}

// nodeAddresses are a node's addresses for clients.
type nodeAddresses struct{ GRPC, HTTP, Probes string }

// nodeSettings returns the settings of a node that differ from the defaults.
func nodeSettings(j *scenario, id, grpc string) []string {
	settings := []string{
		"STREAMER_CLUSTER_ID=" + j.Name, "STREAMER_NODE_ID=" + id, "STREAMER_MONGODB_URI=" + j.URI, "STREAMER_ETCD_ENDPOINTS=" + j.Etcd,
		"STREAMER_MONGODB_WATCH=" + j.DB + ".*", "STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=" + grpc,
		fmt.Sprint("STREAMER_HTTP_MAX_CLIENTS=", max(2000, j.Clients)), fmt.Sprint("STREAMER_ACCESS_CONNECTIONS_PER_ADDRESS=", max(2000, j.Clients)+200), fmt.Sprintf("STREAMER_CLUSTER_PARTITIONS=%d", j.Partitions),
		"STREAMER_MONGODB_MAX_AWAIT=" + maxAwait.String(), "STREAMER_LOG_LEVEL=error",
	}
	if j.RescanRate != 0 {
		settings = append(settings, fmt.Sprint("STREAMER_RESCAN_RATE=", j.RescanRate))
	}
	if j.Identities != "" {
		settings = append(settings, "STREAMER_ACCESS_IDENTITIES_FILE="+j.Identities, "STREAMER_HTTP_PROBES_LISTEN=127.0.0.1:0")
	}
	if j.Retained.Folder != "" {
		settings = append(settings, "STREAMER_RETENTION_STORE=file://"+j.Retained.Folder, "STREAMER_RETENTION_INTERVAL="+retentionInterval.String())
	}
	return settings
}

// serveNode is a worker with a complete node, assembled as in cmd/streamer, from "start" to the end
// of its input. The worker measures it from "begin" to "end".
func serveNode(ctx context.Context, in io.Reader, out io.Writer) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var ended chan error
	var measured meter
	err := serveRequests(ctx, in, out, map[string]handler{
		"start": handle(func(ctx context.Context, l nodeConfig) (at nodeAddresses, err error) {
			if l.Memory > 0 {
				debug.SetMemoryLimit(l.Memory)
			}
			cfg, err := l.load()
			switch {
			case err != nil:
				return at, err
			case ended != nil:
				return at, errors.New("it runs already")
			}
			service, err := wiring.Assemble(ctx, wiring.Options{Config: cfg, Version: "bench", Process: l.Process})
			if err != nil {
				return at, err
			}
			ended = make(chan error, 1)
			go func() {
				defer wiring.SpareMemory()()
				ended <- service.Run(running)
			}()
			for l.Ready && !service.Log().Stats().Open {
				if err := lookAgain(ctx, ended); err != nil {
					return at, err
				}
			}
			return nodeAddresses{GRPC: service.Gateway(), HTTP: service.Addr(), Probes: service.Probes()}, nil
		}),
		"rest": handle(func(context.Context, none) (int64, error) { return restingRSS(), nil }),
		"begin": handle(func(_ context.Context, profile string) (none, error) {
			measured = startMeter(profile)
			return none{}, nil
		}),
		"end": handle(func(context.Context, none) (usage, error) { return measured.stop(), nil }),
	})
	stop()
	if ended != nil {
		err = errors.Join(err, <-ended)
	}
	return err
}

const (
	// look is the polling interval for state without notifications.
	look = 10 * time.Millisecond
	// readyTimeout bounds how long a node may take until it reads.
	readyTimeout = 20 * time.Second
)

// lookAgain waits for one polling interval, unless the polled process has ended.
func lookAgain(ctx context.Context, ended chan error) error {
	timer := time.NewTimer(look)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-ended:
		ended <- err
		return errors.Join(errors.New("the node has ended"), err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
