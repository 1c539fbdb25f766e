package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"

	"google.golang.org/grpc"

	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/streampb"
)

// shop is a node in the place of a real one. It has one change.
type shop struct {
	streampb.UnimplementedGatewayServer
}

func (shop) Connect(stream streampb.Gateway_ConnectServer) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	begin := &streampb.Position{Head: []byte{1}}
	change := &streampb.Position{Head: []byte{2}, Hashes: [][]byte{{7}}}
	answers := []*streampb.ConnectResponse{
		{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{Cluster: "shop", Node: "node-1", PartitionCount: 1, Recovered: true}}},
		{Message: &streampb.ConnectResponse_Subscribed{Subscribed: &streampb.Subscribed{Id: hello.GetHello().GetSubscriptions()[0].GetId()}}},
		{Message: &streampb.ConnectResponse_Batch{Batch: &streampb.Batch{From: begin, To: change, Events: []*streampb.Event{{
			Position: change, Format: streampb.Format_FORMAT_JSON, Subscriptions: []string{"paid"},
			Change: []byte(`{"operationType":"update","documentKey":{"_id":42},"fullDocument":{"_id":42,"status":"paid"}}`),
		}}}}},
	}
	for _, m := range answers {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return nil //nolint:nilerr // the client has left
		}
	}
}

// A program subscribes to orders that are paid, and stops after the first.
func Example() {
	address, stop := serveShop()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(client.Config{
		Addresses: []string{address}, GatewayID: "shipping", Start: client.StartNow,
		OnNotice: func(_ context.Context, n notice.Notice) error {
			if loss, ok := n.(notice.Resync); ok {
				fmt.Println("read these again:", loss.Namespaces)
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = c.Subscribe(client.Subscription{ID: "paid", DB: "shop", Coll: "orders", Filter: `doc.status == "paid"`, Format: client.JSON},
		func(_ context.Context, change client.Change) error {
			var event struct {
				DocumentKey struct {
					ID int `json:"_id"`
				} `json:"documentKey"`
			}
			if err := json.Unmarshal(change.Data, &event); err != nil {
				return err
			}
			fmt.Println("ship order", event.DocumentKey.ID)
			cancel()
			return nil
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}
	stood, known := c.Positions()
	fmt.Println("handled to the end:", known && stood.Partitions[0].Head[0] == 2)
	// Output:
	// ship order 42
	// handled to the end: true
}

// Changes can come through a channel. Each is acknowledged when it is Done.
func ExampleChannel() {
	address, stop := serveShop()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(client.Config{
		Addresses: []string{address}, GatewayID: "shipping", Start: client.StartNow,
		OnNotice: func(context.Context, notice.Notice) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	changes := make(chan client.Delivery)
	if err := c.Subscribe(client.Subscription{ID: "paid", Filter: `doc.status == "paid"`, Format: client.JSON}, client.Channel(changes)); err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	change := <-changes
	fmt.Println(change.Op(), change.ID())
	change.Done(nil)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// update 02-07
	// <nil>
}

// serveShop starts a node.
func serveShop() (address string, stop func()) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	streampb.RegisterGatewayServer(server, shop{})
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), server.Stop
}
