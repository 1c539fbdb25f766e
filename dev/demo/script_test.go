package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dop251/goja"
	"github.com/evanw/esbuild/pkg/api"
)

// beforeTS is what the examples in TypeScript leave to the reader's program. Each example ends when
// something has come.
const beforeTS = `
interface Order { _id: number; total: number; status: string; customer: { name: string } }
declare const process: { exit(code: number): never };
const came = (...what: unknown[]): void => { console.log(...what); process.exit(0); };
const addresses = ["http://127.0.0.1:8080"], token = () => "", session = { token }, signal = new AbortController().signal;
const localStorage = { getItem: (name: string): string | null => name && null, setItem: (name: string, text: string) => { void (name + text); } };
const show = came, hide = came, readAgain = came, spinner = { stop: came };
void [addresses, token, session, signal, localStorage, show, hide, readAgain, spinner];
`

// programTS makes a whole program of an example in TypeScript.
func programTS(example string) string {
	if strings.Contains(example, "createCollection(") {
		example += "\nawait orders.preload();\ncame(orders.size);\n"
	}
	return beforeTS + example
}

// runScript runs a program in TypeScript or JavaScript with the TypeScript client until it prints
// something. It needs neither Node.js nor a browser: testdata/host.js has what the examples use of
// them. make clients checks the types and runs the examples in Node.js, make browser the page of
// the tutorial in Chromium.
func runScript(t *testing.T, program string) {
	ctx, cancel := context.WithTimeout(t.Context(), exampleTimeout)
	defer cancel()
	code := bundle(t, program)
	vm := goja.New()
	vm.SetFieldNameMapper(goja.UncapFieldNameMapper())
	printed := ""
	host := map[string]any{
		"print": func(text string) {
			printed = text
			vm.Interrupt("it has printed something")
		},
		"complain": func(text string) { t.Error(text) },
		"get":      func(target string, headers map[string]string) (*answer, error) { return get(ctx, target, headers) },
	}
	for name, function := range host {
		if err := vm.Set(name, function); err != nil {
			t.Fatal(err)
		}
	}
	_, err := vm.RunString("(async () => {\n" + code + "\n})().catch((error) => complain(String(error.stack)))")
	if strings.TrimSpace(printed) == "" || strings.Contains(printed, "undefined") {
		t.Errorf("it printed %q: %v", printed, err)
	}
}

// bundle compiles a program with the client and testdata/host.js into one script. goja has all of
// JavaScript that they use but asynchronous generators.
func bundle(t *testing.T, program string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	host := filepath.Join(root, "dev/demo/testdata/host.js")
	result := api.Build(api.BuildOptions{
		Stdin:     &api.StdinOptions{Contents: program, ResolveDir: root, Loader: api.LoaderTS},
		Bundle:    true,
		Format:    api.FormatESModule,
		Target:    api.ES2022,
		Supported: map[string]bool{"async-generator": false, "for-await": false},
		Alias: map[string]string{
			"@mongostream/streamer": filepath.Join(root, "client/typescript/src/index.ts"),
			"@tanstack/db":          host,
			"node:fs":               host,
		},
		Inject: []string{host},
	})
	for _, e := range result.Errors {
		t.Fatalf("%+v: %s", e.Location, e.Text)
	}
	return string(result.OutputFiles[0].Contents)
}

// An answer is what fetch has got.
type answer struct {
	response *http.Response
	body     *bufio.Reader
}

func get(ctx context.Context, target string, headers map[string]string) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	return &answer{response, bufio.NewReader(response.Body)}, nil
}

func (a *answer) Status() int { return a.response.StatusCode }

func (a *answer) Header(name string) string { return a.response.Header.Get(name) }

func (a *answer) Line() (string, error) { return a.body.ReadString('\n') }

func (a *answer) Text() (string, error) {
	text, err := io.ReadAll(a.body)
	return string(text), err
}

func (a *answer) Close() error { return a.response.Body.Close() }
