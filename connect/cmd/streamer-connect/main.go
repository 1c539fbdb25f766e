// Command streamer-connect is an engine of Redpanda Connect with the input streamer, and with the
// components of its MIT core (files, HTTP, sockets, subprocesses, processors) and an output for
// NATS JetStream.
package main

import (
	"context"

	_ "github.com/redpanda-data/benthos/v4/public/components/io"
	_ "github.com/redpanda-data/benthos/v4/public/components/pure"
	"github.com/redpanda-data/benthos/v4/public/service"

	_ "github.com/mongostream/streamer/connect"
	_ "github.com/mongostream/streamer/connect/jetstream"
)

func main() {
	service.RunCLI(context.Background(), service.CLIOptSetBinaryName("streamer-connect"), service.CLIOptSetProductName("streamer-connect"))
}
