package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/docblock"
)

// The addresses of the demo in documents.
const (
	documentedHTTP = "127.0.0.1:8080"
	documentedGRPC = "127.0.0.1:9090"
)

// exampleTimeout bounds how long an example may take until something comes.
const exampleTimeout = 3 * time.Minute

// Examples are taken out of the documents and run against the demo with its default settings: what
// a newcomer copies works as it stands.
func TestExamplesOfDocumentsRunAgainstTheDemo(t *testing.T) {
	here := demoOf(t)
	t.Run("examples", func(t *testing.T) { // which returns after those that run beside each other
		found := make(map[string]int)
		example := func(place, kind, source string, try func(*testing.T)) {
			found[kind]++
			t.Run(place+" "+kind+" "+source, func(t *testing.T) {
				t.Parallel()
				try(t)
			})
		}
		for _, b := range blocks(t, "sh") {
			for _, command := range commands(b.Text) {
				switch words := shellWords(command); {
				case words[0] == "curl":
					example(b.String(), "curl", command, func(t *testing.T) { curl(t, shellWords(here.Replace(command))) })
				case slices.Contains(words, "python3") && strings.Contains(command, documentedHTTP):
					address := words[slices.IndexFunc(words, func(w string) bool { return strings.Contains(w, documentedHTTP) })]
					example(b.String(), "python", command, func(t *testing.T) { curl(t, []string{"curl", here.Replace(address)}) })
				case words[0] == "grpcurl":
					example(b.String(), "grpcurl", command, func(t *testing.T) { grpcurl(t, shellWords(here.Replace(command))) })
				}
			}
		}
		for _, b := range blocks(t, "sh operator") {
			for _, command := range commands(b.Text) {
				example(b.String(), "operator", command, func(t *testing.T) { operator(t, shellWords(here.Replace(command))) })
			}
		}
		for _, b := range blocks(t, "go") {
			program := here.Replace(b.Text)
			if strings.HasPrefix(program, "package main\n") {
				example(b.String(), "program", "", func(t *testing.T) { runProgram(t, program) })
			} else {
				example(b.String(), "fragment", "", func(t *testing.T) { checkFragment(t, program) })
			}
		}
		for _, b := range blocks(t, "ts") {
			example(b.String(), "script", "", func(t *testing.T) { runScript(t, here.Replace(programTS(b.Text))) })
		}
		for _, b := range blocks(t, "js") {
			example(b.String(), "script", "", func(t *testing.T) { runScript(t, here.Replace(b.Text)) })
		}
		if text, err := os.ReadFile("../../client/doc.go"); err != nil {
			t.Error(err)
		} else {
			program := ""
			for _, m := range regexp.MustCompile(`(?m)^//(\t.*)$`).FindAllStringSubmatch(string(text), -1) {
				program += m[1] + "\n"
			}
			example("client/doc.go", "fragment", "", func(t *testing.T) { checkFragment(t, program) })
		}
		for place, filters := range filters(t) {
			for _, filter := range filters {
				example(place, "filter", filter, func(t *testing.T) {
					curl(t, []string{"curl", here.Replace("http://"+documentedHTTP) + "/v1/events?db=shop&start=earliest&filter=" + url.QueryEscape(filter)})
				})
			}
		}
		for kind, least := range map[string]int{"curl": 12, "operator": 7, "python": 3, "grpcurl": 1, "program": 1, "fragment": 2, "script": 6, "filter": 10} {
			if found[kind] < least {
				t.Errorf("only %d examples of %s were found", found[kind], kind)
			}
		}
	})
}

// demoOf runs the demo, and returns what puts its addresses in the place of the documented ones.
func demoOf(t *testing.T) *strings.Replacer {
	t.Helper()
	lines := bufio.NewScanner(run(t))
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	at := regexp.MustCompile(`^A node is running on http://(\S+), with gRPC at (\S+) `).FindStringSubmatch(lines.Text())
	if at == nil {
		t.Fatalf("%q", lines.Text())
	}
	go func() {
		for lines.Scan() {
		}
	}()
	return strings.NewReplacer(documentedHTTP, at[1], documentedGRPC, at[2])
}

// blocks are those of a kind in all documents.
func blocks(t *testing.T, kind string) []docblock.Block {
	t.Helper()
	found, err := docblock.Of("../..", kind)
	if err != nil || len(found) == 0 {
		t.Fatalf("%d blocks of %s, %v", len(found), kind, err)
	}
	return found
}

// documents are those with filters for the demo.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/runbooks/*.md", "client/typescript/README.md", "client/python/README.md", "examples/*/README.md", "examples/*/*.html",
		"examples/*/main.go", "client/doc.go",
	} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d documents, %v", pattern, len(found), err)
		}
		paths = append(paths, found...)
	}
	return paths
}

// commands are the lines of a block of shell.
func commands(text string) (all []string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if line = strings.TrimSpace(line); len(shellWords(line)) > 0 {
			all = append(all, line)
		}
	}
	return all
}

// filters are those of the examples by their places: the lines of the blocks of CEL, and what
// programs and addresses name as a filter.
func filters(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, b := range blocks(t, "cel") {
		all[b.String()] = strings.Split(strings.TrimSpace(b.Text), "\n")
	}
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{"Filter: `([^`]+)`", `filter[:=] ?"([^"]+)"`, `filter[:=] ?'([^']+)'`, `<code>\?[^<]*&amp;filter=([^<]+)</code>`} {
			for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(string(text), -1) {
				all[path] = append(all[path], strings.ReplaceAll(m[1], "&amp;", "&"))
			}
		}
	}
	return all
}

// shellWords splits a command as a shell does, without its comment.
func shellWords(line string) (words []string) {
	var word strings.Builder
	quote, begun := rune(0), false
	for _, r := range line + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == '#' && !begun:
			return words
		case r == ' ' || r == '\t':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	return words
}

// curl does what curl does: a stream of events must bring one, everything else an answer.
func curl(t *testing.T, words []string) {
	ctx, cancel := context.WithTimeout(t.Context(), exampleTimeout)
	defer cancel()
	var target string
	query := url.Values{}
	for i := 1; i < len(words); i++ {
		switch word := words[i]; {
		case word == "-N" || word == "-G":
		case word == "--data-urlencode":
			i++
			name, value, _ := strings.Cut(words[i], "=")
			query.Set(name, value)
		case strings.HasPrefix(word, "http://"):
			target = word
		default:
			t.Fatalf("what does %s mean to curl?", word)
		}
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		text := lines.Text()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", response.Status, text)
		}
		if !strings.Contains(target, "/v1/events") || strings.HasPrefix(text, "data: ") && strings.Contains(text, `"operationType"`) {
			return
		}
	}
	t.Fatalf("%s: nothing has come: %v", response.Status, lines.Err())
}

// operator sends an operator's request, which names what the demo may not have. The node must know
// the request and its parameters.
func operator(t *testing.T, words []string) {
	method := http.MethodGet
	if at := slices.Index(words, "-X"); at >= 0 {
		method = words[at+1]
	}
	request, err := http.NewRequestWithContext(t.Context(), method, words[len(words)-1], nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= http.StatusBadRequest && !strings.Contains(string(text), "STRM-") || strings.Contains(string(text), "parameter") {
		t.Errorf("%s: %s %v", response.Status, text, err)
	}
}

// grpcurl does what grpcurl does with a request that subscribes, through the client.
func grpcurl(t *testing.T, words []string) {
	var request struct {
		Hello struct {
			Subscriber    string
			Start         string
			Ack           string
			Subscriptions []struct{ ID, Filter, Format string }
		}
	}
	d := json.NewDecoder(strings.NewReader(words[slices.Index(words, "-d")+1]))
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil {
		t.Fatal(err)
	}
	hello, subscription := request.Hello, request.Hello.Subscriptions[0]
	_, start := streampb.Start_value[hello.Start]
	_, ack := streampb.AckMode_value[hello.Ack]
	_, format := streampb.Format_value[subscription.Format]
	if !start || !ack || !format || words[len(words)-1] != strings.TrimPrefix(strings.Replace(streampb.Gateway_Connect_FullMethodName, "/", "", 1), "/") {
		t.Errorf("%q", words)
	}
	ctx, stop := context.WithTimeout(t.Context(), exampleTimeout)
	defer stop()
	c, err := client.New(client.Config{Addresses: []string{words[len(words)-2]}, Subscriber: hello.Subscriber, Start: client.StartNow, Acks: client.AckAuto})
	if err != nil {
		t.Fatal(err)
	}
	came := false
	err = c.Subscribe(client.Subscription{ID: subscription.ID, Filter: subscription.Filter, Format: client.JSON}, func(context.Context, client.Change) error {
		came = true
		stop()
		return nil
	})
	if err := errors.Join(err, c.Run(ctx)); err != nil || !came {
		t.Errorf("it came: %t; %v", came, err)
	}
}

// runProgram runs a program until it prints something, and stops it as Ctrl-C does.
func runProgram(t *testing.T, text string) {
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source)
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), exampleTimeout)
	defer cancel()
	var complaints bytes.Buffer
	program := exec.CommandContext(ctx, binary)
	program.Stderr = &complaints
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	printed := lines.Scan() && regexp.MustCompile(`^(insert|update|replace|delete) \d+ `).MatchString(lines.Text())
	_ = program.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, out)
	if err := program.Wait(); err != nil || !printed || complaints.Len() > 0 {
		t.Errorf("it printed %q: %v; %s", lines.Text(), err, &complaints)
	}
}

// checkFragment checks the types of a part of a program that has a client, a context and a handler.
func checkFragment(t *testing.T, text string) {
	source := filepath.Join(t.TempDir(), "main.go")
	program := `package main

import (
	"context"
	"fmt"

	"github.com/mongostream/streamer/client"
)

func main() {
	var c *client.Client
	var err error
	ctx, handler := context.Background(), func(context.Context, client.Change) error { return nil }
	_, _, _ = c, ctx, handler
	{
` + text + `
		_ = err
	}
	fmt.Println(err)
}
`
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", source)
	vet.Dir = "../.."
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
