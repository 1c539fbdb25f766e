package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
)

// A filter that fails on every event tells so once a second, with how often it was, and holds nothing up.
func TestFailuresOfAFilterAreToldOnceASecond(t *testing.T) {
	p := open(t, gateway.EventsConfig{Heartbeat: 50 * time.Millisecond})
	const n = 500
	start := time.Now()
	r := p.get("?filter="+`key._id%2B"x"=="y"`, "")
	go func() {
		for i := range n {
			p.source.Append(changetest.Event{ID: int64(i)})
		}
	}()
	told, failures := 0, 0
	for failures < n {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Event != "filter_failed" {
			continue
		}
		var body struct {
			Code    fault.Code
			Message string
		}
		if err := json.Unmarshal(m.Data, &body); err != nil || body.Code != fault.FilterEvaluation {
			t.Fatalf("%s: %v", m.Data, err)
		}
		count := 1
		_, _ = fmt.Sscanf(body.Message, "%d events", &count) // one where it does not say
		told, failures = told+1, failures+count
	}
	if most := 2 + int(time.Since(start)/time.Second); told > most {
		t.Errorf("told %d times in %s", told, time.Since(start))
	}
}

// Why a request's context has ended decides what its client is told.
func TestClientOfAnEndedContextIsToldWhy(t *testing.T) {
	events := gateway.NewEvents(gateway.EventsConfig{Cluster: "c", Partitions: partitions}, nil)
	for _, tt := range []struct {
		cause  error
		status int
		want   fault.Code
	}{
		{fault.Newf(fault.NodeStopping, "it stops"), 503, fault.NodeStopping},
		{fault.Newf(fault.NodeDetached, "it is cut off"), 503, fault.NodeDetached},
		{fault.Newf(fault.AccessUnauthenticated, "revoked"), 401, fault.AccessUnauthenticated},
		{errors.New("anything"), 503, fault.NodeStopping},
		{nil, 503, fault.NodeStopping},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tt.cause)
		w := httptest.NewRecorder()
		events.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil))
		if w.Code != tt.status || !bytes.Contains(w.Body.Bytes(), []byte(tt.want)) {
			t.Errorf("%v: %d %s", tt.cause, w.Code, w.Body)
		}
	}
}

// Requests that have passed no authenticator may nothing where identities count.
func TestRequestOfNobodyIsRefused(t *testing.T) {
	events := gateway.NewEvents(gateway.EventsConfig{Cluster: "c", Partitions: partitions, Accounts: access.NewAccounts()}, nil)
	for _, query := range []string{"", "?db=shop&coll=orders"} {
		w := httptest.NewRecorder()
		events.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events"+query, nil))
		if w.Code != http.StatusForbidden || !bytes.Contains(w.Body.Bytes(), []byte(fault.AccessForbidden)) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}
