package nats_test

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/nats"
)

// A user and a token are let in over TLS, others are not, and nobody takes a server of another
// authority for this one.
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
			stream := newStream(t, s.URL(), client.Secure(authority.Client(t, "")), c.stream)

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

// newStream makes the stream of the changes, as somebody who is let in.
func newStream(t *testing.T, url string, login ...client.Option) jetstream.Stream {
	t.Helper()
	stream, err := jetStream(t, url, login...).CreateStream(t.Context(), jetstream.StreamConfig{Name: "changes", Subjects: []string{"changes.>"}})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// A signer makes keys and what they sign.
type signer struct{ *testing.T }

// keys returns new keys of a kind, and their public one.
func (s signer) keys(kind nkeys.PrefixByte) (pair nkeys.KeyPair, public string) {
	s.Helper()
	pair, err := nkeys.CreatePair(kind)
	if err == nil {
		public, err = pair.PublicKey()
	}
	if err != nil {
		s.Fatal(err)
	}
	return pair, public
}

func (s signer) sign(claims jwt.Claims, by nkeys.KeyPair) string {
	s.Helper()
	text, err := claims.Encode(by)
	if err != nil {
		s.Fatal(err)
	}
	return text
}

// user returns the credentials of a new user of an account.
func (s signer) user(account nkeys.KeyPair, adjust func(*jwt.UserClaims)) []byte {
	s.Helper()
	pair, public := s.keys(nkeys.PrefixByteUser)
	claims := jwt.NewUserClaims(public)
	if adjust != nil {
		adjust(claims)
	}
	seed, err := pair.Seed()
	if err != nil {
		s.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(s.sign(claims, account), seed)
	if err != nil {
		s.Fatal(err)
	}
	return text
}

// Users of a server with operators and accounts are let in by a file of credentials, unless these
// are a stranger's, have expired, or are not there. The file is read for each connection, so that
// it can be replaced.
func TestLoginWithCredentials(t *testing.T) {
	t.Parallel()
	s := signer{t}
	operator, operatorKey := s.keys(nkeys.PrefixByteOperator)
	account, accountKey := s.keys(nkeys.PrefixByteAccount)
	stranger, _ := s.keys(nkeys.PrefixByteAccount)
	_, system := s.keys(nkeys.PrefixByteAccount)
	claims := jwt.NewAccountClaims(accountKey)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	accounts := &server.MemAccResolver{}
	for key, claims := range map[string]jwt.Claims{accountKey: claims, system: jwt.NewAccountClaims(system)} {
		if err := accounts.Store(key, s.sign(claims, operator)); err != nil {
			t.Fatal(err)
		}
	}
	broker, err := devbroker.ServeNATS(&server.Options{
		StoreDir: t.TempDir(), Port: server.RANDOM_PORT, TrustedOperators: []*jwt.OperatorClaims{jwt.NewOperatorClaims(operatorKey)}, SystemAccount: system,
		AccountResolver: accounts,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	file := filepath.Join(t.TempDir(), "streamer.creds")
	write := func(credentials []byte) {
		t.Helper()
		if err := os.WriteFile(file, credentials, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n, err := nats.New(nats.Config{URL: broker.URL(), Subject: "changes.{db}.{coll}", Losses: "changes.losses", CredentialsFile: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	refused := func(want string) {
		t.Helper()
		if _, err := n.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check: %v, want %s", err, want)
		}
		if err := sink.One(t.Context(), n, message(2, 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("publish: %v, want %s", err, want)
		}
	}
	refused("no such file")
	write(s.user(stranger, nil))
	refused("Authorization Violation")
	write(s.user(account, func(u *jwt.UserClaims) { u.Expires = time.Now().Add(-time.Hour).Unix() }))
	refused("Authorization Violation")
	write(s.user(account, nil))
	stream := newStream(t, broker.URL(), client.UserCredentials(file))
	if found, err := n.Check(t.Context()); err != nil || found != "stream changes has the subjects" {
		t.Errorf("%q, %v", found, err)
	}
	if err := sink.One(t.Context(), n, message(1, 1)); err != nil {
		t.Error(err)
	}
	if got := stored(t, stream); len(got) != 1 {
		t.Errorf("the stream has %q", got)
	}
}

// A subject that the user may not publish to is named at once, with the remedy, and others are
// published to meanwhile. That judges no change, and neither does a stream that is another one.
func TestMissingRightJudgesNoChange(t *testing.T) {
	t.Parallel()
	broker, err := devbroker.ServeNATS(&server.Options{
		StoreDir: t.TempDir(), Port: server.RANDOM_PORT,
		Users: []*server.User{
			{Username: "admin", Password: "secret"},
			{Username: "streamer", Password: "secret", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"*.*.secret"}}}},
			{Username: "deaf", Password: "secret", Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{">"}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	newStream(t, broker.URL(), client.UserInfo("admin", "secret"))
	open := func(cfg nats.Config) *nats.Target {
		cfg.URL, cfg.Losses, cfg.Password, cfg.AckTimeout = broker.URL(), "changes.losses", "secret", time.Hour
		n, err := nats.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		return n
	}
	waits := func(err error, want string) {
		t.Helper()
		if refused, is := errors.AsType[*sink.RefusedError](err); !is || !refused.Destination || refused.Final || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q and a destination that is refused", err, want)
		}
	}
	for _, fence := range []bool{false, true} {
		n := open(nats.Config{Subject: "changes.{partition}.{coll}", User: "streamer", Fence: fence})
		secret := message(1, 1)
		secret.Coll = "secret"
		waits(sink.One(t.Context(), n, secret), "subject changes.3.secret is refused: allow the user to publish to it")
		if err := sink.One(t.Context(), n, message(1, 1)); err != nil {
			t.Errorf("fence %t: %v", fence, err)
		}
	}
	other := open(nats.Config{Subject: "changes.{db}.{coll}", User: "streamer", Stream: "other"})
	waits(sink.One(t.Context(), other, message(1, 1)), "expected stream does not match")
	deaf := open(nats.Config{Subject: "changes.{db}.{coll}", User: "deaf"})
	if err := sink.One(t.Context(), deaf, message(1, 1)); err == nil || !strings.Contains(err.Error(), "Permissions Violation for Subscription") {
		t.Error(err)
	}
}
