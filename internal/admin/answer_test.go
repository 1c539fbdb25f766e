package admin_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/streamer"
	"github.com/mongostream/streamer/supervisor"
)

// A silent store answers nothing until its caller gives up, as etcd's client behind a broken
// network.
type silent struct {
	admin.Store
	supervisor.Reader
}

func wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (silent) Origin(ctx context.Context) (checkpoint.Origin, error) {
	return checkpoint.Origin{}, wait(ctx)
}
func (silent) List(ctx context.Context) ([]checkpoint.Checkpoint, error) { return nil, wait(ctx) }
func (silent) Load(ctx context.Context, _ string) ([]checkpoint.Checkpoint, error) {
	return nil, wait(ctx)
}
func (silent) Gaps(ctx context.Context) ([]checkpoint.Gap, error) { return nil, wait(ctx) }
func (silent) Reports(ctx context.Context, _ int) ([]supervisor.Report, error) {
	return nil, wait(ctx)
}

// Whatever an operator looks at while the store answers nothing: the node says so, with the code of
// the problem, before the page and the commands give up.
func TestStoreThatIsSilentIsNamedInTime(t *testing.T) {
	_, mongo := world(t)
	none := slog.New(slog.DiscardHandler)
	sessions := node{streamer.SubscriberStatus{Name: "stdout", Shared: true}}
	for path, serve := range map[string]func() http.Handler{
		"/v1/subscribers":                          func() http.Handler { return admin.ServeSubscribers("a", sessions, silent{}, mongo, none) },
		"/v1/subscribers/detail?subscriber=stdout": func() http.Handler { return admin.ServeDetail(sessions, silent{}, none) },
		"/v1/gaps":    func() http.Handler { return admin.ServeGaps(silent{}, none) },
		"/v1/reports": func() http.Handler { return admin.ServeReports(silent{}, none) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := httptest.NewRecorder()
			begun := time.Now()
			access.Everybody().Handler(serve()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			if took := time.Since(begun); took > 8*time.Second || !strings.Contains(w.Body.String(), "STRM-ETCD-UNREACHABLE") {
				t.Errorf("%s: after %s: %d %s", path, took, w.Code, w.Body)
			}
		})
	}
}
