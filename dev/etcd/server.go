package devetcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Config says where an etcd lives.
type Config struct {
	// Dir is the data directory, which is created if missing. An etcd that ran in it before keeps
	// its keys.
	Dir string
	// Listen is the address to serve clients on. Defaults to 127.0.0.1:0, a free port.
	Listen string
}

const (
	startTimeout = 30 * time.Second

	quotaBytes      = 256 << 20
	snapshotEntries = 1000   // raft entries between two snapshots; etcd keeps them in memory
	catchUpEntries  = 100    // raft entries kept after a snapshot, for followers; there are none here
	keptRevisions   = "1000" // what automatic compaction leaves
	heartbeatMillis = 10
	electionMillis  = 100
	leastBcryptCost = 4 // passwords of a development server guard nothing
)

// A Server is a running etcd.
type Server struct {
	etcd       *embed.Etcd
	endStreams context.CancelFunc
}

// Listen starts an etcd and returns when it answers. It is already running then, because etcd binds
// and serves in one step; Run must follow, which is what stops it.
func Listen(cfg Config) (*Server, error) {
	settings, err := settingsOf(cfg)
	if err != nil {
		return nil, err
	}
	ending, end := context.WithCancel(context.Background())
	settings.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainStreamInterceptor(endWith(ending))}
	etcd, err := embed.StartEtcd(settings)
	if err != nil {
		end()
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	s := &Server{etcd: etcd, endStreams: end}
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-etcd.Server.ReadyNotify():
		return s, nil
	case err = <-etcd.Err():
	case <-timeout.C:
		err = errors.New("no leader in time")
	}
	s.close()
	return nil, fmt.Errorf("start etcd: %w", err)
}

// Run serves until ctx ends, which is no error, or until etcd fails; in both cases etcd has stopped
// when it returns.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.etcd.Err():
		return fmt.Errorf("serve etcd: %w", err)
	case <-s.etcd.Server.StopNotify():
		return errors.New("etcd stopped by itself")
	}
}

func (s *Server) close() {
	s.endStreams()
	s.etcd.Close()
}

// Endpoints returns the addresses to reach the server at, as clients take them.
func (s *Server) Endpoints() []string {
	endpoints := make([]string, len(s.etcd.Clients))
	for i, l := range s.etcd.Clients {
		endpoints[i] = l.Addr().String()
	}
	return endpoints
}

func settingsOf(cfg Config) (*embed.Config, error) {
	client, err := url.Parse("http://" + cmp.Or(cfg.Listen, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("etcd's address: %w", err)
	}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c := embed.NewConfig()
	c.Dir = cfg.Dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.TickMs = heartbeatMillis
	c.ElectionMs = electionMillis
	c.UnsafeNoFsync = true
	c.BcryptCost = leastBcryptCost
	c.EnableGRPCGateway = false
	c.QuotaBackendBytes = quotaBytes
	c.SnapshotCount = snapshotEntries
	c.SnapshotCatchUpEntries = catchUpEntries
	c.AutoCompactionMode = embed.CompactorModeRevision
	c.AutoCompactionRetention = keptRevisions
	return c, nil
}
