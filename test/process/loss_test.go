package process

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/gap"
)

// newLabOf makes a lab with a development MongoDB of a kind.
func newLabOf(t *testing.T, cfg devmongo.Config) (*lab, *devmongo.Server) {
	t.Helper()
	server := devmongotest.Start(t, cfg)
	l := labOn(t, "etcd", server.URI())
	return l.with("STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms", "STREAMER_MONGODB_MAX_AWAIT=50ms", "STREAMER_MONGODB_WATCH="+l.database+".*"), server
}

// told returns what the lines of a process tell: the ids of documents, and notices of losses.
func told(t *testing.T, lines []string) (documents map[string]int, losses int) {
	t.Helper()
	documents = map[string]int{}
	for _, line := range lines {
		var e struct {
			Reason string `json:"reason"`
			Op     string `json:"operationType"`
			Key    struct {
				ID any `json:"_id"`
			} `json:"documentKey"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch {
		case e.Reason == string(gap.HistoryLost):
			losses++
		default:
			documents[e.Op+" "+encode(t, e.Key.ID)]++
		}
	}
	return documents, losses
}

// A notice of a loss that was queued, and not acknowledged because nobody has read it, is delivered
// by the next process.
func TestNoticeOfALossIsToldAgainAfterACrash(t *testing.T) {
	t.Parallel()
	l, server := newLabOf(t, devmongo.Config{})
	p := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
	p.await(nodeRuns)
	l.insert(0, 200)
	until(t, "every partition has a mark", func() bool { return len(p.output.all()) == 200 && len(l.stored()) == partitions })
	p.kill()
	before := l.stored()
	l.insert(200, 400)
	begin := server.ClusterTime() // this server cannot be read from its oldest entry on
	l.insert(400, 410)
	server.TruncateOplogBefore(begin)

	// Its output is a pipe that is full from the beginning: nothing is written, so nothing is
	// acknowledged.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	clog(t, w)
	p = start(t, launch{args: []string{"run", "-o", "json", "--take-over"}, env: l.settings, stdout: w})
	_ = w.Close()
	address := p.address()
	until(t, "the loss is found", func() bool { return metric(t, address, "streamer_gaps_detected_total") == 1 })
	lasts(t, p, 3*time.Second) // rounds of checkpoints
	p.kill()
	for q, m := range l.stored() {
		if m.Position.Compare(before[q].Position) != 0 {
			t.Errorf("the checkpoint of partition %d has passed a loss that nobody was told of", q)
		}
	}

	p = start(t, launch{args: []string{"run", "-o", "json", "--take-over"}, env: l.settings})
	p.await(nodeRuns)
	until(t, "everything is told", func() bool {
		documents, losses := told(t, p.output.all())
		return losses > 0 && len(documents) == 10
	})
	documents, losses := told(t, p.output.all())
	if losses != 1 || len(documents) != 10 {
		t.Errorf("%d losses, told of %v", losses, documents)
	}
	gaps, err := l.store.(*etcdStore).Gaps(t.Context())
	if err != nil || len(gaps) != 1 {
		t.Errorf("%d gap entries, %v", len(gaps), err)
	}
}

// clog writes to a pipe until it is full.
func clog(t *testing.T, w *os.File) {
	t.Helper()
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for line := strings.Repeat("\n", 4096); ; {
		if _, err := w.WriteString(line); err != nil {
			break
		}
	}
	if err := w.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// A process that is killed while it has one fragment of a large event, and not the other, has
// marked nothing of it: the next one delivers the whole event.
func TestKilledBetweenTheFragmentsOfAnEvent(t *testing.T) {
	t.Parallel()
	l, server := newLabOf(t, devmongo.Config{Release: "7.0", OplogBytes: 256 << 20})
	l = l.with("STREAMER_MONGODB_FULL_DOCUMENT=updateLookup", "STREAMER_MONGODB_MAX_AWAIT=10s")
	p := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
	p.await(nodeRuns)
	ctx := t.Context()
	if _, err := l.collection().InsertMany(ctx, []any{bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "_id", Value: 2}}}); err != nil {
		t.Fatal(err)
	}
	until(t, "the small events are there", func() bool { return len(p.output.all()) == 2 })
	// The getMore that waits brings the first fragment; the one after it, which would bring the
	// second, is not answered.
	waitsForEvents(t, server)
	text := make([]byte, 9<<20) // twice in the event, and no reply holds both
	_, _ = rand.Read(text)
	sent := server.Stats().EventsSent
	failPoint(l, server, "alwaysOn", bson.D{
		{Key: "failCommands", Value: bson.A{"getMore"}}, {Key: "appName", Value: "streamer " + l.cluster + "/node"},
		{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 60_000},
	})
	update := bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: text}}}}
	if _, err := l.collection().UpdateByID(ctx, 1, update); err != nil {
		t.Fatal(err)
	}
	until(t, "one fragment is sent", func() bool { return server.Stats().EventsSent == sent+1 })
	committed := server.ClusterTime()
	lasts(t, p, 3*time.Second) // rounds of marks, with half an event
	p.kill()
	if lines := len(p.output.all()); lines != 2 || server.Stats().EventsSent != sent+1 {
		t.Fatalf("%d lines with half an event", lines)
	}
	failPoint(l, server, "off", bson.D{})
	for q, m := range l.stored() {
		if m.Position.Time.Compare(change.Timestamp{T: uint32(committed >> 32), I: uint32(committed)}) >= 0 {
			t.Errorf("the mark of partition %d, %v, has passed half an event", q, m.Position)
		}
	}
	l.insert(3, 4)
	p = start(t, launch{args: []string{"run", "-o", "json", "--take-over"}, env: l.settings})
	p.await(nodeRuns)
	p.awaitIn(p.output, `"documentKey":{"_id":3}`)
	p.awaitIn(p.output, `"operationType":"update"`)
	for _, line := range p.output.all() {
		if strings.Contains(line, `"operationType":"update"`) && len(line) < 2*len(text) {
			t.Errorf("the event came with %d bytes", len(line))
		}
	}
	if documents, losses := told(t, p.output.all()); losses != 0 || documents["update 1"] != 1 {
		t.Errorf("told of %v, losses %v", documents, losses)
	}
}

// waitsForEvents waits until the node's stream does: it asks for nothing more.
func waitsForEvents(t *testing.T, server *devmongo.Server) {
	t.Helper()
	last, looks := server.Stats().GetMores, 0
	until(t, "the stream waits", func() bool {
		if now := server.Stats().GetMores; now != last {
			last, looks = now, 0
		}
		looks++
		return looks > 20
	})
}

// lasts lets time go by, in which the process must not end.
func lasts(t *testing.T, p *process, length time.Duration) {
	t.Helper()
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ended:
		t.Fatal("the process ended by itself")
	}
}

// Nothing happens in what is watched while the log wraps twice because of what is not: the marks
// follow the log, and a process that was killed goes on without a loss.
func TestIdleCollectionBesideABusyOne(t *testing.T) {
	t.Parallel()
	l, server := newLabOf(t, devmongo.Config{OplogBytes: 64 << 10})
	p := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
	p.await(nodeRuns)
	l.insert(0, 100)
	until(t, "every partition has a mark", func() bool { return len(p.output.all()) == 100 && len(l.stored()) == partitions })

	busy := l.client.Database("busy_" + l.database)
	t.Cleanup(func() { l.drop(busy.Name()) })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var written atomic.Int64
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				ended <- nil
				return
			}
			if _, err := busy.Collection("c").InsertOne(t.Context(), bson.D{{Key: "_id", Value: written.Add(1)}}); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 2 {
		at := server.ClusterTime()
		until(t, "the log has wrapped", func() bool { return oldest(l) > at })
	}
	p.kill()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for q, m := range l.stored() {
		if uint64(m.Position.Time.T)<<32|uint64(m.Position.Time.I) < oldest(l) {
			t.Errorf("the mark of partition %d, %v, is no longer in the log, %d writes long", q, m.Position, written.Load())
		}
	}
	l.insert(100, 120)
	p = start(t, launch{args: []string{"run", "-o", "json", "--take-over"}, env: l.settings})
	p.await(nodeRuns)
	until(t, "what follows is there", func() bool { return len(p.output.all()) >= 20 })
	documents, losses := told(t, p.output.all())
	if gaps, err := l.store.(*etcdStore).Gaps(t.Context()); err != nil || len(gaps) != 0 || losses != 0 || len(documents) != 20 {
		t.Errorf("%d gap entries, %v; losses %v; %d documents", len(gaps), err, losses, len(documents))
	}
}

// oldest returns the time of the log's first entry.
func oldest(l *lab) uint64 {
	l.t.Helper()
	var entry struct {
		TS bson.Timestamp `bson:"ts"`
	}
	if err := l.client.Database("local").Collection("oplog.rs").FindOne(l.t.Context(), bson.D{}).Decode(&entry); err != nil {
		l.t.Fatal(err)
	}
	return uint64(entry.TS.T)<<32 | uint64(entry.TS.I)
}
