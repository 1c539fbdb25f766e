package devbroker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
)

// NATS is a NATS server with JetStream.
type NATS struct {
	server *server.Server
	port   int
	dir    string
}

// StartNATS starts a NATS server that stores its streams in files below a folder, at a port of
// 127.0.0.1, any if it is 0.
func StartNATS(dir string, port int) (*NATS, error) {
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return ServeNATS(&server.Options{StoreDir: dir, Port: port})
}

// ServeNATS starts a NATS server with JetStream at 127.0.0.1 that has further options, such as
// certificates and users.
func ServeNATS(options *server.Options) (*NATS, error) {
	options.Host = "127.0.0.1"
	options.JetStream = true
	options.NoSigs = true
	options.NoLog = true
	options.MaxPayload = 8 << 20
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("make NATS server: %w", err)
	}
	go s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		s.Shutdown()
		return nil, errors.New("the NATS server does not start")
	}
	_, text, _ := net.SplitHostPort(s.Addr().String())
	port, err := strconv.Atoi(text)
	if err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("find the port of the NATS server: %w", err)
	}
	return &NATS{server: s, port: port, dir: options.StoreDir}, nil
}

// URL returns the address of the server.
func (n *NATS) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.port) }

// Stop ends the server.
func (n *NATS) Stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// Stream makes a stream of subjects, and returns it with the connection, which the caller closes.
func (n *NATS) Stream(ctx context.Context, name string, subjects ...string) (jetstream.Stream, *nats.Conn, error) {
	nc, err := nats.Connect(n.URL(), nats.Timeout(time.Minute)) // the machine may be busy
	if err != nil {
		return nil, nil, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(nc)
	if err == nil {
		var stream jetstream.Stream
		if stream, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: subjects}); err == nil {
			return stream, nc, nil
		}
	}
	nc.Close()
	return nil, nil, fmt.Errorf("make stream %s: %w", name, err)
}

// StartKafka starts a fake cluster of a broker. Topics are made when they are used.
func StartKafka(partitions int) (*kfake.Cluster, error) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(partitions))
	if err != nil {
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	return c, nil
}
