package sink

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/mongostream/streamer/change"
)

// A Gate guards the writes of connections to a target: it refuses all writes while a message is
// under way whose term has ended. Client libraries repeat their buffers by themselves, and a
// suspended process may resume in the middle of a repetition. So the gate checks the terms at the
// last possible point, the write to the socket.
type Gate struct {
	// Shut is called once, in its own goroutine, after a refused write: the messages under way will
	// not be written, and the client must be discarded. Required.
	Shut func()

	mu struct {
		sync.Mutex
		open map[change.Partition][]*tenants // mostly one for each partition
		shut error
	}
}

// tenants are messages under way whose terms end together.
type tenants struct {
	count int
	one   Message // a copy of the first
}

// SharesTerm reports whether two messages may leave the process for equally long.
func (m *Message) SharesTerm(n *Message) bool {
	return m.Partition == n.Partition && m.Epoch == n.Epoch && m.Incarnation == n.Incarnation
}

// Enter notes that a message is under way. It returns an error if the gate is shut, or if the
// message's term has ended. It checks the term only if no other message of the term is under way,
// because the write checks all terms with messages under way.
func (g *Gate) Enter(m *Message) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.shut != nil:
		return g.mu.shut
	case m.Op == OpLoss:
		return nil
	}
	if t := g.tenants(m); t != nil {
		t.count++
		return nil
	}
	if !m.owned() {
		return ErrReplaced
	}
	if g.mu.open == nil {
		g.mu.open = make(map[change.Partition][]*tenants)
	}
	g.mu.open[m.Partition] = append(g.mu.open[m.Partition], &tenants{count: 1, one: *m})
	return nil
}

// tenants returns those that share a message's term, nil if none are under way. The caller holds
// the mutex.
func (g *Gate) tenants(m *Message) *tenants {
	for _, t := range g.mu.open[m.Partition] {
		if t.one.SharesTerm(m) {
			return t
		}
	}
	return nil
}

// Leave notes that an entered message is over.
func (g *Gate) Leave(m *Message) {
	if m.Op == OpLoss {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tenants(m)
	if t == nil {
		return
	}
	if t.count--; t.count > 0 {
		return
	}
	others := slices.DeleteFunc(g.mu.open[m.Partition], func(other *tenants) bool { return other == t })
	if g.mu.open[m.Partition] = others; len(others) == 0 {
		delete(g.mu.open, m.Partition)
	}
}

// Err returns why the gate refuses writes, nil if it does not.
func (g *Gate) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.shut != nil {
		return g.mu.shut
	}
	for partition, all := range g.mu.open {
		for _, t := range all {
			if !t.one.owned() {
				g.mu.shut = fmt.Errorf("partition %d: %w", partition, ErrReplaced)
				go g.Shut()
				return g.mu.shut
			}
		}
	}
	return nil
}

// IsShut reports whether a write was refused.
func (g *Gate) IsShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.shut != nil
}

// Conn returns a connection that writes through the gate. Closed, it sends nothing more.
func (g *Gate) Conn(c net.Conn) net.Conn { return &gatedConn{Conn: DropUnsent(c), gate: g} }

// DropUnsent makes a connection drop what it has not sent yet when it is closed, also because the
// process is killed, and returns it. Otherwise the operating system goes on to send it, for minutes
// if the network fails meanwhile, and it arrives after newer messages of another connection.
func DropUnsent(c net.Conn) net.Conn {
	carrier := c
	if secure, is := c.(*tls.Conn); is {
		carrier = secure.NetConn()
	}
	if tcp, is := carrier.(*net.TCPConn); is {
		_ = tcp.SetLinger(0) // fails if it is closed
	}
	return c
}

type gatedConn struct {
	net.Conn

	gate *Gate
}

// Write implements net.Conn.
func (c *gatedConn) Write(b []byte) (int, error) {
	if err := c.gate.Err(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	return n, err //nolint:wrapcheck // a connection returns its errors unchanged
}
