package client_test

import (
	"context"
	"testing"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A handed is a change that a handler has handed over, and the position after it alone.
type handed struct {
	client.Change

	after client.Position
}

// manual starts a client with AckManual, whose handler hands changes over and returns.
func manual(t *testing.T, n *node, j *journal) (*program, <-chan handed) {
	t.Helper()
	return manualFrom(t, n, j, client.Position{})
}

// manualFrom is manual for a client that begins at a position.
func manualFrom(t *testing.T, n *node, j *journal, at client.Position) (*program, <-chan handed) {
	t.Helper()
	cfg := config(j, n.address)
	cfg.Acks, cfg.Position = client.AckManual, at
	changes, ready := make(chan handed, 100), make(chan *program, 1)
	p := start(t, cfg, func(ctx context.Context, c client.Change) error {
		p := <-ready
		ready <- p
		changes <- handed{c, p.Position().After(c)}
		return j.handle(ctx, c)
	})
	ready <- p
	return p, changes
}

// What has been handled is acknowledged when the program says so, and nothing beyond that.
func TestProgramAcknowledges(t *testing.T) {
	n, j := newNode(t), newJournal()
	p, changes := manual(t, n, j)
	v := n.welcomed(t, 1, "a")
	first := v.batch("b1", "0:b1")
	v.batch("c1", "0:c1")
	j.expect(t, "0:b1", "0:c1")
	after := (<-changes).after
	p.Acknowledge(after)
	p.Acknowledge(client.Position{})
	v.acked(first)
	p.end()
	if got := v.left(); got != first {
		t.Errorf("batch %d is acknowledged, of which the program has said nothing", got)
	}
}

// A batch ends for all partitions: it is acknowledged when none of them is before its end.
func TestProgramAcknowledgesAllPartitions(t *testing.T) {
	n, j := newNode(t), newJournal()
	cfg := config(j, n.address)
	cfg.Acks = client.AckManual
	release, ready, others := make(chan struct{}), make(chan *program, 1), make(chan handed, 2)
	p := start(t, cfg, func(ctx context.Context, c client.Change) error {
		p := <-ready
		ready <- p
		if c.Partition == 0 {
			<-release
		} else {
			others <- handed{c, p.Position().After(c)}
		}
		return j.handle(ctx, c)
	})
	ready <- p
	v := n.welcomed(t, 3, "a")
	seq := v.batch("c1", "0:b1", "1:c1", "2:c1")
	one, two := <-others, <-others
	close(release)
	j.expect(t, "1:c1", "2:c1", "0:b1")
	p.Acknowledge(one.after.After(two.Change))
	p.end()
	if got := v.left(); got >= seq {
		t.Errorf("batch %d is acknowledged, but not what partition 0 had in it", got)
	}
}

// A session that follows begins where the program has acknowledged. What was handed over before is
// dropped, and acknowledged with the rest.
func TestReconnectGoesOnAtWhatIsAcknowledged(t *testing.T) {
	n, j := newNode(t), newJournal()
	p, changes := manual(t, n, j)
	v := n.welcomed(t, 1, "a")
	first := v.batch("b1", "0:b1")
	v.batch("d", "0:c1")
	j.expect(t, "0:b1", "0:c1")
	p.Acknowledge((<-changes).after)
	v.acked(first)
	v.close(errBroken)

	v = n.welcomed(t, 1, "b1")
	if v.says() != "b1" {
		t.Fatalf("it goes on at %q, after what nobody has acknowledged", v.says())
	}
	v.batch("d", "0:c1")
	last := v.batch("e1", "0:e1")
	j.expect(t, "0:b1", "0:c1", "0:e1")
	<-changes
	p.Acknowledge((<-changes).after)
	v.acked(last)
	p.end()
}

// A session that breaks before anything is acknowledged is followed by one that begins there too.
func TestReconnectBeforeAnythingIsAcknowledged(t *testing.T) {
	n, j := newNode(t), newJournal()
	p, _ := manual(t, n, j)
	v := n.welcomed(t, 1, "a")
	v.batch("b1", "0:b1")
	j.expect(t, "0:b1")
	v.close(errBroken)
	if v = n.welcomed(t, 1, "a"); v.says() != "a" {
		t.Errorf("it goes on at %q", v.says())
	}
	p.end()
}

// A rewind takes back what was acknowledged; a position from before it acknowledges nothing.
func TestRewindTakesAcknowledgementsBack(t *testing.T) {
	n, j := newNode(t), newJournal()
	p, changes := manual(t, n, j)
	v := n.welcomed(t, 1, "a")
	first := v.batch("c1", "0:c1")
	j.expect(t, "0:c1")
	before := (<-changes).after
	p.Acknowledge(before)
	v.acked(first)
	v.loss(streampb.Loss_KIND_REWOUND, "b", 7)
	v = n.welcomed(t, 1, "b")
	if v.says() != "b" {
		t.Errorf("it goes on at %q", v.says())
	}
	again := v.batch("c1", "0:c1")
	j.expect(t, "0:c1", "rewound", "0:c1")
	p.Acknowledge(before)
	p.end()
	if got := v.left(); got >= again {
		t.Errorf("batch %d is acknowledged by a position from before the rewind", got)
	}
}

// Batches with documents of a snapshot share a place. The position of one of them acknowledges none
// that was handled after the position was taken; that of a later change acknowledges all.
func TestDocumentsAreAcknowledgedByTheirBatches(t *testing.T) {
	n, j := newNode(t), newJournal()
	p, changes := manual(t, n, j)
	v := n.welcomed(t, 1, "a")
	v.sendBatch(document("b", "0:b"))
	second := v.sendBatch(document("b", "0:b"))
	v.sendBatch(document("b", "0:b"))
	j.expect(t, "0:b", "0:b", "0:b")
	<-changes
	<-changes
	p.Acknowledge((<-changes).after) // of the third, while which is handled the first two have been
	v.acked(second)
	p.end()
	if got := v.left(); got != second {
		t.Errorf("batch %d is acknowledged, of which the program has said nothing", got)
	}
}

// A client has other batches than an earlier one in the same process. A position of the earlier one
// acknowledges none of them, by itself and merged with a position of the client.
func TestPositionOfAnotherClientAcknowledgesNoDocuments(t *testing.T) {
	n, j := newNode(t), newJournal()
	p, changes := manual(t, n, j)
	v := n.welcomed(t, 1, "a")
	for range 5 {
		v.sendBatch(document("b", "0:b"))
	}
	var earlier client.Position // four batches with documents had been handled
	for range 5 {
		earlier = (<-changes).after
	}
	p.end()

	p, changes = manualFrom(t, n, newJournal(), earlier)
	v = n.welcomed(t, 1, "b")
	v.sendBatch(document("c", "0:c"))
	second := v.sendBatch(document("c", "0:c"))
	v.sendBatch(document("c", "0:c"))
	v.sendBatch(document("c", "0:c"))
	first := (<-changes).after
	<-changes
	third := (<-changes).after
	<-changes
	p.Acknowledge(earlier)
	p.Acknowledge(first.Merge(earlier))
	p.Acknowledge(earlier.Merge(first))
	p.Acknowledge(earlier.Merge(third))
	v.acked(second)
	p.end()
	if got := v.left(); got != second {
		t.Errorf("batch %d is acknowledged, of which the program has said nothing", got)
	}
}

func TestLaterChangeAcknowledgesDocumentsBeforeIt(t *testing.T) {
	n, j := newNode(t), newJournal()
	p, changes := manual(t, n, j)
	v := n.welcomed(t, 1, "a")
	v.sendBatch(document("b", "0:b"))
	v.sendBatch(document("b", "0:b"))
	last := v.batch("c1", "0:c1")
	j.expect(t, "0:b", "0:b", "0:c1")
	first := <-changes
	<-changes
	p.Acknowledge(first.after.After((<-changes).Change))
	v.acked(last)
	p.end()
}
