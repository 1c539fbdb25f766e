package client_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/client"
)

// loud is what fails an example.
type loud struct{}

func (loud) Helper()           {}
func (loud) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
func (loud) Error(args ...any) { fmt.Println(args...) }

// A program subscribes to some orders, keeps where it is, and stops after the second.
func Example() {
	nodes, stop := newCluster(loud{}, shares, 1)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(client.Config{
		Addresses: []string{nodes.nodes[0].address}, Subscriber: "shipping", Start: client.StartNow,
		OnNotice: func(_ context.Context, n client.Notice) error {
			switch n := n.(type) {
			case client.Resync:
				fmt.Println("read these again:", n.Namespaces)
			case client.Connected: // from now on nothing is missed
				nodes.source.Append(changetest.Event{ID: 41}, changetest.Event{ID: 42}, changetest.Event{ID: 43, Coll: "carts"}, changetest.Event{ID: 44})
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	shipped := make(chan int64, 2)
	sub := client.Subscription{ID: "even", DB: "shop", Coll: "orders", Filter: `key._id in [42, 44]`, Format: client.JSON}
	err = c.Subscribe(sub, func(_ context.Context, change client.Change) error {
		var event struct {
			DocumentKey struct {
				ID int64 `json:"_id"`
			}
		}
		if err := json.Unmarshal(change.Data, &event); err != nil {
			return err
		}
		// Here the program would keep c.Position().After(change) in the transaction that ships the
		// order.
		shipped <- event.DocumentKey.ID
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	fmt.Println("shipped", <-shipped+<-shipped)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// shipped 86
	// <nil>
}

// Changes can come through a channel, here from two nodes of which each owns half of the
// partitions. Each is acknowledged when it is Done.
func ExampleChannel() {
	nodes, stop := newCluster(loud{}, shares, 2)
	defer stop()
	nodes.own(func(partition int) int { return partition % 2 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	connected := make(chan string, 2)
	c, err := client.New(client.Config{
		Addresses: []string{nodes.nodes[0].address}, Subscriber: "shipping", Start: client.StartNow, Partitions: client.Owned,
		OnNotice: func(_ context.Context, n client.Notice) error {
			if n, ok := n.(client.Connected); ok {
				connected <- n.Node
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
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	fmt.Println(<-connected)
	fmt.Println(<-connected)
	nodes.source.Append(changetest.Event{ID: 42}, changetest.Event{ID: 42, Op: "delete"})
	for range 2 {
		change := <-changes
		fmt.Println(change.Op())
		change.Done(nil)
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// node-0
	// node-1
	// insert
	// delete
	// <nil>
}
