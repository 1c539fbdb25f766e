package client

import (
	"maps"
	"slices"
	"sync"

	"github.com/mongostream/streamer/gateway/streampb"
)

// An outbox holds a session's pending messages, besides heartbeats. Adding to it never blocks. It
// is bounded by its contents: the last acknowledgement, one change for each partition, and one for
// each subscription.
type outbox struct {
	woken chan struct{} // holds one signal: the outbox is not empty

	mu struct {
		sync.Mutex
		acked   uint64
		changed map[string]struct{} // subscriptions that were added or removed
		asked   map[string]asked    // subscriptions requested from the node
		attach  map[uint32]bool     // partitions to attach (true) or detach
	}
}

// An asked is a subscription that was requested from the node.
type asked struct {
	answers int  // outstanding answers
	gone    bool // an unsubscribe has been sent
}

func newOutbox() *outbox {
	o := &outbox{woken: make(chan struct{}, 1)}
	o.mu.changed, o.mu.asked, o.mu.attach = make(map[string]struct{}), make(map[string]asked), make(map[uint32]bool)
	return o
}

// notify sends a signal to a channel of capacity 1 unless one is pending.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ack records the last batch up to which everything has been handled.
func (o *outbox) ack(seq uint64) {
	o.mu.Lock()
	o.mu.acked = seq
	o.mu.Unlock()
	notify(o.woken)
}

// attach records partitions to attach or to detach.
func (o *outbox) attach(partitions []uint32, on bool) {
	o.mu.Lock()
	for _, p := range partitions {
		o.mu.attach[p] = on
	}
	o.mu.Unlock()
	notify(o.woken)
}

// changed records that a subscription was added or removed. One that was removed before it was sent
// leaves no trace.
func (o *outbox) changed(id string, there bool) {
	o.mu.Lock()
	if _, known := o.mu.asked[id]; there || known {
		o.mu.changed[id] = struct{}{}
	} else {
		delete(o.mu.changed, id)
	}
	o.mu.Unlock()
	notify(o.woken)
}

// ask records a request for a subscription.
func (o *outbox) ask(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.asked[id] = asked{answers: o.mu.asked[id].answers + 1}
}

// answered records an answer and reports whether it concerns the current subscription, not an
// earlier one with the same ID.
func (o *outbox) answered(id string, refused bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, known := o.mu.asked[id]
	if !known || a.answers == 0 {
		return false
	}
	a.answers--
	_, changed := o.mu.changed[id]
	if a.answers == 0 && (a.gone || refused) {
		delete(o.mu.asked, id)
	} else {
		o.mu.asked[id] = a
	}
	return !changed && !a.gone && a.answers == 0
}

// forget records an unsubscribe and reports whether the node knows the subscription.
func (o *outbox) forget(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, known := o.mu.asked[id]
	if known && a.answers == 0 {
		delete(o.mu.asked, id)
	} else if known {
		o.mu.asked[id] = asked{answers: a.answers, gone: true}
	}
	return known
}

// take empties the outbox into messages. wanted returns a current subscription; for one that is
// gone an unsubscribe is sent. at returns the positions of partitions to attach.
func (o *outbox) take(wanted func(id string) (*streampb.Subscription, bool), at func([]uint32) []*streampb.PartitionPosition) (messages []*streampb.ConnectRequest) {
	o.mu.Lock()
	changed := slices.Sorted(maps.Keys(o.mu.changed))
	acked := o.mu.acked
	var attach, detach []uint32
	for _, partition := range slices.Sorted(maps.Keys(o.mu.attach)) {
		if o.mu.attach[partition] {
			attach = append(attach, partition)
		} else {
			detach = append(detach, partition)
		}
	}
	clear(o.mu.changed)
	clear(o.mu.attach)
	o.mu.acked = 0
	o.mu.Unlock()
	if len(detach) > 0 {
		messages = append(messages, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: &streampb.Detach{Partitions: detach}}})
	}
	if len(attach) > 0 {
		messages = append(messages, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: &streampb.Attach{Positions: at(attach)}}})
	}
	var add []*streampb.Subscription
	var remove []string
	for _, id := range changed {
		if sub, ok := wanted(id); ok {
			o.ask(id)
			add = append(add, sub)
		} else if o.forget(id) {
			remove = append(remove, id)
		}
	}
	if len(remove) > 0 {
		unsubscribe := &streampb.Unsubscribe{Ids: remove}
		messages = append(messages, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Unsubscribe{Unsubscribe: unsubscribe}})
	}
	for some := range slices.Chunk(add, subscribeAtOnce) {
		subscribe := &streampb.Subscribe{Subscriptions: some}
		messages = append(messages, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: subscribe}})
	}
	if acked > 0 {
		messages = append(messages, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Seq: acked}}})
	}
	return messages
}

// subscribeAtOnce bounds the subscriptions in one message; each takes up to a few KiB.
const subscribeAtOnce = 100
