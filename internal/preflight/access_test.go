package preflight

import (
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
)

func TestServersAreJudgedByTheirCertificates(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	in := func(d time.Duration) serverFacts {
		return serverFacts{Address: ":8080", Expires: now.Add(d)}
	}
	asking := in(1000 * time.Hour)
	asking.Clients = true
	for _, tt := range []struct {
		server serverFacts
		level  Level
		says   string
		code   fault.Code
	}{
		{serverFacts{}, OK, "the server is off", ""},
		{serverFacts{Address: "127.0.0.1:8080"}, OK, "plaintext at 127.0.0.1:8080", ""},
		{serverFacts{Address: ":8080", Open: true}, Warn, "plaintext at :8080, which other machines reach", fault.AccessPlaintext},
		{in(15 * 24 * time.Hour), OK, "valid until 2026-01-16T00:00:00Z", ""},
		{asking, OK, "clients are asked", ""},
		{in(13 * 24 * time.Hour), Warn, "valid until 2026-01-14T00:00:00Z", fault.AccessExpires},
	} {
		if f := judgeCertificate(tt.server, now); f.Level != tt.level || f.Code != tt.code || !strings.Contains(f.Text, tt.says) {
			t.Errorf("%+v: %+v", tt.server, f)
		}
	}
}

func TestWhoMayConnectIsTold(t *testing.T) {
	remote := config.Link{Remote: []string{"a", "b"}, Plain: []string{"a"}}
	for _, tt := range []struct {
		found finding
		says  string
		code  fault.Code // none: it is fine
	}{
		{judgeIdentities(identitiesFacts{Tokens: 2, Subjects: 1, JWTs: true, Certificates: true}), "2 tokens and 1 subjects", ""},
		{judgeIdentities(identitiesFacts{JWTs: true, Certificates: true}), "clients need a JWT", ""},
		{judgeIdentities(identitiesFacts{Certificates: true}), "certificate of the CA", ""},
		{judgeIdentities(identitiesFacts{}), "authentication is off", ""},
		{judgeIdentities(identitiesFacts{Open: []string{"HTTP at :1", "gRPC at :2"}}), "anyone who can connect to HTTP at :1 and gRPC at :2", fault.AccessOpen},
		{judgeIdentities(identitiesFacts{Tokens: 7, Unlimited: []string{"a", "b", "c", "d", "e", "f", "g"}}), "a, b, c, d, e and 2 more", fault.AccessUnlimited},
		{judgeSigningKeys(0), "JWTs are not accepted", ""},
		{judgeSigningKeys(3), "3 keys", ""},
		{judgeSecrets(2, nil), "2 files", ""},
		{judgeSecrets(2, []string{"x (mongodb.uri)"}), "x (mongodb.uri)", fault.ConfigExposed},
		{judgeLink(config.Link{}, fault.EtcdExposed), "on this machine", ""},
		{judgeLink(remote, fault.EtcdExposed), "no TLS to a; no credentials", fault.EtcdExposed},
		{judgeLink(config.Link{Remote: []string{"a"}, Unverified: true, Credentials: true}, fault.MongoExposed), "certificates are not verified", fault.MongoExposed},
		{judgeLink(config.Link{Remote: []string{"a"}, Credentials: true}, fault.MongoExposed), "TLS and credentials", ""},
	} {
		want := OK
		if tt.code != "" {
			want = Warn
		}
		if tt.found.Level != want || tt.found.Code != tt.code || !strings.Contains(tt.found.Text, tt.says) {
			t.Errorf("%+v, which does not say %q", tt.found, tt.says)
		}
	}
}
