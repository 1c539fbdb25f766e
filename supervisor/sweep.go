package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
func (s *Supervisor) poll(ctx context.Context, targets []Target, timeout time.Duration) []Check {
	checks := make([]Check, len(targets))
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
func (s *Supervisor) ask(ctx context.Context, t Target, timeout time.Duration) Check {
	c := Check{Target: t}
	miss := func(cause Cause, format string, args ...any) Check {
		c.Miss, c.Detail = cause, fmt.Sprintf(format, args...)
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		c.Silent = true
		return miss(Unreachable, "%v", err)
	}
	var body []byte
	resp, err := s.client.Do(req)
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
		_ = resp.Body.Close()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		c.Silent = true
		return miss(Timeout, "no answer within %s", timeout)
	case err != nil:
		c.Silent = true
		return miss(Unreachable, "%v", err)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable:
		return miss(BadStatus, "answers %s", resp.Status)
	}
	var v health.Vital
	if err := json.Unmarshal(body, &v); err != nil || v.Slug != t.Component || v.Process == "" || v.LastDecision < 0 || v.Uptime < 0 {
		return miss(BadBody, "answers %s, and not how the component does", resp.Status)
	}
	c.Lane = v.Restartable
	age := time.Duration(v.LastDecision) * time.Millisecond
	switch {
	case v.Process != t.Process:
		return miss(OtherProcess, "process %s answers instead of %s", v.Process, t.Process)
	case v.Status != health.VitalOK || age > s.cfg.StallAfter:
		return miss(Stalled, "no progress for %s", age.Truncate(time.Millisecond))
	case resp.StatusCode != http.StatusOK:
		return miss(BadStatus, "answers %s", resp.Status)
	}
	return c
}
