package operator

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
)

// Without a configuration a node shows and deletes a subscriber: its address is enough.
func TestSubscriberIsShownAndDeletedByANode(t *testing.T) {
	lonely(t)
	var deleted string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/subscribers/detail", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("subscriber") != "gateway/orders" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":"STRM-COMMAND-BAD-ARGUMENT","message":"it has no checkpoint"}`))
			return
		}
		_, _ = w.Write([]byte(`{"subscriber":"gateway/orders","kind":"exclusive","places":[{"partition":3,"position":{"time":"2026-01-31T12:00:00Z","t":1769860800,"i":1}},` +
			`{"partition":null,"position":{"time":"2026-01-31T12:00:01Z","t":1769860801,"i":1}}],"places_total":9,` +
			`"history":[{"generation":4,"reason":"interval","by":"node-1","at":"2026-01-31T12:00:02Z"}]}`))
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"cluster":"c","nodes":[{"node":"node-2","gateways":["gateway/orders"]}]}`))
	})
	mux.HandleFunc("POST /v1/subscribers/delete", func(w http.ResponseWriter, r *http.Request) {
		deleted = r.FormValue("subscriber")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{}`))
	})
	node := httptest.NewServer(mux)
	t.Cleanup(node.Close)
	t.Setenv("STREAMER_ADDRESS", node.URL)
	command := func(args ...string) (string, error) {
		var text strings.Builder
		root := &cobra.Command{Use: "streamer", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(Commands()...)
		root.SetArgs(append([]string{"subscribers"}, args...))
		root.SetOut(&text)
		err := root.ExecuteContext(t.Context())
		return text.String(), err
	}
	shown, err := command("show", "gateway/orders")
	for _, want := range []string{"exclusive", "node-2", "the 2 earliest of 9 positions", "2026-01-31 12:00:00 UTC", "all others", "interval", "node-1"} {
		if err != nil || !strings.Contains(shown, want) {
			t.Errorf("%v, without %q:\n%s", err, want, shown)
		}
	}
	if _, err := command("show", "nobody"); fault.Of(err) != fault.CommandBadArgument {
		t.Error(err)
	}
	if _, err := command("show", "gateway/orders", "--all"); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), "give -f") {
		t.Error(err)
	}
	text, err := command("delete", "gateway/orders")
	if fault.Of(err) != fault.CommandUnconfirmed || deleted != "" || !strings.Contains(fmt.Sprint(text, err), "is connected at node node-2, and its session ends") {
		t.Errorf("%v, deleted %q: %s", err, deleted, text)
	}
	if text, err := command("delete", "gateway/orders", "--dry-run"); err != nil || deleted != "" {
		t.Errorf("%v, deleted %q: %s", err, deleted, text)
	}
	if text, err := command("delete", "gateway/orders", "--yes"); err != nil || deleted != "gateway/orders" || !strings.Contains(text, "are deleted") {
		t.Errorf("%v, deleted %q: %s", err, deleted, text)
	}
}

// A node that cannot read the checkpoints says what it knows, and the command fails: another etcd
// than the node's, which no configuration names, is not asked. A sink without a session there is
// connected at the owners of its partitions. A watch goes on.
func TestSubscribersOfANodeThatCannotReadThem(t *testing.T) {
	lonely(t)
	watching, leave := context.WithCancel(t.Context())
	defer leave()
	mux := http.NewServeMux()
	var asked atomic.Int64
	mux.HandleFunc("GET /v1/subscribers", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 3 { // the second look of the watch
			leave()
		}
		_, _ = w.Write([]byte(`{"node":"node-1","subscribers":[{"subscriber":"sink/hook","kind":"shared"}],"error":"read origin: etcd is away"}`))
	})
	mux.HandleFunc("GET /v1/subscribers/detail", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"subscriber":"sink/hook","kind":"shared","error":"read checkpoints: etcd is away"}`))
	})
	node := httptest.NewServer(mux)
	t.Cleanup(node.Close)
	t.Setenv("STREAMER_ADDRESS", node.URL)
	run := func(ctx context.Context, args ...string) (string, error) {
		var text strings.Builder
		root := &cobra.Command{Use: "streamer", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(Commands()...)
		root.SetArgs(append([]string{"subscribers"}, args...))
		root.SetOut(&text)
		err := root.ExecuteContext(ctx)
		return text.String(), err
	}
	for _, args := range [][]string{{"list"}, {"show", "sink/hook"}} {
		shown, err := run(t.Context(), args...)
		if err == nil || !strings.Contains(err.Error(), "etcd is away") || strings.Contains(err.Error(), "2379") {
			t.Errorf("%v: %v", args, err)
		}
		if !strings.Contains(shown, "sink/hook") || !strings.Contains(shown, atOwners) || strings.Contains(shown, "of 0 p") || strings.Contains(shown, "0 partitions") {
			t.Errorf("%v: %s", args, shown)
		}
	}
	if shown, err := run(watching, "list", "--watch"); err != nil || asked.Load() != 3 || !strings.Contains(shown, "etcd is away") {
		t.Errorf("a watch ends after %d looks: %v, %s", asked.Load()-1, err, shown)
	}
}
