package retention_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/retention"
	"github.com/mongostream/streamer/retention/retentiontest"
)

// Verifying a chain finds nothing wrong in a whole one, and each kind of damage in its segment.
func TestVerifyingFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func([]byte) []byte // nil deletes the segment
		want   []string            // one finding each
	}{
		"nothing":      {func(b []byte) []byte { return b }, nil},
		"a block":      {func(b []byte) []byte { b[len(b)/3] ^= 1; return b }, []string{"a block of shop.c"}},
		"the footer":   {func(b []byte) []byte { b[len(b)-40] ^= 1; return b }, []string{"checksum of the footer"}},
		"the header":   {func(b []byte) []byte { b[30] ^= 1; return b }, []string{"checksum of the header", "are missing before it"}},
		"the end":      {func(b []byte) []byte { return b[:len(b)-1] }, []string{"its object has", "are missing before it"}},
		"later format": {func(b []byte) []byte { b[10] = 9; return b }, []string{"checksum of the header", "are missing before it"}},
		"no object":    {nil, []string{"are missing before it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mongo, store := newMongo(), &retentiontest.Memory{}
				n := start(t, mongo, store, retention.WriterConfig{})
				defer n.stop()
				written := len(write(mongo, 300, 0))
				n.pass(2 * time.Minute)
				headers := verify(t, store)
				bad := headers[2].Number
				if c.damage == nil {
					if err := store.Delete(t.Context(), seg(int(bad))); err != nil {
						t.Fatal(err)
					}
				} else {
					store.Damage(seg(int(bad)), c.damage)
				}
				v, err := retention.ChainAt(store, chainFolder).Verify(t.Context())
				if err != nil || len(v.Findings) != len(c.want) {
					t.Fatalf("%+v, %v", v, err)
				}
				for i, want := range c.want {
					if f := v.Findings[i]; f.Segment < bad || f.Segment > bad+1 || !strings.Contains(f.Problem, want) {
						t.Errorf("%+v, want %q", f, want)
					}
				}
				if len(c.want) == 0 && (v.Events != written || v.Segments != len(headers) || v.Bytes == 0 || v.Raw < v.Bytes/10) {
					t.Errorf("%+v of %d changes", v, written)
				}
			})
		})
	}
}
