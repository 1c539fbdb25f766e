package workload

import (
	"strings"
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
	var journal []byte
	for _, e := range []string{
		`{"operationType":"snapshot","documentKey":{"_id":0},"fullDocument":{"_id":0,"seq":1}}`,
		`{"operationType":"snapshot","documentKey":{"_id":1},"fullDocument":{"_id":1,"seq":1}}`,
		`{"operationType":"update","documentKey":{"_id":1},"updateDescription":{"updatedFields":{"seq":2}}}`,
		`{"operationType":"insert","documentKey":{"_id":3},"fullDocument":{"_id":3,"seq":1}}`,
		`{"operationType":"delete","documentKey":{"_id":3}}`,
		`{"operationType":"insert","documentKey":{"_id":17},"fullDocument":{"_id":17,"seq":1}}`,
	} {
		var err error
		if journal, err = AppendJSON(journal, []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Replay(strings.NewReader(string(journal) + "snapshot done\n2 1"))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := r.Compare(t.Context(), cfg); err != nil || d != (Differences{Missing: 2, Stale: 1, Resurrected: 1}) {
		t.Errorf("%+v, %v", d, err)
	}
}
