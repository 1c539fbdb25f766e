package node

import (
	"bufio"
	"context"
	"net/http"
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// An idle event stream is written to as often as http.heartbeat says.
func TestIdleEventStreamsAreWrittenToAsConfigured(t *testing.T) {
	t.Parallel()
	n := newRig(t, devmongo.Config{}, "STREAMER_HTTP_HEARTBEAT=20ms").beginWith(nil)
	n.status()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.service.Addr()+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Transport: &http.Transport{}}
	defer web.CloseIdleConnections()
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	const wanted = 100 // at every 15 s, which is the default, they take longer than patience
	beats := 0
	for lines := bufio.NewScanner(resp.Body); beats < wanted && lines.Scan(); {
		if lines.Text() == ": heartbeat" {
			beats++
		}
	}
	if beats < wanted {
		t.Errorf("%d heartbeats in %s", beats, patience)
	}
}
