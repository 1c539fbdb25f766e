package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/internal/admin"
)

// The measured targets of sinks.
const (
	toKafka        = "kafka"
	toTransactions = "transactions" // Kafka, with a transaction for each batch
	toJetStream    = "nats"
	toHTTP         = "http"
	toFile         = "file"
)

// sinkTargets returns the measured targets.
func sinkTargets() []string { return []string{toKafka, toTransactions, toJetStream, toHTTP, toFile} }

// raceSinks lets a sink publish while the log is written to at the pace, and from a backlog as fast
// as it can, and after each a bare producer publish the same messages to the same target, at the
// pace or as fast as it can.
func (b *bench) raceSinks(ctx context.Context) error {
	for range b.scale.moves {
		for _, kind := range sinkTargets() {
			if err := b.raceSink(ctx, kind, b.data(b.scale.published, b.scale.pace), ""); err != nil {
				return err
			}
			if err := b.raceSink(ctx, kind, b.data(b.scale.published, 0), "_unpaced"); err != nil {
				return err
			}
		}
	}
	return nil
}

// raceSink runs a sink, and then a producer of the same messages.
func (b *bench) raceSink(ctx context.Context, kind string, data load, mode string) (err error) {
	broker, err := startWorker("broker", b.notes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.close(), b.drop(ctx, data)) }()
	var at brokerAddress
	if err := broker.call(ctx, "start", brokerConfig{Kind: kind}, &at); err != nil {
		return err
	}
	var start int64
	during := func() error {
		_, err := b.write(ctx, data)
		return err
	}
	if data.Rate == 0 {
		if start, err = b.write(ctx, data); err != nil {
			return err
		}
		during = nil
	}
	of := func(name, contender string, node bool) entry {
		return entry{name: kind + name + mode, contender: contender, node: node, adjust: func(j *scenario) { j.Broker, j.Rate = at, data.Rate }}
	}
	if err := b.enter(ctx, "sinks", of("", "sink", true), b.job(data, start), during); err != nil {
		return err
	}
	return b.enter(ctx, "sinks", of("_bare", "producer", false), b.job(data, 0), nil)
}

// A brokerConfig configures a broker.
type brokerConfig struct{ Kind string }

// A brokerAddress is the address of a broker, and the file in which it keeps what it gets, if it
// keeps it in one. That of a bare producer is beside it.
type brokerAddress struct{ Kind, URL, File string }

// Where sinks and producers publish.
const (
	sinkTopic, bareTopic   = "changes.sink", "bare.producer"
	sinkStream, bareStream = "changes", "bare"
	brokerPartitions       = 4
)

// serveBroker is the target of sinks as a worker.
func serveBroker(ctx context.Context, in io.Reader, out io.Writer) error {
	dir, err := os.MkdirTemp("", "streamer-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for the broker: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	stop := func() {}
	defer func() { stop() }()
	return serveRequests(ctx, in, out, map[string]handler{
		"start": handle(func(ctx context.Context, c brokerConfig) (at brokerAddress, err error) {
			at.Kind = c.Kind
			switch c.Kind {
			case toFile:
				at.File = filepath.Join(dir, "changes")
				return at, nil
			case toHTTP:
				at.File = filepath.Join(dir, "received")
				at.URL, stop, err = startEndpoint(ctx, at.File)
				return at, err
			case toKafka, toTransactions:
				cluster, err := devbroker.StartKafka(brokerPartitions)
				if err != nil {
					return at, err
				}
				stop = cluster.Close
				at.URL = cluster.ListenAddrs()[0]
				return at, nil
			}
			server, err := devbroker.StartNATS(dir, 0)
			if err != nil {
				return at, err
			}
			stop, at.URL = server.Stop, server.URL()
			for _, stream := range []string{sinkStream, bareStream} {
				_, conn, err := server.Stream(ctx, stream, stream+".>")
				if err != nil {
					return at, err
				}
				conn.Close()
			}
			return at, nil
		}),
	})
}

// sinkFile returns the configuration of a node with a sink, empty if the job has none.
func (j *scenario) sinkFile() string {
	begin := time.Now()
	if j.Start != 0 {
		begin = time.Unix(j.Start, 0)
	}
	text := "sinks:\n  - name: bench\n    start: '" + begin.UTC().Format(time.RFC3339) + "'\n    losses: changes.losses\n"
	switch j.Broker.Kind {
	case toJetStream:
		return text + fmt.Sprintf("    type: nats\n    nats: {url: '%s', subject: '%s'}\n", j.Broker.URL, sinkTopic)
	case toHTTP:
		return text + fmt.Sprintf("    type: http\n    http: {url: '%s/', secret: of-the-benchmark, allow: [127.0.0.0/8]}\n", j.Broker.URL)
	case toFile:
		return text + fmt.Sprintf("    type: file\n    file: {path: '%s', max_size: 1TiB}\n", j.Broker.File)
	case toKafka, toTransactions:
		return text + fmt.Sprintf("    type: kafka\n    kafka: {brokers: ['%s'], topic: '%s', create_topics: true, transactional: %t}\n",
			j.Broker.URL, sinkTopic, j.Broker.Kind == toTransactions)
	}
	return ""
}

// A sinkContender waits until the sink of a node has published everything. The messages are checked
// after the clocks have stopped.
type sinkContender struct{ round *round }

// Open implements contender.
func (s *sinkContender) Open(ctx context.Context, round *round) error {
	s.round = round
	for { // until the node owns its partitions
		response, err := s.get(ctx, "/readyz")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			break
		}
		if err := lookAgain(ctx, nil); err != nil {
			return err
		}
	}
	if round.Start == 0 {
		round.begin()
	}
	return nil
}

func (s *sinkContender) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.round.Node.HTTP+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	return response, nil
}

// published returns how many messages the target has acknowledged.
func (s *sinkContender) published(ctx context.Context) (int, error) {
	response, err := s.get(ctx, "/v1/sinks")
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	var list admin.SinkList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return 0, fmt.Errorf("read the state of the sink: %w", err)
	}
	if len(list.Sinks) != 1 {
		return 0, fmt.Errorf("the node has %d sinks", len(list.Sinks))
	}
	return int(list.Sinks[0].Published), nil
}

// Read implements contender. For a backlog it measures the time from the first observed
// acknowledgement, for the messages that are then left, because a node takes a while to start.
func (s *sinkContender) Read(ctx context.Context) error {
	before := 0
	for {
		n, err := s.published(ctx)
		if err != nil {
			return err
		}
		if s.round.Start != 0 && before == 0 && n > 0 {
			before = n
			s.round.total = s.round.Events - n
			s.round.begin()
		}
		if n >= s.round.Events {
			break
		}
		if err := lookAgain(ctx, nil); err != nil {
			return err
		}
	}
	s.round.begin() // if everything was published at once
	s.round.stop()
	return consume(ctx, s.round.scenario, func(m arrived) bool {
		s.round.check.text(m.value, time.Now())
		return !s.round.check.done()
	})
}

// Close implements contender.
func (s *sinkContender) Close() error { return nil }

// A producer publishes the messages that a sink has published, to another place of the same target.
type producer struct {
	round    *round
	messages []arrived
}

// Open implements contender.
func (p *producer) Open(ctx context.Context, round *round) error {
	p.round = round
	p.messages = make([]arrived, 0, round.Events)
	return consume(ctx, round.scenario, func(m arrived) bool {
		p.messages = append(p.messages, m)
		return len(p.messages) < round.Events
	})
}

// Read implements contender.
func (p *producer) Read(ctx context.Context) error {
	publish := publishToKafka
	switch p.round.Broker.Kind {
	case toJetStream:
		publish = publishToJetStream
	case toHTTP:
		publish = publishToHTTP
	case toFile:
		publish = publishToFile
	}
	if err := publish(ctx, p.round, p.messages, p.round.Rate); err != nil {
		return err
	}
	p.round.stop()
	for _, m := range p.messages {
		p.round.check.text(m.value, time.Now())
	}
	return nil
}

// Close implements contender.
func (p *producer) Close() error { return nil }

var _, _ contender = (*sinkContender)(nil), (*producer)(nil)
