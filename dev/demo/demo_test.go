package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mongostream/streamer/dev/workload"
)

// A demo of several nodes starts this program once for each, and one with a snapshot for its
// subscriber.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "node" || len(os.Args) == 2 && os.Args[1] == "subscriber" {
		main()
		return
	}
	os.Exit(m.Run())
}

// run runs a demo on free ports, and returns what it prints.
func run(t *testing.T, args ...string) io.Reader {
	t.Helper()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := command(t.Context(), append([]string{"-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0"}, args...), in, io.Discard)
		ended <- err
		_ = in.Close()
	}()
	t.Cleanup(func() {
		_, _ = io.Copy(io.Discard, out)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return out
}

// Its addresses are in use, so it listens at any free ports.
func TestDemoDeliversWhatItWritesAndNoMore(t *testing.T) {
	var s summary
	if err := json.NewDecoder(run(t, "-http", taken(t), "-grpc", taken(t), "-for", "1s", "-rate", "500", "-o", "json")).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if s.Written == 0 || s.Delivered > s.Written || s.Missing > 0 || s.OutOfOrder > 0 {
		t.Errorf("%+v", s)
	}
}

// A reader watches single changes; a measurement wants many.
func TestDemoIsSlowUnlessItMeasures(t *testing.T) {
	for _, c := range []struct {
		args []string
		rate int
	}{{nil, 20}, {[]string{"-for", "1s"}, 3000}, {[]string{"-rate", "7", "-for", "1s"}, 7}, {[]string{"-nodes", "3"}, 20}} {
		d, err := parse(c.args, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if d.rate != c.rate {
			t.Errorf("%v: %d changes a second, want %d", c.args, d.rate, c.rate)
		}
	}
	if _, err := parse([]string{"-rate", "0"}, io.Discard, io.Discard); err == nil {
		t.Error("a rate of 0 is accepted")
	}
}

func TestDemoOfSeveralNodesTellsTheirAddresses(t *testing.T) {
	lines := bufio.NewScanner(run(t, "-http", taken(t), "-nodes", "3", "-for", "6s", "-rate", "100"))
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	said := regexp.MustCompile(`^3 nodes are running: HTTP at (\S+), (\S+), (\S+); gRPC at`).FindStringSubmatch(lines.Text())
	if said == nil {
		t.Fatalf("%q", lines.Text())
	}
	for _, address := range said[1:] {
		resp, err := http.Get("http://" + address + "/health") //nolint:noctx // answers at once
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Contains(body, []byte(`"cluster":"streamer"`)) {
			t.Errorf("%s: %v, %s", address, err, body)
		}
		_ = resp.Body.Close()
	}
	var rest strings.Builder
	for lines.Scan() {
		rest.WriteString(lines.Text() + "\n")
	}
	if !strings.Contains(rest.String(), "tail --address http://"+said[1]) || !strings.Contains(rest.String(), " 0 missing") {
		t.Errorf("%s", &rest)
	}
}

// Each subscriber has what its subscription selects: all documents, those that match as long as
// they do, over gRPC, and those of some operations, over server-sent events.
func TestSnapshotsOfADemoEqualTheCollection(t *testing.T) {
	var s snapshotSummary
	if err := json.NewDecoder(run(t, "-snapshot", "2000", "-gateways", "2", "-for", "2s", "-rate", "1000", "-o", "json")).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if s.Documents != 2000 || s.Written <= 2000 || s.Subscribers != 3 || s.Complete == 0 || s.Differences != (workload.Differences{}) {
		t.Errorf("%+v", s)
	}
}

// Each component that is made to stand still is found and restarted within its budget, and nothing
// is missing. A hub's restart repeats nothing; what a sink's repeats, transactions hide.
func TestWedgedComponentsOfADemoAreRestarted(t *testing.T) {
	var s summary
	if err := json.NewDecoder(run(t, "-nodes", "2", "-wedge", "sink,hub", "-for", "20s", "-rate", "200", "-o", "json")).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if s.Written == 0 || s.Missing > 0 || s.OutOfOrder > 0 || s.Duplicates > 0 || s.Sink != "kafka" || s.Reports == 0 || len(s.Wedges) == 0 {
		t.Errorf("%+v", s)
	}
	for _, w := range s.Wedges {
		if w.Restarts < 1 || w.Restarts > 3 || w.Restarted <= 0 || w.Recovered < w.Restarted {
			t.Errorf("%+v", w)
		}
	}
}

// What cannot be shown together is refused.
func TestSmallOplogIsShownByOneNodeAndForATime(t *testing.T) {
	for _, args := range [][]string{{"-oplog", "4"}, {"-oplog", "-1", "-for", "1s"}, {"-oplog", "4", "-for", "1s", "-nodes", "2"}, {"-retention", "-nodes", "2"}, {"-retention", "-snapshot", "9", "-for", "1s"}} {
		if _, err := parse(args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	for _, args := range [][]string{{"-retention"}, {"-retention", "-oplog", "4", "-for", "1s"}} {
		if _, err := parse(args, io.Discard, io.Discard); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}
