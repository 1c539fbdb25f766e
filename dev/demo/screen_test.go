package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/streamer"
)

// picture is a screen with more rows than most terminals have lines.
func picture(width int) *screen {
	rows := [][]string{{"partition", "events", "events/s", "lag", "checkpoint"}}
	for i := range 64 {
		rows = append(rows, []string{fmt.Sprint(i), thousands(1000 * i), "20", "15ms", "3s ago"})
	}
	return &screen{
		title: "Streamer demo: a shop", address: "http://127.0.0.1:42413/ (8080 is in use)", elapsed: 83 * time.Second, rates: []float64{0, 10, 20, 19.6},
		facts: []string{"p50 0.85 ms", "p99 5.71 ms", "written 1,288", "delivered 1,288", "missing 0 ✓", "duplicates 0", "change streams 1"}, body: table(rows, width),
	}
}

func TestPictureFitsItsTerminal(t *testing.T) {
	want := map[[2]int]string{
		{80, 12}: `Streamer demo: a shop                                                      1m23s
http://127.0.0.1:42413/ (8080 is in use)
20/s ▁▅██
p50 0.85 ms · p99 5.71 ms · written 1,288 · delivered 1,288 · missing 0 ✓
duplicates 0 · change streams 1

partition  events  events/s   lag  checkpoint
        0       0        20  15ms      3s ago
        1   1,000        20  15ms      3s ago
… and 62 more

Ctrl-C stops and reports`,
		{45, 12}: `Streamer demo: a shop                   1m23s
http://127.0.0.1:42413/ (8080 is in use)
20/s ▁▅██
p50 0.85 ms · p99 5.71 ms · written 1,288
delivered 1,288 · missing 0 ✓ · duplicates 0
change streams 1

partition  events  events/s   lag  checkpoint
        0       0        20  15ms      3s ago
… and 63 more

Ctrl-C stops and reports`,
		{40, 6}: `Streamer demo: a shop              1m23s
http://127.0.0.1:42413/ (8080 is in use)
20/s ▁▅██
p50 0.85 ms · p99 5.71 ms
written 1,288 · delivered 1,288
Ctrl-C stops and reports`,
	}
	for size, text := range want {
		if got := strings.Join(picture(size[0]).lines(size[0], size[1]), "\n"); got != text {
			t.Errorf("%v:\n%s\nwant\n%s", size, got, text)
		}
	}
	for width := range 100 {
		for height := range 60 {
			lines := picture(width).lines(width, height)
			if len(lines) > max(height, 1) || slices.ContainsFunc(lines, func(l string) bool { return utf8.RuneCountInString(l) > max(width, 1) }) {
				t.Fatalf("%d×%d: %q", width, height, lines)
			}
		}
	}
}

// Who waits is shown for what: the orders that are loaded, and where the changes come from.
func TestDemoSaysWhatItDoes(t *testing.T) {
	if facts := (&demo{options: options{documents: 100_000, nodes: 1}}).loading(80).facts; !slices.Equal(facts, []string{"loading 0 of 100,000 orders"}) {
		t.Errorf("%q", facts)
	}
	for via, to := range map[string]*target{"via Kafka, topics shop.orders, shop.customers": {}, "via NATS JetStream, stream streamer": {nats: &devbroker.NATS{}}} {
		var out strings.Builder
		d := demo{output: output{out: &out}, options: options{nodes: 1}, sites: []string{"127.0.0.1:1"}, addresses: []string{"127.0.0.1:2"}, target: to}
		d.announce()
		if text := out.String(); !strings.Contains(text, "Changes come "+via+".\n") || !strings.HasPrefix(text, "A node is running on http://127.0.0.1:1, with gRPC at 127.0.0.1:2 ") {
			t.Errorf("%s: %s", via, text)
		}
	}
}

func TestTableLeavesOutColumnsThatDoNotFit(t *testing.T) {
	rows := [][]string{{"partition", "events", "lag"}, {"0", "1,000", "15ms"}}
	for width, want := range map[int]string{
		21: "partition  events   lag\n        0   1,000  15ms", 20: "partition  events\n        0   1,000", 12: "partition\n        0",
	} {
		if got := strings.Join(table(rows, width+2), "\n"); got != want {
			t.Errorf("%d:\n%s\nwant\n%s", width, got, want)
		}
	}
}

func TestPictureOfManyGatewaysHasTotalsAndTheFirstTen(t *testing.T) {
	var all []streamer.SubscriberStatus
	for i := 49; i >= 0; i-- {
		all = append(all, streamer.SubscriberStatus{Name: fmt.Sprintf("gateway-%d", i), Acknowledged: 100})
	}
	all = append(all, streamer.SubscriberStatus{Name: "demo", Shared: true, Acknowledged: 7})
	rows := gatewayRows(all, func(string) string { return "1s ago" })
	var first []string
	for _, row := range rows {
		first = append(first, row[0])
	}
	want := "gateway, all 50, gateway-0, gateway-1, gateway-2, gateway-3, gateway-4, gateway-5, gateway-6, gateway-7, gateway-8, gateway-9"
	if got := strings.Join(first, ", "); got != want || rows[1][1] != "5,000" {
		t.Errorf("%s; %v", got, rows[1])
	}
}

func TestHelpListsThePartsAndIsNoError(t *testing.T) {
	var text strings.Builder
	if err := command(t.Context(), []string{"-h"}, io.Discard, &text); err != flag.ErrHelp { //nolint:errorlint // main compares it, too
		t.Error(err)
	}
	for _, want := range []string{"demo parts", "-snapshot", "-rate"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in %s", want, &text)
		}
	}
}

func TestEventsAreToldAtOnceOrAfterThePicture(t *testing.T) {
	var out strings.Builder
	n := &teller{to: &out}
	n.tell("one")
	n.hold()
	n.tell("two")
	n.tell("three")
	if out.String() != "one\n" || strings.Join(n.newest(), " ") != "three two" {
		t.Errorf("%q, %q", &out, n.newest())
	}
	n.release()
	if out.String() != "one\ntwo\nthree\n" || len(n.newest()) > 0 {
		t.Errorf("%q", &out)
	}
}
