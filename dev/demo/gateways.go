package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/client"
)

// shares is how many documents the subscriptions divide among themselves; the last one has the
// later documents, too.
const shares = 10_000

// runGateways runs gateways that subscribe over gRPC, until the context ends. Together their
// subscriptions want every document, each of them a range of its own.
func (d *demo) runGateways(ctx context.Context) error {
	var g errgroup.Group
	for i := range d.gateways {
		c, err := client.New(client.Config{
			Addresses: rotated(d.addresses, i), Subscriber: fmt.Sprintf("gateway-%d", i), Start: client.StartEarliest,
			Partitions: client.Partitions(i % 2), // of several gateways half follow the owners
			OnNotice:   func(_ context.Context, n client.Notice) error { return d.heard(n) },
			Logger:     slog.New(slog.NewTextHandler(d.log, nil)).With("gateway", i),
		})
		if err != nil {
			return fmt.Errorf("make a gateway: %w", err)
		}
		for s := i; s < d.subscriptions; s += d.gateways {
			if err := c.Subscribe(client.Subscription{ID: fmt.Sprint(s), Filter: d.share(s), Format: client.JSON}, d.handle); err != nil {
				return fmt.Errorf("subscribe: %w", err)
			}
		}
		g.Go(func() error { return c.Run(ctx) })
	}
	return g.Wait()
}

// rotated returns the addresses from the i-th on, so that gateways spread over the nodes.
func rotated(addresses []string, i int) []string {
	i %= len(addresses)
	return slices.Concat(addresses[i:], addresses[:i])
}

// share is the filter of the s-th subscription.
func (d *demo) share(s int) string {
	width := (shares + d.subscriptions - 1) / d.subscriptions
	if s == d.subscriptions-1 {
		return fmt.Sprintf("key._id >= %d", s*width)
	}
	return fmt.Sprintf("key._id >= %d && key._id < %d", s*width, (s+1)*width)
}

// handle takes a change that came to a gateway.
func (d *demo) handle(_ context.Context, c client.Change) error {
	took, err := d.check.Timed(c.Data, time.Now())
	d.gaps.took(change.Partition(c.Partition), took)
	return err
}

// heard handles a gateway's notices; in a demo nothing may be lost.
func (d *demo) heard(n client.Notice) error {
	if lost, is := n.(client.Resync); is {
		return fmt.Errorf("a gateway was told of a loss: %+v", lost)
	}
	return nil
}
