package node

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// A receiver is an OTLP receiver over HTTP that keeps what it gets.
type receiver struct {
	*httptest.Server

	mu      sync.Mutex
	spans   []received
	headers []string // the Authorization of each request
	refused []string // requests that are not OTLP
}

// A received is a span with the node that has sent it.
type received struct {
	*tracepb.Span

	node string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(r.take))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var export collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		r.refused = append(r.refused, req.Method+" "+req.URL.Path)
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	r.headers = append(r.headers, req.Header.Get("Authorization"))
	for _, of := range export.GetResourceSpans() {
		node := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.instance.id" {
				node = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				r.spans = append(r.spans, received{span, node})
			}
		}
	}
}

// named returns the spans that were received with a name.
func (r *receiver) named(name string) (spans []received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.spans), func(s received) bool { return s.GetName() != name })
}

// below returns the other spans of a root span's trace.
func (r *receiver) below(root received) (spans []received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.spans), func(s received) bool {
		return !bytes.Equal(s.GetTraceId(), root.GetTraceId()) || bytes.Equal(s.GetSpanId(), root.GetSpanId())
	})
}

// sound fails the test if requests were refused, or came without the header.
func (r *receiver) sound(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refused) > 0 || slices.ContainsFunc(r.headers, func(h string) bool { return h != "Bearer hush" }) {
		t.Errorf("refused %q, headers %q", r.refused, r.headers)
	}
}

// traced are the settings of nodes that record everything.
func (r *receiver) traced() []string {
	return []string{"STREAMER_TRACING_ENDPOINT=" + r.URL, "STREAMER_TRACING_RATIO=1", "STREAMER_TRACING_HEADERS=Authorization: Bearer hush"}
}

// events returns the names of a span's events.
func events(s received) (names []string) {
	for _, e := range s.GetEvents() {
		names = append(names, e.GetName())
	}
	return names
}

// serves returns how many partitions a node serves.
func (n *live) serves() int { return len(n.service.Node().Status()) }

// steps returns the steps of a handoff, and the nodes that took them. Partitions are claimed
// together or one after another.
func (r *receiver) steps(handoff received) (steps []string) {
	for _, s := range r.below(handoff) {
		steps = append(steps, s.node+" "+s.GetName())
	}
	slices.Sort(steps)
	return slices.Compact(steps)
}

// handoffs returns the handoffs of which all steps have been received.
func (r *receiver) handoffs() []received {
	return slices.DeleteFunc(r.named("handoff"), func(s received) bool { return len(r.steps(s)) < 4 })
}

// With tracing.endpoint, tracing.headers and a tracing.ratio of 1.
func TestHandoffIsOneTraceOverBothNodes(t *testing.T) {
	t.Parallel()
	to := newReceiver(t)
	r := newRig(t, devmongo.Config{}, to.traced()...)
	donor := r.begin(several("n1")...)
	donor.until("one node serves everything", func() bool { return donor.serves() == partitions })
	target := r.begin(several("n2")...)
	target.until("both nodes serve", func() bool { return target.serves() == partitions/2 && donor.serves() == partitions/2 })

	// A handoff that takes too long is given back, and spans that cannot be exported are dropped
	// rather than collected: then there is another one.
	again := time.NewTicker(20 * time.Second)
	defer again.Stop()
	donor.until("all of a handoff's trace arrives", func() bool {
		select {
		case <-again.C:
			if owned := donor.owns(); len(owned) > 0 {
				donor.send(http.MethodPost, fmt.Sprintf("http://%s/v1/partitions/%d/handoff?to=n2", donor.service.Addr(), owned[0]), "Sec-Fetch-Site", "same-origin")
			}
		default:
		}
		return len(to.handoffs()) > 0
	})
	for _, root := range to.handoffs() {
		of, onto := donor, "n2"
		if root.node == "n2" {
			of, onto = target, "n1" // as the plan has it, after what an operator asked for
		}
		if !slices.Equal(events(root), []string{"requested"}) || len(root.GetParentSpanId()) > 0 {
			t.Errorf("handoff %v of %s", root.Span, root.node)
		}
		for _, s := range to.below(root) {
			if s.GetStartTimeUnixNano() < root.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
				t.Errorf("%s does not follow what was requested: %v in %v", s.GetName(), s.Span, root.Span)
			}
		}
		want := []string{root.node + " handoff.drain", root.node + " handoff.release", onto + " handoff.claim", onto + " handoff.serve"}
		slices.Sort(want)
		if got := to.steps(root); !slices.Equal(got, want) {
			t.Errorf("steps %v, want %v", got, want)
		}
		if metrics := of.openMetrics(); !strings.Contains(metrics, `trace_id="`+hex.EncodeToString(root.GetTraceId())+`"`) {
			t.Error("no exemplar of the handoff in the metrics")
		}
	}
	to.sound(t)
}

// openMetrics returns the metrics of a node in the format that has exemplars.
func (n *live) openMetrics() string {
	n.Helper()
	req, err := http.NewRequestWithContext(n.Context(), http.MethodGet, "http://"+n.service.Addr()+"/metrics", nil)
	if err != nil {
		n.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.Fatal(err)
	}
	return string(text)
}

func TestBatchOfASinkIsATraceWithItsRetries(t *testing.T) {
	t.Parallel()
	to, e, refused := newReceiver(t), &endpoint{}, atomic.Bool{}
	e.answers(func(*http.Request, []string) int {
		if !refused.Swap(true) {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	r := sinkRig(t, toHTTP(t, e))
	r.settings = append(r.settings, to.traced()...)
	n := r.beginWith(nil)
	r.writes(0, 1)
	n.arrived(&e.landing, 1)
	n.until("the trace of a batch that was repeated arrives", func() bool {
		return slices.ContainsFunc(to.named("sink.batch"), func(s received) bool { return len(to.below(s)) > 0 })
	})
	n.until("as many events arrive as were published", func() bool {
		published := 0
		for _, s := range to.named("sink.batch") {
			published += int(attributeOf(s, "events"))
		}
		return published == 3
	})
	for _, s := range to.named("sink.batch") {
		if got := events(s); !slices.Equal(got, []string{"received", "published", "acknowledged"}) {
			t.Errorf("events %v of a batch", got)
		}
		for _, retry := range to.below(s) {
			if retry.GetName() != "sink.retry" || !bytes.Equal(retry.GetParentSpanId(), s.GetSpanId()) {
				t.Errorf("below a batch: %v", retry.Span)
			}
		}
	}
	to.sound(t)
}

// attributeOf returns a number of a span, -1 if it has none of the name.
func attributeOf(s received, name string) int64 {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == name {
			return a.GetValue().GetIntValue()
		}
	}
	return -1
}

func TestSnapshotIsATraceWithItsPages(t *testing.T) {
	t.Parallel()
	to, e := newReceiver(t), &endpoint{}
	settings := toHTTP(t, e)
	r := sinkRig(t, settings)
	r.settings = append(append(r.settings, to.traced()...), "STREAMER_RESCAN_PAGE_SIZE=2")
	r.sinkFrom("snapshot", settings)
	r.series(0, 10)
	n := r.beginWith(nil)
	n.until("the trace of the snapshot arrives", func() bool { return len(to.named("snapshot")) > 0 })
	for _, s := range to.named("snapshot") {
		if got := events(s); !slices.Equal(got, []string{"begun", "done"}) || s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("events %v of a snapshot, status %v", got, s.GetStatus())
		}
		var pages []int64
		for _, page := range to.below(s) {
			if page.GetName() != "snapshot.page" || !bytes.Equal(page.GetParentSpanId(), s.GetSpanId()) || page.GetEndTimeUnixNano() < page.GetStartTimeUnixNano() {
				t.Errorf("below a snapshot: %v", page.Span)
			}
			pages = append(pages, attributeOf(page, "page"))
		}
		if slices.Sort(pages); !slices.Equal(pages, []int64{1, 2, 4}) {
			t.Errorf("pages %v of 5 or 6, want those of powers of two", pages)
		}
	}
	to.sound(t)
}

// Without an endpoint there is no tracer, so that nothing can be recorded or exported.
func TestNothingIsTracedByDefault(t *testing.T) {
	t.Parallel()
	to, e := newReceiver(t), &endpoint{}
	r := sinkRig(t, toHTTP(t, e))
	n := r.beginWith(nil, "STREAMER_TRACING_RATIO=1")
	r.writes(0, 3)
	n.arrived(&e.landing, 3)
	n.stopped()
	to.mu.Lock()
	defer to.mu.Unlock()
	if len(to.headers)+len(to.refused) > 0 {
		t.Errorf("requests %d, %q", len(to.headers), to.refused)
	}
}

// While an export waits for an answer that does not come, the sink gets everything, and the node
// stops.
func TestReceiverThatIsAwayHoldsNothingUp(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	asked := make(chan struct{}, 1)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(hangs.Close)
	t.Cleanup(func() { close(release) })
	e := &endpoint{}
	r := sinkRig(t, toHTTP(t, e))
	n := r.beginWith(nil, "STREAMER_TRACING_ENDPOINT="+hangs.URL, "STREAMER_TRACING_RATIO=1")
	r.writes(0, 3)
	n.arrived(&e.landing, 3)
	n.until("spans are exported", func() bool { return len(asked) > 0 })
	r.writes(3, 6)
	n.arrived(&e.landing, 6)
	if err := n.stop(); err != nil {
		t.Error(err)
	}
}
