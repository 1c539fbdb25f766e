package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A siege is a node under attack by hostile identities.
type siege struct {
	Node    nodeAddresses
	DB      string
	Attacks []string
}

// An attackResult is the result of one attack. Refused counts attempts that the node refused or
// ended.
type attackResult struct{ Attempts, Refused int64 }

// An attack is the behavior of one hostile identity until the context ends.
type attack struct {
	name string
	run  func(*attacker, context.Context)
}

// attacks returns the attacks; each hostile identity runs one.
func attacks() []attack {
	return []attack{
		{"hellos", (*attacker).sayHello},
		{"sessions", (*attacker).holdSessions},
		{"protocol", (*attacker).breakProtocol},
		{"patterns", (*attacker).compilePatterns},
		{"filters", (*attacker).evaluateFilters},
		{"subscriptions", (*attacker).changeSubscriptions},
		{"unread_sessions", (*attacker).neverRead},
		{"unread_streams", (*attacker).neverReadStreams},
		{"connections", (*attacker).holdConnections},
		{"names", (*attacker).takeNames},
	}
}

func attackNames() (names []string) {
	for _, a := range attacks() {
		names = append(names, a.name)
	}
	return names
}

// serveAttackers is a worker in which hostile identities attack a node from "attack", which returns
// when all have begun, to "end". It runs only on idle CPU time: real attackers have their own
// machines, and the attackers' work here must not count as the node's.
func serveAttackers(ctx context.Context, in io.Reader, out io.Writer) error {
	var g errgroup.Group
	attacking, end := context.WithCancel(ctx)
	defer end()
	attackers := make(map[string]*attacker)
	err := serveRequests(ctx, in, out, map[string]handler{
		"attack": handle(func(_ context.Context, s siege) (none, error) {
			if err := yieldCPU(); err != nil {
				return none{}, err
			}
			for i, attack := range attacks() {
				if !slices.Contains(s.Attacks, attack.name) {
					continue
				}
				a := &attacker{siege: s, token: hostile(i), from: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}, begun: make(chan struct{})}
				attackers[attack.name] = a
				g.Go(func() error { attack.run(a, attacking); return nil })
			}
			for _, a := range attackers {
				<-a.begun
			}
			return none{}, nil
		}),
		"end": handle(func(context.Context, none) (map[string]attackResult, error) {
			end()
			results := make(map[string]attackResult)
			for name, a := range attackers {
				results[name] = attackResult{Attempts: a.attempts.Load(), Refused: a.refused.Load()}
			}
			return results, nil
		}),
	})
	end()
	return errors.Join(err, g.Wait())
}

// An attacker is a hostile identity with its own address.
type attacker struct {
	siege

	token             string
	from              *net.TCPAddr
	attempts, refused atomic.Int64
	begun             chan struct{} // closed at the first attempt
}

// attempt counts an attempt.
func (a *attacker) attempt() {
	if a.attempts.Add(1) == 1 {
		close(a.begun)
	}
}

type session = streampb.Gateway_ConnectClient

const (
	// breath is how long an attacker waits after a refusal.
	breath = time.Millisecond
	// holding is how long an attacker holds streams that it never reads.
	holding = 3 * time.Second
)

// wait waits, and reports whether the attack continues.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuse counts a refusal.
func (a *attacker) refuse(ctx context.Context) {
	if ctx.Err() == nil {
		a.refused.Add(1)
		wait(ctx, breath)
	}
}

// several runs n copies of an attack concurrently.
func several(n int, run func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { run(i) })
	}
	all.Wait()
}

func (a *attacker) dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: a.from}
	return d.DialContext(ctx, "tcp", address)
}

// connection makes a connection to the node's gateway.
func (a *attacker) connection() *grpc.ClientConn {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient("passthrough:///"+a.Node.GRPC, plain, grpc.WithContextDialer(a.dial))
	if err != nil {
		panic(err) // the address is the node's own
	}
	return conn
}

// hello returns a Hello for all changes, from now on.
func (a *attacker) hello(subscriptions ...*streampb.Subscription) *streampb.Hello {
	if len(subscriptions) == 0 {
		subscriptions = append(subscriptions, a.wanting("all", ""))
	}
	return &streampb.Hello{Start: streampb.Start_START_NOW, Subscriptions: subscriptions}
}

func (a *attacker) wanting(id, filter string) *streampb.Subscription {
	return &streampb.Subscription{Id: id, Db: a.DB, Coll: collection, Filter: filter}
}

// open opens a session, and returns when it has been welcomed; nil if it is refused.
func (a *attacker) open(ctx context.Context, conn *grpc.ClientConn, hello *streampb.Hello) session {
	a.attempt()
	stream, err := streampb.NewGatewayClient(conn).Connect(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.token))
	if err == nil {
		if err = stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: hello}}); err == nil || errors.Is(err, io.EOF) {
			_, err = stream.Recv()
		}
	}
	if err != nil {
		a.refuse(ctx)
		return nil
	}
	return stream
}

// drain reads until the session ends.
func drain(s session) {
	for {
		if _, err := s.Recv(); err != nil {
			return
		}
	}
}

// inSessions repeatedly opens a session and uses it. Everything that use opens ends with the
// session.
func (a *attacker) inSessions(ctx context.Context, hello func(i int) *streampb.Hello, use func(ctx context.Context, s session, i int)) {
	conn := a.connection()
	defer func() { _ = conn.Close() }()
	for i := 0; ctx.Err() == nil; i++ {
		one, end := context.WithCancel(ctx)
		if s := a.open(one, conn, hello(i)); s != nil {
			use(one, s, i)
		}
		end()
	}
}

// sayHello begins sessions as fast as it can, and leaves them.
func (a *attacker) sayHello(ctx context.Context) {
	several(8, func(int) {
		a.inSessions(ctx, func(int) *streampb.Hello { return a.hello() }, func(context.Context, session, int) {})
	})
}

// holdSessions opens as many sessions as it may, and acknowledges nothing.
func (a *attacker) holdSessions(ctx context.Context) {
	several(20, func(int) {
		conn := a.connection()
		defer func() { _ = conn.Close() }()
		var reading sync.WaitGroup
		defer reading.Wait()
		for ctx.Err() == nil {
			if s := a.open(ctx, conn, a.hello()); s != nil {
				reading.Go(func() { drain(s); a.refuse(ctx) })
			}
		}
	})
}

// breakProtocol sends messages that a session's mode does not allow, or that no session may send.
func (a *attacker) breakProtocol(ctx context.Context) {
	bad := func(i int) *streampb.ConnectRequest {
		positions := []*streampb.PartitionPosition{{Partition: uint32(i % partitions), Position: []byte(strings.Repeat("\x7f", 34))}}
		switch i % 7 {
		case 0:
			return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: &streampb.Detach{Partitions: []uint32{0, 1, 1 << 31}}}}
		case 1:
			return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: &streampb.Attach{Positions: positions}}}
		case 2:
			return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Seq: 1 << 62}}}
		case 3:
			return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: a.hello()}}
		case 4:
			return &streampb.ConnectRequest{}
		case 5:
			return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: &streampb.Heartbeat{
				Checks: []*streampb.Check{{Name: strings.Repeat("x", 1<<20)}},
			}}}
		}
		one := []uint32{uint32(i % partitions)}
		return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: &streampb.Detach{Partitions: one}}}
	}
	several(8, func(n int) {
		hello := func(i int) *streampb.Hello {
			h := a.hello()
			if (i+n)%2 == 0 {
				h.Partitions = streampb.Partitions_PARTITIONS_OWNED
			}
			return h
		}
		a.inSessions(ctx, hello, func(_ context.Context, s session, i int) {
			for j := 0; ; j++ {
				a.attempt()
				if s.Send(bad(i+j)) != nil {
					drain(s)
					a.refuse(ctx)
					return
				}
			}
		})
	})
}

// resubscribe adds and removes subscriptions as fast as the node answers.
func (a *attacker) resubscribe(ctx context.Context, change func(i int) *streampb.ConnectRequest) {
	a.inSessions(ctx, func(int) *streampb.Hello { return a.hello(a.wanting("0", "key._id == 0")) }, func(ctx context.Context, s session, i int) {
		go func() {
			for j := i * 1_000_000; ctx.Err() == nil; j++ {
				a.attempt()
				if s.Send(change(j)) != nil {
					return
				}
			}
		}()
		for {
			m, err := s.Recv()
			if err != nil {
				a.refuse(ctx)
				return
			}
			if m.GetRejected() != nil {
				a.refused.Add(1)
			}
		}
	})
}

func subscribe(all ...*streampb.Subscription) *streampb.ConnectRequest {
	return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{Subscriptions: all}}}
}

// compilePatterns subscribes to regular expressions that take long to compile, each time a
// different one, some above the size limit.
func (a *attacker) compilePatterns(ctx context.Context) {
	several(4, func(n int) {
		a.resubscribe(ctx, func(i int) *streampb.ConnectRequest {
			pattern := fmt.Sprintf("(?:[a-z]{2}%d-%d|[^x]y){40}$", n, i)
			if i%2 == 1 {
				pattern = fmt.Sprintf("(?i)((\\\\pL{50}){20}%d-%d){9}", n, i)
			}
			return subscribe(a.wanting(strconv.Itoa(i%100), fmt.Sprintf(`doc.payload.matches("%s")`, pattern)))
		})
	})
}

// evaluateFilters makes the node evaluate 300 filters with nested comprehensions on every change.
func (a *attacker) evaluateFilters(ctx context.Context) {
	numbers := "[" + strings.Repeat("1,", 59) + "1]"
	hello := func(i int) *streampb.Hello {
		filters := make([]*streampb.Subscription, 300)
		for j := range filters {
			nested := fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, %[1]s.all(c, a + b + c + key._id > %[2]d)))", numbers, -i*len(filters)-j)
			filters[j] = a.wanting(strconv.Itoa(j), nested)
		}
		return a.hello(filters...)
	}
	several(4, func(n int) {
		a.inSessions(ctx, func(i int) *streampb.Hello { return hello(i*4 + n) }, func(ctx context.Context, s session, _ int) {
			drain(s)
			a.refuse(ctx)
		})
	})
}

// changeSubscriptions adds and removes thousands of subscriptions.
func (a *attacker) changeSubscriptions(ctx context.Context) {
	const at = 1000
	several(4, func(int) {
		a.resubscribe(ctx, func(i int) *streampb.ConnectRequest {
			all, ids := make([]*streampb.Subscription, at), make([]string, at)
			for j := range all {
				ids[j] = strconv.Itoa(i/2%4*at + j)
				all[j] = a.wanting(ids[j], fmt.Sprintf("key._id == %d && doc.seq > %d", j, i))
			}
			if i%2 == 0 {
				return subscribe(all...)
			}
			return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Unsubscribe{Unsubscribe: &streampb.Unsubscribe{Ids: ids}}}
		})
	})
}

// neverRead holds sessions that it never reads.
func (a *attacker) neverRead(ctx context.Context) {
	several(50, func(int) {
		a.inSessions(ctx, func(int) *streampb.Hello { return a.hello() }, func(ctx context.Context, _ session, _ int) { wait(ctx, holding) })
	})
}

// neverReadStreams holds event streams that it never reads, and connects again.
func (a *attacker) neverReadStreams(ctx context.Context) {
	several(50, func(int) {
		for ctx.Err() == nil {
			a.attempt()
			conn, err := a.dial(ctx, a.Node.HTTP)
			if err != nil {
				a.refuse(ctx)
				continue
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(4096)
			fmt.Fprintf(conn, "GET /v1/events?db=%s&coll=%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n",
				a.DB, collection, a.Node.HTTP, a.token)
			status := make([]byte, len("HTTP/1.1 200"))
			if _, err := io.ReadFull(conn, status); err != nil || !strings.HasSuffix(string(status), "200") {
				a.refuse(ctx)
			} else {
				wait(ctx, holding)
			}
			_ = conn.Close()
		}
	})
}

// holdConnections holds connections without a request, and with one that it does not finish. It
// shows no credentials.
func (a *attacker) holdConnections(ctx context.Context) {
	unfinished := []struct{ address, text string }{
		{a.Node.HTTP, ""}, {a.Node.HTTP, "GET /v1/events HTTP/1.1\r\nHost: x\r\nX-Long: "},
		{a.Node.GRPC, ""}, {a.Node.GRPC, "PRI * HTTP/2.0\r\n\r\nSM"},
	}
	several(3000, func(i int) {
		one := unfinished[i%len(unfinished)]
		for ctx.Err() == nil {
			a.attempt()
			conn, err := a.dial(ctx, one.address)
			if err != nil {
				a.refuse(ctx)
				continue
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			_, _ = io.WriteString(conn, one.text)
			_, _ = io.Copy(io.Discard, conn) // until the node closes it
			stop()
			_ = conn.Close()
			a.refuse(ctx)
		}
	})
}

// takeNames begins sessions under ever new names, and under those of honest identities, for
// processes that start in the future.
func (a *attacker) takeNames(ctx context.Context) {
	future := timestamppb.New(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))
	several(8, func(n int) {
		hello := func(i int) *streampb.Hello {
			h := a.hello()
			if h.Subscriber = fmt.Sprintf("s-%d", i*8+n); i%2 == 0 {
				h.Subscriber = honest(i / 2 % tenantsHonest)
			}
			h.ProcessId = strconv.Itoa(i)
			h.StartedAt = future
			return h
		}
		a.inSessions(ctx, hello, func(_ context.Context, s session, _ int) {
			if m, err := s.Recv(); err != nil {
				a.refuse(ctx)
			} else if b := m.GetBatch(); b != nil {
				_ = s.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Seq: b.GetSeq()}}})
			}
		})
	})
}
