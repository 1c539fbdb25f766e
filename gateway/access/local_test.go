package access

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// FuzzLocal looks for a request of a web page that passes: with a name of the page's own as Host,
// or of an origin that is not let in.
func FuzzLocal(f *testing.F) {
	f.Add("127.0.0.1:8080", "", "")
	f.Add("LocalHost.:1", "http://localhost.:1", "same-origin")
	f.Add("[::1]:8080", "https://app.example.com", "cross-site")
	f.Add("evil.example", "http://evil.example", "same-origin")
	f.Add("127.0.0.1.evil.example:8080", "null", "none")
	f.Add("[::1", "http://[::1", "same-site")
	f.Add("0.0.0.0:8080", "", "")
	f.Add("[::ffff:127.0.0.1]:8080", "", "")
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
		if name != "" && name != "localhost" && name != "127.0.0.1" && name != "app.example.com" && !isPlainAddress(name) {
			t.Fatalf("host %q passed", host)
		}
		if strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyz.:%-_") != "" && !isPlainAddress(name) {
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

// A server on a loopback address answers only for names of this machine for which browsers say who
// sends a request.
func TestLocalKnowsItsHosts(t *testing.T) {
	handler := Local("127.0.0.1:8080", []string{"https://app.example.com"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "localhost:8080": 200, "LOCALHOST.": 200, "127.0.0.2:1": 200, "[::1]:8080": 200, "": 200, "app.example.com": 200, "10.0.0.1:8080": 200, "[fd00::1]:8080": 200,
		"0.0.0.0:8080": 403, "0:8080": 403, "[::]:8080": 403, "[::ffff:127.0.0.1]:8080": 403, "[::ffff:7f00:1]:8080": 403, "[::ffff:0:0]:8080": 403,
		"evil.example:8080": 403, "127.0.0.1.nip.example": 403, "localhost.evil.example": 403, "2130706433": 403,
		"[::127.0.0.1]:8080": 403,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != want {
			t.Errorf("host %q: %d, want %d", host, w.Code, want)
		}
	}
}

// An event stream with a name, which takes the name over and moves a checkpoint, is opened by no
// page of another origin, whatever the browser says of it, at an open server and where a
// certificate proves who it is.
func TestPagesOfOtherOriginsTakeNoName(t *testing.T) {
	handler := SameOrigin([]string{"https://app.example.com"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	const (
		named  = "/v1/events?subscriber=s&db=shop"
		chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0.0.0 Safari/537.36"
	)
	for _, c := range []struct {
		path   string
		header []string
		want   int
	}{
		{named, []string{"User-Agent", "curl/8.14.1", "Accept", "*/*"}, 200},
		{named, []string{"User-Agent", "Go-http-client/1.1"}, 200},
		{named, []string{"User-Agent", "python-requests/2.32", "Accept", "text/event-stream"}, 200},
		{named, []string{"User-Agent", "node", "Accept", "*/*", "Accept-Language", "*", "Sec-Fetch-Mode", "cors"}, 200}, // fetch of Node.js
		{named, nil, 200},
		{named, []string{"User-Agent", chrome}, 403}, // to 10.0.0.1, 0.0.0.0, [::ffff:7f00:1]: neither Origin nor Sec-Fetch-Site
		{named, []string{"User-Agent", chrome, "Accept", "text/event-stream", "Cache-Control", "no-cache"}, 403},
		{"/v1/events?%73ubscriber=s", []string{"User-Agent", chrome}, 403},
		{named, []string{"User-Agent", chrome, "Sec-Fetch-Site", "cross-site"}, 403},
		{named, []string{"User-Agent", chrome, "Sec-Fetch-Site", "same-site"}, 403},
		{named, []string{"User-Agent", chrome, "Sec-Fetch-Site", "none"}, 200},
		{named, []string{"User-Agent", chrome, "Sec-Fetch-Site", "same-origin"}, 200},
		{named, []string{"User-Agent", chrome, "Origin", "https://app.example.com"}, 200},
		{named, []string{"User-Agent", chrome, "Origin", "http://streamer.example:8080"}, 200},
		{named, []string{"User-Agent", chrome, "Origin", "http://streamer.example:9090"}, 403},
		{named, []string{"User-Agent", chrome, "Origin", "https://evil.example"}, 403},
		{named, []string{"User-Agent", chrome, "Origin", "null"}, 403},
		{named, []string{"Origin", "https://evil.example"}, 403},
		{named, []string{"User-Agent", "AppleCoreMedia/1.0.0"}, 403},
		{named, []string{"User-Agent", "stagefright/1.2 (Linux;Android 4.4)", "Range", "bytes=0-"}, 403},
		{named, []string{"User-Agent", "x", "Referer", "http://evil.example/"}, 403},
		{named, []string{"User-Agent", chrome, "Authorization", "Bearer t"}, 200},
		{named, []string{"User-Agent", chrome, "Last-Event-ID", "1"}, 200},
		{"/v1/events?db=shop", []string{"User-Agent", chrome}, 200}, // which changes nothing
		{"/v1/status", []string{"User-Agent", chrome}, 200},
		{"/v1/history?subscriber=s", []string{"User-Agent", chrome}, 200}, // which only read
		{"/v1/subscribers/detail?subscriber=s", []string{"User-Agent", chrome}, 200},
		{"/v1/subscribers?subscriber=s", []string{"User-Agent", chrome}, 403},
		{"/v1/history/../events?subscriber=s", []string{"User-Agent", chrome}, 403},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil)
		r.Host = "streamer.example:8080"
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s with %q: %d, want %d", c.path, c.header, w.Code, c.want)
		}
	}
}
