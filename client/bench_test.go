package client_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
)

// BenchmarkClient takes changes of 300 bytes, which are ready to be sent, from a node to a handler
// that does nothing. cpu-ns/event counts both ends, of which the node's only writes to the socket;
// paced changes come at 120000 a second.
func BenchmarkClient(b *testing.B) {
	for _, partitions := range []uint32{64, 4096} {
		for _, size := range []int{128, 1024} {
			b.Run(fmt.Sprintf("partitions=%d/batch=%d", partitions, size), func(b *testing.B) { benchmark(b, partitions, size, 0) })
		}
	}
	b.Run("paced", func(b *testing.B) { benchmark(b, 64, 128, 120_000) })
}

// A still sends frames that are bytes already.
type still struct{ encoding.CodecV2 }

type frame []byte

func (c still) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// A source is a node that sends its frames as soon as it is told to.
type source struct {
	streampb.UnimplementedGatewayServer

	partitions uint32
	frames     []frame
	pause      time.Duration
	start      chan struct{}
}

func (s *source) Connect(stream streampb.Gateway_ConnectServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	for _, m := range []*streampb.ConnectResponse{
		{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{Cluster: "c", Node: "n", PartitionCount: s.partitions}}},
		{Message: &streampb.ConnectResponse_Batch{Batch: &streampb.Batch{Seq: 1, To: position(0)}}},
	} {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	go func() { // ends with the call
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	<-s.start
	began := time.Now()
	for i, f := range s.frames {
		if wait := time.Until(began.Add(time.Duration(i) * s.pause)); s.pause > 0 && wait > 0 {
			<-time.NewTimer(wait).C
		}
		if err := stream.SendMsg(f); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

func position(n uint64) []byte {
	p := make([]byte, 34)
	binary.BigEndian.PutUint64(p, n)
	p[8], p[18] = 128, 1
	return p
}

func benchmark(b *testing.B, partitions uint32, size, pace int) {
	s := &source{partitions: partitions, start: make(chan struct{})}
	if pace > 0 {
		s.pause = time.Second * time.Duration(size) / time.Duration(pace)
	}
	payload, total := make([]byte, 300), 0
	for total < b.N {
		batch := &streampb.Batch{Seq: uint64(len(s.frames)) + 2}
		for range size {
			total++
			e := &streampb.Event{Position: position(uint64(total)), Change: payload, Partition: rand.Uint32N(partitions), Subscriptions: []string{"s"}}
			batch.To, batch.Events = e.GetPosition(), append(batch.Events, e)
		}
		raw, err := proto.Marshal(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: batch}})
		if err != nil {
			b.Fatal(err)
		}
		s.frames = append(s.frames, raw)
	}
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(still{encoding.GetCodecV2("proto")}))
	streampb.RegisterGatewayServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer server.Stop()
	connected, done := make(chan struct{}), make(chan struct{})
	var handled atomic.Int64
	c, err := client.New(client.Config{
		Addresses: []string{listener.Addr().String()}, Start: client.StartNow,
		OnNotice: func(_ context.Context, n client.Notice) error {
			if _, is := n.(client.Connected); is {
				close(connected)
			}
			return nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	err = c.Subscribe(client.Subscription{ID: "s"}, func(context.Context, client.Change) error {
		if handled.Add(1) == int64(total) {
			close(done)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	<-connected
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	close(s.start)
	<-done
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/float64(total), "cpu-ns/event")
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "events/s")
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// cpu returns what this process has used of the machine.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
