package node

import (
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// stage returns how many batches a stage of streamer_stage_seconds was measured of.
func (n *live) stage(name string) (count uint64) {
	n.Helper()
	families, err := n.service.Metrics().Gather()
	if err != nil {
		n.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "streamer_stage_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == name {
				count += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return count
}

// An operator sees where changes take their time: a client that acknowledges has all stages, an
// event stream ends with the one of its transport.
func TestStagesOfDeliveryAreMeasured(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{}, "STREAMER_MONGODB_FULL_DOCUMENT=updateLookup")
	n := r.beginWith(nil)
	_, end := n.eventsFrom("&start=now", "")
	defer end()
	id := 0
	for _, name := range []string{"hub", "transport"} {
		n.until("the stage "+name+" of an event stream is measured", func() bool {
			id++
			r.insert(id)
			return n.stage(name) > 0
		})
	}
	if count := n.stage("acknowledgement"); count > 0 {
		t.Errorf("an event stream, which acknowledges nothing, has %d acknowledgements", count)
	}
	(&tellings{}).overGRPC(t, n)
	n.until("acknowledgements of a client are measured", func() bool { return n.stage("acknowledgement") > 0 })
}
