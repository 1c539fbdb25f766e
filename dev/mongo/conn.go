package devmongo

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// conn is one client connection: a goroutine reads its messages, another answers them one by one.
type conn struct {
	server *Server
	net    net.Conn
	client client
	buf    []byte // of the last reply, for the next
	sent   int32  // number of the last reply
}

func newConn(s *Server, c net.Conn, id int32) *conn {
	return &conn{server: s, net: c, client: client{id: id, net: c, remote: c.RemoteAddr().String()}}
}

// errClose ends a connection on purpose.
var errClose = errors.New("connection closed by the server")

// run serves the connection until either side closes it.
func (c *conn) run(ctx context.Context) {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	messages := make(chan *wire.Message)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer gone()
		c.read(ctx, messages)
	}()
	c.answer(ctx, messages)
	gone()
	_ = c.net.Close()
	<-done
}

func (c *conn) read(ctx context.Context, messages chan<- *wire.Message) {
	r := bufio.NewReaderSize(c.net, 16<<10)
	for {
		m, err := wire.ReadMessage(r)
		if err != nil {
			return
		}
		select {
		case messages <- m:
		case <-ctx.Done():
			return
		}
	}
}

func (c *conn) answer(ctx context.Context, messages <-chan *wire.Message) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-messages:
			if c.handle(ctx, m) != nil {
				return
			}
		}
	}
}

// handle answers one message; a message that wants no answer gets none.
func (c *conn) handle(ctx context.Context, m *wire.Message) error {
	r, err := c.server.read(&c.client, m)
	if err != nil {
		b := c.begin(m, 0, m.RequestID)
		r.fail(b, err, nil)
		return c.write(b.Bytes())
	}
	if every, ok := pushes(r); ok {
		return c.push(ctx, r, every)
	}
	reply, err := c.serve(ctx, r)
	if err != nil {
		return err
	}
	if m.Flags&wire.MoreToCome != 0 {
		c.keep(reply)
		return nil
	}
	return c.write(reply)
}

// begin starts a reply in the connection's buffer.
func (c *conn) begin(m *wire.Message, flags uint32, responseTo int32) *doc.Builder {
	c.sent++
	buf := c.buf[:0]
	c.buf = nil
	if m.OpCode == wire.OpQuery {
		return doc.On(wire.AppendReply(buf, c.sent, responseTo))
	}
	return doc.On(wire.AppendMsg(buf, c.sent, responseTo, flags))
}

func (c *conn) write(reply []byte) error {
	defer c.keep(reply)
	_, err := c.net.Write(wire.Finish(reply))
	return err
}

// keep reuses the buffer of a reply, unless it is unusually large.
func (c *conn) keep(buf []byte) {
	const usual = 1 << 20
	if cap(buf) <= usual || len(buf) >= cap(buf)/16 {
		c.buf = buf
	}
}

// serve carries a request out and returns its whole reply. An error ends the connection.
func (c *conn) serve(ctx context.Context, r *request) ([]byte, error) {
	effect := r.enter()
	if longest := c.server.profile.Delay; longest > 0 {
		effect.block += rand.N(longest)
	}
	if effect.block > 0 {
		if err := pause(ctx, effect.block); err != nil {
			return nil, err
		}
	}
	if effect.close {
		return nil, errClose
	}
	b := c.begin(r.msg, 0, r.msg.RequestID)
	var err error
	if cmd, known := c.server.commands[r.name]; effect.code != 0 {
		err = wire.Errorf(effect.code, "Failing command due to 'failCommand' failpoint")
	} else if !known {
		err = wire.Errorf(wire.CommandNotFound, "no such command: '%s'", r.name)
	} else {
		err = r.run(ctx, cmd, b)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		c.buf = b.Bytes()
		c.sent--
		b = c.begin(r.msg, 0, r.msg.RequestID)
		r.fail(b, err, effect.labels)
		return b.Bytes(), nil
	}
	if e := effect.writeConcernError; e != nil {
		b.Doc("writeConcernError", e)
	}
	r.succeed(b)
	return b.Bytes(), nil
}

// push sends hello replies without further requests: whenever the topology changes, which that of
// one node never does, and whenever the time that the client waits is over.
func (c *conn) push(ctx context.Context, r *request, every time.Duration) error {
	responseTo := r.msg.RequestID
	wait := time.NewTicker(every)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait.C:
		}
		b := c.begin(r.msg, wire.MoreToCome, responseTo)
		hello(r, b)
		r.succeed(b)
		if err := c.write(b.Bytes()); err != nil {
			return err
		}
		responseTo = c.sent
	}
}
