package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const runbooks = "../../docs/runbooks"

// page reads a page of the runbooks.
func page(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(runbooks, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every alert has a page that says what holds, what it means, and what to do; every page has its
// alert; and what rehearses them exists.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	t.Parallel()
	rules := sample(t, "prometheus", "rules.yaml")
	cases := sample(t, "prometheus", "rules.test.yaml")
	contents := page(t, "README.md")
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)\n\s+expr: (.+)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 25 || strings.Count(rules, "alert:") != len(alerts) {
		t.Fatalf("%d alerts", len(alerts))
	}
	want := []string{"README.md", "disasters.md"}
	for _, alert := range alerts {
		name, expr := alert[1], strings.Trim(alert[2], "'")
		text := page(t, name+".md")
		for _, part := range []string{"# " + name, "```promql\n" + expr + "\n```", "\n## Meaning\n", "\n## How to see it\n", "\n## What to do\n", "\n## Rehearsed\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s.md has no %q", name, part)
			}
		}
		if !strings.Contains(contents, "("+name+".md)") || !strings.Contains(rules, "/docs/runbooks/"+name+".md\n") {
			t.Errorf("nothing leads to %s.md", name)
		}
		if !strings.Contains(cases, `alertname="`+name+`"`) {
			t.Errorf("%s has no case for promtool", name)
		}
		want = append(want, name+".md")
	}
	pages, err := filepath.Glob(filepath.Join(runbooks, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		if !slices.Contains(want, filepath.Base(path)) {
			t.Errorf("%s is of no alert", path)
		}
	}
}

// The tests that the page of disasters names are there, and what it links to.
func TestDisastersAreRehearsed(t *testing.T) {
	t.Parallel()
	text := page(t, "disasters.md")
	var source strings.Builder
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(code)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1)
	if len(named) < 6 {
		t.Errorf("%d tests are named", len(named))
	}
	for _, name := range named {
		if !strings.Contains(source.String(), "\nfunc "+name[1]+"(t *testing.T)") {
			t.Errorf("there is no %s", name[1])
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(runbooks, link[1])); err != nil {
			t.Error(err)
		}
	}
}

// The commands of the runbook bring the checkpoints into an empty store: the node there continues
// after the backup.
func TestCheckpointsAreRestoredAsTheRunbookSays(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd")
	l.insert(0, 10)
	l.runs(0) // makes the origin
	backup := filepath.Join(t.TempDir(), "backup.json")
	l.insert(10, 60)
	if lines := l.runs(50); len(lines) != 50 {
		t.Fatalf("%d lines", len(lines))
	}
	l.script("backup", backup)
	l.insert(60, 90) // after the backup
	l.runs(30)

	lost := l.with("STREAMER_ETCD_PREFIX=/restored/" + l.cluster)
	lost.script("restore", backup)
	inserts := func(lines []string) (all []string) {
		return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, `"operationType":"insert"`) })
	}
	node := start(t, launch{args: []string{"run", "-o", "json"}, env: lost.settings})
	until(t, "what came after the backup is printed", func() bool { return len(inserts(node.output.all())) >= 30 })
	if got := described(sightings(t, node.output.all())); strings.Count(got, "insert") != 30 {
		t.Errorf("printed: %s", got)
	}
}

// script runs the commands of a block of the runbook as a shell does.
func (l *lab) script(name, backup string) {
	l.t.Helper()
	_, block, found := strings.Cut(page(l.t, "disasters.md"), "```sh "+name+"\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		l.t.Fatalf("the runbook has no block %s", name)
	}
	command := exec.CommandContext(l.t.Context(), "sh", "-eu", "-c", block)
	command.Env = append(slices.Clone(l.settings), "BACKUP="+backup, "PATH="+filepath.Dir(os.Getenv(binaryVariable))+":"+os.Getenv("PATH"))
	if text, err := command.CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %v\n%s", name, err, text)
	}
}
