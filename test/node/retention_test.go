package node

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/retention"
)

// eventsFrom opens an event stream of shop.orders.
func (n *live) eventsFrom(query, last string) (events *sse.Reader, end func()) {
	n.Helper()
	req, err := http.NewRequestWithContext(n.Context(), http.MethodGet, "http://"+n.service.Addr()+"/v1/events?db=shop&coll=orders"+query, nil)
	if err != nil {
		n.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	var resp *http.Response
	n.until("the node opens an event stream", func() bool {
		if resp, err = http.DefaultClient.Do(req); err != nil { //nolint:bodyclose // by end
			n.Fatal(err)
		}
		if resp.StatusCode == http.StatusServiceUnavailable { // MongoDB is slow: clients ask again
			_ = resp.Body.Close()
			return false
		}
		return true
	})
	if resp.StatusCode != http.StatusOK {
		n.Fatal(resp.Status)
	}
	return sse.NewReader(resp.Body), func() { _ = resp.Body.Close() }
}

// inserts reads the numbers of inserted documents up to one of them. Anything that is neither a
// change nor a mark of the stream, such as a loss, fails the test.
func (n *live) inserts(events *sse.Reader, upTo int) (got []string) {
	n.Helper()
	for {
		m, err := events.Next()
		if err != nil {
			n.Fatalf("%v, after %v", err, got)
		}
		var told struct {
			OperationType string         `json:"operationType"`
			DocumentKey   map[string]any `json:"documentKey"`
		}
		if json.Unmarshal([]byte(m.Data), &told) != nil || told.OperationType != "insert" {
			if strings.Contains(m.Event, "loss") || strings.Contains(m.Event, "resync") || m.Event == "error" {
				n.Fatalf("%s %s after %v", m.Event, m.Data, got)
			}
			continue
		}
		id := fmt.Sprint(told.DocumentKey["_id"])
		if number, is := told.DocumentKey["_id"].(map[string]any); is {
			for _, digits := range number {
				id = fmt.Sprint(digits)
			}
		}
		if got = append(got, id); id == fmt.Sprint(upTo) {
			return got
		}
	}
}

// retains waits until the retained log has all changes until now, and returns a time before which
// the oplog may be truncated then. One more entry lies between that time and the end of the
// retained log: servers before 5.0 refuse to start at the first entry of their oplog.
func (n *live) retains() (until uint64) {
	n.Helper()
	until = n.server.ClusterTime() + 1
	n.elsewhere(1)
	between := n.now()
	n.until("all of it is in segments", func() bool {
		n.elsewhere(1)
		return n.metric("streamer_retention_written_to_seconds") > float64(between.T)
	})
	return until
}

// Event streams resume, and begin at the earliest change, where MongoDB's oplog does not reach any
// more: nothing is missing, nothing comes twice, and nobody is told of a loss.
func TestEventStreamsReadWhatHasLeftTheOplog(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"4.4", "7.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			store := t.TempDir()
			r := newRig(t, devmongo.Config{Release: release}, "STREAMER_RETENTION_STORE=file://"+store, "STREAMER_RETENTION_INTERVAL=1s")
			n := r.begin()
			n.until("the log is open", func() bool { return n.service.Log().Stats().Open })
			n.until("the retained log has begun", func() bool {
				if _, err := r.coll("other").InsertOne(r.Context(), bson.D{}); err != nil {
					r.Fatal(err)
				}
				return segments(t, store) > 0
			})
			early := r.now()
			n.until("a later second has come", func() bool {
				r.elsewhere(1)
				return r.now().T > early.T
			})
			events, end := n.eventsFrom("&start=now", "")
			written := r.series(0, 150)
			n.sees(written...)
			n.inserts(events, 20)
			last := events.LastID()
			end()
			begin := n.retains()
			n.stopped() // the ring of the tail has it
			r.server.TruncateOplogBefore(begin)
			n = r.begin()
			written = append(written, r.series(150, 160)...)

			resumed, end := n.eventsFrom("", last)
			defer end()
			if got, want := n.inserts(resumed, 159), written[21:]; strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("after number 20 came %v", got)
			}
			earliest, end := n.eventsFrom("&start=earliest", "")
			defer end()
			if got := n.inserts(earliest, 159); strings.Join(got[max(0, len(got)-len(written)):], " ") != strings.Join(written, " ") {
				t.Errorf("from the beginning came %v", got)
			}
			var list struct {
				Begins time.Time `json:"oplog_begins"`
			}
			_, text := n.answer(http.DefaultClient, "http://"+n.service.Addr()+"/v1/subscribers")
			if err := json.Unmarshal([]byte(text), &list); err != nil || list.Begins.IsZero() || list.Begins.After(early.Time()) {
				t.Errorf("operators hear that the log begins at %s, after what was read from it: %v", list.Begins, err)
			}
			if lost := n.metric("streamer_log_losses_total"); lost != 0 || len(n.losses()) != 0 {
				t.Errorf("%v losses", lost)
			}
		})
	}
}

// segments returns how many segments a folder has.
func segments(t *testing.T, root string) (n int) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Base(filepath.Dir(path)) == "seg" {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A node whose retained log cannot be opened starts and delivers, and retains once it can be.
func TestNodeStartsWithoutTheStoreOfItsRetainedLog(t *testing.T) {
	t.Parallel()
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil { // where the folder is to be
		t.Fatal(err)
	}
	store := filepath.Join(there, "log")
	r := newRig(t, devmongo.Config{}, "STREAMER_RETENTION_STORE=file://"+store, "STREAMER_RETENTION_INTERVAL=1s")
	n := r.begin()
	n.sees(r.series(0, 10)...)
	n.until("the store has failed", func() bool { return n.metric("streamer_retention_write_failures_total") > 0 })
	if err := errors.Join(os.Remove(there), os.Mkdir(there, 0o700)); err != nil {
		t.Fatal(err)
	}
	n.until("the log is retained", func() bool {
		r.elsewhere(1)
		return n.metric("streamer_retention_segments_written_total") > 0
	})
}

// What operators do to the retained log beside the nodes, whose store they open themselves, is in
// the audit log, once.
func TestAuditLogHasWhatIsDoneToTheRetainedLog(t *testing.T) {
	t.Parallel()
	root, identities := t.TempDir(), filepath.Join(t.TempDir(), "identities")
	enlist(t, identities, "o name=operator namespace=*")
	r := newRig(t, devmongo.Config{}, "STREAMER_RETENTION_STORE=file://"+root, "STREAMER_RETENTION_INTERVAL=1s")
	n := r.beginWith(nil, "STREAMER_ACCESS_IDENTITIES_FILE="+identities)
	n.until("the retained log has begun", func() bool {
		r.elsewhere(1)
		return segments(t, root) > 0
	})
	files := retention.NewFiles(root)
	defer files.Close()
	chains, err := files.Chains(t.Context())
	if err != nil || len(chains) != 1 {
		t.Fatal(chains, err)
	}
	chain := retention.ChainAt(files, chains[0])
	for _, command := range []string{"prune", "forget"} { // the nodes have looked in between
		if err := chain.RecordAction(t.Context(), "ann@bastion", "streamer retention "+command, "--namespace=shop.orders"); err != nil {
			t.Fatal(err)
		}
		n.until("the action is in the audit log", func() bool {
			left, err := chain.Actions(t.Context())
			return err == nil && len(left) == 0
		})
	}
	var told []string
	for _, record := range n.recorded("o") {
		if record.Kind == notice.KindOperated {
			told = append(told, record.Text)
		}
	}
	if got := strings.Join(told, "; "); got != "ann@bastion has confirmed: streamer retention prune --namespace=shop.orders; ann@bastion has confirmed: streamer retention forget --namespace=shop.orders" {
		t.Errorf("the audit log has %q", got)
	}
}

// Two hundred subscribers come back for what has left the oplog. Each gets everything once, and
// all of them together cost the store about one read of each block, the node a bounded amount of
// memory, and MongoDB no stream more than it allows.
func TestSubscribersOfTheRetainedLogShareReaders(t *testing.T) {
	t.Parallel()
	const subscribers, waves, documents, ring, maxStreams = 200, 4, 300, 4 << 20, 3
	store := t.TempDir()
	r := newRig(t, devmongo.Config{}, "STREAMER_RETENTION_STORE=file://"+store, "STREAMER_RETENTION_INTERVAL=1s",
		fmt.Sprintf("STREAMER_MONGODB_RING_SIZE=%dMiB", ring>>20), "STREAMER_MONGODB_PREFETCH=1MiB", fmt.Sprint("STREAMER_MONGODB_MAX_STREAMS=", maxStreams))
	n := r.begin()
	n.until("the retained log has begun", func() bool {
		r.elsewhere(1)
		return segments(t, store) > 0
	})
	early := r.now()
	n.until("a later second has come", func() bool {
		r.elsewhere(1)
		return r.now().T > early.T
	})
	var docs []any
	for i := range documents {
		text := make([]byte, 2000)
		_, _ = rand.Read(text) // never fails
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "text", Value: hex.EncodeToString(text)}})
	}
	if _, err := r.coll("orders").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	begin := n.retains()
	n.stopped() // the ring of the tail has it
	r.server.TruncateOplogBefore(begin)
	n = r.begin()

	begun := time.Now()
	var programs []*program
	cache, readers, streams := 0.0, 0.0, 0.0
	for range waves { // each later than what memory has of the one before
		for range subscribers / waves {
			name := fmt.Sprint("s", len(programs))
			programs = append(programs, n.connect(client.Config{Subscriber: name, Start: client.StartEarliest}, client.Subscription{ID: "x", DB: "shop", Coll: "orders"}))
		}
		n.until("all of them have everything", func() bool {
			cache, readers = max(cache, n.metric("streamer_retention_cache_bytes")), max(readers, n.metric("streamer_log_retained_readers"))
			streams = max(streams, n.metric("streamer_log_streams_open"))
			return !slices.ContainsFunc(programs, func(p *program) bool { return len(p.changes) < documents })
		})
	}
	for i, p := range programs {
		got := make(map[string]bool)
		for range documents {
			got[<-p.changes] = true
		}
		if len(got) != documents || len(p.changes) > 0 {
			t.Errorf("subscriber %d: %d documents, %d changes more", i, len(got), len(p.changes))
		}
	}
	stored, read := folderSize(t, store), n.metric("streamer_retention_read_bytes_total")
	t.Logf("%d bytes are stored, %.0f were read; %.0f were kept at most, by %.0f readers; %.0f streams", stored, read, cache, readers, streams)
	// What was read is forgotten when nobody has read for ten seconds, as on a machine that stands
	// still, and read again.
	again := int64(time.Since(begun) / (10 * time.Second))
	if read == 0 || read > float64(min(2+again, 2*waves)*stored) {
		t.Errorf("%.0f bytes were read of %d", read, stored)
	}
	if cache > ring/4 || readers > maxStreams-1 || streams > maxStreams {
		t.Errorf("%.0f bytes are kept by %.0f readers; %.0f streams", cache, readers, streams)
	}
}

// Clusters of two deployments that have the same name, and whose ids their users may not read, keep
// apart what they retain in one store: none reads, or is stopped by, what the other has written.
func TestDeploymentsOfOneNameShareNoRetainedLog(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	settings := []string{"STREAMER_RETENTION_STORE=file://" + store, "STREAMER_RETENTION_INTERVAL=1s"}
	r := newRig(t, devmongo.Config{}, settings...)
	n := r.begin()
	n.until("the log is open", func() bool { return n.service.Log().Stats().Open })
	r.series(0, 5)
	n.retains()
	n.stopped()

	r = newRig(t, devmongo.Config{}, settings...)
	n = r.begin()
	n.until("the log is open", func() bool { return n.service.Log().Stats().Open })
	written := r.series(5, 10)
	n.retains()
	events, end := n.eventsFrom("&start=earliest", "")
	defer end()
	if got := n.inserts(events, 9); strings.Join(got, " ") != strings.Join(written, " ") {
		t.Errorf("from the beginning came %v", got)
	}
	if chains, err := filepath.Glob(filepath.Join(store, "v1", "*", "1", "seg")); err != nil || len(chains) != 2 {
		t.Errorf("%v, %v", chains, err)
	}
}

// folderSize returns the size of the files of a folder.
func folderSize(t *testing.T, root string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		about, err := d.Info()
		size += about.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// A stretch ends where MongoDB is known to be past its end, although nothing that is watched
// happens: MongoDB moves its clock on by itself while it is idle.
func TestEndOfAStretchComesWithoutChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{NoopEvery: 200 * time.Millisecond})
	n := r.begin()
	n.sees(r.series(0, 3)...)
	for _, filter := range []string{"", "&filter=" + url.QueryEscape("op == 'delete'")} {
		at := r.now().Time().Add(2 * time.Second).UTC().Format(time.RFC3339)
		events, end := n.eventsFrom("&start=earliest&end="+at+filter, "")
		for kind := ""; kind != "end"; {
			m, err := events.Next()
			if err != nil {
				t.Fatal(err)
			}
			kind = m.Event
		}
		end()
		at = r.now().Time().Add(2 * time.Second).UTC().Format(time.RFC3339)
		if past := n.changesOf("1", "&end="+at); len(past.Changes) != 1 {
			t.Errorf("%d changes of the document", len(past.Changes))
		}
	}
}

// A snapshot continues at its place where MongoDB's oplog does not reach any more: what has changed
// since comes from the retained log.
func TestSnapshotGoesOnWhereTheOplogHasEnded(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"gRPC", "events"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			pages := devmongotest.NewPages("orders", 15) // more come later
			w := newRig(t, devmongo.Config{Adjust: func(p *devmongo.Profile) { p.BeforeReply = pages.Pass }},
				"STREAMER_RETENTION_STORE=file://"+t.TempDir(), "STREAMER_RETENTION_INTERVAL=1s", "STREAMER_RESCAN_PAGE_SIZE=7", "STREAMER_RESCAN_RATE=400")
			t.Cleanup(pages.Open)
			const documents = 480
			stop := w.churn(mixedIDs(documents))
			n := w.begin()
			front, r := newFront(t), newReplica()
			lead := func() {
				if over == "gRPC" {
					front.lead(n.service.Gateway())
				} else {
					front.lead(n.service.Addr())
				}
			}
			lead()
			if over == "gRPC" {
				r.begin(t, client.Config{Addresses: []string{front.address()}, Subscriber: "s", Start: client.StartSnapshot},
					client.Subscription{ID: "events", DB: "shop", Coll: "orders"})
			} else {
				r.beginEvents(t, front.address(), url.Values{"db": {"shop"}, "coll": {"orders"}, "start": {"snapshot"}, "subscriber": {"s"}}.Encode())
			}
			n.until("some documents are read", r.look(func() bool { return r.snapshots > 60 }))
			n.until("a checkpoint has the progress", func() bool {
				saved, err := w.store.Load(t.Context(), "s")
				return err == nil && len(saved) == 1 && len(saved[0].Snapshots) == 1 && saved[0].Snapshots[0].Read > 0
			})
			front.lead("")
			n.until("its session has ended", func() bool { return n.metric("streamer_sessions_ended_total") > 0 })
			r.mu.Lock()
			before := r.snapshots
			r.mu.Unlock()
			begin := n.retains()
			n.stopped() // the ring of the tail has it
			w.server.TruncateOplogBefore(begin)
			n = w.begin()
			pages.Open()
			lead()
			n.until("the snapshot is complete", r.look(func() bool { return r.done == 1 }))
			stop()
			r.equals(n, w.coll("orders"))
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.resyncs > 0 || slices.ContainsFunc(r.marks, func(m client.Snapshot) bool { return m.Reason != "start" }) {
				t.Errorf("%d resyncs, %+v", r.resyncs, r.marks)
			}
			if over == "gRPC" && r.snapshots-before > documents-before/2 {
				t.Errorf("%d documents before and %d after the end of the node: it began again", before, r.snapshots-before)
			}
		})
	}
}
