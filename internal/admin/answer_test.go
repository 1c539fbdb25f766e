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
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/retry"
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

// Those who wait while the store is silent are told so as well, with its code and in time.
func TestStoreThatIsSilentIsNamedToAllWhoWait(t *testing.T) {
	_, mongo := world(t)
	synctest.Test(t, func(t *testing.T) {
		h := access.Everybody().Handler(admin.ServeSubscribers("a", node{}, silent{}, mongo, slog.New(slog.DiscardHandler)))
		for i := range 5 {
			time.Sleep(time.Second)
			go func() {
				w := httptest.NewRecorder()
				asked := time.Now()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
				if took := time.Since(asked); took > 8*time.Second || !strings.Contains(w.Body.String(), "STRM-ETCD-UNREACHABLE") {
					t.Errorf("number %d: after %s: %d %s", i, took, w.Code, w.Body)
				}
			}()
		}
		time.Sleep(time.Minute)
	})
}

// A refusing store is silent for as long, and says by itself what is wrong, as MongoDB does.
type refusing struct{ silent }

func (refusing) Origin(ctx context.Context) (checkpoint.Origin, error) {
	return checkpoint.Origin{}, fault.New(fault.MongoUnreachable, wait(ctx))
}

// Those who wait are told what the one before them was told.
func TestThoseWhoWaitAreToldTheSame(t *testing.T) {
	_, mongo := world(t)
	synctest.Test(t, func(t *testing.T) {
		h := access.Everybody().Handler(admin.ServeSubscribers("a", node{}, refusing{}, mongo, slog.New(slog.DiscardHandler)))
		for range 3 {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
				if !strings.Contains(w.Body.String(), "STRM-MONGODB-UNREACHABLE") || strings.Contains(w.Body.String(), "ETCD") {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}()
		}
		time.Sleep(time.Minute)
	})
}

// A slow store lists its checkpoints after a time.
type slow struct {
	*checkpointtest.Memory
	after time.Duration
}

func (s slow) List(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	if retry.Sleep(ctx, s.after) != nil {
		return nil, ctx.Err()
	}
	return s.Memory.List(ctx)
}

// A store that answers is not called unreachable, however much there is to read; and who waits for
// others is not told that it is.
func TestStoreThatIsSlowIsNotUnreachable(t *testing.T) {
	for after, want := range map[time.Duration]string{5 * time.Second: `"subscriber":"sink"`, 7 * time.Second: "not everything was read within 6s"} {
		s, mongo := world(t)
		synctest.Test(t, func(t *testing.T) {
			h := access.Everybody().Handler(admin.ServeSubscribers("a", node{}, slow{s, after}, mongo, slog.New(slog.DiscardHandler)))
			for range 3 {
				go func() {
					w := httptest.NewRecorder()
					asked := time.Now()
					h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
					took := time.Since(asked)
					if took > 8*time.Second || strings.Contains(w.Body.String(), "UNREACHABLE") || took < 7*time.Second && !strings.Contains(w.Body.String(), want) {
						t.Errorf("%s: after %s: %d %s", after, took, w.Code, w.Body)
					}
				}()
			}
			time.Sleep(time.Minute)
		})
	}
}
