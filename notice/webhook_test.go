package notice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/notice"
)

const secret = "a secret of the operator's"

// A receiver takes requests, as an http.RoundTripper in a bubble or as an http.Handler.
type receiver struct {
	mu struct {
		sync.Mutex

		answers []int // statuses of the next requests; 0 breaks the connection, -1 never answers; then 200
		got     []notice.Delivery
		asked   []time.Time
		bad     []error
	}
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	status := r.take(req.Header, body)
	switch status {
	case 0:
		return nil, errors.New("connection reset")
	case -1:
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	header := http.Header{"Location": {"http://elsewhere.example/"}}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: header, Body: http.NoBody, Request: req}, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	w.WriteHeader(r.take(req.Header, body))
}

// take looks at a request and says how to answer it.
func (r *receiver) take(header http.Header, body []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var d notice.Delivery
	if err := notice.VerifyDelivery(header, body, time.Now(), "an old one", secret); err != nil {
		r.mu.bad = append(r.mu.bad, err)
	}
	if err := json.Unmarshal(body, &d); err != nil || d.ID == "" || d.ID != header.Get(notice.HeaderDelivery) || (d.Notice == nil) == (d.Summary == nil) {
		r.mu.bad = append(r.mu.bad, fmt.Errorf("%s: %w", body, err))
	}
	r.mu.got, r.mu.asked = append(r.mu.got, d), append(r.mu.asked, time.Now())
	status := http.StatusOK
	if len(r.mu.answers) > 0 {
		status, r.mu.answers = r.mu.answers[0], r.mu.answers[1:]
	}
	return status
}

// taken returns what has come.
func (r *receiver) taken(t *testing.T) ([]notice.Delivery, []time.Time) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.mu.bad {
		t.Error(err)
	}
	return slices.Clone(r.mu.got), slices.Clone(r.mu.asked)
}

// A rig is a board whose notices are sent to a receiver.
type rig struct {
	*testing.T

	receiver *receiver
	board    *notice.Board
	registry *prometheus.Registry
	log      bytes.Buffer
	stop     func()
}

// send runs a sender to the receiver in a bubble.
func send(t *testing.T, cfg notice.WebhookConfig, answers []int, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, receiver: &receiver{}}
		r.receiver.mu.answers = answers
		cfg.URL, cfg.Transport = "https://receiver.example/hooks/of/streamer", r.receiver
		r.run(cfg)
		test(r)
		r.stop()
		r.receiver.taken(t)
	})
}

func (r *rig) run(cfg notice.WebhookConfig) {
	r.board, r.registry = notice.NewBoard(notice.Config{Node: "node-1"}), prometheus.NewRegistry()
	cfg.Secret, cfg.Cluster, cfg.Node, cfg.Registerer = secret, "streamer", "node-1", r.registry
	cfg.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	sender := notice.NewWebhook(cfg, r.board)
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sender.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
	r.Cleanup(r.stop)
}

func (r *rig) post(kind string, level notice.Severity, n int) {
	for i := range n {
		r.board.Post(notice.Notice{Channel: notice.Breaker, Kind: kind, Level: level, Text: fmt.Sprintf("%s %d", kind, i), Fields: map[string]any{"i": i}})
	}
}

// counted returns the value of a metric, of the labelled one where a label is given.
func (r *rig) counted(name, label string) float64 {
	r.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	r.Fatalf("there is no metric %s %s", name, label)
	return 0
}

// Posts are signed with the Secret: the receiver verifies each.
func TestReceiverGetsSignedNotices(t *testing.T) {
	received := &receiver{}
	server := httptest.NewServer(received)
	defer server.Close()
	r := &rig{T: t, receiver: received}
	r.run(notice.WebhookConfig{URL: server.URL + "/hook"})
	r.post("breaker_opened", notice.Warning, 3)
	r.stop() // what was posted before is sent
	got, _ := received.taken(t)
	if len(got) != 3 {
		t.Fatalf("%d deliveries; the log: %s", len(got), r.log.String())
	}
	for i, d := range got {
		if n := d.Notice; d.Cluster != "streamer" || d.Node != "node-1" || n == nil || n.Text != fmt.Sprint("breaker_opened ", i) || n.Level != notice.Warning || n.Fields["i"] != float64(i) {
			t.Errorf("%+v", d)
		}
	}
	if got[0].ID == got[1].ID {
		t.Error("two deliveries have one id")
	}
}

func TestFailedDeliveriesAreTriedAgain(t *testing.T) {
	send(t, notice.WebhookConfig{}, []int{500, 401, -1, 404, 308, 0, 202}, func(r *rig) {
		r.post("breaker_opened", notice.Warning, 1)
		time.Sleep(10 * time.Minute)
		got, asked := r.receiver.taken(r.T)
		if len(got) != 7 || r.counted("streamer_webhook_retries_total", "") != 6 || r.counted("streamer_webhook_deliveries_total", "sent") != 1 {
			r.Fatalf("%d requests", len(got))
		}
		for i, d := range got {
			if d.ID != got[0].ID {
				r.Errorf("attempt %d has another id", i+1)
			}
			if i > 1 && asked[i].Sub(asked[i-1]) <= asked[1].Sub(asked[0]) {
				r.Errorf("attempt %d came after %s", i+1, asked[i].Sub(asked[i-1]))
			}
		}
		if took := asked[6].Sub(asked[0]); took < 20*time.Second || took > time.Minute {
			r.Errorf("it took %s", took)
		}
	})
}

func TestDeliveriesAreGivenUp(t *testing.T) {
	for name, tt := range map[string]struct {
		answers  []int
		requests int
		says     string
	}{
		"refused":    {[]int{400}, 1, "rejected"},
		"gone":       {[]int{410}, 1, "rejected"},
		"redirected": {slices.Repeat([]int{302}, 8), 8, "redirects are not followed"},
		"failing":    {slices.Repeat([]int{500}, 8), 8, "8 attempts"},
		"revoked":    {slices.Repeat([]int{401}, 8), 8, "answered 401"},
		"broken":     {slices.Repeat([]int{0}, 8), 8, "connection reset"},
	} {
		t.Run(name, func(t *testing.T) {
			send(t, notice.WebhookConfig{}, tt.answers, func(r *rig) {
				r.post("breaker_opened", notice.Warning, 1)
				time.Sleep(10 * time.Minute)
				got, _ := r.receiver.taken(r.T)
				if len(got) != tt.requests || r.counted("streamer_webhook_deliveries_total", "failed") != 1 {
					r.Errorf("%d requests", len(got))
				}
				r.post("breaker_closed", notice.Info, 1) // the next is sent
				time.Sleep(time.Minute)
				if r.counted("streamer_webhook_deliveries_total", "sent") != 1 {
					r.Error("nothing is sent after that")
				}
				if log := r.log.String(); strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, tt.says) || strings.Contains(log, "hooks/of") {
					r.Errorf("the log: %s", log)
				}
			})
		})
	}
}

func TestStormIsOneSummary(t *testing.T) {
	send(t, notice.WebhookConfig{}, nil, func(r *rig) {
		for range 100 { // 10,000 in one moment
			r.post("breaker_opened", notice.Warning, 60)
			r.post("degraded", notice.Critical, 39)
			r.post("breaker_closed", notice.Info, 1)
			synctest.Wait() // so that the board's length is no matter
		}
		time.Sleep(10 * time.Minute)
		got, _ := r.receiver.taken(r.T)
		singles := map[notice.Severity]int{}
		var summaries []notice.Summary
		for _, d := range got {
			if d.Notice != nil {
				singles[d.Notice.Level]++
			} else {
				summaries = append(summaries, *d.Summary)
			}
		}
		if len(summaries) != 1 || singles[notice.Warning] != 10 || singles[notice.Critical] != 10 || singles[notice.Info] != 10 {
			r.Fatalf("%d summaries, single %v", len(summaries), singles)
		}
		s := summaries[0]
		want := []notice.Tally{
			{Channel: notice.Breaker, Kind: "degraded", Level: notice.Critical, Count: 3890, Last: "degraded 38"},
			{Channel: notice.Breaker, Kind: "breaker_opened", Level: notice.Warning, Count: 5990, Last: "breaker_opened 59"},
			{Channel: notice.Breaker, Kind: "breaker_closed", Level: notice.Info, Count: 90, Last: "breaker_closed 0"},
		}
		if s.Count != 9970 || s.Missed != 0 || s.Level != notice.Critical || !slices.Equal(s.Kinds, want) || s.Until.Sub(s.Since) != time.Minute {
			r.Errorf("%+v", s)
		}
		if n := r.counted("streamer_webhook_summarised_total", ""); n != 9970 {
			r.Errorf("%v counted", n)
		}
		r.post("degraded", notice.Critical, 1) // the storm is over
		synctest.Wait()
		if after, _ := r.receiver.taken(r.T); len(after) != len(got)+1 || after[len(got)].Notice == nil {
			r.Errorf("%d after the storm", len(after)-len(got))
		}
	})
}

// Whatever clients do, what concerns the service is posted at once.
func TestClientsDelayNoNoticeOfTheService(t *testing.T) {
	send(t, notice.WebhookConfig{}, nil, func(r *rig) {
		for range 100 {
			for _, n := range ofClients() {
				r.board.Post(n)
			}
		}
		r.post("breaker_opened", notice.Warning, 1)
		synctest.Wait()
		got, _ := r.receiver.taken(r.T)
		if len(got) != 11 || got[10].Notice.Kind != "breaker_opened" {
			r.Errorf("%d deliveries, the last is %+v", len(got), got[len(got)-1])
		}
	})
}

// A storm that goes on costs the receiver the same in every window.
func TestLastingStormIsOneSummaryAWindow(t *testing.T) {
	send(t, notice.WebhookConfig{}, nil, func(r *rig) {
		posted := 0
		for range 180 { // three minutes
			r.post("breaker_opened", notice.Warning, 100)
			posted += 100
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		got, _ := r.receiver.taken(r.T)
		var singles, summaries, told uint64
		for _, d := range got {
			if d.Notice != nil {
				singles, told = singles+1, told+1
			} else {
				summaries, told = summaries+1, told+d.Summary.Count+d.Summary.Missed
			}
		}
		if told != uint64(posted) || summaries < 3 || summaries > 4 || singles > 10*summaries {
			r.Errorf("of %d there are %d, by %d and %d summaries", posted, told, singles, summaries)
		}
	})
}

func TestNoticesThatNobodySawAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, receiver: &receiver{}, board: notice.NewBoard(notice.Config{Keep: 1000}), registry: prometheus.NewRegistry()}
		r.post("breaker_opened", notice.Warning, 10_000)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		notice.NewWebhook(notice.WebhookConfig{URL: "https://h", Secret: secret, Transport: r.receiver, Registerer: r.registry}, r.board).Run(ctx)
		got, _ := r.receiver.taken(t)
		if len(got) != 11 || got[10].Summary == nil || got[10].Summary.Count != 990 || got[10].Summary.Missed != 9000 {
			t.Errorf("%d deliveries: %+v", len(got), got[len(got)-1])
		}
		if n := r.counted("streamer_webhook_dropped_total", ""); n != 9000 {
			t.Errorf("%v counted", n)
		}
	})
}

func TestStormAtAReceiverThatIsAwayIsBoundedAndTold(t *testing.T) {
	send(t, notice.WebhookConfig{Queue: 20, Burst: 10_000}, slices.Repeat([]int{-1}, 16), func(r *rig) {
		for range 10 {
			r.post("breaker_opened", notice.Warning, 1000) // never waits: the bubble's time stands still
			synctest.Wait()
		}
		if n := r.counted("streamer_webhook_queue", ""); n != 20 {
			r.Errorf("%v wait", n)
		}
		time.Sleep(time.Hour)
		got, _ := r.receiver.taken(r.T)
		var told uint64
		seen := map[string]bool{}
		for _, d := range got {
			switch {
			case seen[d.ID]:
			case d.Notice != nil:
				told++
			default:
				told += d.Summary.Count
			}
			seen[d.ID] = true
		}
		if told != 10_000 || r.counted("streamer_webhook_deliveries_total", "failed") != 2 {
			r.Errorf("%d told of 10000, in %d deliveries", told, len(seen))
		}
	})
}

func TestOnlyWhatWasPostedHereAndMattersIsSent(t *testing.T) {
	send(t, notice.WebhookConfig{Lowest: notice.Warning}, nil, func(r *rig) {
		r.board.Relay(notice.Notice{Kind: "degraded", Level: notice.Critical, Node: "node-2"})
		r.post("breaker_closed", notice.Info, 100)
		r.post("breaker_opened", notice.Warning, 1)
		r.post("degraded", notice.Critical, 1)
		time.Sleep(10 * time.Minute)
		got, _ := r.receiver.taken(r.T)
		if len(got) != 2 || got[0].Notice.Kind != "breaker_opened" || got[1].Notice.Kind != "degraded" {
			r.Errorf("%+v", got)
		}
	})
}

func TestStoppingSendsWhatWaits(t *testing.T) {
	send(t, notice.WebhookConfig{}, nil, func(r *rig) {
		r.post("breaker_opened", notice.Warning, 15)
		begun := time.Now()
		r.stop()
		got, _ := r.receiver.taken(r.T)
		if len(got) != 11 || got[10].Summary == nil || got[10].Summary.Count != 5 || time.Since(begun) > 0 {
			r.Errorf("%d deliveries after %s", len(got), time.Since(begun))
		}
	})
	send(t, notice.WebhookConfig{}, slices.Repeat([]int{-1}, 100), func(r *rig) {
		r.post("breaker_opened", notice.Warning, 15)
		synctest.Wait()
		begun := time.Now()
		r.stop()
		if took := time.Since(begun); took > 5*time.Second {
			r.Errorf("it took %s", took)
		}
	})
}

func TestParticularsThatCannotBeWrittenCostThemselves(t *testing.T) {
	send(t, notice.WebhookConfig{}, nil, func(r *rig) {
		r.board.Post(notice.Notice{Kind: "odd", Level: notice.Info, Text: "x", Fields: map[string]any{"f": func() {}}})
		synctest.Wait()
		if got, _ := r.receiver.taken(r.T); len(got) != 1 || got[0].Notice.Kind != "odd" || got[0].Notice.Fields["error"] == nil {
			r.Errorf("%+v", got)
		}
	})
}

// Redirects are not followed by a real client either.
func TestRedirectLeadsNowhere(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	r := &rig{T: t}
	r.run(notice.WebhookConfig{URL: server.URL})
	r.post("breaker_opened", notice.Warning, 1)
	r.stop()
	if !strings.Contains(r.log.String(), "redirects are not followed") {
		t.Error(r.log.String())
	}
}

func TestPostsAreAsConfigured(t *testing.T) {
	never := slices.Repeat([]int{-1}, 3)
	send(t, notice.WebhookConfig{Timeout: 2 * time.Second, Attempts: 3}, never, func(r *rig) {
		r.post("breaker_opened", notice.Warning, 1)
		time.Sleep(10 * time.Minute)
		got, asked := r.receiver.taken(r.T)
		if len(got) != 3 || r.counted("streamer_webhook_deliveries_total", "failed") != 1 {
			r.Fatalf("%d attempts", len(got))
		}
		if between := asked[1].Sub(asked[0]); between < 2*time.Second || between > 4*time.Second {
			r.Errorf("the second attempt came after %v", between)
		}
	})
	send(t, notice.WebhookConfig{Window: 5 * time.Second, Burst: 2}, nil, func(r *rig) {
		r.post("breaker_opened", notice.Warning, 7)
		time.Sleep(10 * time.Minute)
		got, asked := r.receiver.taken(r.T)
		if len(got) != 3 || got[2].Summary == nil || got[2].Summary.Count != 5 {
			r.Fatalf("%d deliveries, the last: %+v", len(got), got[len(got)-1])
		}
		if between := asked[2].Sub(asked[0]); between < 4*time.Second || between > 6*time.Second {
			r.Errorf("the summary came after %v", between)
		}
	})
}
