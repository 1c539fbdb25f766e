package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// watch shows how the partitions do, several times a second on a terminal, until the context ends. The function it returns waits
// for the last picture.
func (d *demo) watch(ctx context.Context) (wait func()) {
	if d.json {
		return func() {}
	}
	if d.service == nil {
		fmt.Fprintf(d.out, "%d nodes are running; gateways reach them at %s\n", d.nodes, strings.Join(d.addresses, ", "))
		return func() {}
	}
	fmt.Fprintf(d.out, "A node is running on http://%s — try:\n  curl -N 'http://%s/v1/events?op=insert'\n  go run ./cmd/streamer tail --url http://%s\n\n",
		d.service.Addr(), d.service.Addr(), d.service.Addr())
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
	delivered, duplicates := d.check.Delivered()
	fmt.Fprintf(&b, "written %d   delivered %d   duplicates %d   change streams %d\n\n", d.ledger.Written(), delivered, duplicates, d.service.Log().Stats().Streams)
	fmt.Fprintf(&b, "%9s %12s %10s %8s %14s\n", "partition", "events", "events/s", "lag", "saved mark")
	marks := d.service.SavedMarks(ctx)
	for _, p := range d.service.Node().Status() {
		lag, mark := "unknown", "none yet"
		if p.Lag != nil {
			lag = p.Lag.Round(time.Millisecond).String()
		}
		if m, ok := marks[p.Partition]; ok {
			mark = time.Since(m.At).Truncate(time.Second).String() + " ago"
		}
		fmt.Fprintf(&b, "%9d %12d %10.0f %8s %14s\n", p.Partition, p.Events, p.Rate, lag, mark)
	}
	return b.String()
}

func isTerminal() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
