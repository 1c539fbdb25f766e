package moves

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/cmd/bench/part"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wiring"
)

// A node of the cluster: a process, which has the same name and address in each of its lives.
type node struct {
	id, address string
	settings    []string

	process string // of its last life
	running *part.Process
}

// newNode makes the i-th node of a cluster.
func newNode(r *contender.Round, i int) (*node, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // answers at once
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	n := &node{id: fmt.Sprint("node-", i+1), address: l.Addr().String()}
	n.settings = []string{
		"STREAMER_CLUSTER_ID=" + r.Name, "STREAMER_NODE_ID=" + n.id, "STREAMER_MONGODB_URI=" + r.URI, "STREAMER_ETCD_ENDPOINTS=" + r.Etcd,
		"STREAMER_MONGODB_WATCH=" + r.DB + ".*", "STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=" + n.address,
		fmt.Sprintf("STREAMER_CLUSTER_PARTITIONS=%d", r.Partitions), "STREAMER_CLUSTER_EXPECTED_NODES=2", "STREAMER_LOG_LEVEL=error",
	}
	return n, l.Close()
}

// A life is what a node's process is told at its beginning.
type life struct {
	Settings []string
	Process  string
}

// start begins a life of the node. settle is how long the cluster waits for further nodes.
func (n *node) start(ctx context.Context, settle time.Duration) (err error) {
	if n.running, err = part.Start(Node, os.Stderr); err != nil {
		return err
	}
	l := life{Settings: append(n.settings[:len(n.settings):len(n.settings)], "STREAMER_CLUSTER_SETTLE_TIME="+settle.String()), Process: rand.Text()}
	n.process = l.Process
	return n.running.Call(ctx, "start", l, &part.None{})
}

// end ends a life of the node, as SIGTERM does.
func (n *node) end() error {
	if n.running == nil {
		return nil
	}
	defer func() { n.running = nil }()
	return n.running.Close()
}

// Node is the name of the part that is a node.
const Node = "node"

// ServeNode is a node as a part, from "start" to the end of its input.
func ServeNode(ctx context.Context, in io.Reader, out io.Writer) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var ended chan error
	err := part.Serve(ctx, in, out, map[string]part.Handler{
		"start": part.Handle(func(ctx context.Context, l life) (none part.None, err error) {
			wiring.SpareMemory()
			cfg, err := config.Load("", l.Settings)
			switch {
			case err != nil:
				return none, err
			case ended != nil:
				return none, errors.New("it runs already")
			}
			service, err := wiring.Assemble(ctx, wiring.Options{Config: cfg, Version: "bench", Process: l.Process})
			if err != nil {
				return none, err
			}
			ended = make(chan error, 1)
			go func() { ended <- service.Run(running) }()
			return none, nil
		}),
	})
	stop()
	if ended != nil {
		err = errors.Join(err, <-ended)
	}
	return err
}
