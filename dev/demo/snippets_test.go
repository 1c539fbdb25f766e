//go:build clients

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/notice"
)

// asTSConfig compiles as a strict project does.
const asTSConfig = `{"compilerOptions": {"module": "nodenext", "moduleResolution": "nodenext", "target": "es2022", "lib": ["es2022", "dom", "dom.iterable"], "types": [],
"strict": true, "noUncheckedIndexedAccess": true, "skipLibCheck": true}, "include": ["*.ts"]}`

// The examples in TypeScript compile in a strict project, and each gets something from the demo.
// The packages are those of examples/react.
func TestTypeScriptOfDocumentsRunsAgainstTheDemo(t *testing.T) {
	here, project := demoOf(t), t.TempDir()
	modules, err := filepath.Abs("../../examples/react/node_modules")
	if err == nil {
		err = os.Symlink(modules, filepath.Join(project, "node_modules"))
	}
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(project, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("package.json", `{"type": "module"}`)
	write("tsconfig.json", asTSConfig)
	examples := blocks(t, "ts")
	for i, b := range examples {
		write(name(i)+".ts", here.Replace(programTS(b.Text)))
	}
	compile := exec.CommandContext(t.Context(), filepath.Join(modules, ".bin/tsc"), "-p", ".")
	compile.Dir = project
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, b := range examples {
		t.Run(b.String(), func(t *testing.T) { prints(t, project, nil, "node", name(i)+".js") })
	}
}

// name is that of an example's file.
func name(i int) string { return "example" + string(rune('a'+i)) }

// beforePython is what the example in Python leaves to the reader's program.
const beforePython = `
import sys
def load_position(): return ""
def handle(*what):
    print(*what)
    sys.exit()
def read_again(namespaces): handle(namespaces)
def save_position(position): pass
`

// The example in Python gets something from the demo, and so does the program that prints changes.
func TestPythonOfDocumentsRunsAgainstTheDemo(t *testing.T) {
	here := demoOf(t)
	client, err := filepath.Abs("../../client/python")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PYTHONPATH=" + client}
	for _, b := range blocks(t, "python") {
		t.Run(b.String(), func(t *testing.T) {
			prints(t, t.TempDir(), env, "python3", "-B", "-W", "error", "-c", here.Replace(beforePython+b.Text))
		})
	}
	found := 0
	for _, b := range blocks(t, "sh") {
		for _, command := range commands(b.Text) {
			words := shellWords(here.Replace(command))
			if at := slices.Index(words, "mongostream_streamer"); at >= 0 {
				found++
				t.Run(b.String(), func(t *testing.T) {
					prints(t, t.TempDir(), env, "python3", append([]string{"-B", "-m"}, words[at:]...)...)
				})
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d commands of the program were found", found)
	}
}

// pip installs the package as the documents say, and a program of an empty folder imports it. It
// takes nothing from the network: PYTHON has setuptools and wheel.
func TestPackageOfPythonIsInstalled(t *testing.T) {
	source, installed := filepath.Join(t.TempDir(), "python"), t.TempDir()
	if err := os.CopyFS(source, os.DirFS("../../client/python")); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, b := range blocks(t, "sh") {
		for _, command := range commands(b.Text) {
			words := shellWords(strings.ReplaceAll(command, "./client/python", source))
			if !slices.Contains(words, "pip") {
				continue
			}
			found++
			pip := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("PYTHON"), words[0]), append(words[1:], "--no-index", "--no-deps", "--no-build-isolation", "--target", installed)...)
			if out, err := pip.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", b, err, out)
			}
		}
	}
	if found == 0 {
		t.Error("no command installs it")
	}
	prints(t, t.TempDir(), []string{"PYTHONPATH=" + installed}, "python3", "-B", "-W", "error", "-c", "from mongostream_streamer import subscribe; print(subscribe)")
	if _, err := os.Stat(filepath.Join(installed, "mongostream_streamer/py.typed")); err != nil {
		t.Error(err)
	}
}

// The receiver of a webhook in Python takes a delivery, and refuses a forged and an old one.
func TestVerificationInPythonIsThatOfDeliveries(t *testing.T) {
	const secret = "5555"
	body := []byte(`{"delivery": "a"}`)
	for _, b := range blocks(t, "python webhook") {
		for _, c := range []struct {
			want, key string
			age       time.Duration
		}{{"True", secret, 0}, {"False", "6666", 0}, {"False", secret, time.Hour}} {
			header := http.Header{}
			notice.SignDelivery(header, "a", body, time.Now().Add(-c.age), c.key)
			var given strings.Builder
			for key := range header {
				given.WriteString("\"" + key + "\": \"" + header.Get(key) + "\", ")
			}
			program := "class request: headers = {" + given.String() + "}\nsecret, body = b'" + secret + "', b'" + string(body) + "'\n" + b.Text + "print(ok)"
			out, err := exec.CommandContext(t.Context(), "python3", "-W", "error", "-c", program).CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
				t.Errorf("%s: %+v: %s, %v", b, c, got, err)
			}
		}
	}
}

// prints runs a program until it has printed a line, and complains about nothing.
func prints(t *testing.T, dir string, env []string, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), exampleTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var complaints bytes.Buffer
	c.Stderr = &complaints
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = c.Process.Signal(os.Interrupt) // of one that does not end by itself
	_, _ = io.Copy(io.Discard, out)
	_ = c.Wait()
	if err != nil || strings.TrimSpace(line) == "" || strings.Contains(line, "undefined") {
		t.Errorf("it printed %q: %v; %s", line, err, &complaints)
	}
}
