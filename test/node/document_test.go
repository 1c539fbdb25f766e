package node

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/metrics.md anew")

const reference = "../../docs/reference/metrics.md"

// TestMetricsAreDocumented compares docs/reference/metrics.md with what a node with all its parts
// registers.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	r := sinkRigOn(t, devmongo.Config{Release: "7.0", Preset: "sharded"}, "now", toHTTP(t, &endpoint{})) // a router's nodes have metrics of its shards, too
	settings := append(several("n"), "STREAMER_RETENTION_STORE=file://"+t.TempDir(), "STREAMER_NOTICES_WEBHOOK_URL=http://127.0.0.1:9/", "STREAMER_NOTICES_WEBHOOK_SECRET="+strings.Repeat("s", 32))
	n := r.beginWith(nil, settings...)
	n.status()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		n.service.Metrics().Describe(descriptions)
	}()
	form := regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)
	var rows []string
	for d := range descriptions {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("unknown form: %s", d)
		}
		if !strings.HasPrefix(m[1], "streamer_") {
			continue // of Go and of the process
		}
		if m[2] == "" {
			t.Errorf("%s has no help", m[1])
		}
		labels := ""
		if m[3] != "" {
			labels = "`" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", m[1], labels, strings.NewReplacer(`\"`, `"`, "|", `\|`, "<", "&lt;").Replace(m[2])))
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	if len(rows) < 60 {
		t.Errorf("only %d metrics", len(rows))
	}
	var b bytes.Buffer
	b.WriteString(`<!-- Generated from the code by go generate ./test/node. Do not edit. -->

# Metrics

What a node serves at ` + "`/metrics`" + `, besides the metrics of Go (` + "`go_…`" + `) and of the process (` + "`process_…`" + `). Names that end in ` + "`_total`" + ` are counters.
[deploy/prometheus/rules.yaml](../../deploy/prometheus/rules.yaml) has the alerts.

| metric | labels | meaning |
|---|---|---|
`)
	b.WriteString(strings.Join(rows, ""))
	if *rewrite {
		if err := os.WriteFile(reference, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(reference); err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what the code says: go generate ./test/node (%v)", reference, err)
	}
}
