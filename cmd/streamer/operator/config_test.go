package operator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/preflight"
)

// Every error of a configuration has its file and line, or its variable, a code and a remedy, for
// editors and CI: those of keys, and those that a node would find later.
func TestConfigCheckListsErrorsForMachines(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	check := func(text string) (report configReport, err error) {
		t.Helper()
		path := put(t, []byte(text))
		out, err := d.command("config", "check", "-f", path, "-o", "json")
		if json := json.Unmarshal([]byte(out), &report); json != nil {
			t.Fatalf("%v: %s", json, out)
		}
		for i, e := range report.Errors {
			if e.Code == "" || e.Remedy == "" || e.Message == "" || e.URL != e.Code.URL() || e.File != "" && e.File != path || strings.Contains(e.Message, path) {
				t.Errorf("%+v", e)
			}
			report.Errors[i].File = filepath.Base(e.File)
		}
		return report, err
	}
	t.Setenv("STREAMER_CLUSTER_PARTITIONS", "0")
	report, err := check("mongodb:\n  urii: x\ncluster:\n  lease_ttl: 1\n")
	if ExitCode(err) != 1 || report.OK || len(report.Errors) != 3 {
		t.Fatalf("%v: %+v", err, report)
	}
	for i, want := range []configError{{Line: 2, Code: fault.ConfigUnknownKey}, {Line: 4, Code: fault.ConfigBadValue}, {Variable: "STREAMER_CLUSTER_PARTITIONS", Code: fault.ConfigBadValue}} {
		if got := report.Errors[i]; got.Line != want.Line || got.Code != want.Code || got.Variable != want.Variable || got.Line > 0 && got.File != "file" {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if err := os.Unsetenv("STREAMER_CLUSTER_PARTITIONS"); err != nil {
		t.Fatal(err)
	}
	report, err = check("retention: {max_age: 1h}\n")
	if i := slices.IndexFunc(report.Checks, func(c preflight.Result) bool { return c.Code == fault.ConfigUnused }); err != nil || !report.OK || i < 0 ||
		!strings.HasSuffix(report.Checks[i].Text, "file:1: retention.max_age needs retention.store") {
		t.Errorf("a key without an effect: %v: %+v", err, report)
	}
	sink := func(rest string) string {
		return "sinks:\n  - name: out\n    type: http\n    http:\n      secret: 0123456789abcdef\n" + rest
	}
	for text, want := range map[string]configError{
		sink("      url: https://10.1.2.3/x\n"):                                                               {Line: 6, Code: fault.SinkTarget, Message: "http.allow: [10.1.2.3/32]"},
		sink("      url: https://localhost/x\n"):                                                              {Line: 6, Code: fault.SinkTarget, Message: "http.allow: [127.0.0.1/32]"},
		sink("      url: https://[fd00::1]/x\n"):                                                              {Line: 6, Code: fault.SinkTarget, Message: "http.allow: [fd00::1/128]"},
		sink("      url: https://example.com/x\n    subscriptions:\n      - filter: 'op =='\n"):               {Line: 8, Code: fault.FilterInvalid, Message: "the expression ends too early"},
		sink("      url: https://example.com/x\n    subscriptions:\n      - {}\n      - filter: 'op == )'\n"): {Line: 9, Code: fault.FilterInvalid, Message: "unexpected ')'"},
	} {
		report, err := check(text)
		if ExitCode(err) != 1 || report.OK || len(report.Errors) != 1 || report.Errors[0].Line != want.Line || report.Errors[0].Code != want.Code || !strings.Contains(report.Errors[0].Message, want.Message) {
			t.Errorf("%s: %v: %+v", text, err, report.Errors)
		}
	}
	for _, text := range []string{config.Initial, sink("      url: https://example.com/x\n"), sink("      url: https://10.1.2.3/x\n      allow: [10.0.0.0/8]\n")} {
		if report, err := check(text); err != nil || !report.OK || report.Errors == nil || len(report.Errors) != 0 {
			t.Errorf("%s: %v: %+v", text, err, report)
		}
	}
}

func TestConfigIsBegunAndShown(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	path := filepath.Join(t.TempDir(), "c.yaml")
	if text, err := d.command("config", "init", path); err != nil || text != "" {
		t.Fatal(err, text)
	}
	if _, err := d.command("config", "init", path); fault.Of(err) != fault.CommandBadArgument {
		t.Errorf("a file that exists: %v", err)
	}
	if text, err := d.command("config", "init"); err != nil || text != config.Initial {
		t.Errorf("%v: %s", err, text)
	}
	t.Setenv("STREAMER_GRPC_LISTEN", ":9091")
	text, err := d.command("config", "show", "-f", path)
	for _, want := range []string{"cluster.id", path + ":", "STREAMER_GRPC_LISTEN", "default"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("no %q, %v:\n%s", want, err, text)
		}
	}
	var shown []config.Setting
	d.result(&shown, "config", "show", "--changed")
	if len(shown) != 1 || shown[0] != (config.Setting{Key: "grpc.listen", Value: ":9091", From: "STREAMER_GRPC_LISTEN"}) {
		t.Errorf("%+v", shown)
	}
}

// For people the remedy of the first failure comes with the error of the command, and is not in the
// list before it; those of the others are.
func TestRemedyOfAFailureIsSaidOnce(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	path := put(t, []byte("sinks:\n  - name: out\n    type: http\n    http:\n      secret: 0123456789abcdef\n      url: https://example.com/x\n    subscriptions:\n      - filter: 'op =='\n"))
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := d.command("config", "check", "-f", path)
	failure, warning := fault.FilterInvalid, fault.ConfigExposed
	if fault.Of(err) != failure || strings.Contains(out, string(failure)) || strings.Count(out, "remedy:") != 1 || !strings.Contains(out, string(warning)) {
		t.Errorf("%v after\n%s", err, out)
	}
}
