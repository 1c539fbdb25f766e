package client_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"

	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A branch is a node in the place of a real one. Of two partitions it owns one, which has one change.
type branch struct {
	streampb.UnimplementedGatewayServer

	name     string
	owns     uint32
	topology *streampb.Topology
}

func (b *branch) Connect(stream streampb.Gateway_ConnectServer) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	begin := &streampb.Position{Head: []byte{1}}
	change := &streampb.Position{Head: []byte{2}, Hashes: [][]byte{{7}}}
	answers := []*streampb.ConnectResponse{
		{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{Cluster: "shop", Node: b.name, PartitionCount: 2, Recovered: true}}},
		{Message: &streampb.ConnectResponse_Subscribed{Subscribed: &streampb.Subscribed{Id: hello.GetHello().GetSubscriptions()[0].GetId()}}},
		{Message: &streampb.ConnectResponse_Batch{Batch: &streampb.Batch{Partition: 0, From: begin, To: begin}}},
		{Message: &streampb.ConnectResponse_Batch{Batch: &streampb.Batch{Partition: 1, From: begin, To: begin}}},
		{Message: &streampb.ConnectResponse_Topology{Topology: b.topology}},
	}
	for _, m := range answers {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	for {
		said, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has left
		}
		for _, p := range said.GetAttach().GetPositions() {
			if p.GetPartition() != b.owns {
				continue
			}
			batch := &streampb.Batch{Partition: b.owns, From: begin, To: change, Events: []*streampb.Event{{
				Position: change, Format: streampb.Format_FORMAT_JSON, Subscriptions: []string{"orders"}, Change: fmt.Appendf(nil, `{"seen at":%q}`, b.name),
			}}}
			if err := stream.Send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: batch}}); err != nil {
				return err
			}
		}
	}
}

// A program follows the owners of partitions, so that the nodes of a cluster share the work. It needs to know one node: the others it hears
// of, and where a partition moves it follows.
func ExampleOwned() {
	address, stop := serveBranches("north", "south")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(client.Config{
		Addresses: []string{address}, GatewayID: "shipping", Start: client.StartNow, Partitions: client.Owned,
		OnNotice: func(context.Context, notice.Notice) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	changes := make(chan client.Delivery, 2)
	if err := c.Subscribe(client.Subscription{ID: "orders", DB: "shop", Coll: "orders", Format: client.JSON}, client.Channel(changes)); err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for range 2 {
		change := <-changes
		fmt.Printf("partition %d: %s\n", change.Partition, change.Data)
		change.Done(nil)
	}
	cancel()
	fmt.Println(<-ended)
	// Unordered output:
	// partition 0: {"seen at":"north"}
	// partition 1: {"seen at":"south"}
	// <nil>
}

// serveBranches starts nodes, each of which owns the partition of its place, and returns the address of the first.
func serveBranches(names ...string) (address string, stop func()) {
	topology := &streampb.Topology{Version: 1}
	var servers []*grpc.Server
	for i, name := range names {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		topology.Nodes = append(topology.Nodes, &streampb.Topology_Node{Name: name, Address: listener.Addr().String()})
		topology.Owners = append(topology.Owners, int32(i))
		server := grpc.NewServer()
		streampb.RegisterGatewayServer(server, &branch{name: name, owns: uint32(i), topology: topology})
		servers = append(servers, server)
		defer func() { go func() { _ = server.Serve(listener) }() }() // once the topology is whole
	}
	return topology.GetNodes()[0].GetAddress(), func() {
		for _, server := range servers {
			server.Stop()
		}
	}
}
