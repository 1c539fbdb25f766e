package wiring

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/devmongo"
)

// fetch asks a node as a browser on its machine does, and returns the status code; the answer goes into the value unless that is nil.
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
	s := n.shows("all partitions", allOwned)
	if len(s.Nodes) != 1 || s.Nodes[0].Owned != partitions || s.Nodes[0].Planned != partitions || s.Leader != "n" || s.Node != "n" || s.Expected != 1 {
		t.Errorf("%+v", s)
	}
	if s.HeadRoomWarning == 0 || len(s.Checks) == 0 || s.Nodes[0].StartedAt.IsZero() {
		t.Errorf("%+v", s)
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
