package key_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/checkpoint/keytest"
)

func TestLocalIsAKeeper(t *testing.T) {
	keytest.TestKeeper(t, func(*testing.T) keytest.Harness {
		l := &key.Local{}
		return keytest.Harness{Keeper: l, Reopen: func() key.Keeper { return l }}
	})
}

func TestKeyIsDueAfterADay(t *testing.T) {
	now := time.Date(2024, time.May, 17, 8, 30, 0, 0, time.UTC)
	if !(key.Set{}).Due(now) {
		t.Error("the first key is not due")
	}
	keys := key.Set{{Serial: 1, Made: now.Add(-100 * key.Rotation)}, {Serial: 2, Made: now}}
	for age, due := range map[time.Duration]bool{-time.Hour: false, 0: false, key.Rotation - 1: false, key.Rotation: true, 9 * key.Rotation: true} {
		if keys.Due(now.Add(age)) != due {
			t.Errorf("a key of %s: due is %v", age, !due)
		}
	}
}

// TestSecretsShowThemselvesNowhere writes keys in every way in which something could be logged.
func TestSecretsShowThemselvesNowhere(t *testing.T) {
	k := key.Key{Serial: 7}
	for i := range k.Secret {
		k.Secret[i] = 0xAB
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "%d", "%q"} {
		for _, what := range []any{k, &k, key.Set{k}, k.Secret, &k.Secret, []key.Secret{k.Secret}, map[string]any{"k": k}} {
			fmt.Fprintf(&out, verb+"\n", what)
		}
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("keys", "key", k, "keys", key.Set{k}, "secret", k.Secret)
	}
	if err := json.NewEncoder(&out).Encode(k); err != nil {
		t.Fatal(err)
	}
	written := strings.ToLower(out.String())
	for _, trace := range []string{"abab", "ab ab", "171 171", "171,171", "0xab", "171, 171", "q6ur"} {
		if strings.Contains(written, trace) {
			t.Errorf("%q is written", trace)
		}
	}
	if !strings.Contains(written, "(hidden)") {
		t.Error("nothing was written at all")
	}
}
