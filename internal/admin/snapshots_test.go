package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/notice"
)

// means is a subscriber of whose subscriptions so many are meant.
type means int

func (m means) OperateSnapshot(string, delivery.Operation, string, change.Namespace) (done int, connected bool) {
	return int(m), m >= 0
}

// What nothing was done with is refused, and says why: an operator who is told 200 waits for
// documents that never come.
func TestSnapshotsOfNobodyAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		meant     means
		operation string
		status    int
		says      string
	}{
		{2, "begin", http.StatusOK, `"subscriptions":2`},
		{0, "begin", http.StatusNotFound, "nothing has begun"},
		{0, "pause", http.StatusNotFound, "nothing was done"},
		{0, "resume", http.StatusNotFound, "nothing was done"},
		{0, "cancel", http.StatusNotFound, "nothing was done"},
		{-1, "begin", http.StatusNotFound, "not connected"},
	} {
		w := httptest.NewRecorder()
		h := admin.ServeSnapshots(c.meant, notice.NewBoard(notice.Config{}))
		access.Everybody().Handler(h).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?subscriber=orders&operation="+c.operation, nil))
		if body := w.Body.String(); w.Code != c.status || !strings.Contains(body, c.says) || c.status != http.StatusOK && !strings.Contains(body, string(fault.CommandBadArgument)) {
			t.Errorf("%s of %d: %d %s", c.operation, c.meant, w.Code, body)
		}
	}
}
