package access

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// TestDocumentedFormsAreTaken reads docs/access.md as its readers will copy it.
func TestDocumentedFormsAreTaken(t *testing.T) {
	text, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(begin string) string {
		t.Helper()
		_, after, found := strings.Cut(string(text), begin)
		inside, _, closed := strings.Cut(after, "\n```")
		if !found || !closed {
			t.Fatalf("docs/access.md has no block that begins with %q", begin)
		}
		return inside
	}
	r, err := parseRoster("#"+block("```text identities\n# How"), true, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.tokens) != 2 {
		t.Fatalf("%d tokens", len(r.tokens))
	}
	for _, l := range r.tokens {
		if i := l.identity; i.Name != "billing" || !i.Allows("crm", "orders") || i.Allows("crm", "x") {
			t.Errorf("%+v", i)
		}
	}
	gateway := r.bySubject(GRPC, "CN=gateway-1,O=Example", time.Time{})
	if gateway == nil || !gateway.Allows("", "") {
		t.Fatalf("%+v", gateway)
	}
	var claims map[string]any
	if err := json.Unmarshal([]byte(block("```json")), &claims); err != nil {
		t.Fatal(err)
	}
	i, err := ofToken(verifiedToken{Subject: "billing", Claims: claims})
	if err != nil || i.Allows("crm", "x") || i.MaxSubscriptions != gateway.MaxSubscriptions || i.EventsPerSecond != gateway.EventsPerSecond || i.BytesPerSecond != gateway.BytesPerSecond {
		t.Errorf("%+v, %v", i, err)
	}
}
