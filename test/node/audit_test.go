package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/notice"
)

// recorded returns the audit log of a node, as an identity that may read everything asks for it.
func (n *live) recorded(token string) []notice.Notice {
	n.Helper()
	req, err := http.NewRequestWithContext(n.Context(), http.MethodGet, "http://"+n.service.Addr()+"/v1/audit", nil)
	if err != nil {
		n.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var log admin.AuditLog
	if err := json.NewDecoder(resp.Body).Decode(&log); err != nil || resp.StatusCode != http.StatusOK {
		n.Fatalf("%s, %v", resp.Status, err)
	}
	return log.Records
}

// The audit log says who was let in and who was not, from where, and how sessions ended; it
// outlives the node, and is for those who may read everything. However many are refused, what
// operators have done stays.
func TestAuditLogSaysWhoCameAndOutlivesTheNode(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "identities")
	enlist(t, list, "a name=tenant-a namespace=shop.orders", "o name=operator namespace=* starts_per_second=10000")
	r := newRig(t, devmongo.Config{}, "STREAMER_ACCESS_IDENTITIES_FILE="+list, "STREAMER_NOTICES_KEEP=20")
	n := r.beginWith(nil)
	n.status()
	drained := admin.OperatedNotice("root@bastion", "streamer drain", []string{"node-2"})
	drained.ID = 1
	if err := r.history.Append(t.Context(), []notice.Notice{drained}); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if p := n.answerAs("guess", "/v1/events"); !p.has("401") {
			t.Fatal(p)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	web, done := n.requestAs(ctx, "a", "/v1/events?db=shop&coll=orders&subscriber=web-a")
	grpc, ended := n.call(ctx, "a", "grpc-a", "shop", "orders")
	n.until("both are connected", func() bool { return web.has("connected") && len(n.service.Node().Subscribers()) == 2 })
	cancel()
	<-done
	<-ended
	has := func(records []notice.Notice, kind, name, value string) (n int) {
		for _, r := range records {
			if r.Kind == kind && fmt.Sprint(r.Fields[name]) == value {
				n++
			}
		}
		return n
	}
	complete := func(all []notice.Notice) bool {
		return has(all, notice.KindOperated, "by", "root@bastion") == 1 && has(all, notice.KindSessionEnded, "why", "left") == 1 &&
			has(all, notice.KindSessionEnded, "subscriber", "tenant-a/grpc-a") == 1 && has(all, notice.KindSessionBegan, "identity", "tenant-a") == 2 &&
			has(all, notice.KindLoginAccepted, "identity", "tenant-a") == 2 && has(all, notice.KindLoginRefused, "address", "127.0.0.1") == 1
	}
	n.until("everything is recorded", func() bool { return complete(n.recorded("o")) })
	for _, record := range n.recorded("o") {
		if err := notice.Check(record); err != nil {
			t.Error(err)
		}
	}
	if got := n.metric("streamer_logins_total"); got < 203 {
		t.Errorf("%v logins are counted", got)
	}
	for _, path := range []string{"/v1/audit"} {
		if p := n.answerAs("a", path); !p.has("403") || p.has("root@bastion") || grpc.has("root@bastion") {
			t.Error(p)
		}
	}
	stream, over := n.requestAs(t.Context(), "o", "/v1/notices?channel=audit")
	n.until("the channel tells", func() bool { return stream.has("event: audit") && stream.has("root@bastion") && stream.has("web-a") })
	n.stopped()
	<-over

	again := r.beginWith(nil)
	again.status()
	again.until("it is there after a restart", func() bool {
		all := again.recorded("o")
		return has(all, notice.KindOperated, "by", "root@bastion") == 1 && has(all, notice.KindSessionBegan, "subscriber", "tenant-a/web-a") == 1 &&
			has(all, notice.KindLoginRefused, "count", "199") == 1
	})
}
