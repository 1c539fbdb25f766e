package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A test that fails once, and not when it runs alone, is unsteady: CI names it, and is not red. All
// other failures stay, also beside an unsteady test.
func TestUnsteadyTestsAreNamedAndOthersFail(t *testing.T) {
	steps, err := filepath.Abs("../../.ci/steps")
	if err != nil {
		t.Fatal(err)
	}
	module := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module x\n\ngo 1.26\n",
		"a/a_test.go": `package a

import (
	"os"
	"testing"
)

func TestOnce(t *testing.T) {
	if os.Remove(os.Getenv("ONCE")) == nil {
		t.Run("sub", func(t *testing.T) { t.Fatal(os.Getenv("SAYS")) })
	}
}
`,
		"b/b_test.go": `package b

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if is("leak") {
		code = 1
	}
	os.Exit(code)
}

func is(kind string) bool { return os.Getenv("KIND") == kind }

func TestBad(t *testing.T) {
	if is("always") {
		t.Error("bad")
	}
}

func TestBadToo(t *testing.T) {
	if is("many") {
		t.Error("bad")
	}
}

func TestBadAsWell(t *testing.T) {
	if is("many") {
		t.Error("bad")
	}
}

func TestExit(t *testing.T) {
	if is("exit") {
		os.Exit(1)
	}
}

func TestRacing(t *testing.T) {
	if is("race") {
		t.Log("WARNING: DATA RACE")
	}
}

func TestSkipped(t *testing.T) {
	if is("skip") {
		skip(t)
	}
}

func skip(tb testing.TB) { tb.SkipNow() }
`,
	} {
		path := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ kind, says, repeats, want string }{
		{"", "first", "1", "unsteady"},
		{"", "first", "0", "FAILED"},
		{"", "seed 7", "1", "FAILED"},
		{"", "panic: in a child", "1", "FAILED"},
		{"always", "first", "1", "FAILED"},
		{"many", "first", "1", "FAILED"},
		{"leak", "first", "1", "FAILED"},
		{"exit", "first", "1", "FAILED"},
		{"race", "first", "1", "FAILED"},
		{"skip", "first", "1", "FAILED"},
	} {
		logs := t.TempDir()
		once := filepath.Join(logs, "once")
		if err := os.WriteFile(once, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		run := exec.CommandContext(t.Context(), "bash", "-c", `source "$1"; step all tests -vet=off -ldflags=-w -count=1 ./...`, "bash", steps)
		run.Dir = module
		run.Env = append(os.Environ(), "logs="+logs, "ONCE="+once, "KIND="+c.kind, "SAYS="+c.says, "repeats="+c.repeats, "GOFLAGS=", "GOWORK=off")
		out, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		summary, err := os.ReadFile(filepath.Join(logs, "summary"))
		if err != nil {
			t.Fatal(err)
		}
		if fields := strings.Fields(string(summary)); len(fields) < 2 || fields[1] != c.want {
			t.Errorf("%+v: %s\n%s", c, summary, out)
		}
		named, _ := os.ReadFile(filepath.Join(logs, "unsteady"))
		if c.want == "unsteady" && !strings.Contains(string(named), "x/a.TestOnce") {
			t.Errorf("%+v: named %q", c, named)
		}
	}
}
