package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// Config has the connection to etcd and the prefix of this cluster's keys.
type Config struct {
	// Endpoints are addresses as host:port or URLs, of all members: a majority of them must answer.
	Endpoints []string
	// Prefix and Cluster name the keys: <prefix>/<cluster>/….
	Prefix, Cluster string
	// Username and Password authenticate the client. Empty means without.
	Username, Password string
	// CAFile, CertFile and KeyFile are PEM files: the trusted authorities, and this client's own
	// certificate. The certificate is read again for every connection. Empty means without TLS,
	// except for endpoints given as https URLs.
	CAFile, CertFile, KeyFile string
	// DialTimeout bounds Dial. Defaults to 5 s.
	DialTimeout time.Duration
	// LeaseTTL is the life of the shortest lease that must not be lost. With several endpoints,
	// each attempt of a request has a timeout of a twelfth of it, and at most 800 ms; it grows when
	// all endpoints are slower. Defaults to 10 s.
	LeaseTTL time.Duration
	// Logger hears of endpoints that do not answer. Defaults to one that discards.
	Logger *slog.Logger
}

// How a connection is kept. Without these limits a client tries a lost server only every two
// minutes in the end, and notices one that has vanished only when the operating system does.
const (
	defaultDialTimeout = 5 * time.Second
	defaultLeaseTTL    = 10 * time.Second
	longestAttempt     = 800 * time.Millisecond

	reconnectMin   = 100 * time.Millisecond
	reconnectMax   = time.Second
	connectTimeout = 3 * time.Second

	pingInterval = 10 * time.Second // the least that gRPC takes
	pingTimeout  = 3 * time.Second  // for TCP's acknowledgements too

	maxRequestBytes = 2 << 20 // etcd takes 1.5 MiB by default
)

// A Client is a connection to etcd and the keys of one cluster in it.
type Client struct {
	etcd      *clientv3.Client // without a connection of its own
	endpoints *endpoints
	keys      keys

	id, prefix string

	cluster atomic.Pointer[string] // the id that the origin must have; nil while any will do
}

// Belong binds the client to the cluster with the id: from now on, reads and writes under any other
// origin fail with the fault ClusterReplaced, because a process must not continue in another
// cluster if its origin is deleted or replaced.
func (c *Client) Belong(id string) { c.cluster.Store(&id) }

// belongs returns the fault of an origin that is not that of the process's cluster. Err says how
// the origin was read.
func (c *Client) belongs(o checkpoint.Origin, err error) error {
	switch id := c.cluster.Load(); {
	case id == nil:
		return err
	case errors.Is(err, checkpoint.ErrNoOrigin):
		return fault.Newf(fault.ClusterReplaced, "this process belongs to cluster %s, %w: %s: %w", *id, cluster.ErrGone, c.keys.origin(), err)
	case err == nil && o.Cluster != *id:
		return fault.Newf(fault.ClusterReplaced, "this process belongs to cluster %s, and %s is the origin of cluster %s", *id, c.keys.origin(), o.Cluster)
	default:
		return err
	}
}

// Dial connects and reads the origin's key once, to see that etcd answers and lets us. Errors are
// the faults EtcdUnreachable and EtcdRefused, or of the TLS files.
func Dial(ctx context.Context, cfg Config) (*Client, error) { return dialWith(ctx, cfg) }

// dialWith is Dial with further options, for tests that get in the way of calls.
func dialWith(ctx context.Context, cfg Config, options ...grpc.DialOption) (*Client, error) {
	timeout := cmp.Or(cfg.DialTimeout, defaultDialTimeout)
	cfg.LeaseTTL = cmp.Or(cfg.LeaseTTL, defaultLeaseTTL)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	c, err := open(cfg, options...) //nolint:contextcheck // it sends nothing yet
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.endpoints.wait(ctx)
	var resp *clientv3.GetResponse
	if resp, err = c.etcd.Get(ctx, c.keys.origin(), clientv3.WithKeysOnly()); err == nil {
		c.id = clusterID(resp.Header)
		return c, nil
	}
	_ = c.Close()
	where := strings.Join(cfg.Endpoints, ", ")
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, fmt.Errorf("reach %s: %w", where, context.Cause(ctx))
	}
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return nil, fault.Newf(fault.EtcdUnreachable, "no answer from %s within %s: %s", where, timeout,
			cmp.Or(c.endpoints.lastFailure(), context.DeadlineExceeded.Error()))
	}
	return nil, fmt.Errorf("reach %s: %w", where, withCode(err))
}

// open makes a client that has sent nothing yet.
func open(cfg Config, options ...grpc.DialOption) (*Client, error) {
	all, err := connect(cfg, options...)
	if err != nil {
		return nil, err
	}
	c := clientv3.NewCtxClient(context.Background())
	c.KV = clientv3.NewKVFromKVClient(pb.NewKVClient(all), c)
	c.Lease = clientv3.NewLeaseFromLeaseClient(pb.NewLeaseClient(all), c, cfg.LeaseTTL)
	c.Watcher = clientv3.NewWatchFromWatchClient(pb.NewWatchClient(all), c)
	c.Auth = clientv3.NewAuthFromAuthClient(pb.NewAuthClient(all), c)
	c.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(pb.NewMaintenanceClient(all), c)
	return &Client{
		etcd: c, endpoints: all, keys: newKeys(cfg.Prefix, cfg.Cluster), prefix: strings.TrimRight(cfg.Prefix, "/") + "/",
	}, nil
}

// Backend identifies this etcd, as far as etcd reports it: the id of its cluster, which etcds with
// the same setup share, and the prefix.
func (c *Client) Backend() checkpoint.Backend {
	return checkpoint.Backend{Etcd: c.id, Prefix: c.prefix}
}

// clusterID returns the id of the etcd cluster that has answered, in the form of etcd's log; empty
// if the reply has none.
func clusterID(h *pb.ResponseHeader) string {
	if h.GetClusterId() == 0 {
		return ""
	}
	return strconv.FormatUint(h.GetClusterId(), 16)
}

// keepAlive opens a stream on which leases are renewed: each request is answered, in order. It ends
// with the context, and when an answer does not come in time.
func (c *Client) keepAlive(ctx context.Context) (pb.Lease_LeaseKeepAliveClient, error) {
	return pb.NewLeaseClient(c.endpoints).LeaseKeepAlive(ctx)
}

// addresses returns the addresses that the client was given.
func (c *Client) addresses() []string {
	addresses := make([]string, len(c.endpoints.all))
	for i, at := range c.endpoints.all {
		addresses[i] = at.address
	}
	return addresses
}

// status asks one of the endpoints how it is, and no other.
func (c *Client) status(ctx context.Context, address string) (*clientv3.StatusResponse, error) {
	i := slices.IndexFunc(c.endpoints.all, func(at *endpoint) bool { return at.address == address })
	if i < 0 {
		return nil, fmt.Errorf("%s is none of the endpoints", address)
	}
	one := clientv3.NewMaintenanceFromMaintenanceClient(pb.NewMaintenanceClient(c.endpoints.all[i].conn), c.etcd)
	return one.Status(ctx, address)
}

// Close ends the connection.
func (c *Client) Close() error {
	err := c.etcd.Close()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if err = errors.Join(err, c.endpoints.close()); err != nil {
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
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(maxRequestBytes), grpc.MaxCallRecvMsgSize(math.MaxInt32)),
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
