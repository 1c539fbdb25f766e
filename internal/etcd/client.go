package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// Config says how etcd is reached and where the keys of this cluster stand.
type Config struct {
	// Endpoints are addresses as host:port or URLs; any one that answers is enough.
	Endpoints []string
	// Prefix and Cluster name the keys: <prefix>/<cluster>/….
	Prefix, Cluster string
	// Username and Password authenticate the client. Empty means without.
	Username, Password string
	// CAFile, CertFile and KeyFile are PEM files: whom to trust, and this client's own certificate. The certificate is read
	// again for every connection. Empty means without TLS, except for endpoints given as https URLs.
	CAFile, CertFile, KeyFile string
	// DialTimeout bounds Dial. Defaults to 5 s.
	DialTimeout time.Duration
}

// How a connection is kept. Without these limits a client tries a lost server only every two minutes in the end, and
// notices one that has vanished only when the operating system does.
const (
	defaultDialTimeout = 5 * time.Second

	reconnectMin   = 100 * time.Millisecond
	reconnectMax   = time.Second
	connectTimeout = 3 * time.Second

	pingInterval = 10 * time.Second // the least that gRPC takes
	pingTimeout  = 3 * time.Second  // for TCP's acknowledgements too
)

// A Client is a connection to etcd and the keys of one cluster in it.
type Client struct {
	etcd *clientv3.Client
	keys Keys

	id, prefix string
}

// Dial connects and reads the origin's key once, to see that etcd answers and lets us. Errors are the faults
// EtcdUnreachable and EtcdRefused, or of the TLS files.
func Dial(ctx context.Context, cfg Config) (*Client, error) { return DialWith(ctx, cfg) }

// DialWith is Dial with further options, for tests that get in the way of calls.
func DialWith(ctx context.Context, cfg Config, options ...grpc.DialOption) (*Client, error) {
	timeout := cmp.Or(cfg.DialTimeout, defaultDialTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	security, err := tlsOf(cfg)
	if err != nil {
		return nil, err
	}
	var failure lastFailure
	base, closeBase := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, closeBase) // New takes no context for the calls it makes
	client, err := clientv3.New(clientv3.Config{
		Context:     base,
		Endpoints:   cfg.Endpoints,
		Username:    cfg.Username,
		Password:    cfg.Password,
		TLS:         security,
		DialTimeout: timeout,
		Logger:      zap.NewNop(),
		DialOptions: append(connectionOptions(), append(options, grpc.WithChainUnaryInterceptor(failure.watch))...),
	})
	if err == nil {
		c := &Client{etcd: client, keys: newKeys(cfg.Prefix, cfg.Cluster), prefix: strings.TrimRight(cfg.Prefix, "/") + "/"}
		var resp *clientv3.GetResponse
		if resp, err = client.Get(ctx, c.keys.Origin(), clientv3.WithKeysOnly()); err == nil && stop() {
			c.id = clusterID(resp.Header)
			return c, nil
		}
		_ = client.Close()
	}
	closeBase()
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, fmt.Errorf("reach %s: %w", strings.Join(cfg.Endpoints, ", "), context.Cause(ctx))
	}
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return nil, fault.Newf(fault.EtcdUnreachable, "no answer from %s within %s: %s", strings.Join(cfg.Endpoints, ", "), timeout,
			cmp.Or(failure.text(), context.DeadlineExceeded.Error()))
	}
	return nil, fmt.Errorf("reach %s: %w", strings.Join(cfg.Endpoints, ", "), Named(err))
}

// Driver returns the connection itself, for the packages below this one.
func (c *Client) Driver() *clientv3.Client { return c.etcd }

// Backend says which etcd this is, as far as etcd tells: its cluster's id, which etcds that were set up alike have in common, and the prefix.
func (c *Client) Backend() checkpoint.Backend {
	return checkpoint.Backend{Etcd: c.id, Prefix: c.prefix}
}

// clusterID returns the id of the etcd cluster that has answered, as it stands in etcd's log; empty where the answer has none.
func clusterID(h *etcdserverpb.ResponseHeader) string {
	if h.GetClusterId() == 0 {
		return ""
	}
	return strconv.FormatUint(h.GetClusterId(), 16)
}

// Keys returns the names of the cluster's keys.
func (c *Client) Keys() Keys { return c.keys }

// Close ends the connection.
func (c *Client) Close() error {
	if err := c.etcd.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close connection to etcd: %w", err)
	}
	return nil
}

func connectionOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnectMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMax},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}),
	}
}

// tlsOf returns the TLS settings, nil where none are configured.
func tlsOf(cfg Config) (*tls.Config, error) {
	if cfg.CAFile == "" && cfg.CertFile == "" && cfg.KeyFile == "" {
		return nil, nil //nolint:nilnil // no settings are a setting
	}
	files := transport.TLSInfo{TrustedCAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile}
	security, err := files.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read etcd's TLS files: %w", err)
	}
	return security, nil
}

// A lastFailure keeps why the last call failed: where a call ends because its time is up, clientv3 tells no more than that,
// while gRPC knows what was wrong with the connection.
type lastFailure struct {
	err atomic.Pointer[error]
}

func (f *lastFailure) watch(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if err != nil {
		f.err.Store(&err)
	}
	return err
}

func (f *lastFailure) text() string {
	if err := f.err.Load(); err != nil {
		return status.Convert(*err).Message()
	}
	return ""
}
