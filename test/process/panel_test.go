//go:build clients

package process

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/dev/mongo/devmongotest"
)

// quiet are queries of panels that find nothing in a cluster of a minute in which nothing goes
// wrong.
func quiet() []string {
	return []string{
		// The oplog has lost nothing yet, so that nobody is near its end.
		"service/Head-room/A", "subscribers/Head-room/A", "subscribers/Least head-room/A",
		"service/Losses, gaps and failures/A", "subscribers/Refused connections/A", "supervisor/Missed heartbeats/A",
	}
}

// Every panel of the dashboards shows something of a running cluster: Prometheus reads the nodes of
// a demo and answers the panels' queries, as it does for Grafana. Grafana itself cannot be had from
// where tests take their tools. make deploy-check names the program of Prometheus.
func TestPanelsShowARunningCluster(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath(os.Getenv("STREAMER_TEST_PROMETHEUS"))
	if err != nil {
		t.Fatalf("STREAMER_TEST_PROMETHEUS names no program, see make deploy-check: %v", err)
	}
	empty := panels(t)
	for _, query := range quiet() {
		if empty[query] == "" {
			t.Fatalf("no panel has the query %s any more", query)
		}
		delete(empty, query)
	}
	if len(empty) < 60 {
		t.Fatalf("%d queries were found", len(empty))
	}
	demo := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", demo, "../../dev/demo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cluster := start(t, launch{
		program: demo, args: strings.Fields("-nodes 3 -sink kafka -handoffs 1000 -for 1h -rate 200 -http 127.0.0.1:0 -grpc 127.0.0.1:0"),
		env: []string{"STREAMER_RETENTION_STORE=file://" + t.TempDir(), "STREAMER_RETENTION_INTERVAL=1s"},
	})
	defer func() { // as Ctrl-C, so that its nodes end, too
		cluster.signal(syscall.SIGINT)
		cluster.wait()
	}()
	nodes := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(cluster.awaitIn(cluster.output, "HTTP at"), 3)
	defer events(t, nodes[0], "?subscriber=page")()
	events(t, nodes[0], "")() // one that has ended
	prometheus := prometheusOf(t, program, nodes)
	defer func() {
		if t.Failed() {
			t.Logf("these are empty:\n%s", strings.Join(slices.Sorted(maps.Keys(empty)), "\n"))
		}
	}()
	until(t, "every panel shows something", func() bool {
		for _, query := range slices.Sorted(maps.Keys(empty)) {
			if !finds(t, prometheus, empty[query]) {
				return false
			}
			delete(empty, query)
		}
		return true
	})
}

// panels are the queries of all panels, by their dashboards, titles and letters.
func panels(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../deploy/grafana/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	fill := strings.NewReplacer("$job", "streamer", "$__rate_interval", "10s")
	for _, path := range paths {
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr, RefID string }
			}
		}
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &board)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				all[strings.TrimSuffix(filepath.Base(path), ".json")+"/"+p.Title+"/"+target.RefID] = fill.Replace(target.Expr)
			}
		}
	}
	return all
}

// events opens an event stream, and returns what ends it.
func events(t *testing.T, node, query string) (end func()) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+node+"/v1/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		eachLine(response.Body, func(string) {})
	}()
	return func() {
		_ = response.Body.Close()
		<-read
	}
}

// prometheusOf starts a Prometheus that reads the nodes each second, and returns its address.
func prometheusOf(t *testing.T, program string, nodes []string) string {
	t.Helper()
	dir, address := t.TempDir(), devmongotest.FreeAddress()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: streamer\n    static_configs: [{targets: [%s]}]\n", strings.Join(nodes, ", "))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, launch{program: program, args: []string{"--config.file=" + config, "--storage.tsdb.path=" + dir, "--web.listen-address=" + address}}).
		await("Server is ready to receive web requests")
	return address
}

// finds reports whether a query has found a number within the last half minute.
func finds(t *testing.T, prometheus, query string) bool {
	t.Helper()
	now := time.Now().Unix()
	values := url.Values{"query": {query}, "start": {strconv.FormatInt(now-30, 10)}, "end": {strconv.FormatInt(now, 10)}, "step": {"1"}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+prometheus+"/api/v1/query_range?"+values.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Values [][2]any }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Error != "" {
		t.Fatalf("%s: %s, %v", query, answer.Error, err)
	}
	for _, series := range answer.Data.Result {
		if slices.ContainsFunc(series.Values, func(sample [2]any) bool { return sample[1] != "NaN" }) {
			return true
		}
	}
	return false
}
