package record_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/fault"
)

// storedKeys is what was stored by the first version that had keys, and must be read for ever.
const storedKeys = `{"v":1,"keys":[{"serial":7,"secret":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","made":"2024-05-17T08:30:00Z"}]}`

func TestKeysAreStoredInOneForm(t *testing.T) {
	want := key.Set{{Serial: 7, Secret: key.Secret{1}, Made: time.Date(2024, time.May, 17, 8, 30, 0, 0, time.UTC)}}
	if value, err := record.EncodeKeys(want); err != nil || string(value) != storedKeys {
		t.Errorf("%s, %v", value, err)
	}
	if got, err := record.DecodeKeys("keys", []byte(storedKeys)); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestDecodeKeysRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		old, replacement string
		code             fault.Code
	}{
		"nothing of it":     {"", "", ""},
		"an unknown field":  {`{"v"`, `{"later":[1],"v"`, ""},
		"a newer version":   {`"v":1`, `"v":2`, fault.CheckpointNewer},
		"no version":        {`"v":1`, `"v":0`, fault.CheckpointCorrupt},
		"no serial":         {`"serial":7,`, ``, fault.CheckpointCorrupt},
		"a negative serial": {`7`, `-7`, fault.CheckpointCorrupt},
		"a short secret":    {`AAAA`, ``, fault.CheckpointCorrupt},
		"no date":           {`,"made":"2024-05-17T08:30:00Z"`, ``, fault.CheckpointCorrupt},
		"half of it":        {`]}`, ``, fault.CheckpointCorrupt},
		"the same twice":    {`"keys":[`, `"keys":[{"serial":7,"secret":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","made":"2024-05-17T08:30:00Z"},`, fault.CheckpointCorrupt},
	} {
		value := strings.Replace(storedKeys, c.old, c.replacement, 1)
		_, err := record.DecodeKeys("prefix/keys", []byte(value))
		if fault.Of(err) != c.code || (err != nil) != (c.code != "") {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if err != nil && (!strings.Contains(err.Error(), "prefix/keys") || strings.Contains(err.Error(), "AQAA")) {
			t.Errorf("%s: the error names no place, or shows a secret: %v", name, err)
		}
	}
}

func TestKeysThatCouldNotBeReadBackAreNotEncoded(t *testing.T) {
	made := time.Date(2024, time.May, 17, 8, 30, 0, 0, time.UTC)
	for name, keys := range map[string]key.Set{
		"none": nil, "no serial": {{Made: made}}, "no date": {{Serial: 1}}, "two of one serial": {{Serial: 1, Made: made}, {Serial: 1, Made: made}},
		"too many": make(key.Set, key.MaxKeys+1),
	} {
		if value, err := record.EncodeKeys(keys); err == nil {
			t.Errorf("%s: encoded as %s", name, value)
		}
	}
}

func TestEverySetOfKeysComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want key.Set
		for range rapid.IntRange(1, key.MaxKeys).Draw(t, "keys") {
			next := want.Next(time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "made")))
			next.Serial += rapid.Uint32Range(0, 1<<20).Draw(t, "gap")
			want = append(want, next)
		}
		value, err := record.EncodeKeys(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := record.DecodeKeys("keys", value); err != nil || !cmp.Equal(got, want) {
			t.Fatalf("%v came back as %v, %v", want, got, err)
		}
	})
}

// FuzzDecodeKeys reads any bytes as keys: what is refused has a code, what is taken comes back the same.
func FuzzDecodeKeys(f *testing.F) {
	f.Add([]byte(storedKeys))
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		keys, err := record.DecodeKeys("keys", value)
		if err != nil {
			if c := fault.Of(err); c != fault.CheckpointCorrupt && c != fault.CheckpointNewer {
				t.Fatalf("refused without a code: %v", err)
			}
			return
		}
		stored, err := record.EncodeKeys(keys)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := record.DecodeKeys("keys", stored); err != nil || !cmp.Equal(keys, again) {
			t.Fatalf("%v came back as %v, %v", keys, again, err)
		}
	})
}
