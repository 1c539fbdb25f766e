package connect_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/streampb"
)

// besieged is the variable that makes a process of the test a node that hostile clients besiege.
const besieged = "STREAMER_TEST_BESIEGED"

// What a besieged node may have, and may take for it: the limit makes the collector work, the bound is what the test is about.
const (
	siegeSessions, siegeSubscriptions = 200, 500
	siegeCredit                       = 256 << 10
	siegeLimit                        = 160 << 20
	siegeBound                        = 256 << 20
)

// besiege is a node with a memory limit. It says its address, writes changes until its input ends, and then says how many they were, and
// how much its heap held at most.
func besiege() {
	debug.SetMemoryLimit(siegeLimit)
	ctx := context.Background()
	n, err := newNode(ctx, connect.Config{
		MaxSessions: siegeSessions, MaxSubscriptions: siegeSubscriptions, CreditBytes: siegeCredit, HandshakeTimeout: 2 * time.Second,
	}, nil)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, n.listener.Addr())
	var running sync.WaitGroup
	running.Go(func() { _ = n.run(ctx) })
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	written, most := 0, uint64(0)
	for going := true; going; {
		select {
		case <-tick.C:
			written++
			n.source.Append(changetest.Event{ID: int64(written), Pad: 2000})
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
		case <-over:
			going = false
		}
	}
	_, _ = fmt.Fprintln(os.Stdout, written, most)
	running.Wait() // what is left is delivered until the process is ended
}

// A siege is what hostile clients do to a node in another process.
type siege struct {
	*world

	all sync.WaitGroup
}

// A besieger opens sessions of its own connection, which last as long as the siege, and ends none of them.
func (s *siege) besieger(name string, change func(*streampb.Hello)) (streampb.Gateway_ConnectClient, error) {
	stream, err := s.dial().Connect(s.Context())
	if err != nil {
		return nil, err
	}
	h := hello(func(h *streampb.Hello) {
		h.GatewayId, h.StartedAt = name, timestamppb.Now()
		if change != nil {
			change(h)
		}
	})
	return stream, stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}})
}

// many lets n of a kind do something at once.
func (s *siege) many(n int, kind string, do func(name string)) {
	for i := range n {
		s.all.Go(func() { do(fmt.Sprint(kind, "-", i)) })
	}
}

// drain takes what comes until the stream ends.
func drain(stream streampb.Gateway_ConnectClient, err error) {
	for err == nil {
		_, err = stream.Recv()
	}
}

// bomb is a filter that costs as much as one may.
const bomb = `[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, a+b+c+d > 0))))`

func (s *siege) bombs(n int) func(*streampb.Hello) {
	return func(h *streampb.Hello) {
		h.Subscriptions = nil
		for i := range n {
			h.Subscriptions = append(h.Subscriptions, &streampb.Subscription{Id: fmt.Sprint(i), Filter: fmt.Sprintf("key._id > %d && %s", i, bomb)})
		}
	}
}

// longest is a filter of the greatest length, to be compiled.
func longest(i int) string {
	var b strings.Builder
	for fmt.Fprintf(&b, "key._id == %d", i); b.Len() < 4000; {
		fmt.Fprintf(&b, ` || doc.a.b.c == "%d"`, b.Len())
	}
	return b.String()
}

// Whatever clients do, a node serves the others all of their changes, and keeps within its memory.
func TestBesiegedNodeServesOnWithinItsMemory(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), self)
	node.Env, node.Stderr = append(os.Environ(), besieged+"=1"), os.Stderr
	stdin, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait() // killed
	})
	said := bufio.NewReader(stdout)
	address, err := said.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, address: strings.TrimSpace(address)}
	w.client = w.dial()
	s := &siege{world: w}

	healthy := w.connectFor(t.Context(), hello(func(h *streampb.Hello) { h.GatewayId, h.Start = "healthy", streampb.Start_START_EARLIEST }))
	counted, ended := make(chan int, 1<<16), make(chan error, 1)
	go func() {
		total := 0
		for {
			r, err := healthy.Recv()
			if err != nil {
				ended <- err
				return
			}
			if b := r.GetBatch(); b != nil {
				total += len(b.GetEvents())
				healthy.have[b.GetPartition()] = b.GetTo()
				healthy.acknowledge()
				counted <- total
			}
		}
	}()

	// These stay to the end: they never acknowledge, take nothing, or say nothing.
	s.many(60, "greedy", func(name string) {
		stream, err := s.besieger(name, nil)
		go drain(stream, err)
	})
	s.many(30, "deaf", func(name string) { _, _ = s.besieger(name, nil) })
	s.many(200, "slow", func(string) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.address)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n")
	})
	s.all.Wait()
	// These come to an end, or are brought to it.
	s.many(10, "bomber", func(name string) {
		stream, err := s.besieger(name, s.bombs(20))
		go drain(stream, err)
	})
	s.many(5, "author", func(name string) {
		stream, err := s.besieger(name, func(h *streampb.Hello) {
			h.Subscriptions = nil
			for i := range 300 {
				h.Subscriptions = append(h.Subscriptions, &streampb.Subscription{Id: fmt.Sprint(i), Filter: longest(i)})
			}
		})
		if err == nil {
			_, err = stream.Recv()
		}
		_ = err
	})
	s.many(5, "subscriber", func(name string) {
		stream, err := s.besieger(name, nil)
		go drain(stream, err)
		for i := 0; err == nil && i < 10_000; i++ {
			err = stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{
				Subscriptions: []*streampb.Subscription{{Id: fmt.Sprint(i), Filter: fmt.Sprintf("key._id == %d", i)}},
			}}})
		}
	})
	s.many(20, "whale", func(name string) {
		for range 5 {
			drain(s.besieger(name, func(h *streampb.Hello) { h.ProcessId = strings.Repeat("x", 5<<20) }))
		}
	})
	s.many(50, "returner", func(name string) {
		client := w.dial()
		var streams sync.WaitGroup
		for i := range 100 {
			streams.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				stream, err := client.Connect(ctx)
				if err != nil {
					return
				}
				h := hello(func(h *streampb.Hello) { h.GatewayId = fmt.Sprint(name, "-", i) })
				if stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}}) == nil {
					_, _ = stream.Recv()
				}
			})
		}
		streams.Wait()
	})
	s.all.Wait()

	_ = stdin.Close()
	var written, most int
	if _, err := fmt.Fscan(said, &written, &most); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d changes, at most %d MiB on the heap", written, most>>20)
	if most > siegeBound {
		t.Errorf("%d MiB on the heap, at most %d may be", most>>20, siegeBound>>20)
	}
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for got := 0; got < written+1; { // one was there before
		select {
		case got = <-counted:
		case err := <-ended:
			t.Fatalf("the healthy session ended after %d of %d changes: %v", got, written, err)
		case <-timeout.C:
			t.Fatalf("the healthy session got %d of %d changes", got, written)
		}
	}
}
