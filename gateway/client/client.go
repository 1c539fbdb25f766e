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

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/gateway/client/fleet"
	"github.com/mongostream/streamer/gateway/client/link"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/client/partition"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A Client is a gateway's subscriptions, and how far it is with them.
type Client struct {
	cfg     Config
	process string
	started time.Time
	dial    func(ctx context.Context, address string) (link.Stream, error)
	ran     atomic.Bool
	slots   chan struct{} // of handlers that run
	room    *partition.Room
	told    chan told
	watch   partition.Watch[Change]
	stats   counters
	fleet   *fleet.Fleet // nil where one node serves all partitions

	adopting sync.Mutex // held while it is found out what a cluster's partitions are

	mu struct {
		sync.Mutex
		subscriptions map[string]subscribed
		sessions      map[*session]struct{}
		partitions    *partition.Set // nil while nothing is known
		stop          context.CancelFunc
		fatal         error // why Run ends, if not because it was told to
	}
}

type subscribed struct {
	Subscription
	handler Handler
	early   bool // made before Run
}

// A told is what OnNotice or OnCollection is to hear.
type told struct {
	notice notice.Notice
	change *Change
}

// maxTold bounds what waits for OnNotice and OnCollection.
const maxTold = 256

// New makes a Client. It starts nothing.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the gateway client: %w", err)
	}
	c := &Client{cfg: cfg.withDefaults(), process: rand.Text(), started: time.Now()}
	c.dial = func(ctx context.Context, address string) (link.Stream, error) {
		return link.Dial(ctx, address, link.Options{TLS: c.cfg.TLS, Token: c.cfg.Token, MaxMessage: c.cfg.MaxMessage})
	}
	c.slots = make(chan struct{}, c.cfg.Concurrency)
	c.room = partition.NewRoom(c.cfg.QueueBytes)
	c.told = make(chan told, maxTold)
	c.mu.subscriptions, c.mu.sessions = make(map[string]subscribed), make(map[*session]struct{})
	if c.cfg.Partitions == Owned {
		known := func() bool { _, known := c.Positions(); return known }
		c.fleet = fleet.New(fleet.Config{Addresses: c.cfg.Addresses, Dialable: c.cfg.dialable, Known: known, Link: c.runSessions})
	}
	return c, nil
}

// Subscribe adds a subscription, before Run or while it runs. It never blocks: notice.Subscribed or notice.Rejected tells what comes of it, and
// a subscription made before Run that a node refuses ends Run unless Config.OnRejected says otherwise. An id that is in use is refused. After
// Unsubscribe, changes that were on their way for the earlier subscription of an id may reach the handler
// of the next.
func (c *Client) Subscribe(sub Subscription, handler Handler) error {
	if sub.ID == "" || handler == nil {
		return errors.New("a subscription needs an ID and a handler")
	}
	sub.Ops, sub.Fields = slices.Clone(sub.Ops), slices.Clone(sub.Fields)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := c.mu.subscriptions[sub.ID]; used {
		return fmt.Errorf("there is a subscription %q already", sub.ID)
	}
	c.mu.subscriptions[sub.ID] = subscribed{sub, handler, !c.ran.Load()}
	for s := range c.mu.sessions {
		s.outbox.Changed(sub.ID, true)
	}
	return nil
}

// Unsubscribe removes a subscription. Its handler is not called for another change, but may be at work. An id that there is not changes nothing.
func (c *Client) Unsubscribe(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := c.mu.subscriptions[id]; !used {
		return
	}
	delete(c.mu.subscriptions, id)
	for s := range c.mu.sessions {
		s.outbox.Changed(id, false)
	}
}

// Positions returns how far the program has handled the log. It is false while that is not known of every partition: then there is nothing
// to keep yet.
func (c *Client) Positions() (Positions, bool) {
	if all := c.partitions(); all != nil {
		return all.Positions()
	}
	if c.cfg.Positions != nil {
		return *c.cfg.Positions, true
	}
	return Positions{}, false
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
	if p := c.cfg.Positions; p != nil {
		c.mu.partitions = c.newSet(ctx, p.Cluster, p.PartitionCount, p.Partitions)
	}
	c.mu.Unlock()
	var telling sync.WaitGroup
	telling.Go(func() { c.runTelling(ctx) })
	if c.fleet != nil {
		c.fleet.Run(ctx)
	} else {
		c.runSessions(ctx, &fleet.Ring{Addresses: c.cfg.Addresses})
	}
	if all := c.partitions(); all != nil {
		all.Close()
	}
	close(c.told)
	telling.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.fatal
}

// runSessions connects again and again. After a first failure it does so at once where there is another address, and while the node of the
// last session still serves, because it is about to stop.
func (c *Client) runSessions(ctx context.Context, addresses fleet.Addresses) {
	wait := link.Backoff{First: c.cfg.ReconnectWait, Longest: c.cfg.MaxReconnectWait}
	var before *session // the last one whose node is about to stop
	var running sync.WaitGroup
	defer running.Wait()
	for failures := 0; ; {
		address, ok := addresses.Next(ctx)
		if !ok {
			return
		}
		began, s := time.Now(), newSession(c, address)
		s.before = before
		ended := make(chan error, 1)
		running.Go(func() { ended <- s.run(ctx) })
		err := s.wait(ended, addresses.Others())
		addresses.Over()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errLeft):
			continue
		case errors.Is(err, errStopping):
			before, failures = s, 0
			continue
		}
		if s.moved.Load() || s.welcomed && time.Since(began) >= c.cfg.MaxReconnectWait {
			failures = 0
		}
		failures++
		if errors.Is(err, errCluster) || link.Final(err, c.stats.sessions.Load() > 0) {
			c.end(err)
			return
		}
		c.cfg.Logger.Info("session ended", "address", address, "error", err, "failures", failures)
		c.offer(told{notice: notice.Disconnected{Address: address, Err: err, Failures: failures}})
		if failures == 1 && addresses.Others() {
			continue
		}
		if wait.Wait(ctx, failures) != nil {
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
	for t := range c.told {
		if t.change != nil {
			c.cfg.OnCollection(ctx, *t.change)
			continue
		}
		if err := c.cfg.OnNotice(ctx, t.notice); err != nil {
			c.cfg.Logger.Warn("a notice was not dealt with", "notice", fmt.Sprintf("%T", t.notice), "error", err)
		}
	}
}

// offer tells something about the service, unless too much is waiting already. It never blocks.
func (c *Client) offer(t told) {
	select {
	case c.told <- t:
	default:
		c.stats.noticesDropped.Add(1)
	}
}

// tell tells something that must not be dropped.
func (c *Client) tell(ctx context.Context, n notice.Notice) error {
	select {
	case c.told <- told{notice: n}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handler returns a subscription's, nil where there is none.
func (c *Client) handler(id string) Handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.subscriptions[id].handler
}

// partitions returns the partitions, nil while nothing is known of them.
func (c *Client) partitions() *partition.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.partitions
}

func (c *Client) newSet(ctx context.Context, cluster string, count uint32, begin map[uint32]Position) *partition.Set {
	return partition.NewSet(ctx, partition.Config{Cluster: cluster, Count: count, Worker: work{c}, Room: c.room, Counts: &c.stats.batches}, begin)
}

// wanted returns a subscription for the wire, if there is one.
func (c *Client) wanted(id string) (*streampb.Subscription, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sub, ok := c.mu.subscriptions[id]
	return sub.Message(), ok
}

// reject forgets a subscription that a node has refused, and ends Run where that is decided.
func (c *Client) reject(ctx context.Context, r notice.Rejected) {
	c.mu.Lock()
	early := c.mu.subscriptions[r.Subscription].early // not again where another node refuses it, too
	delete(c.mu.subscriptions, r.Subscription)
	c.mu.Unlock()
	if early && c.cfg.OnRejected(ctx, r) == Stop {
		c.end(&Error{Code: r.Code, Message: fmt.Sprintf("subscription %q: %s", r.Subscription, r.Message), Remedy: r.Remedy})
	}
}

// hello introduces the client to a node, in the name of a session, which hears of what is subscribed to from now on.
func (c *Client) hello(s *session) *streampb.Hello {
	m := &streampb.Hello{
		GatewayId: c.cfg.GatewayID, ProcessId: c.process, StartedAt: timestamppb.New(c.started), Checks: c.checks(),
		Start: streampb.Start(c.cfg.Start), Partitions: streampb.Partitions_PARTITIONS_ALL, Ack: streampb.AckMode_ACK_MODE_EXPLICIT,
	}
	if c.fleet != nil {
		m.Partitions = streampb.Partitions_PARTITIONS_OWNED
	}
	if c.cfg.Acks == AckAuto {
		m.Ack = streampb.AckMode_ACK_MODE_AUTO
	}
	c.addSubscriptions(m, s)
	if all := c.partitions(); all != nil && all.Known() {
		room := maxHello - proto.Size(m)
		if c.fleet != nil {
			room = 0 // what it attaches to has them
		}
		m.Start, m.Positions, m.Cluster, m.PartitionCount = streampb.Start_START_RESUME, all.Stand(all.List(), room), all.Cluster(), all.Count()
	} else if c.cfg.Start == StartTime {
		m.Time = timestamppb.New(c.cfg.Time)
	}
	return m
}

// maxHello is what a node takes of a Hello, or of another message, less what is not counted here.
const maxHello = 4<<20 - 4<<10

// addSubscriptions adds the whole set to a Hello. What is subscribed to from now on the session hears of.
func (c *Client) addSubscriptions(m *streampb.Hello, s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.mu.subscriptions)) {
		sub := c.mu.subscriptions[id]
		m.Subscriptions = append(m.Subscriptions, sub.Message())
		s.outbox.Asked(id)
	}
	c.mu.sessions[s] = struct{}{}
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
func (c *Client) adopt(ctx context.Context, cluster string, count uint32) (*partition.Set, error) {
	c.adopting.Lock()
	defer c.adopting.Unlock()
	before := c.partitions()
	var begin map[uint32]Position
	switch {
	case before == nil:
	case cluster != before.Cluster():
		return nil, fmt.Errorf("%w: it was %q and is %q", errCluster, before.Cluster(), cluster)
	case count == before.Count():
		return before, nil
	default:
		before.Retire()
		c.watch.Forget()
		c.cfg.Logger.Warn("the cluster has been partitioned anew: some changes come again", "before", before.Count(), "now", count)
		if stood, ok := before.Positions(); ok {
			low := stood.Lowest()
			begin = make(map[uint32]Position, count)
			for partition := range count {
				begin[partition] = low
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.partitions = c.newSet(ctx, cluster, count, begin)
	return c.mu.partitions, nil
}
