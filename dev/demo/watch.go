package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/streamer"
)

// announce says where the nodes are, and what to try.
func (d *demo) announce() {
	if d.json {
		return
	}
	if len(d.sites) > 1 {
		fmt.Fprintf(d.out, "%d nodes are running: HTTP at %s; gRPC at %s — try:\n", d.nodes, strings.Join(d.sites, ", "), strings.Join(d.addresses, ", "))
	} else {
		fmt.Fprintf(d.out, "A node is running on http://%s, with gRPC at %s — try:\n", d.sites[0], d.addresses[0])
	}
	if in := d.inUse(); in != "" {
		fmt.Fprintf(d.out, "  (%s: this demo is at %s)\n", in, d.sites[0])
	}
	fmt.Fprintf(d.out, "  http://%s/ in a browser\n  curl -N 'http://%s/v1/events?db=shop&coll=orders'\n  go run ./cmd/streamer tail --address http://%s\n", d.sites[0], d.sites[0], d.sites[0])
	if d.target != nil {
		fmt.Fprintf(d.out, "Changes come %s.\n", d.target)
	}
	if d.logs != "" {
		fmt.Fprintf(d.out, "The nodes log into %s.\n", d.logs)
	}
	fmt.Fprintln(d.out)
}

// inUse says that the requested address is taken, "" if it is not.
func (d *demo) inUse() string {
	_, wanted, err := net.SplitHostPort(d.http)
	if _, has, _ := net.SplitHostPort(d.sites[0]); err != nil || wanted == "0" || wanted == has {
		return ""
	}
	return wanted + " is in use"
}

// watch shows how it does, until the context ends. The function it returns waits for the end.
func (d *demo) watch(ctx context.Context) (wait func()) {
	return d.show(ctx, func() int { n, _ := d.check.Delivered(); return n }, func(width int) screen {
		s := screen{title: d.title(), address: d.address(), facts: d.facts()}
		switch {
		case width == 0:
		case d.service != nil:
			s.body = d.table(ctx, width)
		default:
			s.body = d.news.newest()
		}
		return s
	})
}

func (d *demo) title() string {
	if d.nodes > 1 {
		return fmt.Sprintf("Streamer demo: %d nodes", d.nodes)
	}
	return "Streamer demo: a shop"
}

func (d *demo) address() string {
	if len(d.sites) == 0 { // nothing runs yet
		return ""
	}
	text := "http://" + d.sites[0] + "/"
	if in := d.inUse(); in != "" {
		text += " (" + in + ")"
	}
	return text
}

// overdue is how long a change may take before the picture calls it missing.
const overdue = 2 * time.Second

// facts are the facts that interest a newcomer.
func (d *demo) facts() []string {
	delivered, duplicates := d.check.Delivered() // before the written count: only written changes are delivered
	p50, p99 := d.check.Latency()
	missing := fmt.Sprintf("missing %d", d.check.Overdue(time.Now().Add(-overdue)))
	if missing == "missing 0" {
		missing += " ✓"
	}
	facts := []string{
		fmt.Sprintf("p50 %.2f ms", p50), fmt.Sprintf("p99 %.2f ms", p99), "written " + thousands(d.ledger.Written()), "delivered " + thousands(delivered),
		missing, "duplicates " + thousands(duplicates),
	}
	if d.service != nil {
		facts = append(facts, fmt.Sprintf("change streams %d", d.service.Log().Stats().Streams))
	}
	if d.target != nil {
		facts = append(facts, d.target.String())
	}
	return facts
}

// gatewaysShown is how many gateways have a row of their own.
const gatewaysShown = 10

// table is the partitions, or the gateways with their totals.
func (d *demo) table(ctx context.Context, width int) []string {
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
		return duration(time.Since(at)) + " ago"
	}
	if d.gateways > 0 {
		return table(gatewayRows(d.service.Node().Subscribers(), ago), width)
	}
	rows := [][]string{{"partition", "events", "events/s", "lag", "checkpoint"}}
	for _, p := range d.service.Node().Status() {
		rows = append(rows, []string{fmt.Sprint(p.Partition), thousands(int(p.Events)), fmt.Sprintf("%.0f", p.Rate), lagText(p.Lag), ago(fmt.Sprint(p.Partition))})
	}
	return table(rows, width)
}

// gatewayRows are the totals of all gateways, and the first ones in their natural order.
func gatewayRows(all []streamer.SubscriberStatus, ago func(string) string) [][]string {
	all = slices.DeleteFunc(slices.Clone(all), func(s streamer.SubscriberStatus) bool { return s.Shared })
	slices.SortFunc(all, func(a, b streamer.SubscriberStatus) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	acknowledged, unacknowledged := 0, 0
	rows := [][]string{{"gateway", "acknowledged", "unacked", "lag", "checkpoint"}, nil}
	for i, s := range all {
		acknowledged += int(s.Acknowledged)
		unacknowledged += int(s.Unacknowledged)
		if i < gatewaysShown {
			rows = append(rows, []string{s.Name, thousands(int(s.Acknowledged)), thousands(int(s.Unacknowledged)), lagText(s.Lag), ago(s.Name)})
		}
	}
	rows[1] = []string{fmt.Sprintf("all %d", len(all)), thousands(acknowledged), thousands(unacknowledged), "", ""}
	return rows
}

func lagText(lag *time.Duration) string {
	if lag == nil {
		return "unknown"
	}
	return lag.Round(time.Millisecond).String()
}
