package process

import (
	"errors"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"
)

// A tap passes on what a node and its etcd or MongoDB say to each other, and notes when requests
// pass that contain a text.
type tap struct {
	address string
	text    *regexp.Regexp

	mu     sync.Mutex
	passed []time.Time
	more   chan struct{} // closed when another one has passed
	conns  map[net.Conn]bool
}

// tapOverlap is what is looked at again with what comes next: requests may come in pieces.
const tapOverlap = 256

// newTap makes a tap before an address, which lives as long as the test.
func newTap(t testing.TB, upstream, text string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // answers at once
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{address: l.Addr().String(), text: regexp.MustCompile(text), more: make(chan struct{}), conns: map[net.Conn]bool{}}
	var pipes sync.WaitGroup
	pipes.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", upstream) //nolint:noctx // on this machine
			if err != nil {
				_ = down.Close()
				continue
			}
			p.keep(down, up)
			pipes.Go(func() { p.pass(up, down, p.look) })
			pipes.Go(func() { p.pass(down, up, func([]byte) int { return 0 }) })
		}
	})
	t.Cleanup(func() {
		err := l.Close()
		p.mu.Lock()
		for c := range p.conns {
			err = errors.Join(err, ignoreClosed(c.Close()))
		}
		p.mu.Unlock()
		pipes.Wait()
		if err != nil {
			t.Error(err)
		}
	})
	return p
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *tap) keep(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
}

// pass copies one direction, of which look says how many bytes at the end it wants to see again,
// and closes both.
func (p *tap) pass(to, from net.Conn, look func([]byte) int) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range []net.Conn{to, from} {
			_ = c.Close()
			delete(p.conns, c)
		}
	}()
	buffer, kept := make([]byte, 64<<10), 0
	for {
		n, err := from.Read(buffer[kept:])
		if n > 0 {
			if _, err := to.Write(buffer[kept : kept+n]); err != nil {
				return
			}
			again := look(buffer[:kept+n])
			copy(buffer, buffer[kept+n-again:kept+n])
			kept = again
		}
		if err != nil {
			return
		}
	}
}

// look counts what it finds, and wants to see what comes behind the last find again.
func (p *tap) look(data []byte) (again int) {
	found := p.text.FindAllIndex(data, -1)
	again = min(len(data), tapOverlap)
	if len(found) == 0 {
		return again
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range found {
		p.passed = append(p.passed, time.Now())
	}
	close(p.more)
	p.more = make(chan struct{})
	return min(again, len(data)-found[len(found)-1][1])
}

// since counts what has passed after a moment.
func (p *tap) since(from time.Time) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.passed {
		if at.After(from) {
			n++
		}
	}
	return n
}

// next waits for the next one to pass, and reports whether one did.
func (p *tap) next(within time.Duration) bool {
	p.mu.Lock()
	more := p.more
	p.mu.Unlock()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case <-more:
		return true
	case <-timeout.C:
		return false
	}
}
