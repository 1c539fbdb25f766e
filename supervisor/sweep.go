package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/mongostream/streamer/health"
)

const (
	// inFlight bounds the requests under way; others wait for one of them.
	inFlight = 1024
	// maxBody bounds an answer.
	maxBody = 16 << 10
)

// poll asks all targets, in parallel.
func (s *Supervisor) poll(ctx context.Context, targets []target, timeout time.Duration) []check {
	checks := make([]check, len(targets))
	slots := make(chan struct{}, inFlight)
	var wg sync.WaitGroup
	for i, t := range targets {
		slots <- struct{}{}
		wg.Go(func() {
			checks[i] = s.ask(ctx, t, timeout)
			<-slots
		})
	}
	wg.Wait()
	return checks
}

// ask asks one component.
func (s *Supervisor) ask(ctx context.Context, t target, timeout time.Duration) check {
	silent := func(cause Cause, format string, args ...any) check {
		return check{target: t, Miss: cause, Detail: fmt.Sprintf(format, args...), Silent: true}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		return silent(unreachable, "%v", err)
	}
	var body []byte
	resp, err := s.client.Do(req)
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
		_ = resp.Body.Close()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return silent(timedOut, "no answer within %s", timeout)
	case err != nil:
		return silent(unreachable, "%v", err)
	}
	return answered(t, resp.StatusCode, body, s.cfg.StallAfter)
}

// answered judges the answer of a component.
func answered(t target, status int, body []byte, stallAfter time.Duration) check {
	c := check{target: t}
	miss := func(cause Cause, format string, args ...any) check {
		c.Miss = cause
		c.Detail = fmt.Sprintf(format, args...)
		return c
	}
	if status != http.StatusOK && status != http.StatusServiceUnavailable {
		return miss(badStatus, "answers %d", status)
	}
	var v health.Vital
	err := json.Unmarshal(body, &v)
	isNamed := v.Slug == t.Component && v.Process != ""
	isTimed := v.LastDecision >= 0 && v.Uptime >= 0
	if err != nil || !isNamed || !isTimed {
		return miss(badBody, "answers %d, and not how the component does", status)
	}
	c.Lane = v.Restartable
	age := time.Duration(min(v.LastDecision, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	switch {
	case v.Process != t.Process:
		return miss(otherProcess, "process %s answers instead of %s", v.Process, t.Process)
	case v.Status != health.VitalOK || age > stallAfter:
		return miss(Stalled, "no progress for %s", age.Truncate(time.Millisecond))
	case status != http.StatusOK:
		return miss(badStatus, "answers %d", status)
	}
	return c
}
