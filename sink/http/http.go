package http

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/sink"
)

// Config configures a Target.
type Config struct {
	// URL is where changes are posted, Secret signs them. Required.
	URL, Secret string
	// Allow are networks that are not public and may be reached.
	Allow []netip.Prefix
	// Batch bounds the changes of a request. Defaults to 100.
	Batch int
	// Parallel bounds the requests under way. Defaults to 16.
	Parallel int
	// Timeout bounds a request. Defaults to 10 s.
	Timeout time.Duration
	// TLS is the TLS configuration, nil for the default.
	TLS *tls.Config
	// Format is the format of the values.
	Format sink.Format
}

// A Target posts messages.
type Target struct {
	sink.Serial
	cfg    Config
	client *http.Client
	rest   atomic.Int64 // not before this time, in Unix nanoseconds
}

var _ sink.Target = (*Target)(nil)

// New returns a Target.
func New(cfg Config) *Target {
	cfg.Batch, cfg.Parallel, cfg.Timeout = cmp.Or(cfg.Batch, 100), cmp.Or(cfg.Parallel, 16), cmp.Or(cfg.Timeout, 10*time.Second)
	t := &Target{cfg: cfg}
	dialer := &net.Dialer{Timeout: cfg.Timeout, Control: func(_, address string, _ syscall.RawConn) error { return permit(address, cfg.Allow) }}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err //nolint:wrapcheck // the client wraps it
		}
		return sink.DropUnsent(conn), nil
	}
	protocols := new(http.Protocols) // HTTP/2 would still send a request that has failed
	protocols.SetHTTP1(true)
	t.client = &http.Client{
		Timeout:       cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dial, TLSClientConfig: cfg.TLS, MaxIdleConnsPerHost: cfg.Parallel, IdleConnTimeout: time.Minute,
			Protocols: protocols, WriteBufferSize: writeBuffer,
		}, // without a proxy: it would dial instead
	}
	t.Serial = sink.Serial{Send: t.send, Batch: cfg.Batch, Parallel: cfg.Parallel}
	return t
}

// writeBuffer is what most requests fit in, in bytes: the client sends such a request in one write,
// without another buffer for its body.
const writeBuffer = 64 << 10

// errInternal says that an address is not public.
var errInternal = errors.New("the address is internal")

// special returns networks that look public but are not (IANA's special-purpose registries): for
// carrier-grade NAT, for tests, reserved, and IPv6 that embeds an IPv4 address.
func special() []string {
	return []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16",
	}
}

// permit refuses addresses that are neither public nor allowed. It checks the dialed address.
func permit(address string, allow []netip.Prefix) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	ip := at.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(allow, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return nil
	}
	special := slices.ContainsFunc(special(), func(p string) bool { return netip.MustParsePrefix(p).Contains(ip) })
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || special {
		return fmt.Errorf("dial %s: %w: if it is meant, add its network to the sink: http.allow: [%s]", ip, errInternal, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return nil
}

// CheckLiteral says of a URL whether a node would refuse to dial it. Hosts that are names are not
// resolved, but for localhost.
func CheckLiteral(address string, allow []netip.Prefix) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("read address: %w", err)
	}
	host := u.Hostname()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil // a name
	}
	return permit(netip.AddrPortFrom(ip, 0).String(), allow)
}

// send posts the messages of a partition before the first whose term has ended. It checks before
// each request, because terms may end during the wait and during earlier requests.
func (t *Target) send(ctx context.Context, messages []*sink.Message) (n int, err error) {
	if until := time.Until(time.Unix(0, t.rest.Load())); until > 0 {
		if err := retry.Sleep(ctx, min(until, t.cfg.Timeout)); err != nil {
			return 0, err
		}
	}
	if messages = sink.Owned(messages); len(messages) == 0 {
		return 0, sink.ErrReplaced
	}
	err = t.post(ctx, messages)
	switch refused, is := errors.AsType[*sink.RefusedError](err); {
	case err == nil:
		return len(messages), nil
	case !is, len(messages) == 1:
		return 0, err
	case refused.Final: // too large: by halves
		half := len(messages) / 2
		if n, err = t.send(ctx, messages[:half]); err != nil || n < half {
			return n, err
		}
		more, err := t.send(ctx, messages[half:])
		return n + more, err
	default: // one of them is refused: find it
		for i := range messages {
			if _, err := t.send(ctx, messages[i:i+1]); err != nil {
				return i, err
			}
		}
		return len(messages), nil
	}
}

// body returns the body of a request and its media type.
func (t *Target) body(messages []*sink.Message) (body []byte, media string) {
	events := t.cfg.Format == sink.CloudEvents
	if events && len(messages) == 1 {
		return messages[0].Value, t.cfg.Format.MediaType()
	}
	size := len("[]") + len(messages) // with separators
	for _, m := range messages {
		size += len(m.Value)
	}
	body = make([]byte, 0, size)
	if events {
		body = append(body, '[')
	}
	for i, m := range messages {
		if events && i > 0 {
			body = append(body, ',')
		}
		if body = append(body, m.Value...); !events && t.cfg.Format != sink.BSON {
			body = append(body, '\n')
		}
	}
	switch {
	case events:
		return append(body, ']'), "application/cloudevents-batch+json"
	case t.cfg.Format == sink.BSON: // BSON documents contain their length
		return body, t.cfg.Format.MediaType()
	default:
		return body, "application/x-ndjson"
	}
}

// post makes one request.
func (t *Target) post(ctx context.Context, messages []*sink.Message) error {
	body, media := t.body(messages)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.cfg.URL, nil)
	if err != nil {
		return withoutURL(err)
	}
	// The client may dial first, or repeat the request over another connection. It reads the body
	// when it writes, also after an early answer.
	of := &sending{messages: messages}
	defer of.end()
	open := func() (io.ReadCloser, error) { return io.NopCloser(&ownedReader{bytes.NewReader(body), of}), nil }
	req.Body, _ = open()
	req.GetBody = open
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", media)
	req.Header.Set("User-Agent", "streamer")
	req.Header.Set("Streamer-Partition", strconv.Itoa(int(messages[0].Partition)))
	notice.SignDelivery(req.Header, messages[0].ID, body, time.Now(), t.cfg.Secret)
	resp, err := t.client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be reused
	_ = resp.Body.Close()
	answered := fmt.Errorf("the endpoint answered %s", resp.Status)
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusGone:
		return fmt.Errorf("%w: %w", sink.ErrGone, answered)
	case code == http.StatusRequestEntityTooLarge:
		return &sink.RefusedError{Err: fmt.Errorf("a change of %d bytes is too large for %s: raise its limit of requests, or let the sink have a dead_letter: %w",
			len(body), req.URL.Host, answered), Final: true}
	case code == http.StatusBadRequest, code == http.StatusConflict, code == http.StatusUnprocessableEntity:
		return &sink.RefusedError{Err: fmt.Errorf("%s refuses a change of %s: correct the endpoint, or let the sink have a dead_letter: %w", req.URL.Host, messages[0].Namespace(), answered)}
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusTooEarly:
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
			t.rest.Store(time.Now().Add(time.Duration(min(seconds, 3600)) * time.Second).UnixNano())
		}
		return answered
	default: // it would answer any change so
		return fmt.Errorf("%s takes no requests: correct http.url, http.secret, or the endpoint: %w", req.URL.Host, answered)
	}
}

// A sending is what the bodies of a request are read from until its outcome is known. Afterwards
// the messages are used for other changes.
type sending struct {
	mu       sync.Mutex
	messages []*sink.Message // nil after the end
}

// end ends the bodies.
func (s *sending) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = nil
}

// An ownedReader is a body that ends with an error when the term of one of its messages has ended,
// and when the request has.
type ownedReader struct {
	body *bytes.Reader
	of   *sending
}

// Read implements io.Reader.
func (r *ownedReader) Read(b []byte) (int, error) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if messages := r.of.messages; messages == nil || len(sink.Owned(messages)) < len(messages) {
		return 0, sink.ErrReplaced
	}
	return r.body.Read(b) //nolint:wrapcheck // it is a reader
}

// withoutURL removes the URL from an error, because it often contains a secret.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("post: %w", u.Err)
	}
	return err
}

// Check implements sink.Target: it connects and posts nothing.
func (t *Target) Check(ctx context.Context) (string, error) {
	u, err := url.Parse(t.cfg.URL)
	if err != nil {
		return "", errors.New("the address cannot be read")
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	dial := t.client.Transport.(*http.Transport).DialContext //nolint:forcetypeassert // New made it
	conn, err := dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	return "", conn.Close()
}

// Close implements sink.Target.
func (t *Target) Close() {
	t.Serial.Close()
	t.client.CloseIdleConnections()
}
