package row

import (
	"strings"
	"testing"
)

// FuzzKey gives names keys.
func FuzzKey(f *testing.F) {
	k := NewKeeper(nil, "/streamer/c1/row/", nil, nil)
	for _, name := range []string{"gw", "gw/1", "gw%2F1", "..", "\x00", "é"} {
		f.Add(name, "gw")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if (a == b) != (k.key(a) == k.key(b)) {
			t.Fatalf("%q and %q have the keys %q and %q", a, b, k.key(a), k.key(b))
		}
		if name, ok := strings.CutPrefix(k.key(a), k.prefix); !ok || strings.Contains(name, "/") {
			t.Fatalf("%q has the key %q", a, k.key(a))
		}
	})
}
