package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
		var order struct {
			ID int64 `json:"_id"`
		}
		if err := change.Decode(&order); err != nil {
			return err
		}
		// Here the program would keep c.Position().After(change) in the transaction that ships the
		// order.
		shipped <- order.ID
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

// Decode decodes the document; the key is there even where the document is not.
func ExampleChange_Decode() {
	handler := func(_ context.Context, change client.Change) error {
		var order struct {
			Customer struct{ Name string }
			Total    float64
		}
		switch err := change.Decode(&order); {
		case errors.Is(err, client.ErrNoDocument): // a delete
		case err != nil:
			return err
		}
		db, coll := change.Namespace()
		fmt.Println(change.Op(), db, coll, change.Key(), order.Customer.Name, order.Total)
		return nil
	}
	for _, event := range []string{
		`{"key":"1121","operationType":"insert","ns":{"db":"shop","coll":"orders"},"fullDocument":{"_id":1121,"customer":{"name":"Ada Okafor"},"total":149.9}}`,
		`{"key":"1121","operationType":"delete","ns":{"db":"shop","coll":"orders"}}`,
	} {
		if err := handler(context.Background(), client.Change{Format: client.JSON, Data: []byte(event)}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// insert shop orders 1121 Ada Okafor 149.9
	// delete shop orders 1121  0
}

// A program without OnNotice ends at a loss. One that can read documents again handles it.
func ExampleConfig_OnNotice() {
	cfg := client.Config{
		Addresses: []string{"127.0.0.1:9090"}, Subscriber: "shipping", Start: client.StartNow,
		OnNotice: func(_ context.Context, n client.Notice) error {
			switch n := n.(type) {
			case client.Resync:
				return readAgain(n.Namespaces) // an error has it handled again
			case client.Disconnected:
				fmt.Println("reconnecting:", n.Err)
			}
			return nil
		},
	}
	fmt.Println(cfg.OnNotice(context.Background(), client.Resync{Namespaces: []string{"shop.orders"}}))
	// Output:
	// reading shop.orders again
	// <nil>
}

func readAgain(namespaces []string) error {
	fmt.Println("reading", strings.Join(namespaces, ", "), "again")
	return nil
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
