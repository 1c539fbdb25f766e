package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/internal/docblock"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/commands.md anew")

const reference = "../../docs/reference/commands.md"

// TestCommandsAreDocumented compares docs/reference/commands.md with the commands.
func TestCommandsAreDocumented(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`<!-- Generated from the commands by go generate ./cmd/streamer. Do not edit. -->

# Commands

Commands of operators read the configuration of the nodes (` + "`-f`" + ` or the environment). Those that change something ask first; without a terminal they
need ` + "`--yes`" + `. With ` + "`-o json`" + ` they print JSON.
`)
	n := 0
	var write func(*cobra.Command)
	write = func(c *cobra.Command) {
		if c.Runnable() && !c.Hidden {
			n++
			usage := strings.TrimSuffix(c.UseLine(), " [flags]")
			fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n\n%s.\n", c.CommandPath(), usage, strings.TrimSuffix(c.Short, "."))
			if c.Long != "" {
				fmt.Fprintf(&b, "\n```text\n%s\n```\n", strings.TrimSpace(c.Long))
			}
			if flags := c.LocalFlags().FlagUsages(); flags != "" {
				fmt.Fprintf(&b, "\nFlags:\n\n```text\n%s```\n", flags)
			}
		}
		for _, below := range c.Commands() {
			write(below)
		}
	}
	write(command())
	if n < 20 {
		t.Errorf("only %d commands", n)
	}
	if *rewrite {
		if err := os.WriteFile(reference, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(reference); err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what the commands say: go generate ./cmd/streamer (%v)", reference, err)
	}
}

// TestCommandsInDocumentsAreTaken reads the commands in blocks of shell and in tables as their
// readers will copy them: every command, flag, target of make and program of this repository is
// there.
func TestCommandsInDocumentsAreTaken(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	inline := regexp.MustCompile("`(streamer [^`\n]+|go run [^`\n]+|make [^`\n]+)`")
	found := 0
	lines := make(map[string][]string)
	for _, b := range blocks(t, "sh", "sh operator", "sh backup", "sh restore", "console") {
		for line := range strings.SplitSeq(strings.ReplaceAll(b.Text, "\\\n", " "), "\n") {
			if b.Kind != "console" || strings.HasPrefix(line, "$ ") { // other lines are output
				lines[b.String()] = append(lines[b.String()], line)
			}
		}
	}
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inline.FindAllStringSubmatch(string(text), -1) {
			lines[path] = append(lines[path], m[1])
		}
	}
	for path, text := range comments(t) {
		for _, m := range regexp.MustCompile(`(?m)^//\t((?:streamer|go run|make) .*)$`).FindAllStringSubmatch(text, -1) {
			lines[path] = append(lines[path], m[1])
		}
	}
	for path, lines := range lines {
		for _, line := range lines {
			words := shellWords(line)
			switch {
			case len(words) < 2:
			case words[0] == "streamer":
				found++
				if err := takes(words[1:]); err != nil {
					t.Errorf("%s: %s: %v", path, line, err)
				}
			case words[0] == "go" && words[1] == "run" && len(words) > 2:
				found++
				program := words[2]
				if _, err := os.Stat("../../" + program); err != nil {
					t.Errorf("%s: %s: there is no %s", path, line, program)
				}
				if program == "./cmd/streamer" {
					if err := takes(words[3:]); err != nil {
						t.Errorf("%s: %s: %v", path, line, err)
					}
				}
			case words[0] == "make":
				found++
				if target := words[1]; !strings.HasPrefix(target, "-") && !strings.Contains(string(makefile), "\n"+target+":") {
					t.Errorf("%s: %s: there is no target %s", path, line, target)
				}
			}
		}
	}
	if found < 150 {
		t.Errorf("only %d commands were found", found)
	}
}

// Samples of JSON are JSON, and samples of changes have what every change has.
func TestSamplesInDocumentsAreJSON(t *testing.T) {
	changes := 0
	for _, b := range blocks(t, "json") {
		var sample map[string]any
		if err := json.Unmarshal([]byte(b.Text), &sample); err != nil {
			t.Errorf("%s: %v in %s", b, err, b.Text)
		}
		if sample["operationType"] == nil {
			continue
		}
		changes++
		for _, name := range []string{"id", "partition", "clusterTime", "ns", "documentKey"} {
			if sample[name] == nil {
				t.Errorf("%s: a change without %s: %s", b, name, b.Text)
			}
		}
	}
	if changes == 0 {
		t.Error("no sample of a change was found")
	}
}

// Configurations are taken as they stand, filters of sinks too. Certificates that are not on this
// machine are skipped.
func TestConfigurationsInDocumentsAreTaken(t *testing.T) {
	found := 0
	for _, b := range blocks(t, "yaml") {
		found++
		dir := t.TempDir()
		file := filepath.Join(dir, "config.yaml")
		for name, content := range map[string]string{
			"config.yaml": strings.ReplaceAll(b.Text, "/run/secrets", dir), "webhook-url": "https://hooks.example.com/", "webhook-secret": strings.Repeat("5", 64), "kafka": "secret",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		check := command()
		check.SetArgs([]string{"config", "check", "-f", file})
		check.SetOut(&out)
		check.SetErr(&out)
		if err := check.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v: %s%s", b, err, &out, b.Text)
		}
	}
	if found < 4 {
		t.Errorf("only %d configurations were found", found)
	}
}

// blocks returns the code of some kinds in all documents.
func blocks(t *testing.T, kinds ...string) []docblock.Block {
	t.Helper()
	found, err := docblock.Of("../..", kinds...)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// comments returns the documentation of packages.
func comments(t *testing.T) map[string]string {
	t.Helper()
	all, tree := make(map[string]string), os.DirFS("../..")
	for _, pattern := range []string{"*/doc.go", "*/*/doc.go", "*/*/*/doc.go"} {
		paths, err := fs.Glob(tree, pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
		}
		for _, path := range paths {
			text, err := fs.ReadFile(tree, path)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(text)
		}
	}
	return all
}

// documents returns the paths of the documents for people who use or change the program. Changelog, bugs and designs speak of other times.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/runbooks/*.md", "../../examples/*/*.md", "../../client/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		return slices.Contains([]string{"CHANGELOG.md", "bugs.md", "seeds.md"}, filepath.Base(path))
	})
}

// shellWords splits a command of a shell without what is before the program and after it: variables, a prompt, comments, pipes.
func shellWords(line string) []string {
	line, _, _ = strings.Cut(line, " #")
	line = regexp.MustCompile(`\s(\||&&|;|>).*`).ReplaceAllString(line, "")
	words := strings.Fields(line)
	for len(words) > 0 && (words[0] == "$" || regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0])) {
		words = words[1:]
	}
	return words
}

// takes reports what the program does not know of a command: its name, or a flag. Alternatives (a|b), ellipses and optional parts in brackets stand for
// one of them.
func takes(words []string) error {
	for i, word := range words {
		if alternatives := strings.Split(strings.ReplaceAll(word, `\|`, "|"), "|"); len(alternatives) > 1 && !strings.HasPrefix(word, "[") {
			for _, alternative := range alternatives {
				if err := takes(slices.Concat(words[:i], []string{alternative}, words[i+1:])); err != nil {
					return err
				}
			}
			return nil
		}
	}
	c, rest, err := command().Find(words)
	if err != nil {
		return err
	}
	if c.HasSubCommands() && len(rest) > 0 && regexp.MustCompile(`^[a-z]`).MatchString(rest[0]) {
		return fmt.Errorf("%s has no command %s", c.CommandPath(), rest[0])
	}
	for _, word := range rest {
		name, _, _ := strings.Cut(strings.Trim(word, "[]"), "=")
		switch {
		case strings.HasPrefix(name, "--"):
			if c.Flag(name[2:]) == nil {
				return fmt.Errorf("%s has no flag %s", c.CommandPath(), name)
			}
		case len(name) == 2 && name[0] == '-':
			if c.Flags().ShorthandLookup(name[1:]) == nil && c.InheritedFlags().ShorthandLookup(name[1:]) == nil {
				return fmt.Errorf("%s has no flag %s", c.CommandPath(), name)
			}
		}
	}
	return nil
}
