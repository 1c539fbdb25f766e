package preflight

import (
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
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
	for _, tt := range []struct {
		found finding
		says  string
	}{
		{judgeIdentities(2, 1, true, true), "2 tokens and 1 subjects"},
		{judgeIdentities(0, 0, true, true), "clients need a JWT"},
		{judgeIdentities(0, 0, false, true), "certificate of the CA"},
		{judgeIdentities(0, 0, false, false), "authentication is off"},
		{judgeSigningKeys(0), "JWTs are not accepted"},
		{judgeSigningKeys(3), "3 keys"},
	} {
		if tt.found.Level != OK || !strings.Contains(tt.found.Text, tt.says) {
			t.Errorf("%+v, which does not say %q", tt.found, tt.says)
		}
	}
}
