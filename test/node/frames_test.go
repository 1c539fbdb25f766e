package node

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A framed is a connection to a gRPC server whose frames a test writes itself.
type framed struct {
	*http2.Framer
	net.Conn
}

// frame begins HTTP/2 on a connection.
func frame(conn net.Conn) *framed {
	f := &framed{http2.NewFramer(conn, nil), conn}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = f.WriteSettings()
	return f
}

// beginAndReset begins a session, without a Hello, and resets it at once.
func (f *framed) beginAndReset(id uint32, token string) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", streampb.Gateway_Connect_FullMethodName}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer " + token},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		return err
	}
	return f.WriteRSTStream(id, http2.ErrCodeCancel)
}

// A connection on which streams begin too fast is closed, although each is reset at once, so that
// never many are open. Others get their changes.
func TestStreamsThatBeginTooFastEndTheirConnection(t *testing.T) {
	t.Parallel()
	const many = 100_000
	r := newRig(t, devmongo.Config{})
	n := r.begin("STREAMER_NODE_ID=n")
	honest := n.connect(client.Config{Subscriber: "honest"}, client.Subscription{ID: "all"})
	honest.told(t, "its changes are sent", func(told client.Notice) bool { _, is := told.(client.Subscribed); return is })
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.service.Gateway())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
	f, begun, since := frame(conn), 0, time.Now()
	for begun < many && f.beginAndReset(uint32(2*begun+1), "") == nil {
		begun++
	}
	if begun == many || n.metric("streamer_connections_refused_total") != 1 {
		t.Errorf("%d streams have begun, %v connections were closed", begun, n.metric("streamer_connections_refused_total"))
	}
	r.insert(1)
	honest.takes(t, 1)
	// A thousand at once, as many after a standstill, and some; then a hundred a second.
	if begun, most := n.metric("streamer_logins_total"), 3_000+100*time.Since(since).Seconds(); begun > most {
		t.Errorf("%v streams were looked at, at most %.0f are allowed", begun, most)
	}
}
