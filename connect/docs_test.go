package connect_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/redpanda-data/benthos/v4/public/components/io"
	"github.com/redpanda-data/benthos/v4/public/service"

	_ "github.com/mongostream/streamer/connect/jetstream"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/docblock"
)

// page returns the configurations of docs/connect.md by subscriber; full are those for components
// that are not in this module.
func page(t *testing.T) (here, full map[string]string) {
	t.Helper()
	blocks, err := docblock.Of("..", "yaml connect", "yaml connect full")
	if err != nil {
		t.Fatal(err)
	}
	here, full = map[string]string{}, map[string]string{}
	name := regexp.MustCompile(`(?m)^    subscriber: (\S+)$`)
	for _, b := range blocks {
		to := here
		if b.Kind == "yaml connect full" {
			to = full
		}
		to[name.FindStringSubmatch(b.Text)[1]] = b.Text
	}
	return here, full
}

// Every configuration of the page is one that the engine takes; of those for the full distribution
// everything but the output, which is not here.
func TestConfigurationsOfTheDocumentationPassTheLint(t *testing.T) {
	t.Setenv("STREAMER_TOKEN", "secret")
	here, full := page(t)
	if len(here) != 4 || len(full) != 4 {
		t.Errorf("%d configurations that run here and %d others", len(here), len(full))
	}
	linter := service.NewEnvironment().CoreConfigSchema("", "").NewStreamConfigLinter()
	lint := func(name, config string) {
		lints, err := linter.LintYAML([]byte(config))
		if err != nil || len(lints) > 0 {
			t.Errorf("%s: %v %v", name, lints, err)
		}
	}
	for name, config := range here {
		lint(name, config)
	}
	for name, config := range full {
		input, _, _ := strings.Cut(config, "\noutput:\n")
		lint(name, input+"\noutput:\n  drop: {}\n")
		if lints, err := linter.LintYAML([]byte(config)); err == nil && len(lints) == 0 {
			t.Errorf("%s: its output is here, and the page says that it is not", name)
		}
	}
	if lints, _ := linter.LintYAML([]byte(strings.Replace(here["search"], "coll:", "collection:", 1))); len(lints) == 0 {
		t.Error("a wrong key passes")
	}
}

// The examples of the input's own documentation pass, too, and are on the page.
func TestExamplesOfTheInputPassTheLint(t *testing.T) {
	here, _ := page(t)
	env := service.NewEnvironment()
	linter := env.CoreConfigSchema("", "").NewStreamConfigLinter()
	found := 0
	env.WalkInputs(func(name string, view *service.ConfigView) {
		if name != "streamer" {
			return
		}
		text, err := view.FormatJSON()
		if err != nil {
			t.Fatal(err)
		}
		var described struct {
			Examples []struct{ Title, Config string }
		}
		if err := json.Unmarshal(text, &described); err != nil {
			t.Fatal(err)
		}
		for _, e := range described.Examples {
			found++
			if lints, err := linter.LintYAML([]byte(e.Config)); err != nil || len(lints) > 0 {
				t.Errorf("%s: %v %v", e.Title, lints, err)
			}
			if strings.TrimSpace(e.Config) != strings.TrimSpace(here["archive"]) {
				t.Errorf("%s is not as in docs/connect.md: %s", e.Title, e.Config)
			}
		}
	})
	if found == 0 {
		t.Error("no examples")
	}
}

// An index keeps documents with external versions, as Elasticsearch does with external_gte.
type index struct {
	mu        sync.Mutex
	versions  map[string]int64
	documents map[string]string
	requests  int
}

func (x *index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	id := strings.TrimPrefix(r.URL.EscapedPath(), "/orders/_doc/")
	id, err := url.PathUnescape(id)
	version, bad := strconv.ParseInt(r.URL.Query().Get("version"), 10, 64)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.requests++
	_, found := x.documents[id]
	switch {
	case err != nil || bad != nil || r.URL.Query().Get("version_type") != "external_gte" || id == "":
		w.WriteHeader(http.StatusBadRequest)
	case version < x.versions[id]:
		w.WriteHeader(http.StatusConflict)
	case r.Method == http.MethodPut && json.Valid(body):
		x.versions[id], x.documents[id] = version, string(body)
	case r.Method == http.MethodDelete && found:
		x.versions[id] = version
		delete(x.documents, id)
	case r.Method == http.MethodDelete:
		x.versions[id] = version
		w.WriteHeader(http.StatusNotFound)
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
}

// The configuration for Elasticsearch runs as it stands: what comes again, and late, changes
// nothing, and what has no document is passed over.
func TestIndexKeepsTheNewestState(t *testing.T) {
	n := newNode(t)
	x := &index{versions: map[string]int64{}, documents: map[string]string{}}
	s := httptest.NewServer(x)
	defer s.Close()
	here, _ := page(t)
	config := strings.NewReplacer("127.0.0.1:9090", n.address, "http://127.0.0.1:9200", s.URL).Replace(here["search"])
	b := service.NewStreamBuilder()
	if err := b.SetYAML("http: {enabled: false}\nlogger: {level: NONE}\n" + config); err != nil {
		t.Fatal(err)
	}
	stream, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stream.Run(t.Context()) }()
	v := n.welcomed("a")
	last := uint64(0)
	event := func(place, key, op, document string, second int) {
		document = strings.TrimSuffix(`,"fullDocument":`+document, `,"fullDocument":`)
		text := fmt.Sprintf(`{"key":%q,"operationType":%q,"clusterTime":{"$timestamp":{"t":%d,"i":1}},"ns":{"db":"shop","coll":"orders"}%s}`, key, op, second, document)
		last = v.sendBatch(&streampb.Batch{To: at(place), Events: []*streampb.Event{{
			Position: at(place), Subscriptions: []string{"connect"}, Format: streampb.Format_FORMAT_JSON, Change: []byte(text),
		}}})
	}
	event("b1", "a b/c", "insert", `{"_id":"a b/c","total":1}`, 100)
	event("c1", "a b/c", "update", `{"_id":"a b/c","total":2}`, 102)
	event("d1", "a b/c", "update", `{"_id":"a b/c","total":9}`, 101) // of a replay
	event("e1", "gone", "insert", `{"_id":"gone"}`, 103)
	event("f1", "gone", "update", "null", 103) // its deletion follows
	event("g1", "gone", "delete", "", 104)
	event("h1", "never", "delete", "", 105)
	event("i1", "gone", "insert", `{"_id":"gone","total":9}`, 103)
	event("j1", "", "drop", "", 106)
	v.acked(last)
	within := time.Now()
	if err := stream.StopWithin(patience); err != nil {
		t.Errorf("after %v: %v", time.Since(within), err)
	}
	<-ended
	if len(x.documents) != 1 || x.documents["a b/c"] != `{"total":2}` || x.requests != 7 {
		t.Errorf("%v, after %d requests", x.documents, x.requests)
	}
}
