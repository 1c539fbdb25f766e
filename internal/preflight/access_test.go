package preflight_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/preflight"
)

func TestServersAreJudgedByTheirCertificates(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	in := func(d time.Duration) preflight.Server {
		return preflight.Server{Address: ":8080", Expires: now.Add(d)}
	}
	asking := in(1000 * time.Hour)
	asking.Clients = true
	for _, tt := range []struct {
		server preflight.Server
		level  preflight.Level
		says   string
		code   fault.Code
	}{
		{preflight.Server{}, preflight.OK, "not served", ""},
		{preflight.Server{Address: "127.0.0.1:8080"}, preflight.OK, "plaintext at 127.0.0.1:8080", ""},
		{in(15 * 24 * time.Hour), preflight.OK, "good until 2026-01-16T00:00:00Z", ""},
		{asking, preflight.OK, "clients are asked", ""},
		{in(13 * 24 * time.Hour), preflight.Warn, "good until 2026-01-14T00:00:00Z", fault.AccessExpires},
	} {
		if f := preflight.Certificate(tt.server, now); f.Level != tt.level || f.Code != tt.code || !strings.Contains(f.Text, tt.says) {
			t.Errorf("%+v: %+v", tt.server, f)
		}
	}
}

func TestWhoMayConnectIsTold(t *testing.T) {
	for _, tt := range []struct {
		found preflight.Finding
		says  string
	}{
		{preflight.Identities(2, 1, true, true), "2 tokens and 1 subjects"},
		{preflight.Identities(0, 0, true, true), "a JWT is needed"},
		{preflight.Identities(0, 0, false, true), "certificate of the authority"},
		{preflight.Identities(0, 0, false, false), "nobody is asked"},
		{preflight.Signers(0), "no JWT"},
		{preflight.Signers(3), "3 keys"},
	} {
		if tt.found.Level != preflight.OK || !strings.Contains(tt.found.Text, tt.says) {
			t.Errorf("%+v, which does not say %q", tt.found, tt.says)
		}
	}
}
