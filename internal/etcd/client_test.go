package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	devetcd "github.com/mongostream/streamer/dev/etcd"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// listen listens without ever answering.
func listen(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func TestDialNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	gone := listen(t)
	notEtcd := listen(t)
	for name, c := range map[string]struct {
		cfg  Config
		text string
	}{
		"nobody there":              {Config{Endpoints: []string{"127.0.0.1:1"}}, "connection refused"},
		"nobody there, with a user": {Config{Endpoints: []string{"127.0.0.1:1"}, Username: "u", Password: "p"}, "connection refused"},
		"no answer":                 {Config{Endpoints: []string{notEtcd}}, notEtcd},
		"several, none there":       {Config{Endpoints: []string{"127.0.0.1:1", gone}}, "127.0.0.1:1, " + gone},
		"no such host":              {Config{Endpoints: []string{"nowhere.invalid:2379"}}, "nowhere.invalid"},
	} {
		if err := dialError(t, c.cfg, 300*time.Millisecond, c.text); fault.Of(err) != fault.EtcdUnreachable || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// dialError returns why nobody can be dialed. The reason is known when an attempt has failed, which
// takes longer on a machine that is busy: the timeout grows until the error has the text.
func dialError(t *testing.T, cfg Config, timeout time.Duration, text string) error {
	t.Helper()
	for cfg.DialTimeout = timeout; ; cfg.DialTimeout *= 4 {
		client, err := Dial(t.Context(), cfg)
		if err == nil {
			_ = client.Close()
		}
		if err == nil || strings.Contains(err.Error(), text) || cfg.DialTimeout > time.Minute {
			return err
		}
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"without a user": {Endpoints: []string{listen(t)}, DialTimeout: time.Hour},
		"with a user":    {Endpoints: []string{listen(t)}, DialTimeout: time.Hour, Username: "u", Password: "p"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			_, err := Dial(ctx, cfg)
			result <- err
		}()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) || fault.Of(err) != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDialRefusesUnreadableFiles(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no such CA":         {CAFile: "missing.pem"},
		"a key alone":        {KeyFile: "missing.pem"},
		"no such cert":       {CertFile: "missing.pem", KeyFile: "missing.pem"},
		"a cert that is one": {CertFile: "client_test.go", KeyFile: "client_test.go"},
	} {
		cfg.Endpoints = []string{"127.0.0.1:1"}
		if _, err := Dial(t.Context(), cfg); err == nil || fault.Of(err) != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// secured starts an etcd with users: root, and "streamer", which may use what stands under
// /streamer/ and nothing else.
func secured(t *testing.T) (endpoints []string) {
	t.Helper()
	endpoints = etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()})
	secure(t, endpoints)
	return endpoints
}

func secure(t *testing.T, endpoints []string) {
	t.Helper()
	raw := etcdtest.Client(t, endpoints)
	defer func() { _ = raw.Close() }()
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := raw.UserAdd(ctx, "root", "toor"); return err },
		func() error { _, err := raw.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := raw.UserAdd(ctx, "streamer", "secret"); return err },
		func() error { _, err := raw.RoleAdd(ctx, "streamer"); return err },
		func() error {
			_, err := raw.RoleGrantPermission(ctx, "streamer", "/streamer/", clientv3.GetPrefixRangeEnd("/streamer/"),
				clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := raw.UserGrantRole(ctx, "streamer", "streamer"); return err },
		func() error { _, err := raw.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUserNeedsRightsOnThePrefixAndNoOthers(t *testing.T) {
	t.Parallel()
	endpoints := secured(t)
	for name, cfg := range map[string]Config{
		"no user":        {Prefix: "/streamer"},
		"wrong password": {Prefix: "/streamer", Username: "streamer", Password: "wrong"},
		"unknown user":   {Prefix: "/streamer", Username: "nobody", Password: "secret"},
		"other prefix":   {Prefix: "/elsewhere", Username: "streamer", Password: "secret"},
	} {
		cfg.Endpoints, cfg.Cluster, cfg.DialTimeout = endpoints, "c1", time.Minute
		_, err := Dial(t.Context(), cfg)
		if fault.Of(err) != fault.EtcdRefused {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}

	client, err := Dial(t.Context(), Config{
		Endpoints: endpoints, Prefix: "/streamer", Cluster: "c1", Username: "streamer", Password: "secret", DialTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	store, registry := NewStore(client, checkpointtest.Partitions), NewRegistry(client)
	if _, err := store.Create(t.Context(), checkpointtest.Origin("c1")); err != nil {
		t.Fatal(err)
	}
	var epochs []change.Epoch
	// Leases of an hour: on a busy machine a check of a password takes seconds.
	for _, m := range []cluster.Identity{{Node: "a", Process: "1"}, {Node: "b", Process: "2"}} {
		// The second takes over from the first, which is another registry's.
		registry = NewRegistry(client)
		if epochs, err = registry.Claim(t.Context(), m, checkpointtest.Partitions, time.Hour, true); err != nil {
			t.Fatal(err)
		}
	}
	c := checkpointtest.Shared(change.Term{Epoch: epochs[0]}, checkpointtest.Event(1))
	if err := store.Save(t.Context(), []checkpoint.Checkpoint{c})[0]; err != nil {
		t.Error(err)
	}
	if _, _, err := registry.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	if err := registry.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A lease is renewed over one stream, for which no password is checked: a check costs etcd some 100
// ms of a processor. When etcd has forgotten who the client is, one check makes all well.
func TestRenewalsCheckNoPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, stop := serve(t, devetcd.Config{Dir: dir})
	secure(t, server)
	var mu sync.Mutex
	sent := map[string]int{}
	count := func(method string) {
		mu.Lock()
		defer mu.Unlock()
		sent[method[strings.LastIndex(method, "/")+1:]]++
	}
	counted := func(method string) int {
		mu.Lock()
		defer mu.Unlock()
		return sent[method]
	}
	client, err := dialWith(t.Context(), Config{
		Endpoints: server, Prefix: "/streamer", Cluster: "c1", Username: "streamer", Password: "secret",
	}, grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		count(method)
		return invoke(ctx, method, req, reply, conn, opts...)
	}), grpc.WithChainStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		count(method)
		return streamer(ctx, desc, conn, method, opts...)
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	// Few partitions: with a user, etcd checks all keys of a lease again for each that is put.
	const few = 4
	origin := checkpointtest.Origin("c1")
	origin.Partitions = few
	if _, err := NewStore(client, few).Create(t.Context(), origin); err != nil {
		t.Fatal(err)
	}
	registry := NewRegistry(client)
	if _, err := registry.Claim(t.Context(), cluster.Identity{Node: "a", Process: "1"}, few, time.Hour, false); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, _, err := registry.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if checks, streams := counted("Authenticate"), counted("LeaseKeepAlive"); checks != 1 || streams != 1 {
		t.Errorf("20 renewals took %d checks and %d streams", checks, streams)
	}
	stop()
	_, stop = serve(t, devetcd.Config{Dir: dir, Listen: server[0]})
	defer stop()
	if _, _, err := registry.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	if checks, streams := counted("Authenticate"), counted("LeaseKeepAlive"); checks > 3 || streams > 5 {
		t.Errorf("after a restart it took %d checks and %d streams", checks, streams)
	}
}

// serve runs an etcd until stop is called.
func serve(t *testing.T, cfg devetcd.Config) (endpoints []string, stop func()) {
	t.Helper()
	server, err := devetcd.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	return server.Endpoints(), func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

// certificates writes a certificate authority's and a server's certificate, and returns the
// server's settings.
func certificates(t *testing.T) (caFile string, server *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "etcd"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: der}
	if err := os.WriteFile(caFile, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return caFile, &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"h2"},
		MinVersion:   tls.VersionTLS12,
	}
}

// encrypted serves TLS in front of an endpoint until the test ends.
func encrypted(t *testing.T, server *tls.Config, upstream string) (endpoint string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { join(conn, upstream) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// join copies between a connection and a new one until either ends.
func join(conn net.Conn, upstream string) {
	defer func() { _ = conn.Close() }()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	})
	_, _ = io.Copy(conn, server)
	_ = conn.Close()
	wg.Wait()
}

func TestDialWithTLS(t *testing.T) {
	t.Parallel()
	caFile, server := certificates(t)
	otherCA, _ := certificates(t)
	endpoint := encrypted(t, server, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()})[0])
	for _, address := range []string{endpoint, "https://" + endpoint} {
		client, err := Dial(t.Context(), Config{Endpoints: []string{address}, CAFile: caFile, DialTimeout: time.Minute})
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if _, err := NewStore(client, 1).Origin(t.Context()); !errors.Is(err, checkpoint.ErrNoOrigin) {
			t.Errorf("%s: %v", address, err)
		}
		_ = client.Close()
	}
	for name, cfg := range map[string]Config{
		"another authority": {Endpoints: []string{endpoint}, CAFile: otherCA},
		"no authority":      {Endpoints: []string{"https://" + endpoint}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The system's certificates are read first.
			if err := dialError(t, cfg, 5*time.Second, "certificate"); fault.Of(err) != fault.EtcdUnreachable || !strings.Contains(err.Error(), "certificate") {
				t.Error(err)
			}
		})
	}
}
