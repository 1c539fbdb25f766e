package listen

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// A deadlined connection keeps the last write deadline.
type deadlined struct {
	net.Conn

	mu   sync.Mutex
	last time.Time
}

func (c *deadlined) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = at
	return c.Conn.SetWriteDeadline(at)
}

type deadlining struct {
	net.Listener

	accepted chan *deadlined
}

func (l deadlining) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	c := &deadlined{Conn: conn}
	if err == nil {
		l.accepted <- c
	}
	return c, err
}

// A connection that a handler has taken over has no deadline of the server's, also when the handler
// has returned.
func TestConnectionThatIsTakenOverHasNoDeadline(t *testing.T) {
	taken, returned := make(chan net.Conn, 1), make(chan struct{})
	limited := limitRequests(time.Minute, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		taken <- conn
	}))
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(returned)
		limited.ServeHTTP(w, r)
	}))
	accepted := make(chan *deadlined, 1)
	web.Listener = deadlining{web.Listener, accepted}
	web.Start()
	defer web.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = (<-taken).Close() }()
	server := <-accepted
	<-returned
	server.mu.Lock()
	defer server.mu.Unlock()
	if !server.last.IsZero() {
		t.Errorf("a write fails at %s", server.last)
	}
}
