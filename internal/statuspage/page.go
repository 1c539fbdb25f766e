package statuspage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
)

//go:embed assets
var assets embed.FS

// policy is the Content-Security-Policy of everything that is served.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// A Remedy is the page's text about a code.
type Remedy struct {
	Summary string `json:"summary"`
	Meaning string `json:"meaning"`
	Remedy  string `json:"remedy"`
}

// types are the media types of the files, whatever the machine is configured to say.
func types() map[string]string {
	return map[string]string{
		".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml", ".json": "application/json",
	}
}

// Handle puts the page on a mux: / and the files below /assets/, among them codes.json with the
// remedies of all codes.
func Handle(mux *http.ServeMux) error {
	codes := make(map[fault.Code]Remedy)
	for _, e := range fault.Catalogue() {
		codes[e.Code] = Remedy{Summary: e.Summary, Meaning: e.Meaning, Remedy: e.Remedy}
	}
	text, err := json.Marshal(codes)
	if err != nil {
		return fmt.Errorf("encode remedies: %w", err)
	}
	mux.Handle("GET /assets/codes.json", serve("codes.json", text))
	return fs.WalkDir(assets, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		pattern := "/" + name
		if name == "assets/index.html" {
			pattern = "/{$}"
		}
		mux.Handle("GET "+pattern, serve(name, text))
		return nil
	})
}

// serve answers with a file, which a browser asks for again only to hear that it has not changed.
func serve(name string, text []byte) http.Handler {
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	media := types()[path.Ext(name)]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, header := range headers() {
			name, value, _ := strings.Cut(header, ": ")
			h.Set(name, value)
		}
		h.Set("Content-Type", media)
		h.Set("Etag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	})
}

// headers are those of every file.
func headers() []string {
	return []string{
		"Content-Security-Policy: " + policy,
		"X-Content-Type-Options: nosniff",
		"X-Frame-Options: DENY",
		"Referrer-Policy: no-referrer",
		"Cross-Origin-Opener-Policy: same-origin",
		"Cross-Origin-Resource-Policy: same-origin",
		"Permissions-Policy: camera=(), geolocation=(), microphone=()",
		"Cache-Control: no-cache",
	}
}
