package client_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
)

// A program subscribes to orders that are paid, and stops after the first.
func Example() {
	shop := openShop(1) // a node and its MongoDB
	defer shop.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(client.Config{
		Addresses: shop.addresses, GatewayID: "shipping", Start: client.StartNow,
		OnNotice: func(_ context.Context, n notice.Notice) error {
			switch n := n.(type) {
			case notice.Connected: // nothing that happens from now on is missed
				shop.order(42)
			case notice.Resync:
				fmt.Println("read these again:", n.Namespaces)
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := client.Subscription{
		ID: "paid", DB: "shop", Coll: "orders", Ops: []string{"insert", "replace"}, Filter: `doc.status == "paid"`, Format: client.JSON,
	}
	err = c.Subscribe(orders, func(_ context.Context, change client.Change) error {
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
	_, known := c.Positions()
	fmt.Println("the program can go on here:", known)
	// Output:
	// ship order 42
	// the program can go on here: true
}

// Changes can come through a channel. Each is acknowledged when it is Done.
func ExampleChannel() {
	shop := openShop(1) // a node and its MongoDB
	defer shop.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(client.Config{
		Addresses: shop.addresses, GatewayID: "shipping", Start: client.StartNow,
		OnNotice: func(_ context.Context, n notice.Notice) error {
			if _, begun := n.(notice.Connected); begun {
				shop.order(42)
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	changes := make(chan client.Delivery)
	if err := c.Subscribe(client.Subscription{ID: "orders", DB: "shop", Coll: "orders", Format: client.JSON}, client.Channel(changes)); err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	change := <-changes
	fmt.Println(change.Op(), "of", change.Subscription)
	change.Done(nil)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// insert of orders
	// <nil>
}
