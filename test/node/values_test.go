//go:build !race

// What the test reads of a node belongs to goroutines that run already, which the race detector
// says rightly. It looks only at what nobody changes.

package node

import (
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/config/configtest"
	"github.com/mongostream/streamer/internal/wiring"
)

// A key whose effect is shown by tests of the part that obeys it arrives there: its value is found
// in the node that is assembled, or, of what is no number, the assembled node is another one.
func TestValuesArriveWhereTheyAct(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "streamer.yaml")
	text := `sinks:
  - {name: a, type: kafka, kafka: {brokers: ['127.0.0.1:1']}}
  - {name: b, type: nats, nats: {url: 'nats://127.0.0.1:1'}}
  - {name: c, type: http, http: {url: 'http://127.0.0.1:1', secret: 0123456789abcdef}}
  - {name: d, type: file, file: {path: '` + filepath.Join(dir, "out") + `'}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, devmongo.Config{}, "STREAMER_CLUSTER_EXPECTED_NODES=3", "STREAMER_RETENTION_STORE=file://"+dir+"/log", "STREAMER_DEBUG_DUMP_DIR="+dir+"/dumps",
		"STREAMER_NOTICES_WEBHOOK_URL=http://127.0.0.1:1", "STREAMER_NOTICES_WEBHOOK_SECRET=0123456789abcdef", "STREAMER_SUPERVISOR_PING_URL=http://127.0.0.1:1")
	r.file, r.stdout = file, io.Discard
	process := rand.Text()
	// assembled returns what a node holds whose configuration is changed.
	assembled := func(change func(cfg *config.Config)) map[string]string {
		t.Helper()
		cfg, err := config.Load(r.file, r.settings)
		if err != nil {
			t.Fatal(err)
		}
		change(&cfg)
		service, err := wiring.Assemble(t.Context(), wiring.Options{Config: cfg, Process: process, TakeOver: true, Stdout: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		defer service.Close()
		found := make(map[string]string)
		for _, v := range configtest.Values(service) {
			found[v.Path] = v.Text
		}
		return found
	}
	general := func(key string) string { return regexp.MustCompile(`\[\d+\]`).ReplaceAllString(key, "[]") }
	ofTargets := func(key string) bool { return regexp.MustCompile(`^sinks\[\]\.\w+\.`).MatchString(key) } // package backend looks at them
	shown := make(map[string]bool)                                                                         // by tests of the part that obeys
	for _, proof := range configtest.Proofs() {
		shown[proof.Key] = proof.Field != "" && !ofTargets(proof.Key)
	}

	marks, others := make(map[string][]string), make(map[string]bool)
	marked := assembled(func(cfg *config.Config) {
		for i, leaf := range configtest.Leaves(cfg) {
			key := general(leaf.Key)
			switch unique := int64(20_011 + 7*i); {
			case !shown[key]:
			case !leaf.Number():
				others[key] = true
			case leaf.Field.CanFloat():
				leaf.Field.SetFloat(1 / float64(unique))
				marks[key] = append(marks[key], fmt.Sprint(leaf.Field.Float()))
			case leaf.Field.Int() > 100_000: // a duration or a size, which stays nearly what it was
				leaf.Field.SetInt(leaf.Field.Int() + unique)
				marks[key] = append(marks[key], fmt.Sprint(leaf.Field.Int()))
			default:
				leaf.Field.SetInt(unique)
				marks[key] = append(marks[key], fmt.Sprint(unique))
			}
		}
	})
	there := make(map[string]bool, len(marked))
	for _, text := range marked {
		there[text] = true
	}
	for key, values := range marks {
		if !slices.ContainsFunc(values, func(v string) bool { return there[v] }) {
			t.Errorf("%s: its value %v is nowhere in the node", key, values)
		}
	}
	if len(marks) < 50 {
		t.Errorf("only %d numbers were looked for", len(marks))
	}

	// same returns what is the same in so many nodes that are assembled alike: addresses and times
	// are not.
	same := func(times int, change func(cfg *config.Config)) map[string]string {
		t.Helper()
		found := assembled(change)
		for range times - 1 {
			again := assembled(change)
			maps.DeleteFunc(found, func(path, text string) bool {
				other, both := again[path]
				return !both || other != text
			})
		}
		return found
	}
	has := func(found map[string]string, text string) bool {
		return slices.Contains(slices.Collect(maps.Values(found)), text)
	}
	before := same(3, func(*config.Config) {})
	for key := range others {
		value := ""
		after := same(2, func(cfg *config.Config) {
			for _, leaf := range configtest.Leaves(cfg) {
				if general(leaf.Key) == key {
					leaf.Change()
					value = leaf.Field.String()
				}
			}
		})
		changed := false
		for path, text := range after {
			was, both := before[path]
			changed = changed || both && was != text
		}
		if !changed && (!has(after, value) || has(before, value)) {
			t.Errorf("%s changes nothing of the node", key)
		}
	}
}
