package statuspage_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/statuspage"
)

// files returns the page's files by their paths below assets.
func files(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir("assets", func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		found[strings.TrimPrefix(filepath.ToSlash(name), "assets/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func mux(t *testing.T) *http.ServeMux {
	t.Helper()
	m := http.NewServeMux()
	if err := statuspage.Handle(m); err != nil {
		t.Fatal(err)
	}
	return m
}

func ask(t *testing.T, handler http.Handler, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Result()
}

func TestEveryFileIsServedUnderTheStrictPolicy(t *testing.T) {
	m := mux(t)
	targets := map[string]string{"/": "text/html", "/assets/codes.json": "application/json"}
	media := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
	for name := range files(t) {
		if name != "index.html" {
			targets["/assets/"+name] = media[path.Ext(name)]
		}
	}
	for target, want := range targets {
		resp := ask(t, m, http.MethodGet, target)
		if resp.StatusCode != http.StatusOK || want == "" || !strings.HasPrefix(resp.Header.Get("Content-Type"), want) {
			t.Errorf("%s: %s, %q", target, resp.Status, resp.Header.Get("Content-Type"))
		}
		policy := strings.Split(resp.Header.Get("Content-Security-Policy"), "; ")
		for _, directive := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'", "base-uri 'none'", "form-action 'none'",
			"frame-ancestors 'none'", "require-trusted-types-for 'script'",
		} {
			if !slices.Contains(policy, directive) {
				t.Errorf("%s: no %s in %q", target, directive, policy)
			}
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", target, resp.Header)
		}
		again := ask(t, m, http.MethodGet, target, "If-None-Match", resp.Header.Get("Etag"))
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s is sent again although it has not changed: %s", target, again.Status)
		}
	}
	for target, status := range map[string]int{"/other": 404, "/assets/": 404, "/assets/index.html": 404, "/assets/page.go": 404} {
		if resp := ask(t, m, http.MethodGet, target); resp.StatusCode != status {
			t.Errorf("%s: %s", target, resp.Status)
		}
	}
	if resp := ask(t, m, http.MethodPost, "/"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", resp.Status)
	}
}

// What the policy forbids would fail in browsers only.
func TestNothingInThePageNeedsMoreThanThePolicyAllows(t *testing.T) {
	const changing = "something that changes"
	forbidden := map[string]*regexp.Regexp{
		"a script within the page":  regexp.MustCompile(`<script[^>]*>[^<]`),
		"a style within the page":   regexp.MustCompile(`<style|\sstyle=`),
		"a listener within markup":  regexp.MustCompile(`<[^>]*\son[a-z]+=`),
		"markup from text":          regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc`),
		"code from text":            regexp.MustCompile(`\beval\(|new Function|javascript:|import\(`),
		"something of another host": regexp.MustCompile(`(?:src|href|from|fetch\(|url\()\s*=?\s*["'(]?(?:https?:)?//`),
		changing:                    regexp.MustCompile(`method:\s*['"](?:POST|PUT|DELETE|PATCH)`),
	}
	for name, text := range files(t) {
		for what, pattern := range forbidden {
			if name == "api.js" && what == changing {
				continue // the one place
			}
			if found := pattern.FindString(text); found != "" {
				t.Errorf("%s has %s: %q", name, what, found)
			}
		}
	}
}

func TestEveryImportIsAFile(t *testing.T) {
	all := files(t)
	imports := regexp.MustCompile(`from '([^']+)'`)
	for name, text := range all {
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			if _, there := all[path.Join(path.Dir(name), m[1])]; !there {
				t.Errorf("%s imports %s, which is not there", name, m[1])
			}
		}
	}
	for name := range all {
		if section := strings.TrimPrefix(name, "sections/"); section != name && !strings.Contains(all["sections.js"], "'./sections/"+section+"'") {
			t.Errorf("sections.js does not list %s", name)
		}
	}
}

func TestEveryCodeOfThePageHasARemedy(t *testing.T) {
	text, err := io.ReadAll(ask(t, mux(t), http.MethodGet, "/assets/codes.json").Body)
	if err != nil {
		t.Fatal(err)
	}
	var codes map[fault.Code]statuspage.Remedy
	if err := json.Unmarshal(text, &codes); err != nil {
		t.Fatal(err)
	}
	if len(codes) != len(fault.Catalogue()) {
		t.Errorf("%d codes of %d are served", len(codes), len(fault.Catalogue()))
	}
	named := 0
	for name, text := range files(t) {
		for _, code := range regexp.MustCompile(`'STRM-[A-Z-]+'`).FindAllString(text, -1) {
			named++
			if r := codes[fault.Code(strings.Trim(code, "'"))]; r.Remedy == "" || r.Summary == "" {
				t.Errorf("%s names %s, which is not in the catalogue", name, code)
			}
		}
	}
	if named < 5 {
		t.Errorf("the page names %d codes: is the pattern still right?", named)
	}
}
