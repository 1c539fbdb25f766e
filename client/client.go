package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Client is a subscriber: its subscriptions, and how far it is with them.
type Client struct {
	cfg     Config
	process string
	started time.Time
	dial    func(ctx context.Context, address string) (stream, error)
	ran     atomic.Bool
	room    *room
	notices chan Notice
	stats   counters
	fleet   *fleet // nil where one node serves all partitions

	adopting sync.Mutex // held while it is found out what a cluster's partitions are

	subscriptions struct {
		sync.RWMutex
		all map[string]*subscribed
	}
	mu struct {
		sync.Mutex
		sessions map[*session]struct{}
		work     *work // nil while nothing is known
		stop     context.CancelFunc
		fatal    error // why Run ends, if not because its context has ended
	}
}

// A subscribed is a subscription with its handler.
type subscribed struct {
	Subscription

	handler Handler
	early   bool        // made before Run
	gone    atomic.Bool // there is no such subscription any more
}

// maxNotices bounds what waits for OnNotice.
const maxNotices = 256

// New makes a Client. It starts nothing.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the client: %w", err)
	}
	c := &Client{cfg: cfg.withDefaults(), process: rand.Text(), started: time.Now()}
	c.dial = func(ctx context.Context, address string) (stream, error) {
		return dial(ctx, address, c.cfg.TLS, c.cfg.Token, c.cfg.MaxMessage)
	}
	c.room = &room{limit: c.cfg.QueueBytes}
	c.notices = make(chan Notice, maxNotices)
	c.subscriptions.all, c.mu.sessions = make(map[string]*subscribed), make(map[*session]struct{})
	if c.cfg.Partitions == Owned {
		c.fleet = newFleet(fleetConfig{addresses: c.cfg.Addresses, dialable: c.cfg.dialable, link: c.runSessions})
	}
	return c, nil
}

// Subscribe adds a subscription, before Run or while it runs. It never blocks: Subscribed or Rejected tells what comes of it, and a subscription
// made before Run that a node refuses ends Run unless Config.OnRejected says otherwise. An id that is in use is refused. After Unsubscribe,
// changes that were on their way for the earlier subscription of an id may reach the handler of the next.
func (c *Client) Subscribe(sub Subscription, handler Handler) error {
	if sub.ID == "" || handler == nil {
		return errors.New("a subscription needs an ID and a handler")
	}
	sub.Ops, sub.Fields = slices.Clone(sub.Ops), slices.Clone(sub.Fields)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscriptions.Lock()
	_, used := c.subscriptions.all[sub.ID]
	if !used {
		c.subscriptions.all[sub.ID] = &subscribed{Subscription: sub, handler: handler, early: !c.ran.Load()}
	}
	c.subscriptions.Unlock()
	if used {
		return fmt.Errorf("there is a subscription %q already", sub.ID)
	}
	for s := range c.mu.sessions {
		s.outbox.changed(sub.ID, true)
	}
	return nil
}

// Unsubscribe removes a subscription. Its handler is not called for another change, but may be at work. An id that there is not changes nothing.
func (c *Client) Unsubscribe(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forget(id) == nil {
		return
	}
	for s := range c.mu.sessions {
		s.outbox.changed(id, false)
	}
}

// forget removes a subscription, and returns it if there is one.
func (c *Client) forget(id string) *subscribed {
	c.subscriptions.Lock()
	defer c.subscriptions.Unlock()
	sub := c.subscriptions.all[id]
	if sub != nil {
		sub.gone.Store(true)
		delete(c.subscriptions.all, id)
	}
	return sub
}

// Position returns how far the program has handled the log, change by change; the zero Position while that is not known. A program can keep it
// with what it does for the changes, in one transaction, and pass it to the Config of the next process: what was not committed comes again,
// and nothing that was. In a handler it does not have the change at hand: c.Position().After(change) does. With Concurrency 1 there is one
// such position; handlers that run at the same time keep one for each partition, which Position.Merge puts together at the start.
func (c *Client) Position() Position {
	if w := c.working(); w != nil {
		return w.position()
	}
	return c.cfg.Position
}

// Run connects and handles changes until the context ends, which is no error, or until going on is of no use. It runs once.
func (c *Client) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return ErrRunning
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.mu.Lock()
	c.mu.stop = stop
	if !c.cfg.Position.IsZero() {
		c.mu.work = newWork(ctx, c, restore(c.cfg.Position))
	}
	c.mu.Unlock()
	var telling sync.WaitGroup
	telling.Go(func() { c.runTelling(ctx) })
	if c.fleet != nil {
		c.fleet.run(ctx)
	} else {
		c.runSessions(ctx, &ring{addresses: c.cfg.Addresses})
	}
	stop()
	if w := c.working(); w != nil {
		w.close()
	}
	close(c.notices)
	telling.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.fatal
}

// runSessions connects again and again. After a first failure it does so at once where there is another address, and while the node of the
// last session still serves, because it is about to stop.
func (c *Client) runSessions(ctx context.Context, at addresses) {
	wait := backoff{first: c.cfg.ReconnectWait, longest: c.cfg.MaxReconnectWait}
	var before *session // the last one, while its node is about to stop
	var running sync.WaitGroup
	defer running.Wait()
	for failures := 0; ; {
		address, ok := at.next(ctx)
		if !ok {
			return
		}
		began, s := time.Now(), newSession(c, address, before)
		ended := make(chan error, 1)
		running.Go(func() { ended <- s.run(ctx) })
		err := s.wait(ended, at.others())
		at.over()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errLeft):
			continue
		case errors.Is(err, errStopping):
			before, failures = s, 0
			continue
		}
		if s.hasMoved() || s.welcomed && time.Since(began) >= c.cfg.MaxReconnectWait {
			failures = 0
		}
		failures++
		if final(err, c.stats.sessions.Load() > 0) {
			c.end(err)
			return
		}
		c.cfg.Logger.Info("session ended", "address", address, "error", err, "failures", failures)
		c.offer(Disconnected{Address: address, Err: err, Failures: failures})
		if failures == 1 && at.others() {
			continue
		}
		if wait.wait(ctx, failures) != nil {
			return
		}
	}
}

// end ends Run with an error, unless it ends already.
func (c *Client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.fatal == nil {
		c.mu.fatal = err
	}
	c.mu.stop()
}

// runTelling tells the program what it is to hear, to the end of the channel.
func (c *Client) runTelling(ctx context.Context) {
	for n := range c.notices {
		if err := c.cfg.OnNotice(ctx, n); err != nil {
			c.cfg.Logger.Warn("a notice was not dealt with", "notice", fmt.Sprintf("%T", n), "error", err)
		}
	}
}

// offer tells something about the service, unless too much is waiting already. It never blocks.
func (c *Client) offer(n Notice) {
	select {
	case c.notices <- n:
	default:
		c.stats.noticesDropped.Add(1)
	}
}

// tell tells something that must not be dropped.
func (c *Client) tell(ctx context.Context, n Notice) error {
	select {
	case c.notices <- n:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// working returns the partitions, nil while nothing is known of them.
func (c *Client) working() *work {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.work
}

// wanted returns a subscription for the wire, if there is one.
func (c *Client) wanted(id string) (*streampb.Subscription, bool) {
	c.subscriptions.RLock()
	defer c.subscriptions.RUnlock()
	sub := c.subscriptions.all[id]
	if sub == nil {
		return nil, false
	}
	return sub.message(), true
}

// reject forgets a subscription that a node has refused, and ends Run where that is decided.
func (c *Client) reject(ctx context.Context, r Rejected) {
	sub := c.forget(r.Subscription) // nil where another node has refused it, too
	if sub != nil && sub.early && c.cfg.OnRejected(ctx, r) == Stop {
		c.end(&Error{Code: r.Code, Message: fmt.Sprintf("subscription %q: %s", r.Subscription, r.Message), Remedy: r.Remedy})
	}
}

// hello introduces the client to a node, in the name of a session, which hears of what is subscribed to from now on.
func (c *Client) hello(s *session) *streampb.Hello {
	m := &streampb.Hello{
		Subscriber: c.cfg.Subscriber, ProcessId: c.process, StartedAt: timestamppb.New(c.started), Checks: c.checks(),
		Start: c.cfg.Start.message(), Partitions: streampb.Partitions_PARTITIONS_ALL, Ack: streampb.AckMode_ACK_MODE_EXPLICIT,
	}
	if c.fleet != nil {
		m.Partitions = streampb.Partitions_PARTITIONS_OWNED
	}
	if c.cfg.Acks == AckAuto {
		m.Ack = streampb.AckMode_ACK_MODE_AUTO
	}
	if c.cfg.Start == StartTime {
		m.Time = timestamppb.New(c.cfg.Time)
	}
	if w := c.working(); w != nil {
		w.introduce(m, &s.feed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscriptions.RLock()
	defer c.subscriptions.RUnlock()
	for _, id := range slices.Sorted(maps.Keys(c.subscriptions.all)) {
		m.Subscriptions = append(m.Subscriptions, c.subscriptions.all[id].message())
		s.outbox.ask(id)
	}
	c.mu.sessions[s] = struct{}{}
	return m
}

func (c *Client) checks() (m []*streampb.Check) {
	if c.cfg.Checks == nil {
		return nil
	}
	for _, check := range c.cfg.Checks() {
		m = append(m, &streampb.Check{Name: check.Name, Ok: check.OK, Text: check.Text})
	}
	return m
}

// adopt gets ready for the partitions of a cluster. One that has been partitioned anew begins where all of the old partitions have been, so
// that changes that only some had passed come again.
func (c *Client) adopt(ctx context.Context, cluster string, partitions uint32) (*work, error) {
	c.adopting.Lock()
	defer c.adopting.Unlock()
	before := c.working()
	g := newProgress(cluster, partitions)
	switch {
	case before == nil:
	case cluster != before.cluster():
		return nil, fmt.Errorf("%w: it was %q and is %q", errCluster, before.cluster(), cluster)
	case int(partitions) == len(before.mu.lanes):
		return before, nil
	default:
		before.retire()
		c.cfg.Logger.Warn("the cluster has been partitioned anew: some changes come again", "before", len(before.mu.lanes), "now", partitions)
		if p := before.position(); !p.IsZero() {
			g.known, g.floor, g.generation = true, p.lowest(), p.generation
		}
	}
	w := newWork(ctx, c, g)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.work = w
	return w, nil
}

// find returns a subscription by the bytes of its id. The caller has locked the subscriptions.
func (c *Client) find(id []byte) *subscribed { return c.subscriptions.all[string(id)] }

// read takes a message apart.
func (c *Client) read(message []byte) (*batch, *streampb.ConnectResponse, error) {
	c.subscriptions.RLock()
	defer c.subscriptions.RUnlock()
	return decode(message, c.find)
}

// deliver calls the handlers of an event that have yet to be called. It returns how long to wait before the next attempt, 0 when all have dealt
// with it, or an error when the client ends.
func (c *Client) deliver(ctx context.Context, d *doing) (wait time.Duration, err error) {
	e := &d.batch.events[d.event]
	for subs := d.batch.subs[e.first:e.last]; int(d.sub) < len(subs); d.sub, d.attempts = d.sub+1, 0 {
		sub := subs[d.sub]
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if sub.gone.Load() {
			continue
		}
		change := Change{Subscription: sub.ID, Partition: e.partition, AllPartitions: e.all, Format: e.format, Data: e.change, place: e.place}
		if d.attempts == 0 {
			c.stats.changes.Add(1)
		}
		if err := sub.handler(ctx, change); err != nil {
			d.attempts++
			poison := change // which alone is on the heap
			if wait, err = c.failed(ctx, Poison{Change: &poison, Attempts: d.attempts, Err: err}); wait > 0 || err != nil {
				return wait, err
			}
		}
	}
	return 0, nil
}

// failed decides what becomes of something that could not be handled: it returns how long to wait before the next attempt, 0 if it is
// skipped, or an error when the client ends.
func (c *Client) failed(ctx context.Context, p Poison) (wait time.Duration, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx) // it was interrupted, and comes again
	}
	c.stats.failures.Add(1)
	if p.Attempts < c.cfg.Attempts {
		return max(1, backoff{first: c.cfg.RetryWait, longest: c.cfg.MaxRetryWait}.after(p.Attempts)), nil
	}
	if c.cfg.OnPoison(ctx, p) == Skip {
		c.stats.skipped.Add(1)
		c.cfg.Logger.Warn("skipped what could not be handled", "attempts", p.Attempts, "error", p.Err)
		return 0, nil
	}
	err = &HandlerError{p}
	c.end(err)
	return 0, err
}
