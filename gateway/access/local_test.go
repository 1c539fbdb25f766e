package access

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// FuzzLocal looks for a request of a web page that passes: with a name of the page's own as Host, or of an origin that is not let in.
func FuzzLocal(f *testing.F) {
	f.Add("127.0.0.1:8080", "", "")
	f.Add("LocalHost.:1", "http://localhost.:1", "same-origin")
	f.Add("[::1]:8080", "https://app.example.com", "cross-site")
	f.Add("evil.example", "http://evil.example", "same-origin")
	f.Add("127.0.0.1.evil.example:8080", "null", "none")
	f.Add("[::1", "http://[::1", "same-site")
	const origin = "https://app.example.com"
	passed := false
	handler := Local("127.0.0.1:8080", []string{origin}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
	f.Fuzz(func(t *testing.T, host, from, site string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Host = host
		if from != "" {
			r.Header.Set("Origin", from)
		}
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		passed = false
		if handler.ServeHTTP(w, r); !passed {
			if w.Code != http.StatusForbidden {
				t.Fatalf("refused with %d", w.Code)
			}
			return
		}
		name := hostname(host)
		if name != "" && name != "localhost" && name != "127.0.0.1" && name != "app.example.com" && !isAddress(name) {
			t.Fatalf("host %q passed", host)
		}
		if strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyz.:%-_") != "" && !isAddress(name) {
			t.Fatalf("host %q is no name", host)
		}
		u, err := url.Parse(from)
		if own := err == nil && u.Host != "" && strings.EqualFold(u.Host, host); from != "" && from != origin && !own {
			t.Fatalf("origin %q passed at host %q", from, host)
		}
		if from == "" && !slices.Contains([]string{"", "none", "same-origin"}, site) {
			t.Fatalf("site %q passed", site)
		}
	})
}
