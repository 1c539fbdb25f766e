package change_test

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
)

// A Ref is read from its text as it was written, by its cluster alone, also as earlier builds wrote
// it; a text that is damaged is refused.
func TestRefsAsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head := change.Head{
			Time:           change.Timestamp{T: rapid.Uint32().Draw(t, "seconds"), I: rapid.OneOf(rapid.Uint32Range(0, 300), rapid.Uint32()).Draw(t, "increment")},
			Kind:           rapid.SampledFrom([]change.Kind{change.KindProgress, change.KindEvent}).Draw(t, "kind"),
			TxnOpIndex:     rapid.SampledFrom([]uint64{0, 1, 127, 128, math.MaxUint64}).Draw(t, "index"),
			FromInvalidate: rapid.Bool().Draw(t, "invalidate"),
		}
		hash := rapid.OneOf(rapid.Just(make([]byte, 16)), rapid.SliceOfN(rapid.Byte(), 16, 16)).Draw(t, "hash")
		encoded := append(head.Append(nil), hash...)
		ref, err := change.ParseRef(encoded)
		if err != nil {
			t.Fatal(err)
		}
		text := ref.AppendText(nil, "c")
		earlier := append(binary.BigEndian.AppendUint32([]byte{2}, uint32(xxh3.HashString("c"))), encoded...)
		earlier = binary.BigEndian.AppendUint32(earlier, uint32(xxh3.Hash(earlier)))
		for _, text := range []string{string(text), base64.RawURLEncoding.EncodeToString(earlier)} {
			if got, err := change.ParseRefText(text, "c"); err != nil || got != ref {
				t.Fatalf("%s: %v, %v, want %v", text, got, err, ref)
			}
			if _, err := change.ParseRefText(text, "d"); err == nil {
				t.Fatalf("%s is a position of another cluster", text)
			}
			cut := rapid.IntRange(0, len(text)-1).Draw(t, "cut")
			if _, err := change.ParseRefText(text[:cut], "c"); err == nil {
				t.Fatalf("the first %d characters of %s are a position", cut, text)
			}
		}
		if usual := head.Time.I < 128 && head.TxnOpIndex == 0; usual && len(text) > 40 {
			t.Fatalf("%s is of %d characters", text, len(text))
		}
	})
}
