package http

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/sink"
)

// A request has at most Batch messages, and at most Parallel requests are under way.
func TestRequestsAreAsConfigured(t *testing.T) {
	t.Parallel()
	const partitions, each = 5, 7
	var mu sync.Mutex
	underWay, most, largest := 0, 0, 0
	release := make(chan struct{})
	full := sync.OnceFunc(func() { close(release) })
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		underWay++
		most, largest = max(most, underWay), max(largest, strings.Count(string(body), "\n"))
		if underWay == 2 {
			full()
		}
		mu.Unlock()
		<-release
		mu.Lock()
		underWay--
		mu.Unlock()
	}))
	t.Cleanup(s.Close)
	target := New(Config{URL: s.URL, Secret: "0123456789abcdef", Batch: 3, Parallel: 2, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(target.Close)
	var done sync.WaitGroup
	for n := range partitions * each {
		done.Add(1)
		m := &sink.Message{Partition: change.Partition(n % partitions), ID: fmt.Sprint(n), Op: "insert", Value: []byte("{}")}
		sink.Report(m, func(err error) {
			if err != nil {
				t.Error(err)
			}
			done.Done()
		})
		target.Publish(t.Context(), m)
	}
	done.Wait()
	if most != 2 || largest != 3 {
		t.Errorf("%d requests at a time, want 2; the largest has %d messages, want 3", most, largest)
	}
}
