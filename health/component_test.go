package health_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/health"
)

func TestLoopIsLateOnlyWithSomethingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := health.NewLoop()
		want := func(age time.Duration) {
			t.Helper()
			if got := l.Age().Truncate(time.Second); got != age {
				t.Errorf("%s, want %s", got, age)
			}
		}
		time.Sleep(time.Hour)
		want(0)
		l.Work()
		time.Sleep(time.Minute)
		want(time.Minute)
		l.Work()
		want(0)
		l.RestFor(time.Minute)
		time.Sleep(time.Minute)
		want(0)
		time.Sleep(time.Minute)
		want(time.Minute)
		l.Rest()
		want(0)
		(*health.Loop)(nil).Work()
		if (*health.Loop)(nil).Age() != 0 {
			t.Error("no loop is late")
		}
	})
}

func TestProgressIsJudgedByWhatWaits(t *testing.T) {
	var p health.Progress
	at := time.Unix(1000, 0)
	for i, c := range []struct {
		mark  uint64
		waits bool
		want  time.Duration
	}{{1, false, 0}, {1, false, 0}, {1, true, 0}, {1, true, time.Second}, {1, true, 2 * time.Second}, {2, true, 0}, {2, true, time.Second}, {2, false, 0}, {2, true, 0}} {
		if got := p.Age(c.mark, c.waits, at.Add(time.Duration(i)*time.Second)); got != c.want {
			t.Errorf("look %d: %s, want %s", i, got, c.want)
		}
	}
}

// A component that has something to do and does not get on is stalled, and then a reason to replace
// the process; so is one that does not even say how it does. Neither holds up the others.
func TestComponentsAreJudgedByTheirProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var age atomic.Int64
		hung := make(chan struct{})
		restarted := 0
		c := health.NewComponents(health.ComponentsConfig{
			Process: "p", Uptime: func() time.Duration { return time.Minute }, Stalled: 7 * time.Second, Lost: time.Minute,
		})
		c.Add(health.Component{Slug: "well", Age: func() time.Duration { return 0 }})
		c.Add(health.Component{Slug: "sink-kafka", Age: func() time.Duration { return time.Duration(age.Load()) }, Restart: func() error { restarted++; return nil }})
		c.Add(health.Component{Slug: "hung", Age: func() time.Duration { <-hung; return 0 }})
		ctx, stop := context.WithCancel(t.Context())
		go c.Run(ctx)
		mux := http.NewServeMux()
		c.Handle(mux)
		get := func(slug string, status int, want string) {
			t.Helper()
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/internal/health/"+slug, nil))
			var v health.Vital
			_ = json.Unmarshal(w.Body.Bytes(), &v)
			if w.Code != status || v.Status != want || want != "" && (v.Slug != slug || v.Process != "p" || v.Uptime != 60) {
				t.Errorf("%s: %d %+v", slug, w.Code, v)
			}
		}
		time.Sleep(5500 * time.Millisecond)
		get("well", 200, health.VitalOK)
		get("sink-kafka", 200, health.VitalOK)
		get("hung", 200, health.VitalOK)
		get("unknown", 404, "")
		time.Sleep(6 * time.Second)
		age.Store(int64(8 * time.Second))
		time.Sleep(time.Second)
		get("well", 200, health.VitalOK)
		get("sink-kafka", 503, health.VitalStalled)
		get("hung", 503, health.VitalStalled)
		if err := c.Alive(); err != nil {
			t.Error(err)
		}
		if v, err := c.Vital("sink-kafka"); err != nil || !v.Restartable || v.LastDecision < 8_000 {
			t.Errorf("%+v, %v", v, err)
		}
		time.Sleep(time.Minute)
		if err := c.Alive(); err == nil {
			t.Error("a component that hangs is no reason to replace the process")
		}
		close(hung)
		time.Sleep(2 * time.Second)
		get("hung", 200, health.VitalOK)
		if err := c.Alive(); err != nil {
			t.Error(err)
		}
		if c.Restart("sink-kafka") != nil || restarted != 1 || c.Restart("well") == nil || c.Restart("unknown") == nil {
			t.Error("restarts")
		}
		stop()
		synctest.Wait()
	})
}
