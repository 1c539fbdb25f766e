package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
)

func TestSinksAreRead(t *testing.T) {
	file := `
sinks:
  - name: orders
    type: kafka
    start: 2026-01-31T12:00:00Z
    subscriptions:
      - namespace: shop.orders
        operations: [insert]
        filter: doc.x > 1
      - namespace: lab.*
    kafka:
      brokers: [k:9092]
      mechanism: scram-sha-512
      username: u
      password_file: /run/secrets/kafka
  - {name: hook, type: http, start: earliest, http: {url: "https://h/x", secret: 0123456789abcdef}}
  - {name: copy, type: file, start: snapshot, file: {path: x}}
`
	open := func(string) ([]byte, error) { return []byte("secret\n"), nil }
	c, err := parse("f", []byte(file), []string{"STREAMER_SINKS_1_HTTP_BATCH=7"}, open)
	if err != nil {
		t.Fatal(err)
	}
	k, h := c.Sinks[0], c.Sinks[1]
	switch {
	case k.Kafka.Password != "secret", k.Kafka.Topic != "{db}.{coll}", k.Format != "relaxed", len(k.Subscriptions) != 2, k.Subscriptions[1].Namespace != "lab.*":
		t.Errorf("%+v", k)
	case !k.Start.At.Equal(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)), !h.Start.Oldest, !c.Sinks[2].Start.Snapshot, h.HTTP.Batch != 7, h.HTTP.Timeout != 10*time.Second:
		t.Errorf("%+v", h)
	}
	if text := c.String(); strings.Contains(text, "secret\n") || !strings.Contains(text, "sinks[0].subscriptions[1].namespace: lab.*") || !strings.Contains(text, "sinks[2].start: snapshot") || strings.Contains(text, "/x") {
		t.Error(text)
	}
}

func TestSinksThatCannotWorkAreRefused(t *testing.T) {
	for sink, want := range map[string]string{
		"{type: file, file: {path: x}}": "f:3: sinks[0].name: is needed", "{name: a}": "sinks[0].type: is needed", "{name: a, type: kafka}": "sinks[0].kafka.brokers: is needed",
		"{name: a, type: nats}": "sinks[0].nats.url: is needed", "{name: a, type: nats, nats: {url: 'nats://u:p@h'}}": "must have no credentials",
		"{name: a, type: http, http: {url: 'http://h/x', secret: 0123456789abcdef}}": "sinks[0].http.insecure", "{name: a, type: http, http: {url: 'https://h/x'}}": "sinks[0].http.secret: is needed",
		"{name: a, type: file, file: {path: x}, start: documents}": "must be now, earliest, snapshot, start_from, or a time", "{name: a, type: file, file: {path: x}, format: bson}": "it has lines of text",
		"{name: a, type: file, fil: {path: x}}": `there is no key "sinks[0].fil"`, "{name: a, type: http, http: {allow: [x]}}": "must be a network",
		"{name: a, type: kafka, kafka: {brokers: ['h:1'], mechanism: plain, username: u}}":   "the password could be read on the way",
		"{name: a, type: file, file: {path: x}}\n  - {name: a, type: file, file: {path: y}}": "is the name of two sinks", "x": "must have keys",
		"{name: a, type: file, file: {path: x}}\n  - {name: b, type: file, file: {path: ./x}}": "two targets would write into one file",
		"{name: a, type: file, file: {path: x}, dead_letter: x}":                               "two targets would write into one file",
		"{name: a, type: stdout, dead_letter: x}\n  - {name: b, type: stdout, dead_letter: x}": "two targets would write into one file",
		"{name: a, type: stdout}\n  - {name: b, type: stdout}":                                 "there is one standard output", "{name: a, type: stdout, format: bson}": "it has lines of text",
	} {
		_, err := parse("f", []byte("\nsinks:\n  - "+sink+"\n"), nil, noFile)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", sink, err)
		}
	}
	many := "sinks:\n"
	for i := range maxSinks + 1 {
		many += fmt.Sprintf("  - {name: s%d, type: file, file: {path: x%d}}\n", i, i)
	}
	if _, err := parse("f", []byte(many), nil, noFile); err == nil || !strings.Contains(err.Error(), "at most 100 are served") {
		t.Errorf("more sinks than heartbeats have room for: %v", err)
	}
	if _, err := parse("f", []byte("sinks: {name: a}\n"), nil, noFile); err == nil || !strings.Contains(err.Error(), "must be a list") {
		t.Error(err)
	}
}

// Two paths of one file are refused, whether it exists or not.
func TestSinksWithOneFileAreRefused(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	if err := os.Mkdir("real", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", "linked"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("real/old", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("old", "real/other"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		a, b    string
		refused bool
	}{
		{"real/new", filepath.Join(folder, "real/new"), true},
		{"real/new", "linked/new", true},
		{"real/old", "linked/other", true},
		{"real/new", "linked/old", false},
		{"nowhere/a", "nowhere/b", false},
	} {
		file := fmt.Sprintf("sinks:\n  - {name: a, type: file, file: {path: %s}}\n  - {name: b, type: stdout, dead_letter: %s}\n", test.a, test.b)
		_, err := parse("f", []byte(file), nil, noFile)
		if refused := err != nil && strings.Contains(err.Error(), "two targets would write into one file"); refused != test.refused {
			t.Errorf("%s and %s: %v", test.a, test.b, err)
		}
	}
}

// The sink of streamer run -o json is one that a file can have, and is refused beside one of its
// type or name.
func TestStdoutIsASinkWithDefaults(t *testing.T) {
	want, err := parse("f", []byte("sinks:\n  - {name: stdout, type: stdout, start: start_from}\n"), nil, noFile)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse("f", nil, nil, noFile)
	if err = errors.Join(err, got.AddStdout()); err != nil || !reflect.DeepEqual(got, want) || got.Sinks[0].Subscriber() != "stdout" {
		t.Errorf("%v\n%+v\ninstead of\n%+v", err, got.Sinks, want.Sinks)
	}
	for _, other := range []string{"{name: a, type: stdout}", "{name: stdout, type: file, file: {path: x}}"} {
		c, err := parse("f", []byte("sinks:\n  - "+other+"\n"), nil, noFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddStdout(); fault.Of(err) != fault.ConfigConflict || len(c.Sinks) != 1 {
			t.Errorf("%s: %v", other, err)
		}
	}
}

// A start in the future is refused: nothing would come.
func TestStartInTheFutureIsRefused(t *testing.T) {
	future := time.Now().Add(3 * time.Hour).UTC().Format(time.RFC3339)
	for _, text := range []string{"start_from: " + future, "sinks:\n  - {name: a, type: stdout, start: '" + future + "'}"} {
		if _, err := parse("f", []byte(text+"\n"), nil, noFile); fault.Of(err) != fault.ConfigBadValue || !strings.Contains(err.Error(), "in the future") {
			t.Errorf("%s: %v", text, err)
		}
	}
	past := time.Now().Add(-3 * time.Hour).UTC().Format(time.RFC3339)
	if _, err := parse("f", []byte("start_from: "+past+"\n"), nil, noFile); err != nil {
		t.Error(err)
	}
}

func TestSecretsOfSinksComeFromFiles(t *testing.T) {
	file := `
sinks:
  - {name: a, type: kafka, kafka: {brokers: ['k:9092'], mechanism: scram-sha-512, username: u, password_file: /kafka-password}}
  - {name: b, type: nats, nats: {url: 'nats://h', token_file: /nats-token}}
  - {name: c, type: nats, nats: {url: 'nats://h', username: u, password_file: /nats-password}}
  - {name: d, type: http, http: {url_file: /http-url, secret_file: /http-secret}}
`
	open := func(name string) ([]byte, error) {
		if name == "/http-url" {
			return []byte("https://h/hook\n"), nil
		}
		return []byte("the text of " + name + "\n"), nil
	}
	c, err := parse("f", []byte(file), nil, open)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Sinks
	got := []string{string(s[0].Kafka.Password), string(s[1].NATS.Token), string(s[2].NATS.Password), string(s[3].HTTP.URL), string(s[3].HTTP.Secret)}
	want := []string{"the text of /kafka-password", "the text of /nats-token", "the text of /nats-password", "https://h/hook", "the text of /http-secret"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
