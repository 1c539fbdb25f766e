package notice_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/mongostream/streamer/notice"
)

// A receiver reads the body as it is, verifies it, and drops what it has had.
func ExampleVerifyDelivery() {
	seen := map[string]bool{} // a real one keeps them where a restart does not lose them, and forgets after some days
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return
		}
		if err := notice.VerifyDelivery(r.Header, body, time.Now(), "the secret of config.yaml", "the one before"); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		var d notice.Delivery
		if err := json.Unmarshal(body, &d); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		switch {
		case seen[d.ID]:
		case d.Summary != nil:
			fmt.Printf("%s: %d notices, the worst is %s\n", d.Node, d.Summary.Count, d.Summary.Level)
		default:
			fmt.Printf("%s: %s: %s\n", d.Node, d.Notice.Level, d.Notice.Text)
		}
		seen[d.ID] = true
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()

	board := notice.NewBoard(notice.Config{Node: "node-1"})
	sender := notice.NewWebhook(notice.WebhookConfig{URL: receiver.URL, Secret: "the secret of config.yaml", Cluster: "streamer", Node: "node-1", Burst: 1}, board)
	board.Post(notice.Notice{Channel: notice.Breaker, Kind: notice.KindBreakerOpened, Level: notice.Warning, Text: "etcd fails and is left alone for 30s"})
	board.Post(notice.Notice{Channel: notice.Breaker, Kind: notice.KindBreakerOpened, Level: notice.Warning, Text: "mongodb fails and is left alone for 30s"})
	board.Post(notice.Notice{Channel: notice.Breaker, Kind: notice.KindBreakerClosed, Level: notice.Info, Text: "etcd answers again"})
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a node that stops sends what waits
	sender.Run(ctx)
	// Output:
	// node-1: warning: etcd fails and is left alone for 30s
	// node-1: info: etcd answers again
	// node-1: 1 notices, the worst is warning
}
