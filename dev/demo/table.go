package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// watch shows how the partitions do, several times a second on a terminal, until the context ends.
// The function it returns waits for the last picture.
func (d *demo) watch(ctx context.Context) (wait func()) {
	if d.json {
		return func() {}
	}
	if d.service == nil {
		fmt.Fprintf(d.out, "%d nodes are running: HTTP at %s; gRPC at %s — try:\n", d.nodes, strings.Join(d.sites, ", "), strings.Join(d.addresses, ", "))
	} else {
		fmt.Fprintf(d.out, "A node is running on http://%s, with gRPC at %s — try:\n", d.sites[0], d.addresses[0])
	}
	fmt.Fprintf(d.out, "  http://%s/ in a browser\n  curl -N 'http://%s/v1/events?op=insert'\n  go run ./cmd/streamer tail --url http://%s\n\n", d.sites[0], d.sites[0], d.sites[0])
	if d.service == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		lines := 0
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if !isTerminal() {
				continue
			}
			picture := d.picture(ctx)
			if lines > 0 {
				fmt.Fprintf(d.out, "\x1b[%dA\x1b[J", lines)
			}
			fmt.Fprint(d.out, picture)
			lines = strings.Count(picture, "\n")
		}
	}()
	return func() { <-done }
}

// picture draws the table.
func (d *demo) picture(ctx context.Context) string {
	var b strings.Builder
	delivered, duplicates := d.check.Delivered() // before what is written: nothing is delivered that was not
	fmt.Fprintf(&b, "written %d   delivered %d   duplicates %d   change streams %d\n\n", d.ledger.Written(), delivered, duplicates, d.service.Log().Stats().Streams)
	saved := make(map[string]time.Time) // by partition, or by subscriber
	checkpoints, _ := d.service.Checkpoints(ctx)
	for _, c := range checkpoints {
		key := c.Subscriber
		if c.Shared {
			key = fmt.Sprint(c.Partition)
		}
		saved[key] = c.At
	}
	ago := func(key string) string {
		at, known := saved[key]
		if !known {
			return "none yet"
		}
		return time.Since(at).Truncate(time.Second).String() + " ago"
	}
	fmt.Fprintf(&b, "%9s %12s %10s %8s %14s\n", "partition", "events", "events/s", "lag", "checkpoint")
	for _, p := range d.service.Node().Status() {
		checkpoint := ago(fmt.Sprint(p.Partition))
		if d.gateways > 0 {
			checkpoint = "by subscriber"
		}
		fmt.Fprintf(&b, "%9d %12d %10.0f %8s %14s\n", p.Partition, p.Events, p.Rate, lagText(p.Lag), checkpoint)
	}
	if d.gateways > 0 {
		fmt.Fprintf(&b, "\n%12s %12s %10s %8s %14s\n", "subscriber", "acknowledged", "unacked", "lag", "checkpoint")
	}
	for _, s := range d.service.Node().Subscribers() {
		if !s.Shared {
			fmt.Fprintf(&b, "%12s %12d %10d %8s %14s\n", s.Name, s.Acknowledged, s.Unacknowledged, lagText(s.Lag), ago(s.Name))
		}
	}
	return b.String()
}

func lagText(lag *time.Duration) string {
	if lag == nil {
		return "unknown"
	}
	return lag.Round(time.Millisecond).String()
}

func isTerminal() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
