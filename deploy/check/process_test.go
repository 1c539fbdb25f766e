package check

import (
	"os/exec"
	"testing"
)

// output runs a command to its end and returns what it wrote to standard output. env nil is the
// test's own.
func output(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Env = env
	text, err := command.Output()
	if err != nil {
		t.Errorf("%s %v: %v", name, args, err)
		if exit, ok := err.(*exec.ExitError); ok {
			t.Logf("%s", exit.Stderr)
		}
	}
	return string(text)
}
