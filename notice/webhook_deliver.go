package notice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/mongostream/streamer/internal/retry"
)

// backoff is the wait between the attempts of a delivery.
func backoff() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Longest: 30 * time.Second}
}

// runDelivering sends the queued deliveries until the queue is closed. After the soft context has
// ended it attempts each once, until the hard one ends.
func (s *Webhook) runDelivering(soft, hard context.Context) {
	defer s.posting.Rest()
	for d := range s.queue {
		switch err := s.deliver(soft, hard, d); {
		case err != nil:
			s.metrics.failed.Inc()
			s.cfg.Logger.Warn("webhook delivery failed", "delivery", d.ID, "error", err)
		default:
			s.metrics.sent.Inc()
		}
		s.posting.Rest()
	}
}

// deliver attempts a delivery until it succeeds, fails permanently, or has been attempted
// WebhookConfig.Attempts times.
func (s *Webhook) deliver(soft, hard context.Context, d Delivery) error {
	body := encode(d)
	for attempts := 1; ; attempts++ {
		s.posting.RestFor(s.cfg.Timeout) // which bounds it
		again, err := s.attempt(hard, d.ID, body)
		s.posting.Rest()
		switch {
		case err == nil:
			return nil
		case !again, soft.Err() != nil:
			return err
		case attempts >= s.cfg.Attempts:
			return fmt.Errorf("%d attempts: %w", attempts, err)
		}
		s.metrics.retries.Inc()
		_ = backoff().Wait(soft, attempts) // at shutdown: retry at once
	}
}

// attempt makes one request; again says whether a retry may succeed.
func (s *Webhook) attempt(ctx context.Context, id string, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return false, withoutURL(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "streamer")
	SignDelivery(req.Header, id, body, time.Now(), s.cfg.Secret)
	resp, err := s.client.Do(req)
	if err != nil {
		return true, withoutURL(err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be reused
	_ = resp.Body.Close()
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return false, nil
	case code >= 300 && code < 400:
		return true, fmt.Errorf("the receiver answered %s: redirects are not followed", resp.Status)
	case code == http.StatusBadRequest, code == http.StatusConflict, code == http.StatusGone,
		code == http.StatusRequestEntityTooLarge, code == http.StatusUnprocessableEntity:
		return false, fmt.Errorf("the receiver rejected it with %s", resp.Status)
	default: // it would answer any delivery so, until it is mended
		return true, fmt.Errorf("the receiver answered %s", resp.Status)
	}
}

// withoutURL removes the URL from an error, because it often contains a secret.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("post: %w", u.Err)
	}
	return err
}
