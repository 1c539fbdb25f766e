package process

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
)

// The parts of every secret of these tests, around characters that take texts apart.
const (
	secretBegin = "Zq7xKbegin"
	secretEnd   = "Wv9jRend"
)

// odd are characters that mean something to URIs, YAML, shells, headers or logs.
func odd() []string {
	return []string{
		"@", "@/", "/", ":", "%", "%4", "%zz", "#", " #", "?", " ", "[", "]", "{", "}", "@evil.example/", "@evil.example:1/?w=1&x=", "&", "*", "!", "|", ">", "'", `"`, "\\",
		"`", "$", "${X}", "\t", "é", "=", ";", ",", ": ", "- ", "\u202e", "+",
	}
}

// tellsNothing fails the test where a text has a part of a secret, as it is or encoded.
func tellsNothing(t *testing.T, what, text string) {
	t.Helper()
	for _, part := range []string{secretBegin, secretEnd} {
		if i := strings.Index(text, part); i >= 0 {
			t.Errorf("%s tells a secret: …%s…", what, text[max(0, i-80):min(len(text), i+len(part)+40)])
		}
	}
}

// said returns all that a process has written.
func (p *process) said() string {
	return strings.Join(p.output.all(), "\n") + "\n" + strings.Join(p.notes.all(), "\n")
}

// Secrets that a configuration refuses, or takes, are in no message about it: whatever their characters, wherever they are written.
func TestConfigurationTellsNoSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const before, after = secretBegin, secretEnd
	https, plain := "https://hooks.example/", "http://hooks.example/"
	places := map[string]func(secret string) (env []string, file string){
		"URI": func(s string) ([]string, string) {
			return []string{"STREAMER_MONGODB_URI=mongodb://user:" + s + "@db1/?replicaSet=rs0"}, ""
		},
		"user of a URI": func(s string) ([]string, string) {
			return []string{"STREAMER_MONGODB_URI=mongodb://" + s + ":x@db1/"}, ""
		},
		"URI with SRV": func(s string) ([]string, string) {
			return []string{"STREAMER_MONGODB_URI=mongodb+srv://user:" + s + "@db1/"}, ""
		},
		"URI without hosts": func(s string) ([]string, string) {
			return []string{"STREAMER_MONGODB_URI=mongodb://user:" + s + "/"}, ""
		},
		"option of a URI": func(s string) ([]string, string) {
			return []string{"STREAMER_MONGODB_URI=mongodb://db1/?tlsCertificateKeyFile=k&tlsCertificateKeyFilePassword=" + s}, ""
		},
		"URI in YAML": func(s string) ([]string, string) { return nil, "mongodb:\n  uri: mongodb://user:" + s + "@db1/\n" },
		"etcd": func(s string) ([]string, string) {
			return []string{"STREAMER_ETCD_USERNAME=u", "STREAMER_ETCD_PASSWORD=" + s}, ""
		},
		"etcd without its user": func(s string) ([]string, string) { return []string{"STREAMER_ETCD_PASSWORD=" + s}, "" },
		"etcd in YAML":          func(s string) ([]string, string) { return nil, "etcd:\n  username: u\n  password: " + s + "\n" },
		"etcd in a list":        func(s string) ([]string, string) { return nil, "etcd:\n  username: u\n  password: [" + s + "]\n" },
		"etcd under a key":      func(s string) ([]string, string) { return nil, "etcd:\n  username: u\n  password:\n    " + s + "\n" },
		"a misspelt key":        func(s string) ([]string, string) { return nil, "etcd:\n  usernam: u\n  pasword: " + s + "\n" },
		"a misspelt variable":   func(s string) ([]string, string) { return []string{"STREAMER_ETCD_PASWORD=" + s}, "" },
		"etcd's endpoint": func(s string) ([]string, string) {
			return []string{"STREAMER_ETCD_ENDPOINTS=http://u:" + s + "@etcd:2379"}, ""
		},
		"webhook": func(s string) ([]string, string) {
			return []string{"STREAMER_NOTICES_WEBHOOK_URL=" + https + s, "STREAMER_NOTICES_WEBHOOK_SECRET=" + s}, ""
		},
		"webhook in plaintext": func(s string) ([]string, string) { return []string{"STREAMER_NOTICES_WEBHOOK_URL=" + plain + s}, "" },
		"webhook with a user": func(s string) ([]string, string) {
			return []string{"STREAMER_NOTICES_WEBHOOK_URL=https://u:" + s + "@hooks.example/", "STREAMER_NOTICES_WEBHOOK_SECRET=" + s}, ""
		},
		"headers of traces": func(s string) ([]string, string) { return []string{"STREAMER_TRACING_HEADERS=Authorization: " + s}, "" },
		"receiver of traces": func(s string) ([]string, string) {
			return []string{"STREAMER_TRACING_ENDPOINT=https://u:" + s + "@traces.example/"}, ""
		},
		"sink kafka": func(s string) ([]string, string) {
			return nil, "sinks:\n- name: k\n  type: kafka\n  kafka: {brokers: [\"b:1\"], mechanism: plain, username: u}\n  kafka:\n    password: " + s + "\n"
		},
		"sink of type kafka": func(s string) ([]string, string) {
			return nil, "sinks:\n- name: k\n  type: kafka\n  kafka:\n    brokers: [\"b:1\"]\n    mechanism: plain\n    username: u\n    password: " + s + "\n"
		},
		"sink of type nats": func(s string) ([]string, string) {
			return nil, "sinks:\n- name: n\n  type: nats\n  nats:\n    url: nats://u:" + s + "@n:1\n    token: " + s + "\n"
		},
		"sink of type http": func(s string) ([]string, string) {
			return nil, "sinks:\n- name: h\n  type: http\n  http:\n    url: http://h.example/" + s + "\n    secret: " + s + "\n"
		},
	}
	accepted := 0
	for place, make := range places {
		for i, chars := range odd() {
			if place == "URI without hosts" && strings.Contains(chars, "@") {
				continue // it has one: what comes after the @
			}
			secret := before + chars + after
			env, file := make(secret)
			args := []string{"config", "check"}
			if file != "" {
				path := filepath.Join(dir, fmt.Sprintf("%s-%d.yaml", place, i))
				if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "-f", path)
			}
			if i%2 == 0 {
				args = append(args, "-o", "json")
			}
			p := start(t, launch{args: args, env: append(env, "STREAMER_NODE_ID=n")})
			if p.wait() == 0 {
				accepted++
			}
			tellsNothing(t, fmt.Sprintf("%s with %q", place, chars), p.said())
		}
	}
	if accepted < 50 {
		t.Errorf("only %d configurations are accepted", accepted)
	}
}

// A password that is not percent-encoded is refused by every command that reads the configuration, wherever the connection string is written.
func TestPasswordThatIsNotEncodedIsRefused(t *testing.T) {
	t.Parallel()
	for _, chars := range []string{"@", "@/", "/", ":", "%", "#", "?", " ", "[", "]", "é", "@evil.example/"} {
		uri := "mongodb://user:" + secretBegin + chars + secretEnd + "@db1/?replicaSet=rs0"
		file := filepath.Join(t.TempDir(), "uri")
		if err := os.WriteFile(file, []byte(uri+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, env := range []string{"STREAMER_MONGODB_URI=" + uri, "STREAMER_MONGODB_URI_FILE=" + file} {
			for _, args := range [][]string{{"config", "check"}, {"check"}, {"run"}, {"subscribers", "list"}} {
				if args[0] != "config" && chars != "@/" {
					continue
				}
				p := start(t, launch{args: args, env: []string{env, "STREAMER_NODE_ID=n"}})
				p.refused(fault.ConfigBadValue, "percent-encoded")
				tellsNothing(t, strings.Join(args, " "), p.said())
			}
		}
	}
}

// A node whose secrets are all in use, and whose targets and receivers are away, tells none of them: in its log, over HTTP, to operators' commands.
func TestNodeTellsNoSecret(t *testing.T) {
	t.Parallel()
	const password = secretBegin + "@/:%#?[ é" + secretEnd
	server := devmongotest.Start(t, devmongo.Config{Users: []devmongo.User{
		{Name: "node", Password: password, Privileges: append(devmongo.Read(""), devmongo.Read("local")...)}, {Name: "root", Password: "root", Privileges: devmongo.Root()},
	}})
	as := func(user, password string) string {
		return strings.Replace(server.URI(), "mongodb://", "mongodb://"+user+":"+strings.ReplaceAll(url.QueryEscape(password), "+", "%20")+"@", 1)
	}
	l := labOn(t, "etcd", as("root", "root"))
	away := devmongotest.FreeAddress()
	// A store of the retained log that repeats the request in its errors.
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "<Error><Code>AccessDenied</Code><Message>%s, %s</Message></Error>", r.Header.Get("X-Amz-Security-Token"), r.Header.Get("Authorization"))
	}))
	t.Cleanup(bucket.Close)
	file := put(t, "c.yaml", []byte(`retention: {store: "s3://log/a?endpoint=`+bucket.URL+`"}
sinks:
- {name: kafka, type: kafka, kafka: {brokers: ["`+away+`"], mechanism: scram-sha-256, username: u, password: "`+password+`"}}
- {name: nats, type: nats, nats: {url: "nats://`+away+`", username: u, password: "`+password+`"}}
- {name: token, type: nats, nats: {url: "nats://`+away+`", token: "`+password+`"}}
- {name: http, type: http, http: {url: "http://`+away+`/`+secretBegin+`?x=`+secretEnd+`", secret: "`+password+`", insecure: true, allow: [127.0.0.0/8]}}
`))
	l = l.with("STREAMER_MONGODB_URI="+as("node", password), "STREAMER_LOG_LEVEL=debug", "STREAMER_NOTICES_WEBHOOK_URL=http://"+away+"/"+secretBegin,
		"STREAMER_NOTICES_WEBHOOK_SECRET="+password, "STREAMER_TRACING_ENDPOINT=http://"+away, "STREAMER_TRACING_HEADERS=Authorization: Bearer "+secretBegin, "STREAMER_TRACING_RATIO=1",
		"AWS_ACCESS_KEY_ID="+secretBegin, "AWS_SECRET_ACCESS_KEY="+secretEnd, "AWS_SESSION_TOKEN="+secretBegin+"/+="+secretEnd, "AWS_EC2_METADATA_DISABLED=true")
	n := start(t, launch{args: []string{"run", "-f", file}, env: l.settings})
	address := n.address()
	l.insert(0, 50)
	for _, sink := range []string{"kafka", "nats", "token", "http"} {
		until(t, "sink "+sink+" fails", func() bool { return n.noted("sink="+sink) || n.noted(`sink `+sink) || n.noted(`"`+sink+`"`) })
	}
	until(t, "the store of the retained log is in trouble", func() bool { return n.noted("STRM-RETENTION-FORBIDDEN") })
	texts := map[string]string{}
	for _, path := range []string{"/health", "/readyz", "/metrics", "/v1/status", "/v1/sinks", "/v1/subscribers", "/v1/gaps", "/v1/audit", "/v1/reports", "/v1/history", "/v1/configuration", "/v1/changes?db=shop&coll=orders&id=1",
		"/v1/subscribers/detail?subscriber=sink/http"} {
		texts["GET "+path] = ask(t, address+path).body
	}
	for _, args := range [][]string{
		{"check"}, {"check", "-o", "json"}, {"config", "check"}, {"config", "check", "-o", "json"}, {"status", "--address", address}, {"sinks", "status", "--address", address},
		{"subscribers", "list", "--address", address}, {"subscribers", "show", "sink/http"}, {"gaps"}, {"audit", "--address", address}, {"cluster", "adopt", "--dry-run"},
		{"config", "show"}, {"config", "show", "-o", "json"}, {"retention", "list"}, {"retention", "verify"}, {"history", "shop.orders", "1", "--address", address},
	} {
		command := args
		if args[0] == "check" || args[0] == "config" || args[0] == "cluster" || args[0] == "gaps" || args[0] == "retention" || args[1] == "show" {
			command = append(command, "-f", file)
		}
		p := start(t, launch{args: command, env: l.settings})
		p.wait()
		texts["streamer "+strings.Join(args, " ")] = p.said()
	}
	server.RemoveUser("admin", "node") // which ends the node, with what MongoDB says of it
	n.wait()
	texts["the node"] = n.said()
	// And one that is not let in.
	refused := start(t, launch{args: []string{"run", "-f", file}, env: l.settings})
	refused.refused(fault.MongoCredentials)
	texts["a node that is refused"] = refused.said()
	for what, text := range texts {
		if text == "" {
			t.Errorf("%s says nothing: %q", what, text)
		}
		tellsNothing(t, what, text)
	}
}
