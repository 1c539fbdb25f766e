package client

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/gateway/streampb"
)

// show writes messages in short: +a subscribes, -a unsubscribes, ack:7 acknowledges.
func show(messages []*streampb.ConnectRequest) string {
	var words []string
	for _, m := range messages {
		for _, sub := range m.GetSubscribe().GetSubscriptions() {
			words = append(words, "+"+sub.GetId())
		}
		for _, id := range m.GetUnsubscribe().GetIds() {
			words = append(words, "-"+id)
		}
		for _, p := range m.GetAttach().GetPositions() {
			words = append(words, fmt.Sprintf("attach:%d", p.GetPartition()))
		}
		for _, p := range m.GetDetach().GetPartitions() {
			words = append(words, fmt.Sprintf("detach:%d", p))
		}
		if m.GetAck() != nil {
			words = append(words, fmt.Sprintf("ack:%d", m.GetAck().GetSeq()))
		}
	}
	return strings.Join(words, " ")
}

// wanted is a set of subscriptions.
type wanted map[string]bool

func (w wanted) get(id string) (*streampb.Subscription, bool) {
	return &streampb.Subscription{Id: id}, w[id]
}

// somewhere is where partitions are that are attached.
func somewhere(partitions []uint32) (positions []*streampb.PartitionPosition) {
	for _, p := range partitions {
		positions = append(positions, &streampb.PartitionPosition{Partition: p})
	}
	return positions
}

func TestLaterAcksTakeThePlaceOfEarlier(t *testing.T) {
	o := newOutbox()
	for seq := range uint64(3) {
		o.ack(seq + 1)
	}
	<-o.woken
	if got := show(o.take(wanted{}.get, somewhere)); got != "ack:3" {
		t.Error(got)
	}
	if got := o.take(wanted{}.get, somewhere); len(got) != 0 {
		t.Errorf("%v again", got)
	}
}

func TestOnlyTheLastWordAboutAPartitionIsSent(t *testing.T) {
	o := newOutbox()
	o.attach([]uint32{2, 1, 3}, true)
	o.attach([]uint32{1}, false)
	o.attach([]uint32{4}, false)
	o.attach([]uint32{4}, true)
	if got := show(o.take(wanted{}.get, somewhere)); got != "detach:1 attach:2 attach:3 attach:4" {
		t.Error(got)
	}
}

func TestOnlyTheLastWordAboutASubscriptionIsSent(t *testing.T) {
	o, w := newOutbox(), wanted{"kept": true, "new": true}
	o.ask("gone")
	o.ask("kept")
	o.changed("gone", false)
	o.changed("kept", false)
	o.changed("kept", true)
	o.changed("new", true)
	o.changed("brief", true)
	o.changed("brief", false)
	if got := show(o.take(w.get, somewhere)); got != "-gone +kept +new" {
		t.Error(got)
	}
}

func TestAnswersToEarlierSubscriptionsDoNotCount(t *testing.T) {
	o, w := newOutbox(), wanted{"a": true}
	o.ask("a")
	o.changed("a", false)
	o.changed("a", true)
	if o.answered("a", true) {
		t.Error("the answer to the first counts while the second has yet to be sent")
	}
	o = newOutbox()
	o.ask("a")
	o.changed("a", true)
	o.take(w.get, somewhere)
	if o.answered("a", true) {
		t.Error("the answer to the first counts for the second")
	}
	if !o.answered("a", false) {
		t.Error("the answer to the second does not count")
	}
	if o.answered("a", false) || o.answered("b", false) {
		t.Error("what was not asked for is answered")
	}
}

func TestManySubscriptionsAreSentInSeveralMessages(t *testing.T) {
	o, w := newOutbox(), wanted{}
	for i := range 250 {
		id := fmt.Sprintf("%03d", i)
		w[id] = true
		o.changed(id, true)
	}
	messages := o.take(w.get, somewhere)
	if n := len(strings.Fields(show(messages))); len(messages) != 3 || n != 250 {
		t.Errorf("%d subscriptions in %d messages", n, len(messages))
	}
}

// TestNodeKnowsWhatIsWantedWhateverTheOrder: once everything has been sent and answered, node and
// client agree.
func TestNodeKnowsWhatIsWantedWhateverTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, w, node := newOutbox(), wanted{}, wanted{}
		var unanswered []string
		send := func() {
			for word := range strings.FieldsSeq(show(o.take(w.get, somewhere))) {
				if id := word[1:]; word[0] == '+' {
					node[id] = true
					unanswered = append(unanswered, id)
				} else {
					delete(node, id)
				}
			}
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if !w[id] {
					w[id] = true
					o.changed(id, true)
				}
			case 1:
				if w[id] {
					delete(w, id)
					o.changed(id, false)
				}
			case 2:
				send()
			default:
				if len(unanswered) > 0 {
					o.answered(unanswered[0], false)
					unanswered = unanswered[1:]
				}
			}
		}
		send()
		for i, id := range unanswered {
			last := !slices.Contains(unanswered[i+1:], id)
			if got := o.answered(id, false); got != (last && w[id]) {
				t.Fatalf("the answer about %s counts: %t", id, got)
			}
		}
		for _, id := range []string{"a", "b", "c"} {
			if w[id] != node[id] {
				t.Fatalf("%s is wanted: %t, the node has it: %t", id, w[id], node[id])
			}
		}
	})
}
