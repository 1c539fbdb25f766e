package access_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

// ask sends a request to a handler; header holds names and values in turn.
func ask(t *testing.T, h http.Handler, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	r.RemoteAddr = "127.0.0.1:1"
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRequestsAreLetThroughWithTheirIdentity(t *testing.T) {
	a := newAuthenticator(t, access.Config{Identities: write(t, t.TempDir()+"/i", tokenLine("good", "name=a namespace=shop.*"))})
	h := a.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := access.From(r.Context()).Permit(r.FormValue("db"), r.FormValue("coll")); err != nil {
			access.Refuse(w, http.StatusForbidden, err)
			return
		}
		_, _ = io.WriteString(w, access.From(r.Context()).Name)
	}))
	tests := []struct {
		name, target string
		header       []string
		status       int
		code         fault.Code
	}{
		{"good", "/?db=shop&coll=x", []string{"Authorization", "Bearer good"}, 200, ""},
		{"all of the database", "/?db=shop", []string{"Authorization", "Bearer good"}, 200, ""},
		{"all of another database", "/?db=crm", []string{"Authorization", "Bearer good"}, 403, fault.AccessForbidden},
		{"elsewhere", "/?db=crm&coll=x", []string{"Authorization", "Bearer good"}, 403, fault.AccessForbidden},
		{"everything", "/", []string{"Authorization", "Bearer good"}, 403, fault.AccessForbidden},
		{"no token", "/?db=shop&coll=x", nil, 401, fault.AccessUnauthenticated},
		{"wrong token", "/?db=shop&coll=x", []string{"Authorization", "Bearer wrong"}, 401, fault.AccessUnauthenticated},
		{"two headers", "/?db=shop&coll=x", []string{"Authorization", "Bearer good", "Authorization", "Bearer good"}, 401, fault.AccessUnauthenticated},
		{"token in the URL", "/?db=shop&coll=x&access_token=good", nil, 401, fault.AccessUnauthenticated},
		{"token in a cookie", "/?db=shop&coll=x", []string{"Cookie", "authorization=Bearer good"}, 401, fault.AccessUnauthenticated},
	}
	for _, tt := range tests {
		resp := ask(t, h, http.MethodGet, tt.target, tt.header...)
		text := body(t, resp)
		if resp.StatusCode != tt.status || (resp.StatusCode == 401) != (resp.Header.Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%s: %d %s", tt.name, resp.StatusCode, text)
		}
		var refusal struct {
			Code            fault.Code
			Message, Remedy string
		}
		switch {
		case tt.code == "":
			if text != "a" {
				t.Errorf("%s: %s", tt.name, text)
			}
		case json.Unmarshal([]byte(text), &refusal) != nil || refusal.Code != tt.code || refusal.Message == "" || refusal.Remedy == "":
			t.Errorf("%s: %s", tt.name, text)
		}
	}
}

func TestStreamEndsWhenItsTokenIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, t.TempDir()+"/i", tokenLine("good", "name=a namespace=*"))
		a := newAuthenticator(t, access.Config{Identities: path, Recheck: time.Minute})
		start := time.Now()
		h := a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			write(t, path, tokenLine("another", "name=another namespace=*"))
			<-r.Context().Done()
		}))
		ask(t, h, http.MethodGet, "/", "Authorization", "Bearer good")
		if took := time.Since(start); took > time.Minute {
			t.Errorf("ended after %s", took)
		}
	})
}

func TestPagesOfOtherOrigins(t *testing.T) {
	const app = "https://app.example.com"
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") })
	listed, off := access.CORS([]string{app, "http://localhost:3000"}, next), access.CORS(nil, next)
	preflight := []string{"Access-Control-Request-Method", "GET"}
	tests := []struct {
		name    string
		handler http.Handler
		method  string
		header  []string
		status  int
		allowed string
	}{
		{"off", off, "GET", []string{"Origin", app}, 200, ""},
		{"off, asked beforehand", off, "OPTIONS", append([]string{"Origin", app}, preflight...), 200, ""},
		{"listed", listed, "GET", []string{"Origin", app}, 200, app},
		{"second of the list", listed, "GET", []string{"Origin", "http://localhost:3000"}, 200, "http://localhost:3000"},
		{"listed, asked beforehand", listed, "OPTIONS", append([]string{"Origin", app}, preflight...), 204, app},
		{"none", listed, "GET", nil, 200, ""},
		{"foreign", listed, "GET", []string{"Origin", "https://evil.example"}, 200, ""},
		{"foreign, asked beforehand", listed, "OPTIONS", append([]string{"Origin", "https://evil.example"}, preflight...), 403, ""},
		{"begins alike", listed, "GET", []string{"Origin", app + ".evil.example"}, 200, ""},
		{"other scheme", listed, "GET", []string{"Origin", "http://app.example.com"}, 200, ""},
		{"other port", listed, "GET", []string{"Origin", app + ":8443"}, 200, ""},
		{"null", listed, "GET", []string{"Origin", "null"}, 200, ""},
		{"two", listed, "GET", []string{"Origin", app, "Origin", "https://evil.example"}, 200, ""},
		{"OPTIONS that asks nothing", listed, "OPTIONS", []string{"Origin", app}, 200, app},
	}
	for _, tt := range tests {
		resp := ask(t, tt.handler, tt.method, "/", tt.header...)
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != tt.allowed || resp.StatusCode != tt.status {
			t.Errorf("%s: %d, allows %q", tt.name, resp.StatusCode, got)
		}
		if strings.Contains(body(t, resp), "next") != (tt.status == 200) {
			t.Errorf("%s: reached next or not", tt.name)
		}
		if varies := resp.Header.Get("Vary") == "Origin"; varies == strings.HasPrefix(tt.name, "off") || resp.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", tt.name, resp.Header)
		}
		allowed := resp.Header.Get("Access-Control-Allow-Headers") // polyfills of EventSource send all of them
		if asked := tt.status == 204; asked != strings.Contains(allowed, "Last-Event-ID, Cache-Control, X-Requested-With") {
			t.Errorf("%s: %v", tt.name, resp.Header)
		}
	}
}

// TestBrowserAsksBeforehandWithoutAToken has CORS stand outside of Handler, as it must.
func TestBrowserAsksBeforehandWithoutAToken(t *testing.T) {
	a := newAuthenticator(t, access.Config{Identities: write(t, t.TempDir()+"/i", tokenLine("good", "name=a namespace=*"))})
	h := access.CORS([]string{"https://app.example.com"}, a.Handler(http.NotFoundHandler()))
	if resp := ask(t, h, http.MethodOptions, "/", "Origin", "https://app.example.com", "Access-Control-Request-Method", "GET"); resp.StatusCode != 204 {
		t.Error(resp.Status)
	}
	// A refusal must be readable for the page, or it cannot tell a bad token from a broken network,
	// nor when to try again.
	resp := ask(t, h, http.MethodGet, "/", "Origin", "https://app.example.com")
	if resp.StatusCode != 401 || resp.Header.Get("Access-Control-Allow-Origin") == "" || resp.Header.Get("Access-Control-Expose-Headers") != "Retry-After" {
		t.Error(resp.Status, resp.Header)
	}
}
