package http_test

import (
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/http"
)

// BenchmarkPublish posts changes of 400 bytes of 64 partitions to an endpoint in the same process.
func BenchmarkPublish(b *testing.B) {
	endpoint := httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer endpoint.Close()
	to := http.New(http.Config{URL: endpoint.URL, Secret: "of-the-benchmark", Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer to.Close()
	var posted sync.WaitGroup
	messages := make([]*sink.Message, 6400)
	for i := range messages {
		messages[i] = &sink.Message{Partition: change.Partition(i % 64), Value: []byte(strings.Repeat("x", 400))}
		sink.Report(messages[i], func(err error) {
			if err != nil {
				b.Error(err)
			}
			posted.Done()
		})
	}
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(messages) {
		posted.Add(len(messages))
		for _, m := range messages {
			to.Publish(b.Context(), m)
		}
		posted.Wait()
	}
}
