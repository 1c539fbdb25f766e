package gateway_test

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway"
)

// BenchmarkEventStreams delivers changes to event streams: each to all of them, or each to one. An
// operation is a delivery. It reports the CPU time of one, which includes a read by the client and,
// divided among the streams, the reading of the log, and the memory of an idle stream.
func BenchmarkEventStreams(b *testing.B) {
	for _, each := range []string{"to all", "to one"} {
		b.Run(each, func(b *testing.B) {
			const streams = 1000
			w := newWorld(b, options{events: gateway.EventsConfig{MaxClients: streams}, hub: delivery.Config{Bookmark: time.Minute}})
			before := memory()
			clients := make([]net.Conn, streams)
			for i := range clients {
				query := ""
				if each == "to one" {
					query = fmt.Sprintf("&filter=key._id+%%3D%%3D+%d", i+1)
				}
				clients[i] = w.raw("/v1/events?db=shop&coll=orders" + query)
			}
			w.until("all are live", func() bool { return w.node.Hub().Load().Live == streams })
			idle := memory() - before
			used := cpuTime()
			received, buffer := 0, make([]byte, 4096)
			b.ReportAllocs()
			b.ResetTimer()
			for done, id := 0, 0; done < b.N; id++ {
				readers := clients
				if each == "to one" {
					readers = clients[id%streams : id%streams+1]
				}
				w.source.Append(changetest.Event{ID: int64(id%streams + 1), Pad: 100})
				for _, c := range readers {
					received += readEvent(b, c, buffer)
				}
				done += len(readers)
			}
			b.StopTimer()
			b.ReportMetric(float64((cpuTime()-used).Nanoseconds())/float64(max(b.N, 1)), "cpu-ns/op")
			b.ReportMetric(float64(received)/float64(max(b.N, 1)), "wire-B/op")
			b.ReportMetric(float64(idle)/1024/streams, "idle-KiB/stream")
			for _, c := range clients {
				_ = c.Close()
			}
		})
	}
}

// raw sends a request for a stream and returns its connection after the first bytes of the answer.
func (w *world) raw(path string) net.Conn {
	w.Helper()
	c, err := (&net.Dialer{}).DialContext(w.Context(), "tcp", w.web.Listener.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		w.Fatal(err)
	}
	var buffer [4096]byte
	for seen := []byte(nil); !bytes.Contains(seen, []byte(": connected")); {
		n, err := c.Read(buffer[:])
		if err != nil {
			w.Fatal(err)
		}
		seen = append(seen, buffer[:n]...)
	}
	return c
}

// readEvent reads up to the end of an event with data, and returns how many bytes that are.
func readEvent(b *testing.B, c net.Conn, buffer []byte) (size int) {
	b.Helper()
	for {
		n, err := c.Read(buffer)
		if err != nil {
			b.Fatal(err)
		}
		size += n
		if bytes.Contains(buffer[:n], []byte("data: ")) {
			return size
		}
	}
}

// memory returns the bytes of the heap and of the stacks after a collection.
func memory() int64 {
	runtime.GC()
	runtime.GC() // stacks shrink, pools are emptied
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
