package check

import (
	"bufio"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// unseen are metrics with labels that a node exports only after something has happened that does
// not happen in this test. Their names must be in the source.
func unseen() map[string][]string {
	return map[string][]string{
		"streamer_problem":                   {"code", "subject", "severity"},
		"streamer_log_losses_total":          {"reason"},
		"streamer_subscriber_losses_total":   {"subscriber"},
		"streamer_handoffs_total":            {"outcome"},
		"streamer_notices_total":             {"channel", "severity"},
		"streamer_identity_sessions":         {"identity"},
		"streamer_logins_total":              {"transport", "result"},
		"streamer_connections_refused_total": {"reason"},
		"streamer_webhook_deliveries_total":  {"result"},
		"streamer_sink_published_total":      {"sink"},
		"streamer_sink_retries_total":        {"sink"},
		"streamer_sink_dead_letters_total":   {"sink"},
		"streamer_sessions_ended_total":      {"transport", "reason"},
		"streamer_supervisor_misses_total":   {"slug"},
		"streamer_supervisor_restarts_total": {"slug"},
	}
}

// Every expression of the dashboards and the alerts can be parsed, and names only metrics and
// labels that a node exports.
func TestExpressionsNameMetricsThatNodesExport(t *testing.T) {
	t.Parallel()
	exported := scrape(t)
	for name, names := range unseen() {
		if exported[name] == nil {
			exported[name] = map[string]bool{}
		}
		for _, l := range names {
			exported[name][l] = true
		}
	}
	whole, parts := sources(t, ".go"), sources(t, "metrics.go") // which name some by their parts
	for name := range unseen() {
		if !strings.Contains(whole, `"`+name+`"`) && !slices.ContainsFunc([]string{"streamer_", "streamer_log_", "streamer_sink_", "streamer_supervisor_"}, func(prefix string) bool {
			return strings.Contains(parts, `"`+strings.TrimPrefix(name, prefix)+`"`)
		}) {
			t.Errorf("%s is not in the source", name)
		}
	}
	exported["up"] = map[string]bool{}
	exported["ALERTS"] = map[string]bool{"alertname": true, "alertstate": true}
	all := expressions(t)
	if len(all) < 80 {
		t.Fatalf("%d expressions were found", len(all))
	}
	for where, text := range all {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v in %s", where, err, text)
			continue
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			selector, ok := node.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			known := exported[selector.Name]
			if known == nil {
				t.Errorf("%s: no node exports %s", where, selector.Name)
				return nil
			}
			for _, m := range selector.LabelMatchers {
				if m.Name != labels.MetricName && m.Name != "job" && m.Name != "instance" && !known[m.Name] {
					t.Errorf("%s: %s has no label %s", where, selector.Name, m.Name)
				}
			}
			return nil
		})
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			by, ok := node.(*parser.AggregateExpr)
			if !ok || by.Without {
				return nil
			}
			for _, name := range by.Grouping {
				if name != "job" && name != "instance" && name != "le" && !named(by.Expr, exported, name) {
					t.Errorf("%s: nothing in %s has the label %s", where, by.Expr, name)
				}
			}
			return nil
		})
	}
}

// named reports whether a metric within an expression has a label.
func named(expr parser.Expr, exported map[string]map[string]bool, label string) (found bool) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok && exported[s.Name][label] {
			found = true
		}
		return nil
	})
	return found
}

// expressions returns all expressions of dashboards and rules, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	dashboards, _ := filepath.Glob("../grafana/dashboards/*.json")
	for _, path := range dashboards {
		var board struct {
			UID         string
			Annotations struct{ List []struct{ Expr string } }
			Panels      []struct {
				Title   string
				Targets []struct{ Expr, RefID string }
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if board.UID == "" {
			t.Errorf("%s has no uid", path)
		}
		fill := strings.NewReplacer("$job", "streamer", "$__rate_interval", "1m")
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				all[board.UID+"/"+p.Title+"/"+target.RefID] = fill.Replace(target.Expr)
			}
		}
		for _, a := range board.Annotations.List {
			all[board.UID+"/annotations"] = a.Expr
		}
	}
	text, err := os.ReadFile("../prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			all[rule.Alert] = rule.Expr
		}
	}
	return all
}

// sources is the text of the service's files whose names have an end.
func sources(t *testing.T, end string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, end) || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// scrape runs a cluster of one node with a subscriber, and returns the labels of every metric that
// it exports.
func scrape(t *testing.T) map[string]map[string]bool {
	t.Helper()
	dir := t.TempDir()
	output(t, nil, "make", "-s", "-C", "../..", "build", "OUT="+filepath.Join(dir, "streamer"))
	output(t, nil, "go", "build", "-C", "../..", "-o", filepath.Join(dir, "demo"), "./dev/demo")
	if t.Failed() {
		t.FailNow()
	}
	parts := start(t, nil, regexp.MustCompile(`(?s)MongoDB +(\S+)\netcd +(\S+)`), filepath.Join(dir, "demo"), "parts", "-mongodb", "127.0.0.1:0", "-etcd", "127.0.0.1:0")
	node := start(t, []string{
		"STREAMER_MONGODB_URI=" + parts[1], "STREAMER_ETCD_ENDPOINTS=" + parts[2], "STREAMER_CLUSTER_EXPECTED_NODES=2", "STREAMER_CLUSTER_SETTLE_TIME=1s",
		"STREAMER_NODE_ID=a", "STREAMER_CLUSTER_PARTITIONS=4", "STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0",
		"STREAMER_RETENTION_STORE=file://" + filepath.Join(dir, "log"),
		"STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=1s", // without a sweep there is no component to count restarts of
	}, regexp.MustCompile(`msg="node runs".* address=(\S+)`), filepath.Join(dir, "streamer"), "run")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+node[1]+"/v1/events?subscriber=gateway", nil)
	if err != nil {
		t.Fatal(err)
	}
	events, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = events.Body.Close() })
	for {
		exported := metrics(t, "http://"+node[1]+"/metrics")
		if exported["streamer_subscriber_lag_seconds"] != nil && exported["streamer_cluster_members"] != nil && exported["streamer_supervisor_restarts_total"] != nil {
			// Nothing leaves the oplog of a development MongoDB so soon.
			exported["streamer_subscriber_head_room_seconds"] = map[string]bool{"subscriber": true}
			exported["streamer_partition_head_room_seconds"] = map[string]bool{"partition": true}
			return exported
		}
		if t.Context().Err() != nil {
			t.Fatal("the node leads no cluster, knows no subscriber, or does not sweep")
		}
	}
}

// metrics reads the exposition format.
func metrics(t *testing.T, url string) map[string]map[string]bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // read only
	all, label := map[string]map[string]bool{}, regexp.MustCompile(`([a-z_]+)="`)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		name := line[:strings.IndexAny(line, "{ ")]
		if all[name] == nil {
			all[name] = map[string]bool{}
		}
		for _, found := range label.FindAllStringSubmatch(line, -1) {
			all[name][found[1]] = true
		}
	}
	return all
}

// start starts a program that is killed when the test ends, and waits for what its output must
// match.
func start(t *testing.T, env []string, until *regexp.Regexp, name string, args ...string) []string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + t.TempDir()}, env...)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = write, write
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	found := make(chan []string, 1)
	over := make(chan struct{})
	var text strings.Builder
	go func() {
		defer close(over)
		done := false
		for lines := bufio.NewScanner(read); lines.Scan(); {
			if done {
				continue // nobody reads it, and the program must be able to write
			}
			text.WriteString(lines.Text() + "\n")
			if match := until.FindStringSubmatch(text.String()); match != nil {
				done = true
				found <- match
			}
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		<-over
	})
	select {
	case match := <-found:
		return match
	case <-over:
		t.Fatalf("%s has ended:\n%s", filepath.Base(name), text.String())
		return nil
	}
}
