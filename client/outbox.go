package client

import (
	"maps"
	"slices"
	"sync"

	"github.com/mongostream/streamer/gateway/streampb"
)

// An outbox is what waits to be sent in a session, besides heartbeats. Putting something in never blocks. It is bounded by what there is: the
// last acknowledgement, one change for each partition, one for each subscription.
type outbox struct {
	woken chan struct{} // holds one signal: there is something

	mu struct {
		sync.Mutex
		acked   uint64
		changed map[string]struct{} // subscriptions that are there, or are no longer
		asked   map[string]asked    // subscriptions the node has been asked for
		attach  map[uint32]bool     // partitions that the session is to have, or not
	}
}

// An asked is a subscription that the node has been asked for.
type asked struct {
	answers int  // still to come
	gone    bool // the node has been told to forget it
}

func newOutbox() *outbox {
	o := &outbox{woken: make(chan struct{}, 1)}
	o.mu.changed, o.mu.asked, o.mu.attach = make(map[string]struct{}), make(map[string]asked), make(map[uint32]bool)
	return o
}

// notify leaves a signal in a channel that holds one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ack puts in up to which batch everything has been handled.
func (o *outbox) ack(seq uint64) {
	o.mu.Lock()
	o.mu.acked = seq
	o.mu.Unlock()
	notify(o.woken)
}

// attach puts in partitions that the session is to have, or to have no longer.
func (o *outbox) attach(partitions []uint32, on bool) {
	o.mu.Lock()
	for _, p := range partitions {
		o.mu.attach[p] = on
	}
	o.mu.Unlock()
	notify(o.woken)
}

// changed puts in that a subscription is there, or is no longer. Nothing is kept of one that came and went unsent.
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

// ask notes that the node is asked for a subscription.
func (o *outbox) ask(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.asked[id] = asked{answers: o.mu.asked[id].answers + 1}
}

// answered notes an answer, and reports whether it is about the subscription as it is now, not about an earlier one of the same id.
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

// forget notes that the node is told to forget a subscription, and reports whether it knows of it.
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

// take empties the box into messages. wanted returns a subscription as it is now; of one that is gone the node is told so. at returns where
// partitions are that are attached.
func (o *outbox) take(wanted func(id string) (*streampb.Subscription, bool), at func([]uint32) []*streampb.PartitionPosition) (messages []*streampb.ConnectRequest) {
	o.mu.Lock()
	changed, acked := slices.Sorted(maps.Keys(o.mu.changed)), o.mu.acked
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

// subscribeAtOnce bounds the subscriptions of one message, which are up to a few KiB each.
const subscribeAtOnce = 100
