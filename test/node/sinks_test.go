package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	devbroker "github.com/mongostream/streamer/dev/broker"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/sink"
)

// A landing is what has arrived at the target of a sink.
type landing struct {
	mu     sync.Mutex
	values []string
}

func (l *landing) add(values ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = append(l.values, values...)
}

// seqs returns the numbers of a document's changes in the order in which they have arrived, by
// document.
func (l *landing) seqs(t *testing.T) map[string][]int {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string][]int)
	for _, v := range l.values {
		var e struct {
			Key  map[string]any  `json:"documentKey"`
			Full struct{ N int } `json:"fullDocument"`
			Upd  struct {
				F struct{ N int } `json:"updatedFields"`
			} `json:"updateDescription"`
		}
		if err := json.Unmarshal([]byte(v), &e); err != nil {
			t.Fatalf("%v: %s", err, v)
		}
		id := fmt.Sprint(e.Key["_id"])
		all[id] = append(all[id], e.Full.N+e.Upd.F.N)
	}
	return all
}

// writes inserts documents and updates each several times.
func (r *rig) writes(from, to int) {
	r.Helper()
	for n := 1; n <= 3; n++ {
		var models []mongo.WriteModel
		for id := from; id < to; id++ {
			if n == 1 {
				models = append(models, mongo.NewInsertOneModel().SetDocument(bson.D{{Key: "_id", Value: id}, {Key: "n", Value: n}}))
			} else {
				models = append(models, mongo.NewUpdateOneModel().SetFilter(byID(id)).SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}}))
			}
		}
		if _, err := r.coll("orders").BulkWrite(r.Context(), models); err != nil {
			r.Fatal(err)
		}
	}
}

// landed waits until every change of the documents has arrived, and fails where one has come twice
// or out of order.
func (n *live) landed(l *landing, to int) {
	n.Helper()
	n.arrived(l, to)
	for id, seqs := range l.seqs(n.T) {
		if !slices.Equal(seqs, []int{1, 2, 3}) {
			n.Errorf("document %s: changes %v", id, seqs)
		}
	}
}

// arrived waits until every change of the documents has arrived, and fails where one has come
// before an earlier one.
func (n *live) arrived(l *landing, to int) {
	n.Helper()
	n.until(fmt.Sprintf("%d documents arrive at the target", to), func() bool {
		all := l.seqs(n.T)
		for id := range to {
			if !slices.Contains(all[fmt.Sprint(id)], 3) {
				return false
			}
		}
		return true
	})
	for id, seqs := range l.seqs(n.T) {
		last := 0
		for _, seq := range seqs {
			if seq > last+1 {
				n.Errorf("document %s: changes %v", id, seqs)
			}
			last = seq // a repetition is a contiguous replay
		}
	}
}

// sinkRig makes a rig whose nodes have a sink.
func sinkRig(t *testing.T, settings string) *rig {
	t.Helper()
	return sinkRigOn(t, devmongo.Config{}, "earliest", settings)
}

// sinkRigOn is sinkRig, with a MongoDB of its own kind and another start.
func sinkRigOn(t *testing.T, server devmongo.Config, start, settings string) *rig {
	t.Helper()
	r := newRig(t, server, "STREAMER_RELIABILITY_SHUTDOWN_FLUSH_TIMEOUT=1m", "STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=10ms")
	r.file = filepath.Join(t.TempDir(), "config.yaml")
	r.sinkFrom(start, settings)
	return r
}

// sink sets what the sink of nodes is that begin from now on.
func (r *rig) sink(settings string) { r.sinkFrom("earliest", settings) }

// sinkFrom is sink, with another start.
func (r *rig) sinkFrom(start, settings string) {
	r.Helper()
	if err := os.WriteFile(r.file, []byte("sinks:\n  - name: out\n    start: "+start+"\n"+settings), 0o600); err != nil {
		r.Fatal(err)
	}
}

// toKafka starts Kafka, and takes what consumers of what is committed see.
func toKafka(t *testing.T, l *landing) (settings string) {
	t.Helper()
	return toKafkaOf(t, func(r *kgo.Record) { l.add(string(r.Value)) })
}

// toKafkaOf is toKafka, with what takes the records.
func toKafkaOf(t *testing.T, take func(*kgo.Record)) (settings string) {
	t.Helper()
	k, err := devbroker.StartKafka(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.ConsumeTopics("shop.orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.MetadataMinAge(10*time.Millisecond), kgo.FetchMaxWait(50*time.Millisecond), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(take)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait(); client.Close() })
	return "    type: kafka\n    kafka: {brokers: ['" + k.ListenAddrs()[0] + "'], create_topics: true"
}

// toNATS starts a NATS server, and takes what is in its stream.
func toNATS(t *testing.T, l *landing) (settings string) {
	t.Helper()
	return toNATSOf(t, func(m jetstream.Msg) { l.add(string(m.Data())) })
}

// toNATSOf is toNATS, with what takes the messages.
func toNATSOf(t *testing.T, take func(jetstream.Msg)) (settings string) {
	t.Helper()
	n, err := devbroker.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	stream, conn, err := n.Stream(t.Context(), "changes", "changes.>")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	taking, err := consumer.Consume(take)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taking.Stop(); <-taking.Closed() })
	return "    type: nats\n    losses: changes.losses\n    nats: {url: '" + n.URL() + "', subject: 'changes.{partition}.{db}.{coll}', fence: true}\n"
}

// An endpoint takes posted changes.
type endpoint struct {
	landing

	mu     sync.Mutex
	answer func(r *http.Request, lines []string) int // nil: 200

	retryAfter string // with 429, empty for none
}

// toHTTP starts an endpoint.
func toHTTP(t *testing.T, e *endpoint) (settings string) {
	t.Helper()
	const secret = "0123456789abcdef"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if err := notice.VerifyDelivery(r.Header, body, time.Now(), secret); err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(string(body)), "\n")
		e.mu.Lock()
		answer := e.answer
		e.mu.Unlock()
		if answer != nil {
			if code := answer(r, lines); code != http.StatusOK {
				if e.retryAfter != "" && code == http.StatusTooManyRequests {
					w.Header().Set("Retry-After", e.retryAfter)
				}
				w.WriteHeader(code)
				return
			}
		}
		e.add(lines...)
	}))
	t.Cleanup(s.Close)
	return "    type: http\n    http: {url: '" + s.URL + "', secret: " + secret + ", allow: [127.0.0.0/8], batch: 4, timeout: 10m}\n"
}

func (e *endpoint) answers(f func(*http.Request, []string) int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = f
}

// toEach begins targets of each kind, and returns the configuration of their sinks.
func toEach() map[string]func(*testing.T, *landing) string {
	return map[string]func(*testing.T, *landing) string{
		"kafka":               func(t *testing.T, l *landing) string { return toKafka(t, l) + "}\n" },
		"kafka, transactions": func(t *testing.T, l *landing) string { return toKafka(t, l) + ", transactional: true}\n" },
		"nats":                toNATS,
		"http": func(t *testing.T, l *landing) string {
			e := &endpoint{}
			e.answers(func(_ *http.Request, lines []string) int { l.add(lines...); return http.StatusOK })
			return toHTTP(t, e)
		},
	}
}

// Every target gets each change once and in order, over planned stops as well.
func TestSinksPublishEveryChangeOnce(t *testing.T) {
	t.Parallel()
	for name, start := range toEach() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &landing{}
			r := sinkRig(t, start(t, l))
			n := r.beginWith(nil)
			r.writes(0, 20)
			n.landed(l, 20)
			r.writes(20, 30) // some of it is under way when the node stops
			n.stopped()
			n = r.beginWith(nil)
			r.writes(30, 40)
			n.landed(l, 40)
		})
	}
}

// What an operator has moved back comes again, although the sink is restarted after it has told of
// the rewind and before it publishes anything more.
func TestRewoundSinkThatIsRestartedPublishesAgain(t *testing.T) {
	t.Parallel()
	l := &landing{}
	r := sinkRig(t, toKafka(t, l)+", transactional: true}\n")
	var stalls, told atomic.Bool
	var out *sink.Sink
	known := make(chan struct{})
	r.stallSink = func(ctx context.Context) {
		if !stalls.Load() {
			return
		}
		select {
		case <-known:
		case <-ctx.Done():
			return
		}
		if out.Status().Published == 0 { // the rewind comes first
			return
		}
		told.Store(true)
		<-ctx.Done()
	}
	n := r.beginWith(nil)
	begun := r.now()
	r.writes(0, 10)
	n.landed(l, 10)
	n.stopped()
	for p := range change.Partition(partitions) {
		key := checkpoint.Key{Subscriber: "sink/out", Shared: true, Partition: p}
		if _, err := r.store.Rewind(t.Context(), key, change.At(begun), "operator", "a test"); err != nil {
			t.Fatal(err)
		}
	}
	stalls.Store(true)
	n = r.beginWith(nil)
	out = n.service.Sinks()[0]
	close(known)
	n.until("the rewind is published", told.Load)
	stalls.Store(false)
	out.Restart()
	n.until("every change arrives again", func() bool {
		all := l.seqs(t)
		for id := range 10 {
			if !slices.Equal(all[fmt.Sprint(id)], []int{1, 2, 3, 1, 2, 3}) {
				return false
			}
		}
		return true
	})
}

// A file has whole lines only, in files of bounded size.
func TestFileSinkBeginsNewFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "out.jsonl")
	if err := os.WriteFile(path, []byte(`{"torn": `), 0o600); err != nil { // a crash has left it
		t.Fatal(err)
	}
	r := sinkRig(t, "    type: file\n    file: {path: '"+path+"', max_size: 1KiB, keep: 1000}\n")
	n := r.beginWith(nil)
	r.writes(0, 20)
	var l landing
	n.until("all lines are there", func() bool {
		l = landing{}
		files, err := filepath.Glob(path + ".*") // sorted by name
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil { // it is not there while the last file is just full
			files = append(files, path)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if errors.Is(err, os.ErrNotExist) {
				return false // it was renamed meanwhile
			}
			for s := bufio.NewScanner(strings.NewReader(string(text))); s.Scan(); {
				if !json.Valid(s.Bytes()) {
					return false // being written
				}
				l.add(s.Text())
			}
		}
		return len(l.values) == 60 && len(files) > 5
	})
	n.landed(&l, 20)
}

// A target that fails, rejects all requests, stalls and comes back gets everything in order; one
// that refuses a change gets the others, and the change is a dead letter; one that wants no more
// halts the sink until an operator resumes it. Each request is signed with the secret: toHTTP
// verifies it.
func TestHTTPSinkOutlivesFailures(t *testing.T) {
	t.Parallel()
	e := &endpoint{}
	var mu sync.Mutex
	asked, again := make(map[string]bool), false
	e.answers(func(r *http.Request, lines []string) int {
		mu.Lock()
		again = again || asked[lines[0]]
		asked[lines[0]] = true
		mu.Unlock()
		<-r.Context().Done() // until the sink gives up
		return http.StatusInternalServerError
	})
	letters := filepath.Join(t.TempDir(), "letters.jsonl")
	settings := toHTTP(t, e) + "    attempts: 2\n    dead_letter: '" + letters + "'\n"
	// The timeout is short only while nothing is to arrive in time.
	r := sinkRig(t, strings.Replace(settings, "timeout: 10m", "timeout: 500ms", 1))
	n := r.beginWith(nil)
	r.writes(0, 10)
	n.until("a change is posted again whose request was not answered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return again
	})
	n.post("pause")
	paused := func() bool { return n.service.Sinks()[0].Status().State == sink.Paused }
	n.until("it is paused", paused)
	n.stopped()

	var requests atomic.Int64
	cut := make(chan struct{})
	e.answers(func(r *http.Request, _ []string) int {
		switch n := requests.Add(1); {
		case n <= 4: // none is about a change
			return []int{http.StatusInternalServerError, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}[n-1]
		case n == 5:
			select {
			case <-cut:
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler) // which cuts the connection
		}
		return http.StatusOK
	})
	r.sink(settings)
	n = r.beginWith(nil)
	n.until("it is paused after a restart", paused)
	n.post("resume")
	n.until("a request stalls", func() bool { return requests.Load() >= 5 })
	close(cut)
	n.arrived(&e.landing, 10)

	e.answers(func(_ *http.Request, lines []string) int {
		if slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, `"_id":"bad"`) }) {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	r.insert("bad")
	r.writes(10, 20)
	n.arrived(&e.landing, 20)
	n.until("a dead letter is written", func() bool {
		text, _ := os.ReadFile(letters)
		return strings.Contains(string(text), `"_id":"bad"`) && n.service.Sinks()[0].Status().DeadLetters == 1
	})

	e.answers(func(*http.Request, []string) int { return http.StatusGone })
	r.writes(20, 30)
	n.until("the sink halts", func() bool { return n.service.Sinks()[0].Status().State == sink.Halted })
	e.answers(nil)
	n.post("resume")
	n.arrived(&e.landing, 30)
}

// post asks the node to do something with its sink.
func (n *live) post(do string) {
	n.Helper()
	n.asks("/v1/sinks/out/" + do)
}

// A sink whose start is snapshot publishes the documents in their place among the changes. Who
// gets partitions of it before all are read reads on, and who gets them later reads nothing.
func TestSinkBeginsWithTheDocuments(t *testing.T) {
	t.Parallel()
	e, copied := &endpoint{}, newReplica()
	e.answers(func(_ *http.Request, lines []string) int {
		for _, l := range lines {
			copied.apply([]byte(l), strings.Contains(l, `"operationType":"snapshot"`))
		}
		return http.StatusOK
	})
	settings, pages := toHTTP(t, e), devmongotest.NewPages("orders", 15) // more come when the first node has stopped
	r := sinkRigOn(t, devmongo.Config{Adjust: func(p *devmongo.Profile) { p.BeforeReply = pages.Pass }}, "snapshot", settings)
	t.Cleanup(pages.Open)
	slowly := []string{"STREAMER_RESCAN_PAGE_SIZE=7", "STREAMER_RESCAN_RATE=400"}
	stop := r.churn(mixedIDs(480))
	first := r.beginWith(nil, append(several("n1"), slowly...)...)
	first.until("some documents are published", copied.look(func() bool { return copied.snapshots > 20 }))
	second := r.beginWith(nil, append(several("n2"), slowly...)...)
	second.until("the second node has partitions", func() bool { return len(second.service.Node().Status()) > 0 })
	first.stopped()
	unread := func() bool {
		for _, c := range r.stored("sink/out") {
			if len(c.Snapshots) > 0 {
				return true
			}
		}
		return false
	}
	if !unread() {
		t.Error("everything was read before the node was stopped")
	}
	pages.Open()
	second.until("everything is read", func() bool { return !unread() })
	stop()
	copied.equals(second, r.coll("orders"))
	second.stopped()
	copied.mu.Lock()
	before := copied.snapshots
	copied.mu.Unlock()
	third := r.beginWith(nil, append(several("n3"), slowly...)...)
	r.insert("after")
	copied.equals(third, r.coll("orders"))
	copied.mu.Lock()
	defer copied.mu.Unlock()
	if len(copied.older) > 0 || copied.snapshots != before {
		t.Errorf("%d documents, then %d; after something newer: %q", before, copied.snapshots, copied.older)
	}
}

// A sink that an operator has paused publishes nothing, also after a restart of the node, and goes
// on where it was; that is in the audit log.
func TestPausedSinkRestsUntilItIsResumed(t *testing.T) {
	t.Parallel()
	e := &endpoint{}
	r := sinkRig(t, toHTTP(t, e))
	n := r.beginWith(nil)
	r.writes(0, 5)
	n.landed(&e.landing, 5)
	n.post("pause")
	paused := func() bool { return n.service.Sinks()[0].Status().State == sink.Paused }
	n.until("it is paused", paused)
	r.writes(5, 10)
	n.stopped()
	n = r.beginWith(nil)
	n.until("it is paused after a restart", paused)
	if got := len(e.seqs(t)); got != 5 {
		t.Errorf("%d documents have arrived", got)
	}
	n.post("resume")
	n.landed(&e.landing, 10)
	if got := n.posted(notice.Audit); len(slices.DeleteFunc(got, func(kind string) bool { return kind != notice.KindOperated })) != 2 {
		t.Errorf("audit log: %v", got)
	}
}

// What an operator has said of a sink is in the history when it is answered: a node that starts
// after another one was killed does it, too.
func TestOrdersForSinksAreKeptWhenTheyAreAnswered(t *testing.T) {
	t.Parallel()
	r := sinkRig(t, toHTTP(t, &endpoint{}))
	n := r.beginWith(nil)
	var want []string
	for _, do := range []string{"pause", "resume", "pause", "resume"} {
		n.post(do)
		want = append(want, do)
		all, _, err := r.history.Read(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, record := range all {
			if do, _ := record.Fields["do"].(string); record.Kind == notice.KindOperated {
				kept = append(kept, do)
			}
		}
		if !slices.Equal(kept, want) {
			t.Errorf("the history has %q, want %q", kept, want)
		}
	}
}

// terms returns those of all partitions.
func (n *live) terms() (all []change.Term) {
	for p := range change.Partition(partitions) {
		term, _ := n.service.Node().Term(p)
		all = append(all, term)
	}
	return all
}

// Nothing that the target has acknowledged of a partition before it leaves is published twice, and
// what comes after is published by its next owner. That it leaves not before is streamer's
// TestPartitionsLeaveWhenTheyAreAcknowledged.
func TestPartitionLeavesWhenItsChangesAreAcknowledged(t *testing.T) {
	t.Parallel()
	e := &endpoint{}
	held, reached := make(chan struct{}), make(chan struct{}, 100)
	e.answers(func(*http.Request, []string) int {
		reached <- struct{}{}
		<-held
		return http.StatusOK
	})
	r := sinkRig(t, toHTTP(t, e))
	n := r.beginWith(nil)
	n.status()
	r.writes(0, 1)
	<-reached // a request is under way
	terms := n.terms()
	released := make(chan struct{})
	go func() {
		defer close(released)
		n.service.Node().Drain(context.Background(), terms)
	}()
	r.writes(1, 2) // which the next owner publishes
	close(held)    // before the sink finds that its target stands still
	r.writes(2, 10)
	<-released
	n.landed(&e.landing, 10)
}

// A pipe is a standard output that nobody reads until it is opened.
type pipe struct {
	landing

	reached chan struct{} // holds a signal for the first write
	open    chan struct{}
}

func (p *pipe) Write(lines []byte) (int, error) {
	select {
	case p.reached <- struct{}{}:
	default:
	}
	<-p.open
	p.add(strings.Split(strings.TrimSuffix(string(lines), "\n"), "\n")...)
	return len(lines), nil
}

// What waits for the reader of standard output when a term ends is not written any more, but by the
// next owner. That includes what a sink that was restarted meanwhile wants to write after the write
// that its target before has left behind.
func TestReaderGetsNothingOfTermsThatHaveEnded(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"as it began": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := &pipe{reached: make(chan struct{}, 1), open: make(chan struct{})}, &pipe{open: make(chan struct{})}
			r := sinkRig(t, "    type: stdout\n")
			r.stdout = first
			n := r.beginWith(nil)
			out := n.service.Sinks()[0]
			underWay := func() int { return out.Status().UnderWay }
			r.writes(0, 1)
			<-first.reached
			if restarts {
				n.until("it has got what it writes", func() bool { return underWay() == 3 })
				out.Restart()
				n.until("it attempts that again", func() bool { return out.Status().State == sink.Retrying })
			}
			r.writes(1, 10)
			n.until("changes wait for the reader", func() bool { return restarts || underWay() == 30 })
			n.service.Node().Ended(n.terms())
			close(first.open)
			n.until("nothing waits for the reader", func() bool { return out.Status().State == sink.Publishing && underWay() == 0 })
			if all := first.seqs(t); len(all) != 1 || len(all["0"]) == 0 || len(all["0"]) > 3 {
				t.Errorf("written after the terms have ended: %v", all)
			}
			n.stopped()
			close(second.open)
			r.stdout = second
			r.beginWith(nil).landed(&second.landing, 10)
			if got := r.stored("stdout"); len(got) == 0 {
				t.Error("the subscriber of standard output is not stdout")
			}
		})
	}
}

// What waits for Retry-After, or for its turn in a request that is divided, is not posted any more
// when its term has ended meanwhile. The node claims the partitions again and posts it under its
// next terms.
func TestNothingIsPostedAfterItsTermHasEnded(t *testing.T) {
	t.Parallel()
	t.Run("a wait", func(t *testing.T) {
		t.Parallel()
		e := &endpoint{retryAfter: "5"}
		var asked atomic.Bool
		e.answers(func(*http.Request, []string) int {
			if !asked.Swap(true) {
				return http.StatusTooManyRequests
			}
			return http.StatusOK
		})
		r := sinkRig(t, toHTTP(t, e))
		n := r.beginWith(nil)
		n.status()
		r.writes(0, 1)
		n.until("another attempt waits", func() bool { return n.service.Sinks()[0].Status().Retried > 0 })
		n.service.Node().Ended(n.terms())
		n.landed(&e.landing, 1) // what was posted under the terms before would come twice
	})
	for name, refusal := range map[string]int{"halves": http.StatusRequestEntityTooLarge, "one by one": http.StatusBadRequest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &endpoint{}
			reached, held := make(chan struct{}, 100), make(chan struct{})
			var n *live
			var terms []change.Term
			refused, ended := false, false // of one request at a time: all changes are of one partition
			e.answers(func(_ *http.Request, lines []string) int {
				reached <- struct{}{}
				<-held
				switch {
				case ended: // the next owner has a term
					if !slices.ContainsFunc(n.terms(), func(term change.Term) bool { return term.Epoch != (change.Epoch{}) }) {
						t.Errorf("posted after the terms have ended: %s", lines)
					}
				case len(lines) > 1:
					refused = true
					return refusal
				case refused: // the first of its parts
					n.service.Node().Ended(terms)
					ended = true
				}
				return http.StatusOK
			})
			r := sinkRig(t, toHTTP(t, e))
			n = r.beginWith(nil)
			n.status()
			r.writes(0, 1)
			<-reached
			underWay := func() int { return n.service.Sinks()[0].Status().UnderWay }
			n.until("changes wait for the request", func() bool { return underWay() == 3 })
			terms = n.terms()
			close(held)
			n.arrived(&e.landing, 1)
			n.stopped()
			if !ended {
				t.Error("no request was divided")
			}
		})
	}
}
