package listen

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/gateway/access"
)

const (
	// maxHandshakes bounds the connections of a listener whose TLS handshake is not complete.
	maxHandshakes = 128
	// Of the connections above the bound of their address, so many a second are closed, and a burst at once. Others of them wait for that, up to
	// maxTurned: who connects again as soon as it is closed is slowed down.
	turnedPerSecond, turnedBurst = 500, 50
	maxTurned                    = 1000
)

// A gate is a listener that accepts so many connections in all, and so many of one remote address. Those above wait in the first case and are
// closed in the second, after a while where they are many. If too many TLS handshakes are under way, it closes the oldest connection among those of
// the address with most of them.
type gate struct {
	net.Listener

	perAddress int
	handshakes bool // connections begin with a TLS handshake
	refused    refused
	failed     func(net.Addr) // told of TLS handshakes that failed
	slots      chan struct{}  // one value for each connection
	turned     chan net.Conn  // to be closed
	closing    func()
	closed     chan struct{}

	mu struct {
		sync.Mutex
		of      map[netip.Addr]int
		shaking []*gated // in the order of their arrival
	}
}

func newGate(l net.Listener, connections, perAddress int, handshakes bool, refused refused, failed func(net.Addr)) *gate {
	g := &gate{
		Listener: l, perAddress: perAddress, handshakes: handshakes, refused: refused, failed: failed,
		slots: make(chan struct{}, connections), turned: make(chan net.Conn, maxTurned), closed: make(chan struct{}),
	}
	g.closing = sync.OnceFunc(func() { close(g.closed) })
	g.mu.of = make(map[netip.Addr]int)
	go g.runTurned()
	return g
}

// runTurned closes the connections that are turned away, until the gate is closed.
func (g *gate) runTurned() {
	pace := rate.NewLimiter(turnedPerSecond, turnedBurst)
	for {
		select {
		case conn := <-g.turned:
			turn := time.NewTimer(pace.Reserve().Delay())
			select {
			case <-turn.C:
			case <-g.closed:
			}
			reset(conn)
		case <-g.closed:
			for len(g.turned) > 0 {
				reset(<-g.turned)
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		select {
		case g.slots <- struct{}{}:
		case <-g.closed:
			return nil, net.ErrClosed
		}
		conn, err := g.Listener.Accept()
		if err != nil {
			<-g.slots
			return nil, err
		}
		if c := g.enter(conn); c != nil {
			return c, nil
		}
		<-g.slots
	}
}

// Close implements net.Listener.
func (g *gate) Close() error {
	g.closing()
	return g.Listener.Close()
}

// enter counts a connection, or closes it and returns nil.
func (g *gate) enter(conn net.Conn) *gated {
	from := access.NetworkOf(conn.RemoteAddr().String())
	c := &gated{Conn: conn, gate: g, from: from}
	c.shaken, c.leave = sync.OnceFunc(func() { g.shaken(c) }), sync.OnceFunc(func() { g.exit(c) })
	g.mu.Lock()
	if g.mu.of[from] >= g.perAddress {
		g.mu.Unlock()
		g.refused.count("address")
		select {
		case g.turned <- conn:
		default:
			reset(conn)
		}
		return nil
	}
	g.mu.of[from]++
	var victim *gated
	if g.handshakes {
		if g.mu.shaking = append(g.mu.shaking, c); len(g.mu.shaking) > maxHandshakes {
			victim = g.crowding()
		}
	}
	g.mu.Unlock()
	if victim != nil {
		g.refused.count("handshakes")
		reset(victim)
	}
	return c
}

// crowding returns the oldest handshake among those of the address with most of them. The caller holds the lock.
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
	if g.mu.of[c.from]--; g.mu.of[c.from] == 0 {
		delete(g.mu.of, c.from)
	}
	g.mu.Unlock()
	<-g.slots
}

// shaken forgets the handshake of a connection.
func (g *gate) shaken(c *gated) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.mu.shaking {
		if other == c {
			g.mu.shaking = append(g.mu.shaking[:i:i], g.mu.shaking[i+1:]...)
			return
		}
	}
}

// A gated is a connection of a gate.
type gated struct {
	net.Conn

	gate            *gate
	from            netip.Addr
	shaken, leave   func() // do so once
	begun, accepted atomic.Bool
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

// RemoteAddr implements net.Conn. The address closes the connection if it is an io.Closer, which package gateway uses.
func (c *gated) RemoteAddr() net.Addr { return closingAddr{c.Conn.RemoteAddr(), c} }

type closingAddr struct {
	net.Addr

	conn *gated
}

// Close implements io.Closer.
func (a closingAddr) Close() error { return a.conn.Close() }

// reset closes a connection without waiting until its peer has received everything.
func reset(conn net.Conn) {
	if l, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = conn.Close()
}
