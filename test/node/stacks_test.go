//go:build !race

package node

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// stacksInUse returns the bytes of all stacks. They shrink by halves, one with each collection.
func stacksInUse() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.StackInuse)
}

// An event stream that waits has left its request: it has a stack of 4 KiB, and one of 2 KiB that
// notices its end. Within the request the first would be of 8. The race detector makes them larger.
// Not parallel: others have stacks, too.
func TestStacksOfWaitingEventStreams(t *testing.T) {
	const streams, most = 500, 9 << 10
	n := newRig(t, devmongo.Config{}).beginWith(nil)
	n.status()
	before := stacksInUse()
	for range streams {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", n.service.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET /v1/events?db=shop HTTP/1.1\r\nHost: %s\r\n\r\n", n.service.Addr()); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	each := int64(0)
	n.until("they wait with small stacks", func() bool {
		each = (stacksInUse() - before) / streams
		return each < most
	})
	t.Logf("%d bytes each", each)
}
