package backend

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	devetcd "github.com/mongostream/streamer/dev/etcd"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/config/configtest"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/file"
)

// ofSinks loads a configuration with sinks of every type but standard output.
func ofSinks(t *testing.T, more string) config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "streamer.yaml")
	text := `sinks:
  - {name: a, type: kafka, dead_letter: letters, kafka: {brokers: ['127.0.0.1:1']` + more + `}}
  - {name: b, type: nats, dead_letter: letters, nats: {url: 'nats://127.0.0.1:1', subject: 'changes.{partition}.{db}'` + more + `}}
  - {name: c, type: http, http: {url: 'https://127.0.0.1:1/', secret: 0123456789abcdef` + more + `}}
  - {name: d, type: file, file: {path: /tmp/x}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A key of a target whose effect the target's own tests show changes the target that is made of the
// configuration.
func TestKeysOfSinksReachTheirTargets(t *testing.T) {
	t.Parallel()
	made := func(s config.Sink) map[string]string {
		t.Helper()
		changes, letters, err := Targets(s, "c", 4, file.NewOutput(io.Discard))
		if err != nil {
			t.Fatal(err)
		}
		defer changes.Close()
		if letters != nil {
			defer letters.Close()
		}
		found := make(map[string]string)
		for _, v := range configtest.Values([]any{changes, letters}) {
			found[v.Path] = v.Text
		}
		return found
	}
	checked := 0
	for _, proof := range configtest.Proofs() {
		inTarget := proof.Field != "" && strings.Count(proof.Key, ".") > 1 && strings.HasPrefix(proof.Key, "sinks[].")
		if !inTarget {
			continue
		}
		kind := strings.Split(proof.Key, ".")[1]
		cfg := ofSinks(t, "")
		s := &cfg.Sinks[slices.Index([]string{config.SinkKafka, config.SinkNATS, config.SinkHTTP, config.SinkFile}, kind)]
		before := made(*s)
		for _, leaf := range configtest.Leaves(s) {
			if "sinks[]."+leaf.Key != proof.Key {
				continue
			}
			leaf.Change()
			checked++
			after := made(*s)
			same := len(after) == len(before)
			for path, text := range after {
				same = same && before[path] == text
			}
			if same {
				t.Errorf("%s changes nothing of the target", proof.Key)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d keys were looked at", checked)
	}
}

// Targets are reached over TLS where it is on, and are shown the certificate of the configuration.
func TestTargetsAreReachedOverTLSAsConfigured(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t)
	cert, key := authority.Files(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := authority.Client(t, "") // whose RootCAs are the authority
	server.Certificates, server.ClientCAs, server.ClientAuth = []tls.Certificate{pair}, server.RootCAs, tls.RequireAndVerifyClientCert
	trusted := fmt.Sprintf("ca_file: '%s', cert_file: '%s', key_file: '%s'", authority.CAFile(t), cert, key)
	for i, kind := range []string{config.SinkKafka, config.SinkNATS, config.SinkHTTP} {
		for settings, want := range map[string]string{
			trusted:          "CN=server",       // ca_file, cert_file and key_file
			"enabled: true":  "bad certificate", // that of an authority that the machine does not trust
			"enabled: false": "first record",    // which is no TLS
		} {
			s := ofSinks(t, ", tls: {"+settings+"}").Sinks[i]
			if kind == config.SinkHTTP && settings == "enabled: false" {
				continue // its URL says so
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s.Kafka.Brokers, s.NATS.URL, s.HTTP.URL, s.HTTP.Allow = []string{l.Addr().String()}, "nats://"+l.Addr().String(), config.HookURL("https://"+l.Addr().String()), []string{"127.0.0.0/8"}
			target, letters, err := Targets(s, "c", 4, file.NewOutput(io.Discard))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var asking sync.WaitGroup
			asking.Go(func() {
				_ = sink.One(ctx, target, &sink.Message{ID: "1", Op: "insert", DB: "shop", Coll: "orders", Value: []byte("{}")})
			})
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if kind == config.SinkNATS {
				_, _ = io.WriteString(conn, `INFO {"server_id":"s","version":"2.10.0","max_payload":1048576,"tls_required":`+fmt.Sprint(settings != "enabled: false")+"}\r\n")
			}
			secure := tls.Server(conn, server)
			err = secure.HandshakeContext(t.Context())
			got := fmt.Sprint(err)
			if err == nil {
				got = secure.ConnectionState().PeerCertificates[0].Subject.String()
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s, tls: {%s}: %s, want %s", kind, settings, got, want)
			}
			_, _ = conn.Close(), l.Close()
			cancel()
			asking.Wait()
			target.Close()
			if letters != nil {
				letters.Close()
			}
		}
	}
}

func TestSubscriptionsOfASinkAreThoseOfTheConfiguration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "streamer.yaml")
	text := "sinks:\n  - name: a\n    type: file\n    file: {path: /tmp/x}\n    subscriptions: [{namespace: shop.orders, operations: [delete], filter: 'key._id == 7'}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Subscriptions(cfg.Sinks[0], cfg)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d subscriptions, %v", len(all), err)
	}
	if f := all[0].Program.Filter(); f.DB != "shop" || f.Coll != "orders" || f.Source != "key._id == 7" || len(f.Ops) != 1 || f.Ops[0].String() != "delete" {
		t.Errorf("%+v", f)
	}
}

// etcd is reached as its keys say: over TLS with the certificate, as the user, below the prefix.
func TestEtcdIsReachedAsConfigured(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()})
	raw := etcdtest.Client(t, endpoints)
	defer func() { _ = raw.Close() }()
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := raw.RoleAdd(ctx, "streamer"); return err },
		func() error {
			_, err := raw.RoleGrantPermission(ctx, "streamer", "/mine/", clientv3.GetPrefixRangeEnd("/mine/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := raw.UserAdd(ctx, "streamer", "secret"); return err },
		func() error { _, err := raw.UserGrantRole(ctx, "streamer", "streamer"); return err },
		func() error { _, err := raw.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := raw.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := raw.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	authority := accesstest.NewAuthority(t)
	cert, key := authority.Files(t)
	address := proxied(t, authority, cert, key, strings.TrimPrefix(endpoints[0], "http://"))
	right := map[string]string{
		"STREAMER_ETCD_ENDPOINTS": address, "STREAMER_ETCD_PREFIX": "/mine", "STREAMER_ETCD_USERNAME": "streamer", "STREAMER_ETCD_PASSWORD": "secret",
		"STREAMER_ETCD_TLS_CA_FILE": authority.CAFile(t), "STREAMER_ETCD_TLS_CERT_FILE": cert, "STREAMER_ETCD_TLS_KEY_FILE": key,
		"STREAMER_ETCD_DIAL_TIMEOUT": "20s",
	}
	dial := func(change map[string]string) error {
		t.Helper()
		var settings []string
		for name, value := range right {
			if other, changed := change[name]; changed {
				value = other
			}
			settings = append(settings, name+"="+value)
		}
		cfg, err := config.Load("", settings)
		if err != nil {
			t.Fatal(err)
		}
		conn := New(cfg, "test", nil)
		defer conn.Close()
		_, err = conn.Etcd(ctx)
		return err
	}
	if err := dial(nil); err != nil {
		t.Fatal(err)
	}
	const soon = "300ms" // within which it must have been refused
	stranger := accesstest.NewAuthority(t)
	other, otherKey := stranger.Files(t)
	for name, tt := range map[string]struct {
		change map[string]string
		want   fault.Code
	}{
		"another prefix":      {map[string]string{"STREAMER_ETCD_PREFIX": "/other"}, fault.EtcdRefused},
		"another user":        {map[string]string{"STREAMER_ETCD_USERNAME": "nobody"}, fault.EtcdRefused},
		"another password":    {map[string]string{"STREAMER_ETCD_PASSWORD": "wrong"}, fault.EtcdRefused},
		"another authority":   {map[string]string{"STREAMER_ETCD_TLS_CA_FILE": stranger.CAFile(t), "STREAMER_ETCD_DIAL_TIMEOUT": soon}, fault.EtcdUnreachable},
		"another certificate": {map[string]string{"STREAMER_ETCD_TLS_CERT_FILE": other, "STREAMER_ETCD_TLS_KEY_FILE": otherKey, "STREAMER_ETCD_DIAL_TIMEOUT": soon}, fault.EtcdUnreachable},
		"another key":         {map[string]string{"STREAMER_ETCD_TLS_KEY_FILE": otherKey}, ""},
		"another address":     {map[string]string{"STREAMER_ETCD_ENDPOINTS": "127.0.0.1:1", "STREAMER_ETCD_DIAL_TIMEOUT": soon}, fault.EtcdUnreachable},
	} {
		begun := time.Now()
		if err := dial(tt.change); err == nil || fault.Of(err) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begun); tt.change["STREAMER_ETCD_DIAL_TIMEOUT"] == soon && took > 18*time.Second {
			t.Errorf("%s: refused after %v", name, took)
		}
	}
}

// proxied returns an address at which etcd is reached over TLS by those who show a certificate of
// the authority.
func proxied(t *testing.T, authority *accesstest.Authority, cert, key, upstream string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := authority.Client(t, "")
	server.Certificates, server.ClientCAs, server.ClientAuth, server.NextProtos = []tls.Certificate{pair}, server.RootCAs, tls.RequireAndVerifyClientCert, []string{"h2"}
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				to, err := net.Dial("tcp", upstream)
				if err != nil {
					return
				}
				defer func() { _ = to.Close() }()
				serving.Go(func() {
					_, _ = io.Copy(to, conn)
					_ = to.Close()
				})
				_, _ = io.Copy(conn, to)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

// Checkpoints in MongoDB are in the configured database, and no event of it is read.
func TestCheckpointsAreInTheConfiguredDatabase(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	cfg, err := config.Load("", []string{
		"STREAMER_MONGODB_URI=" + s.uri, "STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo", "STREAMER_RELIABILITY_CHECKPOINT_DATABASE=" + s.database,
		"STREAMER_CLUSTER_PARTITIONS=4", "STREAMER_CLUSTER_ID=c",
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := New(cfg, "test", nil)
	defer conn.Close()
	if err := conn.OpenStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.EnsureOrigin(t.Context(), "replicaset/rs0", s.first); err != nil {
		t.Fatal(err)
	}
	names, err := s.mongo.Driver().Database(s.database).ListCollectionNames(t.Context(), bson.D{})
	if err != nil || len(names) == 0 {
		t.Errorf("%s has the collections %v, %v", s.database, names, err)
	}
	if ns := Namespace(s.database + ".c"); Watch(cfg).Covers(ns) || !Watch(cfg).Covers(Namespace("streamer.c")) {
		t.Errorf("events of %s are read", s.database)
	}
}
