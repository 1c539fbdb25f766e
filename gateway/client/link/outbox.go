package link

import (
	"maps"
	"slices"
	"sync"

	"github.com/mongostream/streamer/gateway/streampb"
)

// An Outbox is what waits to be sent in a session, besides heartbeats.
type Outbox struct {
	woken chan struct{} // holds one signal: there is something

	mu struct {
		sync.Mutex
		acks    map[uint32]*streampb.Position
		changed map[string]struct{}                    // subscriptions that are there, or are no longer
		asked   map[string]asked                       // subscriptions the node has been asked for
		attach  map[uint32]*streampb.PartitionPosition // partitions that the session is to go on with, nil: without
	}
}

// An asked is a subscription that the node has been asked for.
type asked struct {
	answers int  // still to come
	gone    bool // the node has been told to forget it
}

// NewOutbox makes an Outbox with nothing in it.
func NewOutbox() *Outbox {
	o := &Outbox{woken: make(chan struct{}, 1)}
	o.mu.acks, o.mu.changed, o.mu.asked = make(map[uint32]*streampb.Position), make(map[string]struct{}), make(map[string]asked)
	o.mu.attach = make(map[uint32]*streampb.PartitionPosition)
	return o
}

// Woken gets a value when there may be something to take.
func (o *Outbox) Woken() <-chan struct{} { return o.woken }

func (o *Outbox) wake() {
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

// Ack puts in how far a partition has been handled.
func (o *Outbox) Ack(partition uint32, to *streampb.Position) {
	o.mu.Lock()
	o.mu.acks[partition] = to
	o.mu.Unlock()
	o.wake()
}

// Attach puts in partitions that the session is to serve, from where they stand.
func (o *Outbox) Attach(positions []*streampb.PartitionPosition) {
	o.mu.Lock()
	for _, p := range positions {
		o.mu.attach[p.GetPartition()] = p
	}
	o.mu.Unlock()
	o.wake()
}

// Detach puts in partitions that it is to serve no longer.
func (o *Outbox) Detach(partitions []uint32) {
	o.mu.Lock()
	for _, p := range partitions {
		o.mu.attach[p] = nil
	}
	o.mu.Unlock()
	o.wake()
}

// takeAttach takes what is attached and detached.
func (o *Outbox) takeAttach() (messages []*streampb.ConnectRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	attach, detach := &streampb.Attach{}, &streampb.Detach{}
	for _, partition := range slices.Sorted(maps.Keys(o.mu.attach)) {
		if p := o.mu.attach[partition]; p != nil {
			attach.Positions = append(attach.Positions, p)
		} else {
			detach.Partitions = append(detach.Partitions, partition)
		}
	}
	clear(o.mu.attach)
	if len(detach.GetPartitions()) > 0 {
		messages = append(messages, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: detach}})
	}
	if len(attach.GetPositions()) > 0 {
		messages = append(messages, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: attach}})
	}
	return messages
}

// Changed puts in that a subscription is there, or is not any more. Nothing is kept of one that came and went unsent.
func (o *Outbox) Changed(id string, there bool) {
	o.mu.Lock()
	if _, known := o.mu.asked[id]; there || known {
		o.mu.changed[id] = struct{}{}
	} else {
		delete(o.mu.changed, id)
	}
	o.mu.Unlock()
	o.wake()
}

// Asked notes that the node is asked for a subscription, in the Hello.
func (o *Outbox) Asked(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.asked[id] = asked{answers: o.mu.asked[id].answers + 1}
}

// Answered notes an answer, and reports whether it is about the subscription as it is now, not about an earlier one of the same id.
func (o *Outbox) Answered(id string, refused bool) bool {
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
func (o *Outbox) forget(id string) bool {
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

// Take empties the box into messages. wanted returns a subscription as it is now; of one that is gone the node is told so.
func (o *Outbox) Take(wanted func(id string) (*streampb.Subscription, bool)) (messages []*streampb.ConnectRequest) {
	o.mu.Lock()
	changed, acks := slices.Sorted(maps.Keys(o.mu.changed)), o.mu.acks
	clear(o.mu.changed)
	o.mu.acks = make(map[uint32]*streampb.Position)
	o.mu.Unlock()
	messages = o.takeAttach()
	var add []*streampb.Subscription
	var remove []string
	for _, id := range changed {
		if sub, ok := wanted(id); ok {
			o.Asked(id)
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
	if len(acks) > 0 {
		ack := &streampb.Ack{}
		for _, partition := range slices.Sorted(maps.Keys(acks)) {
			ack.Positions = append(ack.Positions, &streampb.PartitionPosition{Partition: partition, Position: acks[partition]})
		}
		messages = append(messages, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: ack}})
	}
	return messages
}

// subscribeAtOnce bounds the subscriptions of one message, which are up to a few KiB each.
const subscribeAtOnce = 100
