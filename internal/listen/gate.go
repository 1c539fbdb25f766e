package listen

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/gateway/access"
)

const (
	// maxHandshakes bounds the connections of a listener whose TLS handshake is not complete.
	maxHandshakes = 128
	// A listener accepts or closes this many connections a second from one address, or a share of
	// its limit, after a burst. Further connections wait, which slows down an address that connects
	// as fast as it can. At most maxTurned connections that will be closed wait.
	pacePerSecond, paceShare, paceBurst = 500, 4, 50
	maxTurned                           = 1000
	// streamsPerSecond and streamsBurst bound how fast streams begin on a connection: even one
	// that its client resets at once costs as much as a login.
	streamsPerSecond, streamsBurst = 100, 1000
)

// A gate is a listener with a limit for all connections and one for each remote address.
// Connections above the first limit wait, those above the second are closed. If too many TLS
// handshakes are under way, it closes the oldest one of the address with most of them.
type gate struct {
	net.Listener

	perAddress int
	handshakes bool // connections begin with a TLS handshake
	refused    refused
	failed     func(net.Addr) // called after a failed TLS handshake
	slots      chan struct{}  // one value for each connection
	accepted   chan accepted
	closing    func()
	closed     chan struct{}

	mu struct {
		sync.Mutex
		of      map[netip.Addr]*sender
		shaking []*gated // in the order of their arrival
		turned  int      // connections that wait until they are closed
	}
}

// A sender is a remote address.
type sender struct {
	connections int
	pace        *rate.Limiter
}

// An accepted is what Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

func newGate(l net.Listener, connections, perAddress int, handshakes bool, refused refused, failed func(net.Addr)) *gate {
	g := &gate{
		Listener: l, perAddress: perAddress, handshakes: handshakes, refused: refused, failed: failed,
		slots: make(chan struct{}, connections), accepted: make(chan accepted), closed: make(chan struct{}),
	}
	g.closing = sync.OnceFunc(func() { close(g.closed) })
	g.mu.of = make(map[netip.Addr]*sender)
	go g.run()
	return g
}

// run accepts connections until the gate is closed.
func (g *gate) run() {
	for {
		select {
		case g.slots <- struct{}{}:
		case <-g.closed:
			return
		}
		conn, err := g.Listener.Accept()
		if err == nil {
			g.enter(conn)
			continue
		}
		<-g.slots
		select {
		case g.accepted <- accepted{err: err}:
		case <-g.closed:
			return
		}
	}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case a := <-g.accepted:
		return a.conn, a.err
	case <-g.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (g *gate) Close() error {
	g.closing()
	return g.Listener.Close()
}

// enter counts a connection, and passes it on or turns it away when the rate of its address
// permits.
func (g *gate) enter(conn net.Conn) {
	from := access.NetworkOf(conn.RemoteAddr().String())
	delay, turned := g.count(from)
	if turned {
		<-g.slots
		g.refused.count("address")
	}
	next := func() {
		if turned {
			g.turnAway(conn)
		} else {
			g.pass(conn, from)
		}
	}
	if delay == 0 {
		next()
		return
	}
	go func() {
		turn := time.NewTimer(delay)
		defer turn.Stop()
		select {
		case <-turn.C:
		case <-g.closed:
		}
		next()
	}()
}

// count counts a connection of an address. It returns how long the connection must wait, and
// whether it is turned away afterwards.
func (g *gate) count(from netip.Addr) (delay time.Duration, turned bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.mu.of[from]
	if of == nil {
		of = &sender{pace: rate.NewLimiter(rate.Limit(max(pacePerSecond, g.perAddress/paceShare)), paceBurst)}
		g.mu.of[from] = of
	}
	if turned = of.connections >= g.perAddress; !turned {
		of.connections++
	} else if g.mu.turned++; g.mu.turned > maxTurned {
		return 0, true
	}
	return of.pace.Reserve().Delay(), turned
}

// turnAway closes a connection that is above the bound of its address.
func (g *gate) turnAway(conn net.Conn) {
	reset(conn)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.turned--
}

// pass makes Accept return a connection.
func (g *gate) pass(conn net.Conn, from netip.Addr) {
	c := &gated{Conn: conn, gate: g, from: from, streams: rate.NewLimiter(streamsPerSecond, streamsBurst)}
	c.shaken, c.leave = sync.OnceFunc(func() { g.shaken(c) }), sync.OnceFunc(func() { g.exit(c) })
	if g.handshakes {
		g.shakes(c)
	}
	select {
	case g.accepted <- accepted{conn: c}:
	case <-g.closed:
		reset(c)
	}
}

// shakes notes that the handshake of a connection is under way.
func (g *gate) shakes(c *gated) {
	var victim *gated
	g.mu.Lock()
	if g.mu.shaking = append(g.mu.shaking, c); len(g.mu.shaking) > maxHandshakes {
		victim = g.crowding()
		g.dismiss(victim)
	}
	g.mu.Unlock()
	if victim != nil {
		g.refused.count("handshakes")
		reset(victim)
	}
}

// crowding returns the oldest handshake among those of the address with most of them. The caller
// holds the lock.
func (g *gate) crowding() *gated {
	of := make(map[netip.Addr]int)
	most := g.mu.shaking[0]
	for _, c := range g.mu.shaking {
		if of[c.from]++; of[c.from] > of[most.from] {
			most = c
		}
	}
	for _, c := range g.mu.shaking {
		if c.from == most.from {
			return c
		}
	}
	return most
}

// exit forgets a connection.
func (g *gate) exit(c *gated) {
	c.shaken()
	if c.begun.Load() && !c.accepted.Load() {
		g.failed(c.Conn.RemoteAddr())
	}
	g.mu.Lock()
	g.mu.of[c.from].connections--
	g.forget(c.from)
	g.mu.Unlock()
	<-g.slots
}

// forget removes an address without connections as soon as it has its full burst again. The caller
// holds the lock.
func (g *gate) forget(from netip.Addr) {
	of := g.mu.of[from]
	if of == nil || of.connections > 0 {
		return
	}
	missing := paceBurst - of.pace.Tokens()
	if missing <= 0 {
		delete(g.mu.of, from)
		return
	}
	time.AfterFunc(time.Duration(missing/float64(of.pace.Limit())*float64(time.Second))+time.Millisecond, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.forget(from)
	})
}

// shaken forgets the handshake of a connection.
func (g *gate) shaken(c *gated) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dismiss(c)
}

// dismiss forgets the handshake of a connection. The caller holds the lock.
func (g *gate) dismiss(c *gated) {
	g.mu.shaking = slices.DeleteFunc(g.mu.shaking, func(other *gated) bool { return other == c })
}

// A gated is a connection of a gate.
type gated struct {
	net.Conn

	gate            *gate
	from            netip.Addr
	streams         *rate.Limiter
	shaken, leave   func() // do so once
	begun, accepted atomic.Bool
	hasty           atomic.Bool // streams have begun too fast
}

var _ access.Handshaker = (*gated)(nil)

// HandshakeBegun implements access.Handshaker.
func (c *gated) HandshakeBegun() { c.begun.Store(true) }

// HandshakeAccepted implements access.Handshaker.
func (c *gated) HandshakeAccepted() { c.accepted.Store(true) }

// Close implements net.Conn.
func (c *gated) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// SetLinger is that of net.TCPConn.
func (c *gated) SetLinger(seconds int) error {
	if l, ok := c.Conn.(interface{ SetLinger(seconds int) error }); ok {
		return l.SetLinger(seconds)
	}
	return nil
}

// HandshakeDone says that the TLS handshake is complete. Package gateway calls it.
func (c *gated) HandshakeDone() { c.shaken() }

// RemoteAddr implements net.Conn. The address has methods Close and Begins, with which package
// gateway closes the connection.
func (c *gated) RemoteAddr() net.Addr { return closingAddr{c.Conn.RemoteAddr(), c} }

type closingAddr struct {
	net.Addr

	conn *gated
}

// Close implements io.Closer.
func (a closingAddr) Close() error { return a.conn.Close() }

// Begins counts a stream that begins on the connection. It closes the connection and returns false
// if these begin too fast.
func (a closingAddr) Begins() bool {
	if a.conn.streams.Allow() {
		return true
	}
	if a.conn.hasty.CompareAndSwap(false, true) { // what has been read already may follow
		a.conn.gate.refused.count("streams")
		reset(a.conn)
	}
	return false
}

// reset closes a connection without waiting until its peer has received everything.
func reset(conn net.Conn) {
	if l, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = conn.Close()
}
