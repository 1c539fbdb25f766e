package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/gateway/access/accesstest"
)

// refusals returns how many connections were refused for a reason.
func refusals(t *testing.T, c refused, reason string) (n float64) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c.by)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == reason {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// accepting returns a gate whose connections are passed on, and its address.
func accepting(t *testing.T, connections, perAddress int, handshakes bool) (g *gate, address string, accepted chan net.Conn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g = newGate(l, connections, perAddress, handshakes, newRefused(), func(net.Addr) {})
	accepted = make(chan net.Conn, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := g.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				return
			}
			accepted <- conn
		}
	}()
	t.Cleanup(func() {
		_ = g.Close()
		<-done
		close(accepted)
		for conn := range accepted {
			_ = conn.Close()
		}
	})
	return g, l.Addr().String(), accepted
}

// dialFrom opens a connection from an address of this machine.
func dialFrom(ctx context.Context, t *testing.T, from, to string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(ctx, "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// One address has so many connections, and no more than that until one has ended. Others have
// theirs.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	g, address, accepted := accepting(t, 10, 3, false)
	var last net.Conn
	for range 3 {
		dialFrom(t.Context(), t, "127.0.0.1", address)
		last = <-accepted
	}
	for range 20 {
		turnedAway(t, address)
	}
	dialFrom(t.Context(), t, "127.0.0.2", address)
	<-accepted
	if n := refusals(t, g.refused, "address"); n != 20 {
		t.Errorf("%v refused", n)
	}
	_ = last.Close()
	_ = last.Close()
	dialFrom(t.Context(), t, "127.0.0.1", address)
	<-accepted
	turnedAway(t, address)
}

// turnedAway fails the test unless a connection is reset.
func turnedAway(t *testing.T, address string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err == nil {
		defer func() { _ = conn.Close() }()
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("one more: %v", err)
	}
}

// Handshakes that are not completed make room for others: the oldest of the address that has most
// of them goes first.
func TestHandshakesUnderWayAreBounded(t *testing.T) {
	g, address, accepted := accepting(t, 1000, 1000, true)
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Issue(t, "server", time.Hour)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	honest := dialFrom(t.Context(), t, "127.0.0.2", address) // and slow: it has been there before all others
	server, _ := (<-accepted).(*gated)
	const many = 500
	for range many {
		dialFrom(t.Context(), t, "127.0.0.1", address)
	}
	for range many {
		<-accepted
	}
	if n := refusals(t, g.refused, "handshakes"); n != many+1-maxHandshakes {
		t.Errorf("%v of %d handshakes were ended", n, many+1)
	}
	shaken := make(chan error, 1)
	go func() {
		shaken <- tls.Server(server, &tls.Config{Certificates: []tls.Certificate{pair}}).HandshakeContext(t.Context())
	}()
	if err := errors.Join(tls.Client(honest, ca.Client(t, "")).HandshakeContext(t.Context()), <-shaken); err != nil {
		t.Fatal(err)
	}
	server.HandshakeDone()
	dialFrom(t.Context(), t, "127.0.0.1", address)
	<-accepted
	if n := refusals(t, g.refused, "handshakes"); n != many+1-maxHandshakes {
		t.Errorf("%v handshakes were ended although one is complete", n)
	}
}

// Of an address that has too many connections, and makes new ones as fast as it can, so many a
// second are closed. Others are accepted meanwhile.
func TestAddressThatConnectsAgainAtOnceIsSlowedDown(t *testing.T) {
	g, address, accepted := accepting(t, 1000, 1, false)
	dialFrom(t.Context(), t, "127.0.0.1", address)
	<-accepted
	const many = paceBurst + 200
	flood := func() (away func()) {
		var all sync.WaitGroup
		for range many {
			all.Go(func() { turnedAway(t, address) })
		}
		return all.Wait
	}
	begun := time.Now()
	away := flood()
	dialFrom(t.Context(), t, "127.0.0.2", address)
	<-accepted
	away()
	if took, least := time.Since(begun), time.Second*(many-paceBurst)/pacePerSecond; took < least {
		t.Errorf("%d were closed within %s, less than %s", many, took, least)
	}
	if n := refusals(t, g.refused, "address"); n != many {
		t.Errorf("%v of %d refused", n, many)
	}
	away = flood()
	for refusals(t, g.refused, "address") != 2*many {
		runtime.Gosched()
	}
	_ = g.Close() // and those that wait are closed with it
	away()
}

// An address that makes connections as fast as it can, and may have them, gets so many a second.
func TestConnectionsOfAnAddressComeInTurn(t *testing.T) {
	const many = paceBurst + 200
	_, address, accepted := accepting(t, 2*many, many, false)
	begun := time.Now()
	for range many {
		dialFrom(t.Context(), t, "127.0.0.1", address)
	}
	for range many {
		<-accepted
	}
	if took, least := time.Since(begun), time.Second*(many-paceBurst)/pacePerSecond; took < least {
		t.Errorf("%d were accepted within %s, less than %s", many, took, least)
	}
}

// Connections that wait for the turn of their address keep no others waiting, and are closed with
// the gate.
func TestConnectionsThatWaitForTheirTurn(t *testing.T) {
	g, address, accepted := accepting(t, 10, 5, false)
	dialFrom(t.Context(), t, "127.0.0.1", address)
	<-accepted
	g.mu.Lock()
	for _, of := range g.mu.of {
		of.pace = rate.NewLimiter(rate.Every(time.Hour), 1)
		of.pace.Allow()
	}
	g.mu.Unlock()
	waits := dialFrom(t.Context(), t, "127.0.0.1", address)
	dialFrom(t.Context(), t, "127.0.0.2", address)
	<-accepted
	if len(accepted) > 0 {
		t.Error("one was accepted that was to wait")
	}
	_ = g.Close()
	if _, err := waits.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("one that waited: %v", err)
	}
}
