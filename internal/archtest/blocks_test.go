package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/internal/docblock"
)

// A treatment says what tries the code of documents: tests as package.TestName, and scripts of a
// target of make; or why nothing does.
type treatment struct {
	what string   // a kind of block, or what a line of shell begins with
	in   []string // the only documents for it, if it is not for all
	by   []string
	why  string
}

// The tests and scripts that more than one treatment names.
const (
	demo     = "dev/demo.TestExamplesOfDocumentsRunAgainstTheDemo"
	commands = "cmd/streamer.TestCommandsInDocumentsAreTaken"
	tutorial = "test/browser/tutorial.mjs"
)

// kinds are the treatments of blocks. Treatments that need tools other than Go are behind the
// build tag clients (make clients) or in a browser (make browser).
func kinds() []treatment {
	return []treatment{
		{what: "sh", by: []string{commands}, why: "each line by the table of programs"},
		{what: "sh operator", in: []string{"docs/operations.md"}, by: []string{demo}, why: "the demo has not all that they name: it must understand them"},
		{what: "sh backup", in: []string{"docs/runbooks/disasters.md"}, by: []string{"test/process.TestCheckpointsAreRestoredAsTheRunbookSays"}},
		{what: "sh restore", in: []string{"docs/runbooks/disasters.md"}, by: []string{"test/process.TestCheckpointsAreRestoredAsTheRunbookSays"}},
		{what: "console", in: []string{"docs/operations.md"}, by: []string{commands}, why: "what the commands print is of another cluster"},
		{what: "go", by: []string{demo}},
		{what: "go imports", in: []string{"docs/connect.md"}, why: "one of the two packages is of the full distribution, which is not built here"},
		{what: "ts", by: []string{demo, "dev/demo.TestTypeScriptOfDocumentsRunsAgainstTheDemo"}},
		{what: "python", by: []string{"dev/demo.TestPythonOfDocumentsRunsAgainstTheDemo"}},
		{what: "python webhook", by: []string{"dev/demo.TestVerificationInPythonIsThatOfDeliveries"}},
		{what: "html", in: []string{"docs/tutorial.md"}, by: []string{tutorial}},
		{what: "js", in: []string{"docs/tutorial.md"}, by: []string{demo, tutorial}},
		{what: "js mongosh", in: []string{"docs/operations.md"}, why: "the development MongoDB has neither users nor sharded clusters"},
		{what: "cel", by: []string{demo}},
		{what: "json", by: []string{"cmd/streamer.TestSamplesInDocumentsAreJSON"}},
		{what: "yaml", by: []string{"cmd/streamer.TestConfigurationsInDocumentsAreTaken"}},
		{what: "yaml chart", in: []string{"deploy/chart/README.md"}, by: []string{"deploy/check.TestExamplesOfValuesRender"}},
		{what: "yaml connect", in: []string{"docs/connect.md"}, by: []string{"connect.TestConfigurationsOfTheDocumentationPassTheLint"}},
		{what: "yaml connect full", in: []string{"docs/connect.md"}, by: []string{"connect.TestConfigurationsOfTheDocumentationPassTheLint"}},
		{what: "promql", by: []string{"test/process.TestEveryAlertHasItsRunbook"}},
		{what: "text identities", in: []string{"docs/access.md"}, by: []string{"gateway/access.TestDocumentedFormsAreTaken"}},
		{what: "text", in: []string{"docs/reference/commands.md", "docs/benchmarks.md", "CONTRIBUTING.md"}, why: "output of generators, and a message of a commit"},
	}
}

// programs are the treatments of commands in blocks of shell, by regular expressions for their
// beginnings.
func programs() []treatment {
	return []treatment{
		{what: `streamer |make |go run `, by: []string{commands}},
		{what: `curl |grpcurl `, by: []string{demo}},
		{what: `python3 -m mongostream_streamer `, by: []string{demo, "dev/demo.TestPythonOfDocumentsRunsAgainstTheDemo"}},
		{what: `python3 -m http\.server `, in: []string{"docs/tutorial.md"}, by: []string{tutorial}},
		{what: `python3 -m pip install \./client/python *$`, by: []string{"dev/demo.TestPackageOfPythonIsInstalled"}},
		{what: `npm |node `, by: []string{tutorial, "client/typescript/test/package.test.mjs", "examples/react/browser.test.mjs", "client/typescript/test/browser/chromium.test.mjs"}},
		{what: `go test \./\.\.\.`, why: "this is it"},
		{what: `go get `, in: []string{"docs/connect.md"}, why: "the full distribution is not built here"},
		{what: `bin/streamer-connect `, by: []string{"connect.TestProveCommandsOfTheDocumentationAreTaken"}},
		{what: `git clone |cd |mkdir |export |tar -|token=|printf |jq `, why: "tools of the system"},
		{what: `helm |kubectl |skopeo |crane `, in: []string{"deploy/chart/README.md"}, why: "they need a cluster or a registry; deploy/check renders the chart with these values and reads the image"},
	}
}

// untreated returns the complaint about a block that nothing tries, empty if something does.
func untreated(b docblock.Block) string {
	fits := func(t treatment) bool { return t.in == nil || slices.Contains(t.in, b.Path) }
	if !slices.ContainsFunc(kinds(), func(t treatment) bool { return t.what == b.Kind && fits(t) }) {
		return fmt.Sprintf("nothing tries the kind %q there: see kinds", b.Kind)
	}
	if b.Kind != "sh" {
		return ""
	}
	at := "." // the folder into which the commands have gone
	for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", " ")) {
		for _, command := range commandsOf(line) {
			known := func(t treatment) bool {
				return regexp.MustCompile("^(?:"+t.what+")").MatchString(command+" ") && fits(t)
			}
			if !slices.ContainsFunc(programs(), known) {
				return fmt.Sprintf("nothing tries %q there: see programs", command)
			}
			words := strings.Fields(command)
			if i := slices.IndexFunc(words, func(word string) bool { return isMissing(at, word) }); i >= 0 {
				return fmt.Sprintf("%s is not in %s, where the lines before it lead", words[i], at)
			}
			at = after(words, at)
		}
	}
	return ""
}

// isMissing reports whether a word is a path of this tree, but not one of a folder of it.
func isMissing(at, word string) bool {
	_, inTree := os.Stat(filepath.Join(root, word))
	_, inFolder := os.Stat(filepath.Join(root, at, word))
	return strings.Contains(word, "/") && inTree == nil && inFolder != nil
}

// after returns the folder in which a reader is after a command.
func after(words []string, at string) string {
	switch {
	case words[0] == "git": // it makes the clone, and what enters that comes next
		return ".."
	case words[0] == "cd" && at == "..":
		return "."
	case words[0] == "cd":
		return filepath.Join(at, words[1])
	default:
		return at
	}
}

// commandsOf splits a line of shell into its commands, without variables in front of them and
// without a comment.
func commandsOf(line string) (all []string) {
	variables := regexp.MustCompile(`^(?:[A-Z_]+=(?:'[^']*'|"[^"]*"|[^\s'"])*\s+)+`)
	var command strings.Builder
	end := func() {
		if text := variables.ReplaceAllString(strings.TrimSpace(command.String()), ""); text != "" {
			all = append(all, text)
		}
		command.Reset()
	}
	quote, before := rune(0), ' '
	for _, r := range line {
		switch {
		case quote == 0 && r == '#' && before == ' ':
			end()
			return all
		case quote == 0 && strings.ContainsRune("|;&", r):
			end()
		default:
			command.WriteRune(r)
		}
		switch {
		case quote == r:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		}
		before = r
	}
	end()
	return all
}

// Every block of code in every document is tried by a test, or the table says why not. A reader
// copies it as it stands.
func TestEveryBlockOfCodeIsTriedOrSaysWhyNot(t *testing.T) {
	blocks, err := docblock.All(root)
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, b := range blocks {
		used[b.Kind] = true
		if complaint := untreated(b); complaint != "" {
			t.Errorf("%s: %s", b, complaint)
		}
	}
	tests := testsOf(t)
	for _, r := range slices.Concat(kinds(), programs()) {
		if len(r.by) == 0 && r.why == "" {
			t.Errorf("%s: neither a test nor a reason", r.what)
		}
		for _, by := range r.by {
			pkg, name, _ := strings.Cut(by, ".Test")
			if _, err := os.Stat(filepath.Join(root, by)); err != nil && !slices.Contains(tests[pkg], "Test"+name) {
				t.Errorf("%s: there is no %s", r.what, by)
			}
		}
	}
	for _, r := range kinds() {
		if !used[r.what] {
			t.Errorf("no block is of the kind %q", r.what)
		}
	}
}

// A new block counts as untried.
func TestBlocksThatNothingTriesAreFound(t *testing.T) {
	for _, c := range []struct{ path, kind, text string }{
		{"docs/new.md", "", "a\n"},
		{"docs/new.md", "rust", "fn main() {}\n"},
		{"docs/new.md", "text", "curl -N http://127.0.0.1:8080/\n"},
		{"docs/new.md", "js", "a();\n"},
		{"docs/new.md", "sh operator", "curl -X POST http://127.0.0.1:8080/v1/nodes/a/drain\n"},
		{"docs/new.md", "sh", "cd a && wget http://127.0.0.1:8080/\n"},
		{"docs/new.md", "sh", "A=b brew install streamer\n"},
		{"docs/new.md", "sh", "helm install streamer\n"},
		{"README.md", "sh", "streamer status | less\n"},
		{"README.md", "sh", "cd client/typescript && npm ci\ngo run ./dev/demo\n"},
		{"README.md", "sh", "git clone https://example.com/streamer\ngo run ./dev/demo\n"},
		{"README.md", "sh", "streamer status # less\nstatus \\\n  -o json\n"},
	} {
		if complaint := untreated(docblock.Block{Path: c.path, Kind: c.kind, Text: c.text}); complaint == "" {
			t.Errorf("%s in %s passes: %s", c.kind, c.path, c.text)
		}
	}
}
