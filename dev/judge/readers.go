package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A reader is a subscriber with copies. Until the writer rests it behaves badly.
type reader struct {
	cluster    *cluster
	kind       string
	dice       *rand.Rand // of its main loop
	copies     []*replica
	calm       atomic.Bool
	subscriber atomic.Pointer[string]
	breaks     chan struct{} // holds one request to break the connection
	rounds     int           // that it was judged in
	cancel     context.CancelFunc
	ended      chan struct{}

	mu struct {
		sync.Mutex
		queries []*client.LiveQuery // of a live reader's last process
	}
}

// startReader starts a reader. Its copies' filters and operations are drawn.
func startReader(ctx context.Context, j *judge, kind string, round, i int) *reader {
	name := fmt.Sprintf("%s-%d-%d", kind, round, i)
	r := &reader{cluster: j.cluster, kind: kind, dice: dice(j.seed, "reader "+kind, round*100+i), breaks: make(chan struct{}, 1), ended: make(chan struct{})}
	r.subscriber.Store(&name)
	ctx, r.cancel = context.WithCancel(ctx)
	all := filters()[0]
	run := r.runClient
	switch kind {
	case "live":
		for _, rule := range []rule{all, r.draw(false), r.simple(rule{filter: filters()[2].filter, matches: filters()[2].matches, coll: "b"})} {
			rule.leaves = true
			r.add(name, rule).live = true
		}
	case "owned": // begins with the oldest change, so that nothing is missing until something is lost; nodes report missing ones
		r.add(name, all)
	case "sse":
		r.add(name, r.draw(true))
		run = r.runEvents
	default:
		for range 1 + r.dice.IntN(3) {
			r.add(name, r.draw(true))
		}
		if kind == "grpc" {
			run = r.runProtocol
		}
	}
	if kind != "owned" && r.dice.IntN(3) == 0 {
		go r.operator(ctx, dice(j.seed, "operator", round*100+i))
	}
	if j.wide && r.dice.IntN(3) == 0 {
		go j.cluster.rewinds(ctx, dice(j.seed, "rewinds", round*100+i), &r.calm, func() string { return *r.subscriber.Load() })
	}
	go func() {
		defer close(r.ended)
		run(ctx)
	}()
	return r
}

func (r *reader) stop() {
	r.cancel()
	<-r.ended
}

func (r *reader) add(name string, rule rule) *replica {
	c := newReplica(r.cluster, r.kind, fmt.Sprintf("%s/%d", name, len(r.copies)), rule)
	r.copies = append(r.copies, c)
	return c
}

// simple leaves the filter out where nodes refuse filters on documents.
func (r *reader) simple(of rule) rule {
	if r.cluster.full == "default" {
		of.filter = ""
		of.matches = filters()[0].matches
	}
	return of
}

// draw draws a rule. Operations are combined only with filters whose results never change;
// otherwise the expected documents are unknown.
func (r *reader) draw(operations bool) rule {
	of := r.simple(filters()[r.dice.IntN(len(filters()))])
	of.coll = pick(r.dice, "", "a", "b", "c", "vol")
	of.leaves = r.dice.IntN(3) > 0
	if operations && r.dice.IntN(3) == 0 {
		of = r.simple(filters()[r.dice.IntN(2)])
		of.ops = pick(r.dice, []string{"insert", "delete"}, []string{"insert", "replace", "delete"}, []string{"update", "delete"})
		of.coll = pick(r.dice, stable()...)
	}
	return of
}

func (r *reader) say(format string, args ...any) {
	for _, c := range r.copies {
		c.say(format, args...)
	}
}

// of returns the copy of a subscription; its ID begins with the copy's name.
func (r *reader) of(id string) *replica {
	for _, c := range r.copies {
		if id == c.name || strings.HasPrefix(id, c.name+"~") {
			return c
		}
	}
	return newReplica(r.cluster, r.kind, id, filters()[0]) // nobody's
}

// lasts ends something after a while or when the connection is to break, but not while the writer
// rests.
func (r *reader) lasts(ctx context.Context, d time.Duration, end context.CancelFunc) {
	go func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			for r.calm.Load() && sleep(ctx, 50*time.Millisecond) {
			}
		case <-r.breaks:
		case <-ctx.Done():
		}
		end()
	}()
}

// operator asks for the subscriber's snapshot now and then. Sometimes the connection breaks when it
// has been accepted.
func (r *reader) operator(ctx context.Context, dice *rand.Rand) {
	for sleep(ctx, 2*time.Second+upTo(dice, 6*time.Second)) {
		breaks := dice.IntN(2) == 0
		if r.calm.Load() {
			continue
		}
		var requests []request
		for _, c := range r.copies {
			requests = append(requests, c.asked())
		}
		if !r.cluster.beginSnapshot(ctx, *r.subscriber.Load()) {
			continue
		}
		for i, c := range r.copies {
			if !c.live {
				c.accepted(requests[i])
			}
		}
		if breaks {
			select {
			case r.breaks <- struct{}{}:
			default:
			}
		}
	}
}

// runClient runs the Go client: with live queries, with a session to each node, or with plain
// subscriptions, slowly, in processes that end without acknowledging.
func (r *reader) runClient(ctx context.Context) {
	slow := pick(r.dice, 0, 5*time.Millisecond, 20*time.Millisecond)
	for ctx.Err() == nil {
		running, end := context.WithCancel(ctx)
		cfg := client.Config{
			Logger:     slog.New(slog.DiscardHandler),
			Subscriber: *r.subscriber.Load(), Start: client.StartSnapshot, OnNotice: r.notice,
			ReconnectWait: 50 * time.Millisecond, MaxReconnectWait: 500 * time.Millisecond, StopTimeout: time.Millisecond,
		}
		for _, i := range r.dice.Perm(r.cluster.nodes) {
			cfg.Addresses = append(cfg.Addresses, r.cluster.grpc[i])
		}
		if r.kind == "owned" {
			cfg.Start = client.StartEarliest
			cfg.Partitions = client.Owned
			slow = 0
		}
		err := r.runProcess(running, cfg, slow)
		if err != nil && running.Err() == nil {
			r.cluster.tell("%s: %v", cfg.Subscriber, err)
			r.say("its process ended: %v", err)
			sleep(ctx, time.Second)
		}
		end()
	}
}

func (r *reader) runProcess(ctx context.Context, cfg client.Config, slow time.Duration) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	r.say("a process begins")
	if r.kind == "live" {
		return r.runLive(ctx, c)
	}
	var random sync.Mutex
	for _, copied := range r.copies {
		copied.replays()
		sub := client.Subscription{
			ID: copied.name, DB: database, Coll: copied.coll, Filter: copied.filter, Ops: copied.ops, Format: client.JSON, Leaves: copied.leaves,
		}
		if cfg.Partitions != client.Owned {
			sub.OnLoss = client.LossSnapshot
		}
		handler := func(ctx context.Context, change client.Change) error {
			if !r.calm.Load() {
				random.Lock()
				wait := upTo(r.dice, slow)
				random.Unlock()
				sleep(ctx, wait)
			}
			return copied.apply(change.Data)
		}
		if err := c.Subscribe(sub, handler); err != nil {
			return err
		}
	}
	if r.kind == "client" {
		r.lasts(ctx, 1500*time.Millisecond+upTo(r.dice, 6*time.Second), end)
	}
	if err := c.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

func (r *reader) runLive(ctx context.Context, c *client.Client) error {
	var queries []*client.LiveQuery
	for _, copied := range r.copies {
		see := func(what string, d client.Document) {
			copied.mu.Lock()
			defer copied.mu.Unlock()
			copied.saw(fmt.Sprint(d["home"], " ", text(d["_id"])), "%s n=%v v=%v", what, d["n"], d["v"])
		}
		q, err := c.Live(client.Subscription{ID: copied.name, DB: database, Coll: copied.coll, Filter: copied.filter}, client.LiveCallbacks{
			Added: func(d client.Document) { see("added", d) }, Removed: func(d client.Document) { see("removed", d) },
			Changed: func(_, d client.Document) { see("changed", d) },
		})
		if err != nil {
			return err
		}
		queries = append(queries, q)
	}
	r.mu.Lock()
	r.mu.queries = queries
	r.mu.Unlock()
	return c.Run(ctx)
}

// look takes what live queries have as their copies, and what nodes say of the snapshots of a
// client that has a session with each.
func (r *reader) look(all subscribers) {
	if r.kind == "owned" {
		c := r.copies[0]
		c.mu.Lock()
		defer c.mu.Unlock()
		if clear(c.missing); all.done[*r.subscriber.Load()] < partitions {
			c.missing[""] = true
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range r.mu.queries {
		c := r.copies[i]
		docs, whole := q.Documents()
		c.mu.Lock()
		c.docs, c.missing = make(map[string]*held), make(map[string]bool)
		if !whole {
			c.missing[""] = true
		}
		for _, d := range docs {
			home := fmt.Sprint(d["home"])
			id := text(d["_id"])
			key := home + " " + id
			for c.docs[key] != nil {
				key += " (twice)"
			}
			c.docs[key] = &held{n: number(d["n"]), doc: d}
			c.passes(database+"."+strings.TrimPrefix(home, "marker."), id)
		}
		c.mu.Unlock()
	}
}

func (r *reader) notice(_ context.Context, n client.Notice) error {
	switch n := n.(type) {
	case client.Resync:
		for _, c := range r.copies {
			c.lost(n.Reason, n.Namespaces)
		}
	case client.Rewound:
		r.rewound()
	case client.SnapshotBegun:
		r.of(n.Subscription).marked("begun", n.Reason, n.Namespaces)
	case client.SnapshotDone:
		if r.kind != "owned" {
			r.of(n.Subscription).marked("done", n.Reason, n.Namespaces)
		}
	case client.Rejected:
		r.say("rejected: %+v", n)
	case client.Connected:
		r.say("connected to %s, begin %d", n.Node, n.Begin)
	case client.Disconnected:
		if n.Failures < 3 {
			r.say("disconnected from %s: %v", n.Address, n.Err)
		}
	}
	return nil
}

// rewound says that changes come again.
func (r *reader) rewound() {
	r.say("rewound")
	for _, c := range r.copies {
		c.moved()
	}
}

// runProtocol speaks gRPC itself: it acknowledges late or never, breaks connections, resumes at its
// own position or at the checkpoint, and subscribes the same IDs again.
func (r *reader) runProtocol(ctx context.Context) {
	name := *r.subscriber.Load()
	hello := &streampb.Hello{Subscriber: name, ProcessId: name, StartedAt: timestamppb.Now(), Start: streampb.Start_START_SNAPSHOT}
	for _, c := range r.copies {
		hello.Subscriptions = append(hello.Subscriptions, &streampb.Subscription{
			Id: c.name, Db: database, Coll: c.coll, Filter: c.filter, Ops: c.ops, Leaves: c.leaves,
			Format: streampb.Format_FORMAT_JSON, OnLoss: streampb.OnLoss_ON_LOSS_SNAPSHOT,
		})
	}
	own := r.dice.IntN(2) == 0
	acks := pick(r.dice, "at once", "late", "late", "never")
	r.say("it resumes at its own position %t, and acknowledges %s", own, acks)
	for ctx.Err() == nil {
		if !own {
			hello.Position = nil
			for _, c := range r.copies {
				c.replays()
			}
		}
		if r.cluster.wide && r.dice.IntN(3) == 0 { // another process takes the name
			hello.ProcessId = fmt.Sprint(name, " ", r.dice.Uint64())
			hello.StartedAt = timestamppb.Now()
		}
		if err := r.session(ctx, hello, own, acks); !strings.Contains(err.Error(), "refused") {
			r.say("its session ended: %v", err)
		}
		sleep(ctx, 20*time.Millisecond+upTo(r.dice, 300*time.Millisecond))
	}
}

func (r *reader) session(ctx context.Context, hello *streampb.Hello, own bool, acks string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := grpc.NewClient(pick(r.dice, r.cluster.grpc...), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // over
	stream, err := streampb.NewGatewayClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	send := func(m *streampb.ConnectRequest) { _ = stream.Send(m) } // Recv has the error
	send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: hello}})
	life := 600*time.Millisecond + upTo(r.dice, 4*time.Second)
	r.lasts(ctx, life, cancel)
	if acks == "never" && !r.calm.Load() { // until the writer rests: it would wait for credit for ever
		go r.endsWhenCalm(ctx, cancel)
	}
	again := time.Now().Add(upTo(r.dice, 6*time.Second))
	beat := time.Now()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if time.Since(beat) > time.Second {
			beat = time.Now()
			send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: &streampb.Heartbeat{}}})
		}
		if w := m.GetWelcome(); w != nil {
			hello.Cluster, hello.PartitionCount, hello.Generation = w.GetCluster(), w.GetPartitionCount(), w.GetGeneration()
			r.say("connected to %s, %v", w.GetNode(), w.GetBegin())
			if w.GetBegin() == streampb.Begin_BEGIN_CHECKPOINT { // it was rewound while it was disconnected
				r.rewound()
			}
		}
		b := m.GetBatch()
		if b == nil {
			continue
		}
		if err := r.batch(b, own, hello.GetPosition()); err != nil {
			return err
		}
		if own {
			hello.Position = b.GetTo()
		}
		if acks == "late" && !r.calm.Load() {
			sleep(ctx, upTo(r.dice, 1200*time.Millisecond))
		}
		if acks != "never" || r.calm.Load() {
			send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Seq: b.GetSeq()}}})
		}
		if time.Now().After(again) && !r.calm.Load() {
			again = time.Now().Add(1500*time.Millisecond + upTo(r.dice, 6*time.Second))
			r.copies[0].say("the same ID is subscribed to again")
			subs := &streampb.Subscribe{Subscriptions: hello.GetSubscriptions()[:1]}
			send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: subs}})
		}
	}
}

// endsWhenCalm ends a session as soon as the writer rests.
func (r *reader) endsWhenCalm(ctx context.Context, end func()) {
	for !r.calm.Load() && sleep(ctx, 50*time.Millisecond) {
	}
	end()
}

// batch applies a batch. A client with a position of its own drops changes that are not after it,
// as the protocol says.
func (r *reader) batch(b *streampb.Batch, own bool, position []byte) error {
	const head = 18
	drops := own && len(position) > head
	for _, e := range b.GetEvents() {
		if drops && !e.GetSnapshot() && bytes.Compare(e.GetPosition()[:head], position[:head]) < 0 {
			continue
		}
		for _, id := range e.GetSubscriptions() {
			if err := r.of(id).apply(e.GetChange()); err != nil {
				return err
			}
		}
	}
	if l := b.GetLoss(); l.GetKind() == streampb.Loss_KIND_REWOUND {
		r.rewound()
	} else if l != nil {
		for _, c := range r.copies {
			c.lost(l.GetReason(), l.GetNamespaces())
		}
	}
	if s := b.GetSnapshot(); s != nil {
		state := strings.ToLower(strings.TrimPrefix(s.GetState().String(), "STATE_"))
		r.of(s.GetSubscription()).marked(state, s.GetReason(), s.GetNamespaces())
	}
	return nil
}

// runEvents reads server-sent events and resumes with Last-Event-ID. A third of such readers break
// off within their snapshot again and again.
func (r *reader) runEvents(ctx context.Context) {
	last := ""
	flaky := r.dice.IntN(3) == 0
	slow := pick(r.dice, 0, 0, 10*time.Millisecond)
	for ctx.Err() == nil {
		opened, err := r.events(ctx, &last, flaky, slow)
		if opened || strings.HasPrefix(err.Error(), "status") {
			r.say("its stream ended: %v", err)
		}
		if opened && last == "" { // events that the node counts as delivered may not have arrived, and no ID says so: begin under another name
			name := *r.subscriber.Load() + "-again"
			r.subscriber.Store(&name)
		}
		sleep(ctx, 20*time.Millisecond+upTo(r.dice, 200*time.Millisecond))
	}
}

var errBrokenOff = errors.New("broken off within the snapshot")

func (r *reader) events(ctx context.Context, last *string, flaky bool, slow time.Duration) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := r.copies[0]
	query := url.Values{
		"db": {database}, "subscriber": {*r.subscriber.Load()}, "start": {"snapshot"}, "on_loss": {"snapshot"}, "leaves": {fmt.Sprint(c.leaves)},
	}
	for name, value := range map[string]string{"coll": c.coll, "filter": c.filter, "op": strings.Join(c.ops, ",")} {
		if value != "" {
			query.Set(name, value)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pick(r.dice, r.cluster.http...)+"/v1/events?"+query.Encode(), nil)
	if err != nil {
		return false, err
	}
	if *last != "" {
		request.Header.Set("Last-Event-ID", *last)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close() //nolint:errcheck // over
	in := bufio.NewReaderSize(response.Body, 64<<10)
	if response.StatusCode != http.StatusOK {
		line, _ := in.ReadString('\n')
		return false, fmt.Errorf("status %d %.200s", response.StatusCode, line)
	}
	c.say("connected, breaks off %t, Last-Event-ID %q", flaky, *last)
	r.lasts(ctx, 700*time.Millisecond+upTo(r.dice, 5*time.Second), cancel)
	documents := 0
	for fields := make(map[string]string); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return true, err
		}
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			name, value, _ := strings.Cut(line, ": ")
			fields[name] += value
			continue
		}
		if err := r.event(fields); err != nil {
			return true, err
		}
		if strings.Contains(fields["data"], `"operationType":"snapshot"`) {
			documents++
		}
		if fields["id"] != "" {
			*last = fields["id"]
		}
		clear(fields)
		if !r.calm.Load() {
			sleep(ctx, upTo(r.dice, slow))
		}
		if flaky && documents > 45 && !c.isWhole() {
			return true, errBrokenOff
		}
	}
}

// event applies one server-sent event.
func (r *reader) event(fields map[string]string) error {
	c := r.copies[0]
	if fields["data"] == "" {
		return nil
	}
	var e event
	if err := parse([]byte(fields["data"]), &e); err != nil {
		return fmt.Errorf("%w in %.200s", err, fields["data"])
	}
	switch {
	case e.Op != "":
		c.change(&e)
	case fields["event"] == "rewound":
		r.rewound()
	case fields["event"] == "resync":
		c.lost(e.Reason, e.Namespaces)
	case slices.Contains([]string{"begun", "done", "cancelled"}, e.State):
		c.marked(e.State, e.Reason, e.Namespaces)
	default:
		c.say("%s: %.200s", fields["event"], fields["data"])
	}
	return nil
}
