package record_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/fault"
)

func markOf(epoch change.Epoch, position change.Position) checkpoint.Mark {
	return checkpointtest.MarkAt(change.Term{Partition: 7, Epoch: epoch}, position)
}

func encoded(t *testing.T, m checkpoint.Mark) []byte {
	t.Helper()
	value, err := record.EncodeMark(m, checkpoint.Trail{}, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// decoded reads a mark without its trail.
func decoded(key string, p change.Partition, partitions int, value []byte) (checkpoint.Mark, error) {
	m, _, err := record.DecodeMark(key, p, partitions, value)
	return m, err
}

func TestStoredMarkIsReadableByAPerson(t *testing.T) {
	m := markOf(change.Epoch{Incarnation: 2, Revision: 4711}, change.At(change.Timestamp{T: 1_700_000_000, I: 5}))
	want := `{"v":1,"n":64,"position":{"t":1700000000,"i":5},"fingerprint":"5f1e9a","epoch":"2.4711",` +
		`"at":"2024-05-17T08:30:00.123Z","by":"node-a","reason":"interval"}`
	if diff := cmp.Diff(want, string(encoded(t, m))); diff != "" {
		t.Errorf("the form has changed (-want +got):\n%s", diff)
	}
	// The form is for ever: what an earlier version stored must stay readable.
	got, err := decoded("mark/00007", 7, 64, []byte(want))
	if diff := cmp.Diff(m, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestStoredMarkOfARewindIsReadableByAPerson(t *testing.T) {
	m := markOf(change.Epoch{Incarnation: 2}, change.At(change.Timestamp{T: 1_700_000_000, I: 5}))
	m.Generation, m.Reason, m.Note = 3, checkpoint.ReasonRewind, "orders were lost downstream"
	trail := checkpoint.Trail{Entries: 40, Last: m.At}
	value, err := record.EncodeMark(m, trail, 64)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"v":1,"n":64,"position":{"t":1700000000,"i":5},"generation":3,"fingerprint":"5f1e9a","epoch":"2.0",` +
		`"at":"2024-05-17T08:30:00.123Z","by":"node-a","reason":"rewind","note":"orders were lost downstream",` +
		`"history":{"entries":40,"last":"2024-05-17T08:30:00.123Z"}}`
	if diff := cmp.Diff(want, string(value)); diff != "" {
		t.Errorf("the form has changed (-want +got):\n%s", diff)
	}
	got, gotTrail, err := record.DecodeMark("mark/00007", 7, 64, []byte(want))
	if diff := cmp.Diff(m, got); err != nil || diff != "" || gotTrail != trail {
		t.Errorf("%v, %v (-want +got):\n%s", err, gotTrail, diff)
	}
}

func TestStoredOriginIsReadableByAPerson(t *testing.T) {
	o := checkpointtest.Origin("c1")
	value, err := record.EncodeOrigin(o)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"v":1,"n":256,"cluster":"c1","incarnation":1,"source":"rs0/65f0c0ffee","start":{"t":1699999999,"i":3},` +
		`"at":"2024-05-17T08:30:00.456Z","by":"node-a"}`
	if diff := cmp.Diff(want, string(value)); diff != "" {
		t.Errorf("the form has changed (-want +got):\n%s", diff)
	}
	for _, partitions := range []int{256, 0} {
		got, err := record.DecodeOrigin("origin", partitions, []byte(want))
		if diff := cmp.Diff(o, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

func TestStoredBackendIsReadableByAPerson(t *testing.T) {
	b := checkpoint.Backend{Store: checkpoint.BackendMongo, Etcd: "cdf818194e3a8c32", Prefix: "/streamer/", ID: "KXQ"}
	value, err := record.EncodeBackend(b)
	want := `{"v":1,"store":"mongo","etcd":"cdf818194e3a8c32","prefix":"/streamer/","id":"KXQ"}`
	if err != nil || string(value) != want {
		t.Errorf("%s, %v", value, err)
	}
	if got, err := record.DecodeBackend("backend", []byte(strings.Replace(want, `"id"`, `"later":{},"id"`, 1))); err != nil || got != b {
		t.Errorf("%+v, %v", got, err)
	}
	if value, err := record.EncodeBackend(checkpoint.Backend{}); err != nil || value != nil {
		t.Errorf("nothing known is stored as %q, %v", value, err)
	}
	for text, code := range map[string]fault.Code{
		"": "", `{"v":2,"store":7}`: fault.MarkNewer, `{"store":"mongo"}`: fault.MarkCorrupt, `{"v":1,"store":"redis"}`: fault.MarkCorrupt, "x": fault.MarkCorrupt,
	} {
		if got, err := record.DecodeBackend("backend", []byte(text)); fault.Of(err) != code || got != (checkpoint.Backend{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestDecodeMarkRefuses(t *testing.T) {
	whole := string(encoded(t, markOf(change.Epoch{Incarnation: 1, Revision: 2}, checkpointtest.Event(5))))
	with := func(old, replacement string) string {
		t.Helper()
		if !strings.Contains(whole, old) {
			t.Fatalf("%s is not in %s", old, whole)
		}
		return strings.Replace(whole, old, replacement, 1)
	}
	for name, c := range map[string]struct {
		value string
		code  fault.Code
	}{
		"nothing of it":             {whole, ""},
		"unknown fields":            {with(`{`, `{"later":{"x":[1]},`), ""},
		"another order and spaces":  {with(`{`, "{ \n"), ""},
		"nothing stored":            {"", fault.MarkCorrupt},
		"another form":              {"\x10\x00\x00\x00", fault.MarkCorrupt},
		"no object":                 {`[1]`, fault.MarkCorrupt},
		"half a mark":               {whole[:len(whole)/2], fault.MarkCorrupt},
		"more than a mark":          {whole + whole, fault.MarkCorrupt},
		"no version":                {with(`"v":1,`, ``), fault.MarkCorrupt},
		"version 0":                 {with(`"v":1`, `"v":0`), fault.MarkCorrupt},
		"a version below":           {with(`"v":1`, `"v":-1`), fault.MarkCorrupt},
		"a newer version":           {with(`"v":1`, `"v":2`), fault.MarkNewer},
		"a newer version, strange":  {`{"position":"elsewhere","v":9,"n":[4]}`, fault.MarkNewer},
		"another partition count":   {with(`"n":64`, `"n":65`), fault.MarkPartitions},
		"no partition count":        {with(`"n":64,`, ``), fault.MarkCorrupt},
		"too many partitions":       {with(`"n":64`, `"n":16385`), fault.MarkCorrupt},
		"no position":               {`{"v":1,"n":64,"epoch":"1.2"}`, fault.MarkCorrupt},
		"a position of nothing":     {`{"v":1,"n":64,"epoch":"1.2","position":{"t":0,"i":0}}`, fault.MarkCorrupt},
		"another time":              {with(`"i":1`, `"i":2`), fault.MarkCorrupt},
		"a negative time":           {with(`"i":1`, `"i":-1`), fault.MarkCorrupt},
		"a token that is no base64": {with(`"token":"`, `"token":"!`), fault.MarkCorrupt},
		"a token that is no token":  {`{"v":1,"n":64,"epoch":"1.2","position":{"token":"AAAA","t":1,"i":1}}`, fault.MarkCorrupt},
		"no epoch":                  {with(`"epoch":"1.2",`, ``), fault.MarkCorrupt},
		"half an epoch":             {with(`"1.2"`, `"1"`), fault.MarkCorrupt},
		"an epoch written oddly":    {with(`"1.2"`, `"01.+2"`), fault.MarkCorrupt},
		"an epoch too large":        {with(`"1.2"`, `"1.18446744073709551616"`), fault.MarkCorrupt},
		"a date that is none":       {with(`"2024-`, `"24-`), fault.MarkCorrupt},
	} {
		m, err := decoded("prefix/mark/00007", 7, 64, []byte(c.value))
		switch {
		case fault.Of(err) != c.code || (err != nil) != (c.code != ""):
			t.Errorf("%s: %v, want %s", name, err, c.code)
		case err != nil && !strings.Contains(err.Error(), "prefix/mark/00007"):
			t.Errorf("%s: the error does not name the key: %v", name, err)
		case err == nil && m.Position.Compare(checkpointtest.Event(5)) != 0:
			t.Errorf("%s: the mark stands at %s", name, m.Position)
		}
	}
	if _, err := decoded("mark/00064", 64, 64, []byte(whole)); fault.Of(err) != fault.MarkCorrupt {
		t.Errorf("partition 64 of 64: %v", err)
	}
	if _, err := decoded("mark/00007", 7, 0, []byte(whole)); err != nil {
		t.Errorf("of any number of partitions: %v", err)
	}
}

func TestErrorsOfDecodeMarkKeepTheTokenToThemselves(t *testing.T) {
	value := encoded(t, markOf(change.Epoch{Incarnation: 1, Revision: 2}, checkpointtest.Event(5)))
	var stored struct{ Position struct{ Token string } }
	if err := json.Unmarshal(value, &stored); err != nil || stored.Position.Token == "" {
		t.Fatal(err, stored)
	}
	broken := bytes.Replace(value, []byte(`"i":1`), []byte(`"i":2`), 1)
	_, err := decoded("mark/00007", 7, 64, broken)
	if err == nil || strings.Contains(err.Error(), stored.Position.Token[:20]) {
		t.Errorf("%v", err)
	}
}

func TestDecodeOriginRefuses(t *testing.T) {
	value, err := record.EncodeOrigin(checkpointtest.Origin("c1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, replacement string
		code             fault.Code
	}{
		"a newer version":    {`"v":1`, `"v":3`, fault.MarkNewer},
		"another count":      {`"n":256`, `"n":64`, fault.MarkPartitions},
		"no cluster":         {`"cluster":"c1",`, ``, fault.MarkCorrupt},
		"no incarnation":     {`"incarnation":1`, `"incarnation":0`, fault.MarkCorrupt},
		"no partition count": {`"n":256,`, ``, fault.MarkCorrupt},
		"no start":           {`"start":{"t":1699999999,"i":3},`, ``, fault.MarkCorrupt},
		"no object":          {`{`, ``, fault.MarkCorrupt},
	} {
		broken := strings.Replace(string(value), c.old, c.replacement, 1)
		if o, err := record.DecodeOrigin("origin", 256, []byte(broken)); fault.Of(err) != c.code {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
}

func TestWhatCouldNotBeReadBackIsNotEncoded(t *testing.T) {
	whole := markOf(change.Epoch{Incarnation: 1, Revision: 2}, checkpointtest.Event(5))
	for name, spoil := range map[string]func(m *checkpoint.Mark){
		"no position":        func(m *checkpoint.Mark) { m.Position = change.Position{} },
		"another time":       func(m *checkpoint.Mark) { m.Position.Time.I++ },
		"a strange token":    func(m *checkpoint.Mark) { m.Position.Token = []byte("x") },
		"partition 64 of 64": func(m *checkpoint.Mark) { m.Partition = 64 },
		"the year 10000":     func(m *checkpoint.Mark) { m.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		m := whole
		spoil(&m)
		if value, err := record.EncodeMark(m, checkpoint.Trail{}, 64); err == nil {
			t.Errorf("%s: encoded as %s", name, value)
		}
	}
	if _, err := record.EncodeMark(whole, checkpoint.Trail{}, 0); err == nil {
		t.Error("encoded for no partitions")
	}
	for name, spoil := range map[string]func(o *checkpoint.Origin){
		"no cluster":     func(o *checkpoint.Origin) { o.Cluster = "" },
		"no incarnation": func(o *checkpoint.Origin) { o.Incarnation = 0 },
		"no partitions":  func(o *checkpoint.Origin) { o.Partitions = 0 },
		"no start":       func(o *checkpoint.Origin) { o.Start = change.Timestamp{} },
	} {
		o := checkpointtest.Origin("c1")
		spoil(&o)
		if value, err := record.EncodeOrigin(o); err == nil {
			t.Errorf("%s: encoded as %s", name, value)
		}
	}
}

func TestEveryMarkComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		position := checkpointtest.Event(rapid.IntRange(0, 1000).Draw(t, "event"))
		if rapid.Bool().Draw(t, "time only") {
			position.Token = nil
		}
		want := checkpoint.Mark{
			Partition:   change.Partition(rapid.Uint32Range(0, change.MaxPartitions-1).Draw(t, "partition")),
			Position:    position,
			Fingerprint: rapid.String().Draw(t, "fingerprint"),
			Epoch: change.Epoch{
				Incarnation: rapid.Uint64().Draw(t, "incarnation"),
				Revision:    rapid.Uint64().Draw(t, "revision"),
			},
			At:     time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "at")).UTC(),
			By:     rapid.String().Draw(t, "by"),
			Reason: checkpoint.Reason(rapid.String().Draw(t, "reason")),

			Generation: rapid.Uint64().Draw(t, "generation"),
			Note:       rapid.String().Draw(t, "note"),
		}
		var trail checkpoint.Trail
		if rapid.Bool().Draw(t, "has a history") {
			trail = checkpoint.Trail{Entries: rapid.Uint64Min(1).Draw(t, "entries"), Last: want.At}
		}
		value, err := record.EncodeMark(want, trail, change.MaxPartitions)
		if err != nil {
			t.Fatal(err)
		}
		got, gotTrail, err := record.DecodeMark("key", want.Partition, change.MaxPartitions, value)
		if diff := cmp.Diff(want, got); err != nil || diff != "" || gotTrail != trail {
			t.Fatalf("%v, %v (-want +got):\n%s", err, gotTrail, diff)
		}
	})
}

// FuzzDecode reads any bytes as a mark, as an origin and as a gap: what is refused has a code, what is taken comes back the same.
func FuzzDecode(f *testing.F) {
	for _, position := range []change.Position{checkpointtest.Event(5), change.At(change.Timestamp{T: 1, I: 1})} {
		value, err := record.EncodeMark(markOf(change.Epoch{Incarnation: 1, Revision: 2}, position), checkpoint.Trail{}, 64)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	for d := checkpointtest.NewerVersion; d <= checkpointtest.Garbage; d++ {
		f.Add(d.JSON())
	}
	origin := checkpointtest.Origin("c")
	origin.Partitions = 64
	value, err := record.EncodeOrigin(origin)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	if value, err = record.EncodeBackend(checkpoint.Backend{Store: checkpoint.BackendEtcd, Etcd: "a", Prefix: "/b/", ID: "c"}); err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	if value, err = record.EncodeGap(gapOf(checkpointtest.Event(5)), 64); err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	refused := func(t *testing.T, err error) {
		switch fault.Of(err) {
		case fault.MarkCorrupt, fault.MarkNewer, fault.MarkPartitions:
		default:
			t.Fatalf("refused without a code: %v", err)
		}
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if m, err := decoded("key", 7, 64, value); err != nil {
			refused(t, err)
		} else if again, err := decoded("key", 7, 64, encoded(t, m)); err != nil || !cmp.Equal(m, again) {
			t.Fatalf("%v came back as %v, %v", m, again, err)
		}
		if o, err := record.DecodeOrigin("key", 64, value); err != nil {
			refused(t, err)
		} else if value, err := record.EncodeOrigin(o); err != nil {
			t.Fatal(err)
		} else if again, err := record.DecodeOrigin("key", 64, value); err != nil || !cmp.Equal(o, again) {
			t.Fatalf("%v came back as %v, %v", o, again, err)
		}
		if b, err := record.DecodeBackend("key", value); err != nil {
			refused(t, err)
		} else if value, err := record.EncodeBackend(b); err != nil {
			t.Fatal(err)
		} else if again, err := record.DecodeBackend("key", value); err != nil || b != again {
			t.Fatalf("%v came back as %v, %v", b, again, err)
		}
		if g, err := record.DecodeGap("key", 64, value); err != nil {
			refused(t, err)
		} else if value, err := record.EncodeGap(g, 64); err != nil {
			t.Fatal(err)
		} else if again, err := record.DecodeGap("key", 64, value); err != nil || !cmp.Equal(g, again, cmpopts.EquateEmpty()) {
			t.Fatalf("%v came back as %v, %v", g, again, err)
		}
	})
}
