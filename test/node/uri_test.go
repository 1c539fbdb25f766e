package node

import (
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// Options of the connection string that are good for short requests, and would break a wait for
// changes or starve it, do neither: a quiet node keeps its one stream, and changes arrive.
func TestOptionsThatWouldHarmTheTail(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	uri := r.server.URI() + "&timeoutMS=50&socketTimeoutMS=50&maxPoolSize=1&minPoolSize=40&waitQueueTimeoutMS=50&readPreference=secondary&maxStalenessSeconds=90" +
		"&readConcernLevel=linearizable&w=0&journal=false&retryReads=false&serverSelectionTimeoutMS=1&heartbeatFrequencyMS=500&appName=other"
	n := r.begin("STREAMER_MONGODB_URI="+uri, "STREAMER_MONGODB_MAX_AWAIT=300ms")
	n.sees(r.series(0, 20)...)
	before := r.server.Stats()
	n.until("the quiet stream has waited several times", func() bool { return r.server.Stats().GetMores > before.GetMores+5 })
	n.sees(r.series(20, 40)...)
	if opened := r.server.Stats().ChangeStreamsOpened - before.ChangeStreamsOpened; opened != 0 {
		t.Errorf("%d streams were opened again", opened)
	}
	if failures := n.metric("streamer_mongodb_stream_failures_total"); failures != 0 {
		t.Errorf("the stream broke %v times", failures)
	}
	n.saysNothing()
}
