package node

import (
	"fmt"
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// silent is a cluster of two shards that write nothing by themselves, nor do its config servers:
// even _ids are on the first one.
func silent() devmongo.Config {
	return devmongo.Config{Release: "7.0", Preset: "sharded", Adjust: func(p *devmongo.Profile) { p.NoopEvery, p.ConfigNoopEvery = 0, 0 }}
}

// Behind mongos a change waits for shards that have nothing to tell. One node of a cluster asks
// them to advance, for all.
func TestOneNodeAsksShardsToAdvance(t *testing.T) {
	t.Parallel()
	r := newRig(t, silent(), "STREAMER_MONGODB_TICK=20ms")
	nodes := []*live{r.begin(several("n1")...), r.begin(several("n2")...)}
	var want []string
	for round := range 5 {
		for i := range 4 {
			id := 2 * (4*round + i)
			r.insert(id)
			want = append(want, fmt.Sprint(id))
		}
		nodes[0].until("all has arrived", func() bool { return len(missing(append(nodes[0].ids(), nodes[1].ids()...), want)) == 0 })
	}
	ticking := 0
	for _, n := range nodes {
		if n.metric("streamer_mongodb_shard_ticks_total") > 0 {
			ticking++
		}
	}
	if ticking != 1 {
		t.Errorf("%d of two nodes asked the shards to advance", ticking)
	}
	for _, n := range nodes {
		n.stopped()
	}
}

// A node that is alone asks them itself, and goes on where it stood.
func TestNodeBehindARouter(t *testing.T) {
	t.Parallel()
	r := newRig(t, silent(), "STREAMER_MONGODB_TICK=20ms")
	n := r.begin()
	n.sees(r.series(0, 40)...)
	n.stopped()
	missed := r.series(40, 80)
	n = r.begin()
	n.sees(missed...)
	n.once(missed...)
	if len(n.losses()) != 0 {
		t.Errorf("%d losses", len(n.losses()))
	}
	n.stopped()
}
