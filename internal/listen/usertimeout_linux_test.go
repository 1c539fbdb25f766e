package listen

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mongostream/streamer/internal/config"
)

// A peer that vanishes without a word is found out by the system, also while something is being
// sent to it.
func TestConnectionsOfVanishedPeersEnd(t *testing.T) {
	cfg, err := config.Load("", []string{"STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_HTTP_STALL_TIMEOUT=2m"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := l.ListenHTTP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dialFrom(t.Context(), t, "127.0.0.1", listener.Addr().String())
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	accepted, _ := conn.(*gated)
	tcp, _ := accepted.Conn.(*net.TCPConn)
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	get := func(level, option, want int) {
		t.Helper()
		var got int
		if controlled := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), level, option) }); controlled != nil || err != nil || got != want {
			t.Errorf("option %d is %d, want %d: %v %v", option, got, want, err, controlled)
		}
	}
	get(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 130_000) // longer than a client may stall
	get(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30)
}
