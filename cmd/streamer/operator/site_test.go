package operator

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
)

// lonely takes from the test what the environment says of nodes, and gives it a folder for
// contexts.
func lonely(t *testing.T) (contexts string) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "STREAMER_") {
			t.Setenv(name, value) // put back afterwards
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	return filepath.Join(dir, "streamer", "contexts.json")
}

// locate returns the address that a command with these flags asks, and what has named it.
func locate(t *testing.T, flags ...string) (address, from string, err error) {
	t.Helper()
	c := &nodeClient{}
	cmd := &cobra.Command{Use: "ask", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
	c.addFlags(cmd)
	c.addFileFlag(cmd)
	cmd.SetArgs(append([]string{}, flags...))
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	at, err := c.locate()
	if err != nil {
		return "", "", err
	}
	return at.base.String(), at.from, nil
}

// A source that comes earlier in the list decides, with all later ones there.
func TestFirstSourceNamesTheNode(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	file := filepath.Join(t.TempDir(), "node.yaml")
	write(t, file, []byte("http: {listen: ':7004', insecure: true}\n"))
	check := func(address, from string, flags ...string) {
		t.Helper()
		if got, by, err := locate(t, flags...); err != nil || got != address || by != from {
			t.Errorf("%v: %s, %s, %v; want %s by %s", flags, got, by, err, address, from)
		}
	}
	check("http://127.0.0.1:8080", "the default")
	t.Setenv("STREAMER_HTTP_LISTEN", "0.0.0.0:7006")
	t.Setenv("STREAMER_HTTP_INSECURE", "true")
	check("http://127.0.0.1:7006", "http.listen of the environment")
	for _, args := range [][]string{{"one", "--address", "127.0.0.1:7005"}, {"two", "--address", "https://127.0.0.1:7003", "--ca-file", "ca.crt"}} {
		if text, err := d.command(append([]string{"context", "add"}, args...)...); err != nil {
			t.Fatal(err, text)
		}
	}
	check("http://127.0.0.1:7005", "context one")
	if err := os.Unsetenv("STREAMER_HTTP_LISTEN"); err != nil { // it would come before the file's
		t.Fatal(err)
	}
	t.Setenv("STREAMER_CONTEXT", "two")
	check("https://127.0.0.1:7003", "context two")
	t.Setenv("STREAMER_ADDRESS", "127.0.0.1:7002")
	check("http://127.0.0.1:7002", "STREAMER_ADDRESS")
	check("http://127.0.0.1:7004", "http.listen of "+file, "-f", file)
	check("http://127.0.0.1:7005", "context one", "-f", file, "--context", "one")
	check("http://127.0.0.1:7001", "--address", "-f", file, "--address", "127.0.0.1:7001")
	if _, err := d.command("status", "--address", "127.0.0.1:7001", "--context", "one"); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), "[address context]") {
		t.Errorf("%v", err)
	}

	for flag, says := range map[string]string{"--address=": "--address", "--context=three": `no context "three"`, "--context=tow": "did you mean two?"} {
		if _, _, err := locate(t, flag); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	t.Setenv("STREAMER_ADDRESS", "127.0.0.1")
	if _, _, err := locate(t); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), "STREAMER_ADDRESS") {
		t.Errorf("%v", err)
	}
}

func TestConfigurationOfANodeSaysWhereItIs(t *testing.T) {
	lonely(t)
	ca := put(t, nil)
	for text, want := range map[string]string{
		"http: {listen: '127.0.0.1:7004'}":                                            "http://127.0.0.1:7004",
		"http: {listen: '[::]:7004', insecure: true}":                                 "http://127.0.0.1:7004",
		"http: {listen: 'node-1:7004', insecure: true}":                               "http://node-1:7004",
		"http: {listen: ':7004', tls: {cert_file: " + ca + ", key_file: " + ca + "}}": "https://127.0.0.1:7004",
	} {
		file := put(t, []byte(text))
		if got, _, err := locate(t, "-f", file); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	if _, _, err := locate(t, "-f", put(t, []byte("http: {listen: '127.0.0.1:0'}"))); fault.Of(err) != fault.NodeUnreachable || !strings.Contains(err.Error(), "--address") {
		t.Errorf("%v", err)
	}
	c := &nodeClient{file: put(t, []byte("http: {listen: '127.0.0.1:7004', probes_listen: '127.0.0.1:7005'}"))}
	for path, want := range map[string]string{healthPath: "http://127.0.0.1:7005/health", "v1/sinks": "http://127.0.0.1:7004/v1/sinks"} {
		if req, err := c.request(t.Context(), "GET", path, nil); err != nil || req.URL.String() != want {
			t.Errorf("%v, %v; want %s", req, err, want)
		}
	}
}

// The token of a context goes to the address of the context only.
func TestTokenOfAContextIsForItsNode(t *testing.T) {
	path := lonely(t)
	d := &fixture{T: t}
	address, last := serve(t, nil)
	other, lastOfOther := serve(t, nil)
	token := put(t, []byte("secret-token"))
	if text, err := d.command("context", "add", "one", "--address", address, "--token-file", token); err != nil {
		t.Fatal(err, text)
	}
	ask := func(flags ...string) {
		t.Helper()
		c := made(t, flags...)
		req, err := c.request(t.Context(), "GET", "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	if ask(); last.token != "Bearer secret-token" {
		t.Errorf("%+v", last)
	}
	if ask("--address", other); lastOfOther.token != "" {
		t.Errorf("the token of a context went to another node: %+v", lastOfOther)
	}
	t.Setenv("STREAMER_CONTEXT", "one")
	if ask("--address", other); lastOfOther.token != "" {
		t.Errorf("the token of the context in the environment went to another node: %+v", lastOfOther)
	}
	t.Setenv("STREAMER_ADDRESS", other)
	if ask(); lastOfOther.token != "" {
		t.Errorf("the token of the context went to the node of the variable: %+v", lastOfOther)
	}
	*last = shown{}
	if ask("--context", "one"); last.token != "Bearer secret-token" {
		t.Errorf("%+v", last)
	}
	for _, variable := range []string{"STREAMER_ADDRESS", "STREAMER_CONTEXT"} {
		if err := os.Unsetenv(variable); err != nil {
			t.Fatal(err)
		}
	}

	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	text, err := d.command("context", "list")
	if err != nil || !strings.Contains(text, "*") || !strings.Contains(text, token) || strings.Contains(text, "secret-token") {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := d.command("context", "add", "two", "--address", "http://ann:secret-word@node-1:8080"); fault.Of(err) != fault.CommandBadArgument || strings.Contains(err.Error(), "secret-word") {
		t.Errorf("%v", err)
	}
	if _, err := d.command("context", "use", "tow"); fault.Of(err) != fault.CommandBadArgument {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := d.command("context", "list"); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others may write: %v", err)
	}
	for _, flags := range [][]string{{"--address", other}, {"-f", put(t, []byte("http: {listen: '127.0.0.1:7004'}"))}} {
		if _, _, err := locate(t, flags...); err != nil {
			t.Errorf("%v need no context: %v", flags, err)
		}
	}
	if _, _, err := locate(t); fault.Of(err) != fault.CommandBadArgument {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, says := range map[os.FileMode]string{0o777: "chmod 700", 0o700: ""} {
		if err := os.Chmod(filepath.Dir(path), mode); err != nil {
			t.Fatal(err)
		}
		if _, err := d.command("context", "list"); (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("a folder of mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if text, err := d.command("context", "remove", "one"); err != nil {
		t.Error(err, text)
	}
	if at, from, err := locate(t); err != nil || from != "the default" {
		t.Errorf("%s, %s, %v", at, from, err)
	}
	for _, broken := range []string{`{"contexts":null}`, `{"current":"x","contexts":{"x":null}}`, ``} {
		write(t, path, []byte(broken))
		if _, err := d.command("context", "list"); err != nil && fault.Of(err) != fault.CommandBadArgument {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

func TestErrorsOfANodeSayWhoNamedItAndWhatMayBeWrong(t *testing.T) {
	lonely(t)
	c := &nodeClient{address: "127.0.0.1:1"}
	if _, err := c.get(t.Context(), "x", new(any)); fault.Of(err) != fault.NodeUnreachable || !strings.Contains(err.Error(), "http://127.0.0.1:1 (--address)") {
		t.Errorf("%v", err)
	}
}

// A gRPC server sends a frame of HTTP/2, perhaps before it is asked. Nobody wants to read its
// bytes, nor the errors of the library. Other causes are told as they are.
func TestGRPCPortIsNamed(t *testing.T) {
	lonely(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn)) // what it sends then is an answer
			_, _ = conn.Write([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00"))
			_ = conn.Close()
		}
	})
	d := &fixture{T: t}
	for _, command := range [][]string{{"tail"}, {"status"}, {"subscribers", "list"}} {
		_, err := d.command(append(command, "--address", "http://"+l.Addr().String())...)
		if text := fmt.Sprint(err); fault.Of(err) != fault.NodeUnreachable || !strings.Contains(text, "that is a gRPC port") || strings.Contains(text, `\x00`) {
			t.Errorf("%v: %v", command, err)
		}
	}
	_ = l.Close()
	served.Wait()
	c := &nodeClient{site: site{base: &url.URL{Scheme: "http", Host: "127.0.0.1:9090"}, from: "--address"}}
	reset := fmt.Errorf("readLoopPeekFailLocked: read tcp 127.0.0.1:40000->127.0.0.1:9090: %w", syscall.ECONNRESET)
	if err := c.unreachable(reset); !errors.Is(err, reset) || strings.Contains(err.Error(), "gRPC") || !strings.Contains(err.Error(), "reset") {
		t.Errorf("a connection that was reset: %v", err)
	}
	for _, text := range []string{
		`Get "http://127.0.0.1:9090/health": net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x00\x00\x18\x04\x00\x00\x00"`,
		`Get "http://127.0.0.1:9090/health": readLoopPeekFailLocked: %!w(<nil>)`,
	} {
		err := c.unreachable(errors.New(text))
		if text := err.Error(); fault.Of(err) != fault.NodeUnreachable || !strings.Contains(text, "that is a gRPC port") || strings.Contains(text, `\x00`) || strings.Contains(text, "%!w") {
			t.Errorf("%v", err)
		}
	}
}

// At the port of another server, as etcd's, every command says that no node answers there, and a
// tail does not try again.
func TestServerThatIsNoNodeIsNamed(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	for name, answer := range map[string]http.HandlerFunc{
		"etcd":         http.NotFound,
		"a web server": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"a JSON server": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, `{"a":1}`)
		},
		"a proxy": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		server := httptest.NewServer(answer)
		for _, args := range [][]string{{"status"}, {"sinks"}, {"subscribers"}, {"tail"}, {"audit"}, {"gaps"}, {"supervisor", "status"}, {"drain", "n", "--yes"}} {
			_, err := d.command(append(args, "--address", server.URL)...)
			if text := fmt.Sprint(err); fault.Of(err) != fault.NodeUnreachable || !strings.Contains(text, "no node at "+server.URL) {
				t.Errorf("%s, %v: %v", name, args, err)
			}
		}
		server.Close()
	}
}

func TestUrlOfTailIsNamedByItsNewName(t *testing.T) {
	d := &fixture{T: t}
	if _, err := d.command("tail", "--url", "http://127.0.0.1:8080"); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), "it is called --address") {
		t.Errorf("%v", err)
	}
}
