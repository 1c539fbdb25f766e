package preflight

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
)

// receivers returns the checks of the addresses to which a node posts notices, pings and traces. It
// delivers without them.
func receivers(cfg config.Config) (all []check) {
	for _, to := range []struct{ name, address string }{
		{"webhook", string(cfg.Notices.Webhook.URL)},
		{"ping", string(cfg.Supervisor.PingURL)},
		{"tracing", cfg.Tracing.Endpoint},
	} {
		if to.address == "" {
			continue
		}
		all = append(all, check{Name: to.name, Lane: to.name, Code: fault.ReceiverUnreachable, Optional: true, run: func(ctx context.Context) (finding, error) {
			return reachReceiver(ctx, to.address)
		}})
	}
	return all
}

// receiverTimeout bounds how long a receiver may take to accept a connection.
const receiverTimeout = 10 * time.Second

// reachReceiver connects to the host of an address, or to the proxy that the environment has for
// it, and posts nothing. No text has the address's path, which may be a secret.
func reachReceiver(ctx context.Context, address string) (f finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, receiverTimeout)
	defer cancel()
	u, err := url.Parse(address)
	if err != nil {
		return f, errors.New("the address cannot be read")
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil {
		return f, errors.New("the proxy of the environment cannot be read")
	}
	at := cmp.Or(proxy, u)
	port := cmp.Or(at.Port(), map[string]string{"http": "80", "https": "443"}[at.Scheme])
	dial := new(net.Dialer).DialContext
	if at.Scheme == "https" {
		dial = new(tls.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(at.Hostname(), port))
	if err != nil {
		return f, fmt.Errorf("connect to %s: %w", at.Host, err)
	}
	if err := conn.Close(); err != nil {
		return f, fmt.Errorf("close the connection: %w", err)
	}
	if proxy != nil {
		return fine("the proxy %s answers, %s was not asked", proxy.Host, u.Host), nil
	}
	return fine("%s takes connections", u.Host), nil
}
