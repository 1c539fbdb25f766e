package workload

import (
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
)

func TestReplicaTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{})
	cfg := Config{URI: server.URI()}
	if err := NewWriter(cfg, &Ledger{}).Load(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	documents, err := Load(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var journal []byte
	for _, e := range []string{
		`{"operationType":"snapshot","documentKey":{"_id":1000},"fullDocument":{"_id":1000,"rev":1}}`,
		`{"operationType":"snapshot","documentKey":{"_id":1001},"fullDocument":{"_id":1001,"rev":1}}`,
		`{"operationType":"update","documentKey":{"_id":1001},"updateDescription":{"updatedFields":{"rev":2}}}`,
		`{"operationType":"insert","documentKey":{"_id":1003},"fullDocument":{"_id":1003,"rev":1}}`,
		`{"operationType":"delete","documentKey":{"_id":1003}}`,
		`{"operationType":"insert","documentKey":{"_id":17},"fullDocument":{"_id":17,"rev":1}}`,
		`{"operationType":"left","documentKey":{"_id":18}}`,
	} {
		if journal, err = AppendJSON(journal, []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	r, text := make(Replica), string(journal)+"snapshot done\n2 1"
	if applied := r.Apply([]byte(text)); applied != len(text)-len("2 1") {
		t.Errorf("%d bytes of %q applied", applied, text)
	}
	if d := r.Compare(documents, Selection{}); d != (Differences{Missing: 2, Stale: 1, Resurrected: 1}) {
		t.Errorf("%+v", d)
	}
	if r.Apply([]byte(Anew)); len(r) > 0 {
		t.Errorf("%v after it began anew", r)
	}
}

// What is wrong depends on what the subscriber gets: the filter, the operations, and whether it
// hears of documents that leave.
func TestReplicaOfASelection(t *testing.T) {
	t.Parallel()
	documents := Replica{1: 3, 2: 4, 3: 5, 4: 6, 6: 7}
	even := func(_, seq int64) bool { return seq%2 == 0 }
	few := func(id, _ int64) bool { return id < 4 }
	for _, c := range []struct {
		has  string
		of   Selection
		want Differences
	}{
		{"2 4.\n4 6.\n", Selection{Matches: even, Leaves: true}, Differences{}},
		{"1 2.\n2 4.\n4 6.\n", Selection{Matches: even}, Differences{}},
		{"1 2.\n2 4.\n4 6.\n", Selection{Matches: even, Leaves: true}, Differences{LeftWrongly: 1}},
		{"1 2.\n1 -1.\n2 4.\n4 6.\n4 -1.\n", Selection{Matches: even, Leaves: true}, Differences{LeftWrongly: 1}},
		{"5 2.\n5 -1.\n2 2.\n", Selection{Matches: even, Leaves: true}, Differences{Missing: 1, Stale: 1}},
		{"1 1.\n2 1.\n3 1.\n", Selection{Matches: few, Ops: []string{"insert", "delete"}}, Differences{}},
		{"1 1.\n2 1.\n5 1.\n", Selection{Matches: few, Ops: []string{"insert", "delete"}}, Differences{Missing: 1, Resurrected: 1}},
		{"1 3.\n2 1.\n3 5.\n5 1.\n", Selection{Matches: few, Ops: []string{"insert", "update", "replace"}}, Differences{Stale: 1}},
		// An update may bring a later document than its own.
		{string(must(AppendJSON(nil, []byte(`{"operationType":"update","documentKey":{"_id":2},"updateDescription":{"updatedFields":{"rev":3}},"fullDocument":{"_id":2,"rev":4}}`)))) + "4 6.\n", Selection{Matches: even, Leaves: true}, Differences{}},
	} {
		r := make(Replica)
		if r.Apply([]byte(c.has)); r.Compare(documents, c.of) != c.want {
			t.Errorf("%q: %+v, want %+v", c.has, r.Compare(documents, c.of), c.want)
		}
	}
}

func must(journal []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return journal
}
