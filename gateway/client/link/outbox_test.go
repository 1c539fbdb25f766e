package link_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/gateway/client/link"
	"github.com/mongostream/streamer/gateway/streampb"
)

// show writes messages in short: +a subscribes, -a unsubscribes, 0:h acknowledges.
func show(messages []*streampb.ConnectRequest) string {
	var words []string
	for _, m := range messages {
		for _, sub := range m.GetSubscribe().GetSubscriptions() {
			words = append(words, "+"+sub.GetId())
		}
		for _, id := range m.GetUnsubscribe().GetIds() {
			words = append(words, "-"+id)
		}
		for _, p := range m.GetAck().GetPositions() {
			words = append(words, fmt.Sprintf("%d:%s", p.GetPartition(), p.GetPosition().GetHead()))
		}
	}
	return strings.Join(words, " ")
}

// wanted is a set of subscriptions.
type wanted map[string]bool

func (w wanted) get(id string) (*streampb.Subscription, bool) {
	return &streampb.Subscription{Id: id}, w[id]
}

func TestLaterAcksTakeThePlaceOfEarlier(t *testing.T) {
	o := link.NewOutbox()
	for partition, head := range []string{"a", "b", "c"} {
		o.Ack(uint32(partition%2), &streampb.Position{Head: []byte(head)})
	}
	<-o.Woken()
	if got := show(o.Take(wanted{}.get)); got != "0:c 1:b" {
		t.Error(got)
	}
	if got := o.Take(wanted{}.get); len(got) != 0 {
		t.Errorf("%v again", got)
	}
}

func TestOnlyTheLastWordAboutASubscriptionIsSent(t *testing.T) {
	o, w := link.NewOutbox(), wanted{"kept": true, "new": true}
	o.Asked("gone")
	o.Asked("kept")
	o.Changed("gone", false)
	o.Changed("kept", false)
	o.Changed("kept", true)
	o.Changed("new", true)
	o.Changed("brief", true)
	o.Changed("brief", false)
	if got := show(o.Take(w.get)); got != "-gone +kept +new" {
		t.Error(got)
	}
}

func TestAnswersToEarlierSubscriptionsDoNotCount(t *testing.T) {
	o, w := link.NewOutbox(), wanted{"a": true}
	o.Asked("a")
	o.Changed("a", false)
	o.Changed("a", true)
	if o.Answered("a", true) {
		t.Error("the answer to the first counts while the second has yet to be sent")
	}
	o = link.NewOutbox()
	o.Asked("a")
	o.Changed("a", true)
	o.Take(w.get)
	if o.Answered("a", true) {
		t.Error("the answer to the first counts for the second")
	}
	if !o.Answered("a", false) {
		t.Error("the answer to the second does not count")
	}
	if o.Answered("a", false) || o.Answered("b", false) {
		t.Error("what was not asked for is answered")
	}
}

func TestManySubscriptionsAreSentInSeveralMessages(t *testing.T) {
	o, w := link.NewOutbox(), wanted{}
	for i := range 250 {
		id := fmt.Sprintf("%03d", i)
		w[id] = true
		o.Changed(id, true)
	}
	messages := o.Take(w.get)
	if n := len(strings.Fields(show(messages))); len(messages) != 3 || n != 250 {
		t.Errorf("%d subscriptions in %d messages", n, len(messages))
	}
}

// TestNodeKnowsWhatIsWantedWhateverTheOrder: once everything has been sent and answered, node and client agree.
func TestNodeKnowsWhatIsWantedWhateverTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, w, node := link.NewOutbox(), wanted{}, wanted{}
		var unanswered []string
		send := func() {
			for word := range strings.FieldsSeq(show(o.Take(w.get))) {
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
					o.Changed(id, true)
				}
			case 1:
				if w[id] {
					delete(w, id)
					o.Changed(id, false)
				}
			case 2:
				send()
			default:
				if len(unanswered) > 0 {
					o.Answered(unanswered[0], false)
					unanswered = unanswered[1:]
				}
			}
		}
		send()
		for i, id := range unanswered {
			last := !slices.Contains(unanswered[i+1:], id)
			if got := o.Answered(id, false); got != (last && w[id]) {
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
