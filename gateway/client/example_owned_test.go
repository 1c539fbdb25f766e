package client_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
)

// A program follows the owners of partitions, so that the nodes of a cluster share the work. It needs to know one node: the others it hears
// of, and where a partition moves it follows.
func ExampleOwned() {
	shop := openShop(2) // two nodes that share the partitions, and their MongoDB
	defer shop.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const orders = 20
	place := sync.OnceFunc(func() {
		for id := range orders {
			shop.order(id)
		}
	})
	c, err := client.New(client.Config{
		Addresses: shop.addresses[:1], GatewayID: "shipping", Start: client.StartNow, Partitions: client.Owned,
		OnNotice: func(_ context.Context, n notice.Notice) error {
			if _, begun := n.(notice.Connected); begun { // once with each node
				place()
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	changes := make(chan client.Delivery)
	if err := c.Subscribe(client.Subscription{ID: "orders", DB: "shop", Coll: "orders"}, client.Channel(changes)); err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for range orders {
		change := <-changes
		change.Done(nil)
	}
	fmt.Println("shipped:", orders)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// shipped: 20
	// <nil>
}
