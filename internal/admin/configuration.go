package admin

import (
	"net/http"
	"runtime"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/config"
)

// A Configuration is the public form of a node's configuration. Secrets are masked.
type Configuration struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Go      string    `json:"go"`
	Values  []Setting `json:"values"` // in the order of the reference
}

// A Setting is the value of a key that is in force.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ServeConfiguration answers GET requests with a Configuration as JSON: 200, and 403 to identities
// that may not read everything.
func ServeConfiguration(c config.Config, version string) http.Handler {
	shown := Configuration{Node: c.Node.ID, Version: version, Go: runtime.Version(), Values: []Setting{}}
	for _, attr := range c.LogValue().Group() {
		shown.Values = append(shown.Values, Setting{Key: attr.Key, Value: attr.Value.String()})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !access.From(r.Context()).Operates() {
			access.Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForbidden, "the configuration needs the right to every namespace"))
			return
		}
		answer(w, http.StatusOK, shown)
	})
}
