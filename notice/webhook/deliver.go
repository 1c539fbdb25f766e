package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/mongostream/streamer/internal/retry"
)

// backoff is between the attempts of a delivery.
func backoff() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Longest: 30 * time.Second}
}

// runDelivering sends what comes into the queue, one after the other, until that is closed. After the soft context has ended each is tried
// once, until the hard one ends.
func (s *Sender) runDelivering(soft, hard context.Context) {
	for d := range s.queue {
		switch err := s.deliver(soft, hard, d); {
		case err != nil:
			s.metrics.failed.Inc()
			s.cfg.Logger.Warn("a notice was not taken by the webhook", "delivery", d.ID, "error", err)
		default:
			s.metrics.sent.Inc()
		}
	}
}

// deliver tries a delivery until it is taken, refused for good, or has been tried often enough.
func (s *Sender) deliver(soft, hard context.Context, d Delivery) error {
	body := encode(d)
	for attempts := 1; ; attempts++ {
		again, err := s.attempt(hard, d.ID, body)
		switch {
		case err == nil:
			return nil
		case !again, soft.Err() != nil:
			return err
		case attempts >= s.cfg.Attempts:
			return fmt.Errorf("%d attempts: %w", attempts, err)
		}
		s.metrics.retries.Inc()
		_ = backoff().Wait(soft, attempts) // stopping: the last attempt, at once
	}
}

// attempt makes one request; again says whether another may do better.
func (s *Sender) attempt(ctx context.Context, id string, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return false, withoutURL(err)
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "streamer")
	req.Header.Set(HeaderDelivery, id)
	req.Header.Set(HeaderTimestamp, timestamp)
	req.Header.Set(HeaderSignature, sign(s.cfg.Secret, timestamp, body))
	resp, err := s.client.Do(req)
	if err != nil {
		return true, withoutURL(err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again; what it says interests nobody
	_ = resp.Body.Close()
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return false, nil
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return true, fmt.Errorf("the receiver answered %s", resp.Status)
	case code >= 300 && code < 400:
		return false, fmt.Errorf("the receiver answered %s: redirects are not followed", resp.Status)
	default:
		return false, fmt.Errorf("the receiver refused it with %s", resp.Status)
	}
}

// withoutURL takes the address out of an error: its path is often a secret.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("post: %w", u.Err)
	}
	return err
}
