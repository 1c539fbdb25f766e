package nats_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/internal/devbroker"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/nats"
)

// A user and a token are let in over TLS, others are not, and nobody takes a server of another authority for this one.
func TestLoginOverTLS(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		guard  func(*server.Options)
		login  func(*nats.Config)
		stream client.Option
	}{
		"user": {
			guard:  func(o *server.Options) { o.Username, o.Password = "streamer", "secret" },
			login:  func(c *nats.Config) { c.User, c.Password = "streamer", "secret" },
			stream: client.UserInfo("streamer", "secret"),
		},
		"token": {
			guard:  func(o *server.Options) { o.Authorization = "secret" },
			login:  func(c *nats.Config) { c.Token = "secret" },
			stream: client.Token("secret"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			authority := accesstest.NewAuthority(t)
			pair, err := tls.X509KeyPair(authority.Issue(t, "server", time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			options := &server.Options{StoreDir: t.TempDir(), Port: server.RANDOM_PORT, TLSTimeout: 10, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
			c.guard(options)
			s, err := devbroker.ServeNATS(options)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Stop)
			conn, err := client.Connect(s.URL(), client.Secure(authority.Client(t, "")), c.stream)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			js, err := jetstream.New(conn)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "changes", Subjects: []string{"changes.>"}})
			if err != nil {
				t.Fatal(err)
			}

			nobody := nats.Config{URL: s.URL(), Subject: "changes.{db}.{coll}", Losses: "changes.losses", TLS: authority.Client(t, "")}
			guest := nobody
			c.login(&guest)
			deceived := guest
			deceived.TLS = accesstest.NewAuthority(t).Client(t, "")
			open := func(cfg nats.Config) *nats.Target {
				n, err := nats.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(n.Close)
				return n
			}
			let := open(guest)
			if found, err := let.Check(t.Context()); err != nil || found == "" {
				t.Errorf("%q, %v", found, err)
			}
			if err := sink.One(t.Context(), let, message(1, 1)); err != nil {
				t.Error(err)
			}
			for want, cfg := range map[string]nats.Config{"Authorization Violation": nobody, "unknown authority": deceived} {
				n := open(cfg)
				if _, err := n.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("check: %v, want %s", err, want)
				}
				if err := sink.One(t.Context(), n, message(2, 1)); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("publish: %v, want %s", err, want)
				}
			}
			if got := stored(t, stream); len(got) != 1 {
				t.Errorf("the stream has %q", got)
			}
		})
	}
}
