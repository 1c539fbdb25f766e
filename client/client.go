package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Client is a subscriber: its subscriptions and its position.
type Client struct {
	cfg     Config
	process string
	// started and startedAt are when the process started, by the monotonic and by the wall clock.
	started, startedAt time.Time

	dial    func(ctx context.Context, address string) (stream, error)
	ran     atomic.Bool
	room    *room
	notices chan Notice
	stats   counters
	fleet   *fleet // nil where one node serves all partitions

	adopting sync.Mutex // held while the partitions of a cluster are determined

	live          sync.Map // of the IDs of subscriptions to *LiveQuery
	subscriptions struct {
		sync.RWMutex
		all map[string]*subscribed
	}
	mu struct {
		sync.Mutex
		sessions map[*session]struct{}
		work     *work // nil until a node has welcomed the client or a Position was given
		stop     context.CancelFunc
		fatal    error // the error that Run returns
	}
}

// A subscribed is a subscription with its handler.
type subscribed struct {
	Subscription

	handler Handler
	early   bool        // made before Run
	gone    atomic.Bool // the subscription has been removed
	isNew   bool        // no process has had this ID before
	had     atomic.Bool // an event has come for it
}

// message returns the wire form. alone says that the client has no other session, which could bring
// it documents.
func (s *subscribed) message(alone bool) *streampb.Subscription {
	m := s.Subscription.message()
	m.Fresh = s.isNew && alone && !s.had.Load()
	return m
}

// maxNotices bounds the notices that wait for OnNotice.
const maxNotices = 256

// New returns a Client, or every error of the configuration. It starts nothing.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the client: %w", err)
	}
	c := &Client{cfg: cfg.withDefaults(), process: rand.Text(), started: time.Now()}
	c.startedAt = c.started.Round(0)
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

// Subscribe adds a subscription, before Run or while it runs. It never blocks: a [Subscribed] or
// [Rejected] notice reports the outcome. If a node rejects a subscription that was made before Run,
// Run ends unless Config.OnRejected says otherwise. Subscribe returns an error if the ID is in use.
// When an ID is reused after Unsubscribe, its new handler may receive changes that were in flight
// for the old subscription.
func (c *Client) Subscribe(sub Subscription, handler Handler) error {
	return c.subscribe(&subscribed{Subscription: sub, handler: handler})
}

func (c *Client) subscribe(s *subscribed) error {
	sub := &s.Subscription
	handler := s.handler
	if sub.ID == "" || handler == nil {
		return errors.New("subscribe: ID and handler are required")
	}
	sub.Ops, sub.Fields = slices.Clone(sub.Ops), slices.Clone(sub.Fields)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscriptions.Lock()
	_, used := c.subscriptions.all[sub.ID]
	if !used {
		s.early = !c.ran.Load()
		c.subscriptions.all[sub.ID] = s
	}
	c.subscriptions.Unlock()
	if used {
		return fmt.Errorf("subscribe: ID %q is already in use", sub.ID)
	}
	for session := range c.mu.sessions {
		session.outbox.changed(sub.ID, true)
	}
	return nil
}

// Unsubscribe removes a subscription. Its handler is not called for another change, but a call may
// still be running. An unknown ID is ignored.
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

// forget removes a subscription and returns it, nil if there is none.
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

// Position returns the position up to which the program has handled the log, or the zero Position
// while that is unknown. A program can save it in the same transaction as its results and pass it
// to the next process in Config.Position: then exactly the uncommitted changes are redelivered.
// Inside a handler it does not include the current change; use c.Position().After(change). With
// Concurrency 1 one position suffices. Concurrent handlers save one position for each partition and
// combine them at startup with [Position.Merge].
func (c *Client) Position() Position {
	if w := c.working(); w != nil {
		return w.position()
	}
	return c.cfg.Position
}

// Acknowledge says, with AckManual, that the results of all changes up to a position are safe. The
// position comes from Position or [Position.After]; an earlier one than before has no effect. The
// node then moves the subscriber's checkpoint. It never blocks. Position includes what handlers
// have handed over: acknowledge it when all of that is safe. Do so from time to time while nothing
// comes, too, or the checkpoint stays at the last change until the log no longer has it.
func (c *Client) Acknowledge(p Position) {
	if w := c.working(); w != nil && c.cfg.Acks == AckManual {
		w.acknowledge(p)
	}
}

// Run connects and handles changes until the context ends, and then returns nil. It returns an
// error when a retry cannot help. A second call returns ErrRunning.
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
	var notifying sync.WaitGroup
	notifying.Go(func() { c.runNotifying(ctx) })
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
	notifying.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.fatal
}

// runSessions connects until the context ends or an error is final. The first retry is immediate if
// there is another address, or if the node of the last session is about to stop and still serves.
func (c *Client) runSessions(ctx context.Context, at addresses) {
	wait := backoff{first: c.cfg.ReconnectWait, longest: c.cfg.MaxReconnectWait}
	var before *session // the previous session, while its node is about to stop
	var running sync.WaitGroup
	defer running.Wait()
	for failures := 0; ; {
		address, ok := at.next(ctx)
		if !ok {
			return
		}
		began := time.Now()
		s := newSession(c, address, before)
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
			before = s
			failures = 0
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
		c.cfg.Logger.Warn("session ended; reconnecting", "address", address, "error", err, "failures", failures)
		c.offer(Disconnected{Address: address, Err: err, Failures: failures})
		if failures == 1 && at.others() {
			continue
		}
		if wait.wait(ctx, failures) != nil {
			return
		}
	}
}

// end makes Run return an error. The first error wins.
func (c *Client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.fatal == nil {
		c.mu.fatal = err
	}
	c.mu.stop()
}

// runNotifying passes notices to OnNotice until the channel is closed.
func (c *Client) runNotifying(ctx context.Context) {
	for n := range c.notices {
		if err := c.cfg.OnNotice(ctx, n); err != nil {
			c.cfg.Logger.Warn("notice handler failed", "notice", fmt.Sprintf("%T", n), "error", err)
		}
	}
}

// offer queues a notice about the service. It never blocks: when the queue is full the notice is
// dropped and counted.
func (c *Client) offer(n Notice) {
	select {
	case c.notices <- n:
	default:
		c.stats.noticesDropped.Add(1)
	}
}

// notify queues a notice that must not be dropped.
func (c *Client) notify(ctx context.Context, n Notice) error {
	select {
	case c.notices <- n:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// working returns the partitions, nil while they are unknown.
func (c *Client) working() *work {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.work
}

// wanted returns the wire form of a subscription, if it exists.
func (c *Client) wanted(id string) (*streampb.Subscription, bool) {
	c.mu.Lock()
	alone := len(c.mu.sessions) == 1
	c.mu.Unlock()
	c.subscriptions.RLock()
	defer c.subscriptions.RUnlock()
	sub := c.subscriptions.all[id]
	if sub == nil {
		return nil, false
	}
	return sub.message(alone), true
}

// reject removes a subscription that a node has rejected, and ends Run if OnRejected says so.
func (c *Client) reject(ctx context.Context, r Rejected) {
	sub := c.forget(r.Subscription) // nil if another node has already rejected it
	if sub != nil && sub.early && c.cfg.OnRejected(ctx, r) == Stop {
		c.end(&Error{Code: r.Code, Message: fmt.Sprintf("subscription %q: %s", r.Subscription, r.Message), Remedy: r.Remedy})
	}
}

// runningFor returns for how long the process has run. Only the wall clock knows of the time during
// which its machine was suspended: a process that wakes up is no later than its successor.
func (c *Client) runningFor(now time.Time) time.Duration {
	return max(now.Sub(c.started), now.Round(0).Sub(c.startedAt))
}

// hello builds the Hello of a session and registers the session for later changes to the
// subscriptions.
func (c *Client) hello(s *session) *streampb.Hello {
	m := &streampb.Hello{
		Subscriber: c.cfg.Subscriber, ProcessId: c.process, StartedAt: timestamppb.New(c.startedAt), RunningFor: durationpb.New(c.runningFor(time.Now())), Checks: c.checks(),
		Start: c.cfg.Start.message(), Partitions: streampb.Partitions_PARTITIONS_ALL, Ack: streampb.AckMode_ACK_MODE_EXPLICIT,
	}
	if c.fleet != nil {
		m.Partitions = streampb.Partitions_PARTITIONS_OWNED
		m.Detachable = true
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
		m.Subscriptions = append(m.Subscriptions, c.subscriptions.all[id].message(len(c.mu.sessions) == 0))
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
		text := strings.ReplaceAll(check.Text, "\x00", "")
		m = append(m, &streampb.Check{Name: check.Name, Ok: check.OK, Text: strings.ToValidUTF8(text[:min(len(text), maxCheckText)], "")})
	}
	return m
}

// maxCheckText is how long the text of a check may be, in bytes. The text of a check must not end
// the session.
const maxCheckText = 4096

// adopt prepares for the partitions of a cluster. If their number has changed, all of them begin at
// the lowest position of the old ones, so some changes are redelivered.
func (c *Client) adopt(ctx context.Context, cluster string, partitions uint32) (*work, error) {
	c.adopting.Lock()
	defer c.adopting.Unlock()
	before := c.working()
	g := newProgress(cluster, partitions)
	switch {
	case before == nil:
	case cluster != before.cluster():
		return nil, fmt.Errorf("%w: expected %q, got %q", errCluster, before.cluster(), cluster)
	case int(partitions) == len(before.mu.lanes):
		return before, nil
	default:
		before.retire()
		c.cfg.Logger.Warn("number of partitions changed, some changes will be redelivered", "before", len(before.mu.lanes), "now", partitions)
		if p := before.resumable(); !p.IsZero() {
			g.known, g.floor, g.generation = true, p.lowest(), p.generation
			c.readLive()
		}
	}
	w := newWork(ctx, c, g)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.work = w
	return w, nil
}

// find looks up a subscription by the bytes of its ID. The caller must hold the subscriptions'
// lock.
func (c *Client) find(id []byte) *subscribed { return c.subscriptions.all[string(id)] }

// read decodes a message.
func (c *Client) read(message []byte) (*batch, *streampb.ConnectResponse, error) {
	c.subscriptions.RLock()
	defer c.subscriptions.RUnlock()
	return decode(message, c.find)
}

// deliver calls the handlers that remain for an event. It returns the wait before the next attempt,
// 0 when all handlers have succeeded, or an error when the client ends.
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
		change := Change{
			Subscription: sub.ID, Partition: e.partition, AllPartitions: e.all, Format: e.format, Snapshot: e.snapshot, Data: d.batch.changeOf(e), place: e.place,
			more: d.more || int(d.sub) < len(subs)-1,
		}
		if d.attempts == 0 {
			c.stats.changes.Add(1)
		}
		if err := sub.handler(ctx, change); err != nil {
			d.attempts++
			poison := change // a copy, so that only failed changes escape to the heap
			if wait, err = c.failed(ctx, Poison{Change: &poison, Attempts: d.attempts, Err: err}); wait > 0 || err != nil {
				return wait, err
			}
		}
	}
	return 0, nil
}

// failed handles a failed attempt. It returns the wait before the next attempt, 0 if the change is
// skipped, or an error when the client ends.
func (c *Client) failed(ctx context.Context, p Poison) (wait time.Duration, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx) // interrupted: it will be redelivered
	}
	c.stats.failures.Add(1)
	unheard := errors.Is(p.Err, errUnheard)
	if !unheard && p.Attempts < c.cfg.Attempts {
		return max(1, backoff{first: c.cfg.RetryWait, longest: c.cfg.MaxRetryWait}.after(p.Attempts)), nil
	}
	if !unheard && c.cfg.OnPoison(ctx, p) == Skip {
		c.stats.skipped.Add(1)
		c.cfg.Logger.Warn("change skipped after repeated failures", "attempts", p.Attempts, "error", p.Err)
		return 0, nil
	}
	err = &HandlerError{p}
	c.end(err)
	return 0, err
}
