package gateways

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A messenger sends events through gRPC over TCP, so many in a message, from one goroutine to another, which acknowledges each message
// as a gateway does.
type messenger struct {
	streampb.UnimplementedGatewayServer

	events int // of a message

	round   *contender.Round
	server  *grpc.Server
	client  *grpc.ClientConn
	serving sync.WaitGroup
}

// Readers implements contender.Contender.
func (m *messenger) Readers(contender.Job) int { return 1 }

// Open implements contender.Contender. The clocks begin in Read.
func (m *messenger) Open(ctx context.Context, round *contender.Round) error {
	m.round = round
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	m.server = grpc.NewServer()
	streampb.RegisterGatewayServer(m.server, m)
	m.serving.Go(func() { _ = m.server.Serve(listener) })
	if m.client, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// Connect implements streampb.GatewayServer.
func (m *messenger) Connect(to streampb.Gateway_ConnectServer) error {
	event := &streampb.Event{
		Position: &streampb.Position{Head: make([]byte, 14), Hashes: [][]byte{make([]byte, 16)}}, Change: make([]byte, 300), Subscriptions: []string{"all"},
	}
	message := &streampb.Batch{From: event.Position, To: event.Position}
	for range m.events {
		message.Events = append(message.Events, event)
	}
	acked := make(chan error, 1)
	go func() { // ends with the stream
		for {
			if _, err := to.Recv(); err != nil {
				acked <- err
				return
			}
		}
	}()
	for sent := 0; sent < m.round.Steps; sent += m.events {
		if err := to.Send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: message}}); err != nil {
			return err
		}
	}
	if err := <-acked; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Read implements contender.Contender.
func (m *messenger) Read(ctx context.Context) error {
	m.round.Begin()
	from, err := streampb.NewGatewayClient(m.client).Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	got := 0
	for got < m.round.Steps {
		answer, err := from.Recv()
		if err != nil {
			return fmt.Errorf("receive after %d of %d events: %w", got, m.round.Steps, err)
		}
		batch := answer.GetBatch()
		got += len(batch.GetEvents())
		ack := &streampb.Ack{Positions: []*streampb.PartitionPosition{{Partition: batch.GetPartition(), Position: batch.GetTo()}}}
		if err := from.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: ack}}); err != nil {
			return fmt.Errorf("acknowledge: %w", err)
		}
	}
	if err := from.CloseSend(); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	if _, err := from.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("acknowledge: %w", err)
	}
	m.round.Did(got)
	return nil
}

// Close implements contender.Contender.
func (m *messenger) Close() error {
	var err error
	if m.client != nil {
		err = m.client.Close()
	}
	if m.server != nil {
		m.server.Stop()
	}
	m.serving.Wait()
	return err
}

var _ contender.Contender = (*messenger)(nil)
