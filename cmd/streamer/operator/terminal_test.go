package operator

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// Whatever a document, a name or a message contains, a terminal gets nothing that it would obey,
// and lines are ours alone.
func TestTerminalIsNotWrittenToByOthers(t *testing.T) {
	const attack = "a\x1b]0;owned\x07\u009b2J\u202eevil\u2066\u061c\r\nforged\x7f\tz"
	value, err := json.Marshal(attack)
	if err != nil {
		t.Fatal(err)
	}
	event := `{"operationType":"insert","ns":{"db":"d","coll":` + string(value) + `},"documentKey":{"_id":` + string(value) + `},"fullDocument":{"v":` + string(value) + `}}`
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		said := `{"code":"STRM-NODE-STOPPING","message":` + string(value) + `}`
		_, _ = w.Write([]byte("id: 1\ndata: " + event + "\n\nevent: error\ndata: " + said + "\n\n"))
	}))
	defer node.Close()
	for _, form := range []string{outputText, outputJSON} {
		var out, notes strings.Builder
		follow := &tail{client: nodeClient{address: node.URL}, query: url.Values{}, output: form, out: &out, notes: Terminal{&notes}}
		err := follow.run(t.Context())
		_, _ = Terminal{&notes}.Write([]byte(err.Error()))
		for name, text := range map[string]string{"output": out.String(), "notes": strings.ReplaceAll(notes.String(), "\nforged", "")} {
			if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && commands(r) }) {
				t.Errorf("%s: %q", name, text)
			}
		}
		if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "owned") {
			t.Errorf("%d lines: %q", n, out.String())
		}
		if form == outputJSON {
			var got struct {
				Full struct{ V string } `json:"fullDocument"`
			}
			if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.Full.V != attack {
				t.Errorf("%q %v", got, err)
			}
		}
	}
}

func TestTerminalPassesTextOn(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\n":     "plain\ttext\n",
		"Grüße 你好 😀":        "Grüße 你好 😀",
		"\x1b[31m":          `\u001b[31m`,
		"\u2028\U000e0001":  `\u2028` + "\U000e0001",
		"broken \xff\x9b2J": "broken \ufffd2J",
	} {
		var b strings.Builder
		if n, err := (Terminal{&b}).Write([]byte(text)); n != len(text) || err != nil || b.String() != want {
			t.Errorf("%q, %d, %v; want %q", b.String(), n, err, want)
		}
	}
	if got := printable("a\nb\U000e0001"); got != `a\u000ab\udb40\udc01` {
		t.Error(got)
	}
}
