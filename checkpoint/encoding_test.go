package checkpoint_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/snapshot"
)

const partitions = checkpointtest.Partitions

func sharedAt(position change.Position) checkpoint.Checkpoint {
	return checkpointtest.Shared(change.Term{Partition: 7, Epoch: change.Epoch{Incarnation: 2, Revision: 4711}}, position)
}

func exclusiveAt(position change.Position) checkpoint.Checkpoint {
	c := checkpointtest.Exclusive("gw-1", checkpoint.Claim{
		Number: 3, Process: "5f1e9a", Started: time.Date(2024, time.May, 17, 8, 0, 0, 0, time.UTC), Node: "node-a", By: "ann",
	}, position)
	c.Positions = map[change.Partition]change.Position{
		7: change.At(change.Timestamp{T: 1_700_000_000, I: 3}), 63: change.At(change.Timestamp{T: 1_700_000_000, I: 9}),
	}
	return c
}

// nameOf is where a store keeps a key's checkpoint.
func nameOf(k checkpoint.Key) string {
	if k.Shared {
		return fmt.Sprintf("prefix/%s/%d", k.Subscriber, k.Partition)
	}
	return "prefix/" + k.Subscriber
}

func encoded(t *testing.T, c checkpoint.Checkpoint) []byte {
	t.Helper()
	text, err := checkpoint.Encode(c, checkpoint.Trail{})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// decoded reads a checkpoint without its trail.
func decoded(k checkpoint.Key, text []byte) (checkpoint.Checkpoint, error) {
	c, _, err := checkpoint.Decode(nameOf(k), nameOf, partitions, text)
	return c, err
}

func TestStoredCheckpointsAreReadableByAPerson(t *testing.T) {
	shared := sharedAt(change.At(change.Timestamp{T: 1_700_000_000, I: 5}))
	rewound := shared
	rewound.Generation, rewound.Epoch.Revision, rewound.Reason, rewound.Note = 3, 0, checkpoint.ReasonRewind, "orders were lost downstream"
	exclusive := exclusiveAt(change.At(change.Timestamp{T: 1_700_000_000, I: 5}))
	exclusive.Snapshots = []snapshot.Progress{{
		Subscription: "orders", Filter: 99, Reason: snapshot.Loss, Partitions: []change.Partition{4, 9}, Listed: true, Read: 70, Estimated: 100,
		Left: []snapshot.Left{
			{Namespace: change.Namespace{DB: "shop", Coll: "orders"}, From: change.Value{Type: 0x10, Data: []byte{1, 2, 3, 4}}, Until: change.Value{Type: 0x10, Data: []byte{0, 0, 0, 0}}, Round: true},
			{Namespace: change.Namespace{DB: "shop", Coll: "items"}},
		},
	}, {Subscription: "all", Reason: snapshot.Start, Done: true}}
	trail := checkpoint.Trail{Entries: 40, Last: shared.At}
	for name, c := range map[string]struct {
		checkpoint checkpoint.Checkpoint
		trail      checkpoint.Trail
		want       string
	}{
		"a shared one": {shared, checkpoint.Trail{}, `{"v":1,"n":256,"subscriber":"stdout","partition":7,"position":{"t":1700000000,"i":5},"epoch":"2.4711",` +
			`"fingerprint":"5f1e9a","at":"2024-05-17T08:30:00.123Z","by":"node-a","reason":"interval"}`},
		"a rewound one": {rewound, trail, `{"v":1,"n":256,"subscriber":"stdout","partition":7,"position":{"t":1700000000,"i":5},"generation":3,"epoch":"2.0",` +
			`"fingerprint":"5f1e9a","at":"2024-05-17T08:30:00.123Z","by":"node-a","reason":"rewind","note":"orders were lost downstream",` +
			`"history":{"entries":40,"last":"2024-05-17T08:30:00.123Z"}}`},
		"an exclusive one": {exclusive, checkpoint.Trail{}, `{"v":1,"n":256,"subscriber":"gw-1","position":{"t":1700000000,"i":5},` +
			`"positions":{"63":{"t":1700000000,"i":9},"7":{"t":1700000000,"i":3}},` +
			`"snapshots":[{"subscription":"orders","filter":99,"reason":"loss","partitions":[4,9],"listed":true,"left":[` +
			`{"db":"shop","coll":"orders","from":{"type":16,"data":"AQIDBA=="},"until":{"type":16,"data":"AAAAAA=="},"round":true},` +
			`{"db":"shop","coll":"items"}],"read":70,"estimated":100},{"subscription":"all","filter":0,"reason":"start","done":true}],` +
			`"claim":{"number":3,"process":"5f1e9a","started":"2024-05-17T08:00:00Z","node":"node-a","by":"ann"},` +
			`"fingerprint":"5f1e9a","at":"2024-05-17T08:30:00.123Z","by":"node-a","reason":"interval"}`},
	} {
		text, err := checkpoint.Encode(c.checkpoint, c.trail)
		if diff := cmp.Diff(c.want, string(text)); err != nil || diff != "" {
			t.Errorf("%s: the form has changed: %v (-want +got):\n%s", name, err, diff)
		}
		// The form is for ever: what an earlier version stored must stay readable.
		got, trail, err := checkpoint.Decode(nameOf(c.checkpoint.Key), nameOf, partitions, []byte(c.want))
		if diff := cmp.Diff(c.checkpoint, got); err != nil || diff != "" || trail != c.trail {
			t.Errorf("%s: %v, %v (-want +got):\n%s", name, err, trail, diff)
		}
	}
}

func TestStoredOriginIsReadableByAPerson(t *testing.T) {
	o := checkpointtest.Origin("c1")
	value, err := checkpoint.EncodeOrigin(o)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"v":1,"n":256,"cluster":"c1","incarnation":1,"source":"rs0/65f0c0ffee","start":{"t":1699999999,"i":3},` +
		`"at":"2024-05-17T08:30:00.456Z","by":"node-a"}`
	if diff := cmp.Diff(want, string(value)); diff != "" {
		t.Errorf("the form has changed (-want +got):\n%s", diff)
	}
	for _, partitions := range []int{256, 0} {
		got, err := checkpoint.DecodeOrigin("origin", partitions, []byte(want))
		if diff := cmp.Diff(o, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	// One that names a format of _ids has a version which earlier programs refuse.
	o.IDFormat, want = change.LatestIDFormat, strings.Replace(want, `{"v":1,"n":256,`, `{"v":2,"n":256,"id_format":1,`, 1)
	if value, err = checkpoint.EncodeOrigin(o); err != nil || string(value) != want {
		t.Errorf("%s, %v", value, err)
	}
	if got, err := checkpoint.DecodeOrigin("origin", 256, value); err != nil || got != o {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestStoredBackendIsReadableByAPerson(t *testing.T) {
	b := checkpoint.Backend{Store: checkpoint.BackendMongo, Etcd: "cdf818194e3a8c32", Prefix: "/streamer/", ID: "KXQ"}
	value, err := checkpoint.EncodeBackend(b)
	want := `{"v":1,"store":"mongo","etcd":"cdf818194e3a8c32","prefix":"/streamer/","id":"KXQ"}`
	if err != nil || string(value) != want {
		t.Errorf("%s, %v", value, err)
	}
	if got, err := checkpoint.DecodeBackend("backend", []byte(strings.Replace(want, `"id"`, `"later":{},"id"`, 1))); err != nil || got != b {
		t.Errorf("%+v, %v", got, err)
	}
	if value, err := checkpoint.EncodeBackend(checkpoint.Backend{}); err != nil || value != nil {
		t.Errorf("nothing known is stored as %q, %v", value, err)
	}
	for text, code := range map[string]fault.Code{
		"": "", `{"v":2,"store":7}`: fault.CheckpointNewer, `{"store":"mongo"}`: fault.CheckpointCorrupt, `{"v":1,"store":"redis"}`: fault.CheckpointCorrupt, "x": fault.CheckpointCorrupt,
	} {
		if got, err := checkpoint.DecodeBackend("backend", []byte(text)); fault.Of(err) != code || got != (checkpoint.Backend{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestDecodeCheckpointRefuses(t *testing.T) {
	shared, exclusive := sharedAt(checkpointtest.Event(5)), exclusiveAt(checkpointtest.Event(5))
	of := map[bool]string{true: string(encoded(t, shared)), false: string(encoded(t, exclusive))}
	whole := of[true]
	for name, c := range map[string]struct {
		shared           bool
		old, replacement string // all of it where old is empty
		code             fault.Code
	}{
		"nothing of it":              {true, "", whole, ""},
		"unknown fields":             {true, `{`, `{"later":{"x":[1]},`, ""},
		"another order and spaces":   {true, `{`, "{ \n", ""},
		"nothing stored":             {true, "", "", fault.CheckpointCorrupt},
		"another form":               {true, "", "\x10\x00\x00\x00", fault.CheckpointCorrupt},
		"no object":                  {true, "", `[1]`, fault.CheckpointCorrupt},
		"half a checkpoint":          {true, "", whole[:len(whole)/2], fault.CheckpointCorrupt},
		"more than a checkpoint":     {true, "", whole + whole, fault.CheckpointCorrupt},
		"no version":                 {true, `"v":1,`, ``, fault.CheckpointCorrupt},
		"version 0":                  {true, `"v":1`, `"v":0`, fault.CheckpointCorrupt},
		"a version below":            {true, `"v":1`, `"v":-1`, fault.CheckpointCorrupt},
		"a newer version":            {true, `"v":1`, `"v":2`, fault.CheckpointNewer},
		"a newer version, strange":   {true, "", `{"position":"elsewhere","v":9,"n":[4]}`, fault.CheckpointNewer},
		"another partition count":    {true, `"n":256`, `"n":64`, fault.CheckpointPartitions},
		"no partition count":         {true, `"n":256,`, ``, fault.CheckpointCorrupt},
		"too many partitions":        {true, `"n":256`, `"n":16385`, fault.CheckpointCorrupt},
		"no position":                {true, `"position"`, `"pos"`, fault.CheckpointCorrupt},
		"a position of nothing":      {true, "", `{"v":1,"n":256,"subscriber":"stdout","partition":7,"epoch":"1.2","position":{"t":0,"i":0}}`, fault.CheckpointCorrupt},
		"another time":               {true, `"i":1`, `"i":2`, fault.CheckpointCorrupt},
		"a negative time":            {true, `"i":1`, `"i":-1`, fault.CheckpointCorrupt},
		"a token that is no base64":  {true, `"token":"`, `"token":"!`, fault.CheckpointCorrupt},
		"a token that is no token":   {true, "", `{"v":1,"n":256,"subscriber":"stdout","partition":7,"epoch":"1.2","position":{"token":"AAAA","t":1,"i":1}}`, fault.CheckpointCorrupt},
		"no epoch":                   {true, `"epoch":"2.4711",`, ``, fault.CheckpointCorrupt},
		"half an epoch":              {true, `"2.4711"`, `"1"`, fault.CheckpointCorrupt},
		"an epoch written oddly":     {true, `"2.4711"`, `"01.+2"`, fault.CheckpointCorrupt},
		"an epoch too large":         {true, `"2.4711"`, `"1.18446744073709551616"`, fault.CheckpointCorrupt},
		"a date that is none":        {true, `"2024-`, `"24-`, fault.CheckpointCorrupt},
		"another partition":          {true, `"partition":7`, `"partition":8`, fault.CheckpointCorrupt},
		"a partition beyond":         {true, `"partition":7`, `"partition":256`, fault.CheckpointCorrupt},
		"neither shared nor claimed": {true, `"partition":7,`, ``, fault.CheckpointCorrupt},

		"an exclusive one":             {false, "", of[false], ""},
		"another count of partitions":  {false, `"n":256`, `"n":64`, ""},
		"too few partitions":           {false, `"n":256`, `"n":63`, fault.CheckpointCorrupt},
		"another subscriber":           {false, `"gw-1"`, `"gw-2"`, fault.CheckpointCorrupt},
		"no subscriber":                {false, `"gw-1"`, `""`, fault.CheckpointCorrupt},
		"no claim":                     {false, `"claim"`, `"clam"`, fault.CheckpointCorrupt},
		"a partition of no number":     {false, `"63"`, `"x"`, fault.CheckpointCorrupt},
		"a token that is none":         {false, `"7":{`, `"7":{"token":"AAAA",`, fault.CheckpointCorrupt},
		"a partition nowhere":          {false, `"7":{"t":1700000000,"i":3}`, `"7":null`, fault.CheckpointCorrupt},
		"a start that is none":         {false, `"started":"2024`, `"started":"soon`, fault.CheckpointCorrupt},
		"an _id of no type":            {false, `"claim"`, `"snapshots":[{"left":[{"from":{"data":"AAAA"}}]}],"claim"`, fault.CheckpointCorrupt},
		"a snapshot of one too many":   {false, `"claim"`, `"snapshots":[{"partitions":[256]}],"claim"`, fault.CheckpointCorrupt},
		"a snapshot of negative count": {false, `"claim"`, `"snapshots":[{"read":-1}],"claim"`, fault.CheckpointCorrupt},
	} {
		key, text := exclusive.Key, c.replacement
		if c.shared {
			key = shared.Key
		}
		if c.old != "" {
			if text = strings.Replace(of[c.shared], c.old, c.replacement, 1); text == of[c.shared] && c.code != "" {
				t.Fatalf("%s: nothing to break in %s", name, text)
			}
		}
		got, err := decoded(key, []byte(text))
		switch {
		case fault.Of(err) != c.code || (err != nil) != (c.code != ""):
			t.Errorf("%s: %v, want %s", name, err, c.code)
		case err != nil && !strings.Contains(err.Error(), nameOf(key)):
			t.Errorf("%s: the error does not name the key: %v", name, err)
		case err == nil && got.Position.Compare(checkpointtest.Event(5)) != 0:
			t.Errorf("%s: the checkpoint is at %s", name, got.Position)
		}
	}
	if _, _, err := checkpoint.DecodeEntry("history/x", shared.Key, []byte(strings.Replace(whole, `"n":256`, `"n":64`, 1))); err != nil {
		t.Errorf("an entry of another count: %v", err)
	}
	other := shared.Key
	other.Partition++
	if _, _, err := checkpoint.DecodeEntry("history/x", other, []byte(whole)); fault.Of(err) != fault.CheckpointCorrupt ||
		!strings.Contains(err.Error(), "history/x") {
		t.Errorf("an entry of another key: %v", err)
	}
}

func TestErrorsOfDecodeCheckpointKeepTheTokenToThemselves(t *testing.T) {
	c := sharedAt(checkpointtest.Event(5))
	broken := bytes.Replace(encoded(t, c), []byte(`"i":1`), []byte(`"i":2`), 1)
	_, err := decoded(c.Key, broken)
	if token := base64.StdEncoding.EncodeToString(c.Position.Token); err == nil || !strings.Contains(string(broken), token) || strings.Contains(err.Error(), token[:20]) {
		t.Errorf("%v", err)
	}
}

func TestDecodeOriginRefuses(t *testing.T) {
	value, err := checkpoint.EncodeOrigin(checkpointtest.Origin("c1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, replacement string
		code             fault.Code
	}{
		"a newer version":    {`"v":1`, `"v":3`, fault.CheckpointNewer},
		"another count":      {`"n":256`, `"n":64`, fault.CheckpointPartitions},
		"no cluster":         {`"cluster":"c1",`, ``, fault.CheckpointCorrupt},
		"no incarnation":     {`"incarnation":1`, `"incarnation":0`, fault.CheckpointCorrupt},
		"no partition count": {`"n":256,`, ``, fault.CheckpointCorrupt},
		"no start":           {`"start":{"t":1699999999,"i":3},`, ``, fault.CheckpointCorrupt},
		"no object":          {`{`, ``, fault.CheckpointCorrupt},
		"an unknown format":  {`"n":256,`, `"n":256,"id_format":7,`, fault.CheckpointCorrupt},
	} {
		broken := strings.Replace(string(value), c.old, c.replacement, 1)
		if o, err := checkpoint.DecodeOrigin("origin", 256, []byte(broken)); fault.Of(err) != c.code {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
}

func TestWhatCouldNotBeReadBackIsNotEncoded(t *testing.T) {
	for name, spoil := range map[string]func(c *checkpoint.Checkpoint){
		"no position":      func(c *checkpoint.Checkpoint) { c.Position = change.Position{} },
		"no subscriber":    func(c *checkpoint.Checkpoint) { c.Subscriber = "" },
		"partition 256":    func(c *checkpoint.Checkpoint) { c.Positions = map[change.Partition]change.Position{256: c.Position} },
		"no partitions":    func(c *checkpoint.Checkpoint) { c.Partitions = 0 },
		"the year 10000":   func(c *checkpoint.Checkpoint) { c.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"a year before 0":  func(c *checkpoint.Checkpoint) { c.Claim.Started = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
		"a note too large": func(c *checkpoint.Checkpoint) { c.Note = strings.Repeat("x", checkpoint.MaxBytes) },
		"a snapshot of 256": func(c *checkpoint.Checkpoint) {
			c.Snapshots = []snapshot.Progress{{Partitions: []change.Partition{256}}}
		},
	} {
		c := exclusiveAt(checkpointtest.Event(5))
		spoil(&c)
		if text, err := checkpoint.Encode(c, checkpoint.Trail{}); err == nil {
			t.Errorf("%s: encoded as %.200s", name, text)
		}
	}
	for name, spoil := range map[string]func(o *checkpoint.Origin){
		"no cluster":     func(o *checkpoint.Origin) { o.Cluster = "" },
		"no incarnation": func(o *checkpoint.Origin) { o.Incarnation = 0 },
		"no partitions":  func(o *checkpoint.Origin) { o.Partitions = 0 },
		"no start":       func(o *checkpoint.Origin) { o.Start = change.Timestamp{} },
	} {
		o := checkpointtest.Origin("c1")
		spoil(&o)
		if text, err := checkpoint.EncodeOrigin(o); err == nil {
			t.Errorf("%s: encoded as %s", name, text)
		}
	}
}

// smallest is the size of the smallest token, which tells a time and nothing else.
const smallest = 35

// sized returns the position of an event whose token has so many bytes, or of those above smallest
// as many as it needs.
func sized(n, size int) change.Position {
	const high = 4_000_000_000 // ten digits
	if size == smallest {
		at := change.Timestamp{T: high, I: high + uint32(n)}
		return change.Position{Token: change.WrapDocument(change.AppendString(nil, "_data", fmt.Sprintf("82%08X%08X", at.T, at.I))), Time: at}
	}
	p := changetest.Event{Time: change.Timestamp{T: high, I: high + uint32(n)}, Index: uint64(n), ID: int64(n)}.Position()
	bits := make([]byte, max(0, size-len(p.Token)-16))
	value := append(binary.LittleEndian.AppendUint32(nil, uint32(len(bits))), 0)
	p.Token = change.WrapDocument(change.AppendElement(p.Token[4:len(p.Token)-1:len(p.Token)-1], 0x05, "_typeBits", append(value, bits...)))
	return p
}

// fullest returns a checkpoint with all that one may have, whose tokens have about so many bytes
// each.
func fullest(size int) checkpoint.Checkpoint {
	name := strings.Repeat("\x01", checkpoint.MaxName) // each byte of it takes six in JSON
	at := time.Date(2024, 10, 10, 10, 10, 10, 123_456_789, time.UTC)
	c := checkpoint.Checkpoint{
		Key: checkpoint.Key{Subscriber: name}, Claim: checkpoint.Claim{Number: 1 << 63, Process: name, Started: at, Node: name, By: name},
		Partitions: change.MaxPartitions, Position: sized(0, size), Positions: make(map[change.Partition]change.Position, change.MaxPartitions),
		Generation: 1 << 63, At: at, By: name, Note: name, Fingerprint: name, Reason: checkpoint.ReasonInterval,
	}
	for p := range change.Partition(change.MaxPartitions) {
		if c.Positions[p] = sized(int(p)+1, size); int(p) > 1<<20/max(size, smallest) { // of these no token is kept
			c.Positions[p] = change.At(c.Positions[p].Time)
			size = smallest
		}
	}
	for n := range 1000 {
		p := snapshot.Progress{
			Subscription: fmt.Sprintf("%s-%d", name[:50], n), Filter: 1 << 63, Reason: snapshot.Operator, Listed: true, Read: 1 << 63, Estimated: 1 << 63,
		}
		for m := range 20 {
			id := change.Value{Type: 0x02, Data: make([]byte, 200)}
			p.Left = append(p.Left, snapshot.Left{Namespace: change.Namespace{DB: name[:60], Coll: fmt.Sprint(m)}, From: id, Until: id, Round: true})
			p.Partitions = append(p.Partitions, change.Partition(16000+m))
		}
		p.Done = n >= 250
		c.Snapshots = append(c.Snapshots, p)
	}
	return c
}

func TestNoCheckpointIsLargerThanItsBound(t *testing.T) {
	if n := len(sized(1, smallest).Token); n != smallest {
		t.Fatalf("the smallest token has %d bytes", n)
	}
	largest := 0
	for _, size := range []int{smallest, 0, 135, 1000, 16 << 10, 17 << 10} {
		full := fullest(size)
		text, err := checkpoint.Encode(full, checkpoint.Trail{Entries: 1 << 63, Last: full.At})
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(text))
		got, err := decoded(full.Key, text)
		if err != nil {
			t.Fatalf("tokens of %d bytes: %v", size, err)
		}
		// None of the snapshots that are under way is forgotten: less may be known of them, and so
		// all is left.
		for _, p := range full.Snapshots {
			if i := indexOf(got.Snapshots, p.Subscription); i < 0 && !p.Done || i >= 0 && !p.Done && got.Snapshots[i].Listed && len(got.Snapshots[i].Left) < len(p.Left) {
				t.Fatalf("of the snapshot of %q is left %+v", p.Subscription, got.Snapshots)
			}
		}
	}
	if largest > checkpoint.MaxBytes || largest < checkpoint.MaxBytes*9/10 {
		t.Errorf("the largest has %d bytes: the bound of %d says little, or nothing was large", largest, checkpoint.MaxBytes)
	}
}

func indexOf(all []snapshot.Progress, subscription string) int {
	for i, p := range all {
		if p.Subscription == subscription {
			return i
		}
	}
	return -1
}

// positions are of every form, with tokens of every size.
func positions() *rapid.Generator[change.Position] {
	return rapid.Custom(func(t *rapid.T) change.Position {
		p := sized(rapid.IntRange(0, 50).Draw(t, "event"), rapid.SampledFrom([]int{0, 200, 16 << 10, 17 << 10, 1 << 14}).Draw(t, "size"))
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			p.Token = nil
		case 1:
			p.Token = []byte("strange")
		}
		return p
	})
}

func TestEveryCheckpointComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 32).Draw(t, "partitions")
		partition := rapid.Map(rapid.IntRange(0, n-1), func(p int) change.Partition { return change.Partition(p) })
		times := rapid.Map(rapid.Int64Range(0, 4e18), func(ns int64) time.Time { return time.Unix(0, ns).UTC() })
		want := checkpoint.Checkpoint{
			Key:        checkpoint.Key{Subscriber: rapid.StringN(1, 64, checkpoint.MaxName).Draw(t, "subscriber")},
			Partitions: n, Position: positions().Draw(t, "position"), Generation: rapid.Uint64().Draw(t, "generation"),
			Fingerprint: rapid.String().Draw(t, "fingerprint"), At: times.Draw(t, "at"), By: rapid.String().Draw(t, "by"),
			Reason: checkpoint.Reason(rapid.String().Draw(t, "reason")), Note: rapid.String().Draw(t, "note"),
		}
		if want.Shared = rapid.Bool().Draw(t, "shared"); want.Shared {
			want.Partition = partition.Draw(t, "partition")
			want.Epoch = change.Epoch{Incarnation: rapid.Uint64().Draw(t, "incarnation"), Revision: rapid.Uint64().Draw(t, "revision")}
		} else {
			want.Positions = rapid.MapOf(partition, positions()).Draw(t, "positions")
			want.Claim = checkpoint.Claim{
				Number: rapid.Uint64().Draw(t, "number"), Process: rapid.StringN(0, 64, checkpoint.MaxName).Draw(t, "process"),
				Started: times.Draw(t, "started"), Node: rapid.String().Draw(t, "node"), By: rapid.String().Draw(t, "who"),
			}
		}
		var trail checkpoint.Trail
		if rapid.Bool().Draw(t, "has a history") {
			trail = checkpoint.Trail{Entries: rapid.Uint64Min(1).Draw(t, "entries"), Last: want.At}
		}
		text, err := checkpoint.Encode(want, trail)
		if err != nil {
			t.Fatal(err)
		}
		got, gotTrail, err := checkpoint.Decode(nameOf(want.Key), nameOf, n, text)
		if err != nil || gotTrail != trail {
			t.Fatal(gotTrail, err)
		}
		tokens := len(got.Position.Token)
		for _, position := range got.Positions {
			tokens += len(position.Token)
		}
		if tokens > 256<<10 {
			t.Fatalf("%d bytes of tokens are kept", tokens)
		}
		// Where it is is never later than what was given, and of the same time.
		for p := range change.Partition(n) {
			given, kept := want.In(p), got.In(p)
			if kept.Time != given.Time || !bytes.Equal(kept.Token, given.Token) && kept.Token != nil {
				t.Fatalf("partition %d is at %s instead of %s", p, kept, given)
			}
		}
		got.Position, want.Position, got.Positions, want.Positions = change.Position{}, change.Position{}, nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestPartitionsAtThePositionCostACheckpointNothing(t *testing.T) {
	c := exclusiveAt(sized(1, 16<<10))
	c.Positions = make(map[change.Partition]change.Position)
	for p := range change.Partition(63) {
		c.Positions[p] = sized(1, 16<<10)
	}
	c.Positions[63] = sized(2, 16<<10)
	want := map[change.Partition]change.Position{63: c.Positions[63]}
	if got, err := c.Trimmed(); err != nil || !reflect.DeepEqual(want, got.Positions) || !reflect.DeepEqual(c.Position, got.Position) {
		t.Errorf("%d positions are kept, %v", len(got.Positions), err)
	}
	// Nor does one that is there once its token has no room.
	c.Position = change.At(sized(3, 0).Time)
	c.Positions = map[change.Partition]change.Position{63: sized(3, 200)}
	for p := range change.Partition(16) {
		c.Positions[p] = sized(10+int(p), 16<<10)
	}
	got, err := c.Trimmed()
	if err != nil || len(got.Positions) != 16 || got.In(63).Compare(c.Position) != 0 {
		t.Errorf("%d positions are kept, partition 63 is at %s, %v", len(got.Positions), got.In(63), err)
	}
	if again, err := got.Trimmed(); err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("trimmed again it is another: %v", err)
	}
}

// FuzzDecode reads any bytes as each of the forms: what is refused has a code, what is taken comes
// back the same.
func FuzzDecode(f *testing.F) {
	add := func(text []byte, err error) {
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	shared, exclusive := sharedAt(checkpointtest.Event(5)), exclusiveAt(change.At(change.Timestamp{T: 1, I: 1}))
	exclusive.Snapshots = []snapshot.Progress{{Subscription: "a", Left: []snapshot.Left{{From: change.Value{Type: 7, Data: make([]byte, 12)}}}}}
	add(checkpoint.Encode(shared, checkpoint.Trail{Entries: 3}))
	add(checkpoint.Encode(exclusive, checkpoint.Trail{}))
	text, err := checkpoint.Encode(exclusive, checkpoint.Trail{})
	add(bytes.ReplaceAll(text, []byte(`"7"`), []byte(`"007"`)), err)
	for d := checkpointtest.NewerVersion; d <= checkpointtest.OtherKey; d++ {
		f.Add(d.Of(shared.Key))
	}
	add(checkpoint.EncodeOrigin(checkpointtest.Origin("c")))
	add(checkpoint.EncodeBackend(checkpoint.Backend{Store: checkpoint.BackendEtcd, Etcd: "a", Prefix: "/b/", ID: "c"}))
	add(checkpoint.EncodeGap(gapOf(checkpointtest.Event(5))))
	refused := func(t *testing.T, err error) {
		switch fault.Of(err) {
		case fault.CheckpointCorrupt, fault.CheckpointNewer, fault.CheckpointPartitions:
		default:
			t.Fatalf("refused without a code: %v", err)
		}
	}
	anyName := func(checkpoint.Key) string { return "key" }
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, trail, err := checkpoint.Decode("key", anyName, partitions, text); err != nil {
			refused(t, err)
		} else if text, err := checkpoint.Encode(c, trail); err != nil && !strings.Contains(err.Error(), "at most") {
			t.Fatal(err)
		} else if err == nil {
			if again, gotTrail, err := checkpoint.Decode("key", anyName, partitions, text); err != nil ||
				!cmp.Equal(c, again, cmpopts.EquateEmpty()) || gotTrail != trail && trail.Entries > 0 {
				t.Fatalf("%v came back as %v, %v", c, again, err)
			}
		}
		if o, err := checkpoint.DecodeOrigin("key", partitions, text); err != nil {
			refused(t, err)
		} else if text, err := checkpoint.EncodeOrigin(o); err != nil {
			t.Fatal(err)
		} else if again, err := checkpoint.DecodeOrigin("key", partitions, text); err != nil || !cmp.Equal(o, again) {
			t.Fatalf("%v came back as %v, %v", o, again, err)
		}
		if b, err := checkpoint.DecodeBackend("key", text); err != nil {
			refused(t, err)
		} else if text, err := checkpoint.EncodeBackend(b); err != nil {
			t.Fatal(err)
		} else if again, err := checkpoint.DecodeBackend("key", text); err != nil || b != again {
			t.Fatalf("%v came back as %v, %v", b, again, err)
		}
		if g, err := checkpoint.DecodeGap("key", text); err != nil {
			refused(t, err)
		} else if text, err := checkpoint.EncodeGap(g); err != nil {
			t.Fatal(err)
		} else if again, err := checkpoint.DecodeGap("key", text); err != nil || !cmp.Equal(g, again, cmpopts.EquateEmpty()) {
			t.Fatalf("%v came back as %v, %v", g, again, err)
		}
	})
}
