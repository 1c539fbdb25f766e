package sink

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/mongostream/streamer/change"
)

// Nothing is written any more once the term of something under way has ended, whatever else is
// written through the connection; what is over does not count.
func TestGateShutsWithATerm(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	shut := make(chan struct{})
	g := &Gate{Shut: func() { close(shut) }}
	c := g.Conn(near)
	defer c.Close()
	message := func(p change.Partition, valid *atomic.Bool) *Message {
		m := &Message{Partition: p}
		valid.Store(true)
		Own(m, valid.Load)
		return m
	}
	var first, second atomic.Bool
	over, waits := message(1, &first), message(2, &second)
	for _, m := range []*Message{over, waits} {
		if err := g.Enter(m); err != nil {
			t.Fatal(err)
		}
	}
	g.Leave(over)
	first.Store(false)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Errorf("while all terms are valid: %v", err)
	}
	if err := g.Enter(over); !errors.Is(err, ErrReplaced) {
		t.Errorf("a message enters after its term: %v", err)
	}
	second.Store(false)
	for range 2 {
		if _, err := c.Write([]byte("x")); !errors.Is(err, ErrReplaced) {
			t.Errorf("after the end of a term: %v", err)
		}
	}
	<-shut
	second.Store(true)
	if err := g.Enter(waits); err == nil || !g.IsShut() {
		t.Error("a gate that is shut opens again")
	}
}

// The memory of a message that is over is another message's, while others of its term are still
// under way.
func TestGateNeedsNoMessageThatIsOver(t *testing.T) {
	t.Parallel()
	g := &Gate{Shut: func() {}}
	var valid atomic.Bool
	valid.Store(true)
	over, waits := &Message{Partition: 1}, &Message{Partition: 1}
	for _, m := range []*Message{over, waits} {
		Own(m, valid.Load)
		if err := g.Enter(m); err != nil {
			t.Fatal(err)
		}
	}
	g.Leave(over)
	*over = Message{Partition: 2}
	if valid.Store(false); !errors.Is(g.Err(), ErrReplaced) {
		t.Errorf("after the end of the term: %v", g.Err())
	}
}

// Messages of a term that has something under way enter without a look at the term: the write looks
// at it, once for all of them.
func TestGateAsksForATermOncePerWrite(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	g := &Gate{Shut: func() {}}
	c := g.Conn(near)
	defer c.Close()
	asked := 0
	valid := true
	for range 100 {
		m := &Message{Partition: 1}
		Own(m, func() bool { asked++; return valid })
		if err := g.Enter(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write([]byte("x")); err != nil || asked != 2 {
		t.Errorf("the term was asked for %d times, at the entry of the first and at the write it is to be: %v", asked, err)
	}
	valid = false
	if _, err := c.Write([]byte("x")); !errors.Is(err, ErrReplaced) {
		t.Errorf("written after the end of the term: %v", err)
	}
}

// A gate knows the terms of a partition apart: each counts until the last of its messages is over.
func TestGateKnowsTheTermsOfAPartitionApart(t *testing.T) {
	t.Parallel()
	g := &Gate{Shut: func() {}}
	message := func(revision uint64, valid *bool) *Message {
		m := &Message{Partition: 1, Epoch: change.Epoch{Incarnation: 1, Revision: revision}}
		Own(m, func() bool { return *valid })
		return m
	}
	first, second := true, true
	of := []*Message{message(1, &first), message(2, &second), message(1, &first), message(2, &second)}
	for _, m := range of {
		if err := g.Enter(m); err != nil {
			t.Fatal(err)
		}
	}
	g.Leave(of[0])
	g.Leave(of[2])
	g.Leave(of[1])
	first = false
	if err := g.Err(); err != nil {
		t.Errorf("shut by a term with nothing under way: %v", err)
	}
	second = false
	if err := g.Err(); !errors.Is(err, ErrReplaced) {
		t.Errorf("open although a term with a message under way has ended: %v", err)
	}
}

// What a closed connection has not sent never arrives: it would follow what another connection has
// sent meanwhile.
func TestClosedConnectionSendsNothingMore(t *testing.T) {
	t.Parallel()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	t.Cleanup(certified.Close)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Close(), far.(*net.TCPConn).SetReadBuffer(64<<10)); err != nil {
			t.Fatal(err)
		}
		if secure {
			far = tls.Server(far, certified.TLS)
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		near, begun := (&Gate{}).Conn(conn), make([]byte, 1)
		sent := make([]byte, 512<<10)
		go func() { _, _ = near.Write(sent) }()
		if _, err := io.ReadFull(far, begun); err != nil {
			t.Fatal(err)
		}
		_ = near.Close()
		if arrived, err := io.Copy(io.Discard, far); int(arrived) >= len(sent)-1 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %d bytes of %d have arrived, %v", name, arrived, len(sent), err)
		}
		_ = far.Close()
	}
}
