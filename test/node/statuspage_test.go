package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mongostream/streamer/cluster"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/notice"
)

// fetch asks a node as a browser on its machine does, and returns the status code; the answer goes
// into the value unless that is nil.
func (n *live) fetch(address, path string, into any) int {
	n.Helper()
	r, err := http.NewRequestWithContext(n.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		n.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			n.Fatal(err)
		}
	}
	return resp.StatusCode
}

// shows waits until a node's status is as wanted.
func (n *live) shows(what string, wanted func(admin.Status) bool) (s admin.Status) {
	n.Helper()
	n.until(what, func() bool {
		s = admin.Status{}
		return n.fetch(n.service.Addr(), "/v1/status", &s) == http.StatusOK && wanted(s)
	})
	return s
}

// allOwned reports whether every partition has an owner that says how it is.
func allOwned(s admin.Status) bool {
	return len(s.Partitions.Owners) == partitions && !slices.Contains(s.Partitions.Owners, -1) && !slices.Contains(s.Partitions.States, -1)
}

func TestStatusPageOfANodeAlone(t *testing.T) {
	t.Parallel()
	n := newRig(t, devmongo.Config{}, "STREAMER_HTTP_PROBES_LISTEN=127.0.0.1:0").begin()
	s := n.shows("all partitions, and no problem", func(s admin.Status) bool { return allOwned(s) && len(s.Problems) == 0 })
	if len(s.Nodes) != 1 || s.Nodes[0].Owned != partitions || s.Nodes[0].Planned != partitions || s.Leader != "n" || s.Node != "n" || s.Expected != 1 {
		t.Errorf("%+v", s)
	}
	if s.HeadRoomWarning == 0 || s.Nodes[0].StartedAt.IsZero() {
		t.Errorf("%+v", s)
	}
	var past admin.HistoryList
	if status := n.fetch(n.service.Addr(), "/v1/history?subscriber=stdout", &past); status != http.StatusOK || len(past.Nodes["n"].Rate) == 0 || past.Node != "n" || len(past.Stages["hub"]) == 0 {
		t.Errorf("the last hour: %d, %+v", status, past)
	}
	var detail admin.SubscriberDetail
	if status := n.fetch(n.service.Addr(), "/v1/subscribers/detail?subscriber=stdout", &detail); status != http.StatusOK || detail.PlacesTotal != partitions || detail.FiltersTotal != 1 {
		t.Errorf("the subscriber: %d, %+v", status, detail)
	}
	var settings admin.Configuration
	if status := n.fetch(n.service.Addr(), "/v1/configuration", &settings); status != http.StatusOK || !slices.Contains(settings.Values, admin.Setting{Key: "node.id", Value: "n"}) {
		t.Errorf("the configuration: %d, %+v", status, settings)
	}
	if status := n.fetch(n.service.Addr(), "/", nil); status != http.StatusOK {
		t.Errorf("the page: %d", status)
	}
	if status := n.fetch(n.service.Probes(), "/", nil); status != http.StatusNotFound {
		t.Errorf("the page at the address of probes: %d", status)
	}
}

func TestStatusPageShowsEveryNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	for _, n := range []*live{r.begin(several("n1")...), r.begin(several("n2")...)} {
		s := n.shows("both nodes and all partitions", func(s admin.Status) bool { return len(s.Nodes) == 2 && allOwned(s) })
		if s.Nodes[0].Node != "n1" || s.Nodes[0].Owned+s.Nodes[1].Owned != partitions || s.Leader == "" || s.Plan.Version == 0 || len(s.Absent) > 0 {
			t.Errorf("%+v", s)
		}
	}
}

// operate asks a node to do something, as its page does for who has a token, and returns the
// status.
func (n *live) operate(token, target string) int {
	n.Helper()
	r, err := http.NewRequestWithContext(n.Context(), http.MethodPost, "http://"+n.service.Addr()+target, nil)
	if err != nil {
		n.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		n.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// What an operator does on the page of one node happens to another, is in the audit log under the
// operator's name, and is refused to who may read a part only.
func TestOperatorsActOnTheStatusPage(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "identities")
	enlist(t, list, "a name=tenant-a namespace=shop.orders", "o name=olga namespace=*")
	r := newRig(t, devmongo.Config{}, "STREAMER_ACCESS_IDENTITIES_FILE="+list)
	n, other := r.begin(several("n1")...), r.begin(several("n2")...)
	see := func(what string, wanted func(admin.Status) bool) {
		t.Helper()
		n.until(what, func() bool {
			var status admin.Status
			if res, body := n.answer(http.DefaultClient, "http://"+n.service.Addr()+"/v1/status", "Authorization", "Bearer o"); res.StatusCode != http.StatusOK {
				return false
			} else if err := json.Unmarshal([]byte(body), &status); err != nil {
				t.Fatal(err)
			}
			return wanted(status)
		})
	}
	owns := func(s admin.Status, node string) (count int, drained bool) {
		for _, m := range s.Nodes {
			if m.Node == node {
				return m.Owned, m.Drained
			}
		}
		return -1, false
	}
	see("both are healthy and own partitions", func(s admin.Status) bool {
		one, _ := owns(s, "n1")
		two, _ := owns(s, "n2")
		healthy := !slices.ContainsFunc(s.Nodes, func(m admin.StatusNode) bool { return m.Status != cluster.StatusHealthy })
		return healthy && one > 0 && two > 0 && one+two == partitions
	})
	for _, target := range []string{"/v1/nodes/n2/drain", "/v1/partitions/0/handoff?to=n2", "/v1/restarts/pause?slug=n2"} {
		if status := n.operate("a", target); status != http.StatusForbidden {
			t.Errorf("%s by a tenant: %d", target, status)
		}
	}
	if status := n.operate("o", "/v1/nodes/n2/drain"); status != http.StatusAccepted {
		t.Fatalf("drain: %d", status)
	}
	see("n2 is empty", func(s admin.Status) bool {
		count, drained := owns(s, "n2")
		return count == 0 && drained
	})
	if status := n.operate("o", "/v1/nodes/n2/undrain"); status != http.StatusAccepted {
		t.Fatalf("undrain: %d", status)
	}
	see("n2 owns partitions again", func(s admin.Status) bool {
		count, drained := owns(s, "n2")
		return count > 0 && !drained
	})
	if status := n.operate("o", "/v1/restarts/pause?slug=n2/hub&for=1h"); status != http.StatusAccepted {
		t.Fatalf("pause: %d", status)
	}
	if standing, err := other.service.Supervision().Look(t.Context()); err != nil || len(standing.Paused) != 1 || standing.Paused[0].By != "olga" {
		t.Errorf("%+v, %v", standing, err)
	}
	other.until("the audit log says who", func() bool {
		var commands []string
		for _, record := range other.recorded("o") {
			if record.Kind == notice.KindOperated && record.Fields["by"] == "olga" {
				commands = append(commands, fmt.Sprint(record.Fields["command"]))
			}
		}
		return slices.Equal(commands, []string{"drain", "drain", "supervisor pause-restart"})
	})
}
