package process

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
)

func TestStatusTellsHowANodeDoes(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd")
	p := l.node()
	address := p.address()
	l.insert(0, 200)
	until(t, "every partition is well and known", func() bool {
		r := decode[report](t, ask(t, address+"/health").body)
		for _, q := range r.Partitions {
			if q.Lag == nil || q.LastEvent.IsZero() {
				return false
			}
		}
		return r.Status == "healthy"
	})
	if human := l.result("status", "--address", address); !strings.Contains(human, fmt.Sprintf("%d healthy", partitions)) || !strings.Contains(human, fmt.Sprintf("the worst 5 of %d", partitions)) {
		t.Errorf("no summary: %s", human)
	}
	human := l.result("status", "--address", address, "--all")
	for _, want := range []string{"node: healthy", "no problems", "PARTITION", "leaves the oplog"} {
		if !strings.Contains(human, want) {
			t.Errorf("it does not say %q: %s", want, human)
		}
	}
	if rows := regexp.MustCompile(`(?m)^\d+ +healthy +\d+m?s.* +(-|\d+m?s) *$`).FindAllString(human, -1); len(rows) != partitions {
		t.Errorf("%d partitions: %s", len(rows), human)
	}
	r := decode[report](t, l.result("status", "--address", address+"/", "-o", "json"))
	if r.Node != "node" || r.Cluster != l.cluster || r.Status != "healthy" || len(r.Partitions) != partitions || len(r.Problems) != 0 {
		t.Errorf("%+v", r)
	}

	if got := ask(t, address+"/v1/gaps"); got.status != http.StatusOK || got.body != `{"gaps":[]}`+"\n" {
		t.Errorf("%+v", got)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
	l.operate("status", "--address", address).refused(fault.NodeUnreachable, "refused")
}

func TestStatusRefusesWhatIsNoNode(t *testing.T) {
	t.Parallel()
	strange := httptest.NewServer(http.NotFoundHandler())
	defer strange.Close()
	l := &lab{t: t}
	l.operate("status", "--address", strange.URL).refused(fault.NodeUnreachable, "404")
	l.operate("status", "--address", "http://"+devmongotest.FreeAddress()).refused(fault.NodeUnreachable, "connection refused")
	for _, address := range []string{"127.0.0.1", "http://", "ftp://127.0.0.1", "%zz"} {
		l.operate("status", "--address", address).refused(fault.CommandBadArgument, "--address")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // answers at once
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	l.operate("status", "--address", "http://"+silent.Addr().String()).refused(fault.NodeUnreachable, "deadline")
}

// What a node cannot read is on its notice board, and what was lost is in its gap log, for whoever
// asks.
func TestNodeServesItsGapsAndNotices(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, backend).with("STREAMER_HTTP_HEARTBEAT=50ms")
			use(l)
			ahead := l.stored()[3].Position.Time
			ahead.T += 3600
			stored := decode[map[string]any](t, l.store.checkpoint(3))
			stored["position"] = map[string]any{"t": ahead.T, "i": ahead.I} // as after a restore of MongoDB
			l.store.setCheckpoint(3, encode(t, stored))
			p := l.node()
			address := p.address()
			p.await(string(fault.LogAhead))

			lines := follow(t, address+"/v1/notices")
			for _, want := range []string{`"kind":"problem"`, ": heartbeat"} {
				if !lines.comes(want) {
					t.Errorf("no %s among the notices: %q", want, lines.all())
				}
			}
			human := l.result("status", "--address", address)
			if !strings.Contains(human, "failed") || !strings.Contains(human, "partition 3: "+string(fault.LogAhead)) {
				t.Errorf("%s", human)
			}
			p.signal(syscall.SIGTERM)
			p.wait()
			if m := l.stored()[3]; m.Position.Time != ahead {
				t.Errorf("%+v", m)
			}

			l.result("cluster", "adopt", "--yes")
			p = l.node()
			p.await(nodeRuns)
			log := decode[struct {
				Gaps []struct {
					Reason string
					From   position `json:"lost_from"`
				}
			}](t, ask(t, p.address()+"/v1/gaps").body)
			if len(log.Gaps) != 1 || log.Gaps[0].Reason != "ahead_of_server" || !log.Gaps[0].From.of(change.At(ahead)) {
				t.Errorf("%+v", log)
			}
			p.signal(syscall.SIGTERM)
			p.wait()
		})
	}
}

// follow reads an event stream until the test ends.
func follow(t *testing.T, url string) *journal {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	lines, done := newJournal(), make(chan struct{})
	go func() {
		defer close(done)
		lines.read(resp.Body)
	}()
	t.Cleanup(func() {
		_ = resp.Body.Close()
		<-done
	})
	return lines
}

// comes waits for a line that contains the text.
func (j *journal) comes(text string) bool {
	return comes(func() bool { line, _, _ := j.find(text, 0); return line != "" })
}
