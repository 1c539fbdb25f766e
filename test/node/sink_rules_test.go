package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wiring"
)

// What an operator has moved back comes again at every target, whole and in order, also within
// JetStream's duplicate window; and so does what follows deleted checkpoints, whose start is the
// earliest change. What comes after it comes once.
func TestRepeatedOnPurposeArrives(t *testing.T) {
	t.Parallel()
	to := toEach()
	to["nats, without a fence"] = func(t *testing.T, l *landing) string {
		t.Helper()
		return strings.Replace(toNATS(t, l), "fence: true", "fence: false", 1)
	}
	for name, start := range to {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &landing{}
			r := sinkRig(t, start(t, l))
			n := r.beginWith(nil)
			begun := r.now()
			r.writes(0, 10)
			n.landed(l, 10)
			repeated := []int{1, 2, 3}
			again := func(what string, move func()) {
				t.Helper()
				n.stopped()
				move()
				n = r.beginWith(nil)
				repeated = append(repeated, 1, 2, 3)
				n.until(what, func() bool {
					all := l.seqs(t)
					for id := range 10 {
						if !slices.Equal(all[fmt.Sprint(id)], repeated) {
							return false
						}
					}
					return true
				})
			}
			again("what was moved back comes again", func() {
				for p := range change.Partition(partitions) {
					key := checkpoint.Key{Subscriber: "sink/out", Shared: true, Partition: p}
					if _, err := r.store.Rewind(t.Context(), key, change.At(begun), "operator", "a test"); err != nil {
						t.Fatal(err)
					}
				}
			})
			again("what follows deleted checkpoints comes again", func() {
				if err := r.store.Delete(t.Context(), "sink/out"); err != nil {
					t.Fatal(err)
				}
			})
			r.writes(10, 20)
			n.until("what is written afterwards comes", func() bool {
				all := l.seqs(t)
				for id := range 10 {
					if !slices.Equal(all[fmt.Sprint(10+id)], []int{1, 2, 3}) {
						return false
					}
				}
				return true
			})
			for id := range 10 {
				if got := l.seqs(t)[fmt.Sprint(id)]; !slices.Equal(got, repeated) {
					t.Errorf("document %d: changes %v, want %v", id, got, repeated)
				}
			}
		})
	}
}

// A consumer drops changes that it has seen: of each document it has what the last new one brought.
type consumer struct {
	mu   sync.Mutex
	seen map[string]bool
	has  map[string]int            // by document
	by   map[string]map[string]int // the latest change of a document that a node has posted
}

func (c *consumer) take(t *testing.T, node string, lines []string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range lines {
		var e struct {
			ID  string
			Key struct {
				ID int `json:"_id"`
			} `json:"documentKey"`
			Full struct{ N int } `json:"fullDocument"`
			Upd  struct {
				F struct{ N int } `json:"updatedFields"`
			} `json:"updateDescription"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		document := fmt.Sprint(e.Key.ID)
		if c.by[node] == nil {
			c.by[node] = make(map[string]int)
		}
		c.by[node][document] = max(c.by[node][document], e.Upd.F.N)
		if !c.seen[e.ID] {
			c.seen[e.ID], c.has[document] = true, e.Full.N
		}
	}
}

// posted returns the documents of which a node has posted a change.
func (c *consumer) posted(node string, n int) (documents []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for document, has := range c.by[node] {
		if has == n {
			documents = append(documents, document)
		}
	}
	return documents
}

// A change that its owner has hidden, because the looked-up document did not match, and that the
// next owner delivers, comes with the newest document, although the next owner has read it before
// newer changes: what a consumer that drops what it has seen takes last is the newest state.
func TestHiddenChangeComesWithTheNewestDocument(t *testing.T) {
	t.Parallel()
	e, got := &endpoint{}, &consumer{seen: make(map[string]bool), has: make(map[string]int), by: make(map[string]map[string]int)}
	e.answers(func(r *http.Request, lines []string) int {
		node := strings.Trim(r.URL.Path, "/")
		if got.take(t, node, lines); node == "n1" {
			return http.StatusInternalServerError // it takes them, and n1 does not know
		}
		return http.StatusOK
	})
	settings := strings.Replace(toHTTP(t, e), "type: http\n", "type: http\n    subscriptions: [{namespace: shop.orders, filter: 'doc.n % 2 == 0'}]\n", 1)
	r := newRig(t, devmongo.Config{}, "STREAMER_MONGODB_FULL_DOCUMENT=updateLookup", "STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=10ms")
	r.file = filepath.Join(t.TempDir(), "config.yaml")
	begin := func(node string) (*live, *program) {
		r.sinkFrom("now", strings.Replace(settings, "', secret", "/"+node+"', secret", 1))
		n := r.beginWith(nil, several(node)...)
		return n, n.connect(client.Config{}, client.Subscription{ID: "all", DB: "shop"})
	}
	n1, reads1 := begin("n1")
	n1.until("one node serves everything", func() bool { return n1.serves() == partitions })
	n2, reads2 := begin("n2")
	n1.until("both nodes serve", func() bool { return n1.serves() == partitions/2 && n2.serves() == partitions/2 })
	reads1.told(t, "connected", connected)
	reads2.told(t, "connected", connected)
	const documents = 8
	set := func(n int) {
		for id := range documents {
			_, err := r.coll("orders").UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}}, options.UpdateOne().SetUpsert(true))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	set(1)
	reads1.takes(t, documents)
	reads2.takes(t, documents)
	n1.blind("n1")
	set(2)
	reads2.takes(t, documents) // as 2
	set(3)
	r.heal()
	reads1.takes(t, 2*documents) // as 3, which the sink hides
	set(4)
	n1.until("n1 posts changes", func() bool { return len(got.posted("n1", 4)) > 0 })
	n1.asks("/v1/nodes/n1/drain")
	n1.until("n2 serves everything", func() bool { return n2.serves() == partitions })
	n1.until("n2 posts the changes again", func() bool { return len(missing(got.posted("n2", 4), got.posted("n1", 4))) == 0 })
	got.mu.Lock()
	defer got.mu.Unlock()
	for document, has := range got.has {
		if has != 4 {
			t.Errorf("the consumer has document %s as %d", document, has)
		}
	}
}

// blind cuts a node off from the log, until the rig is healed.
func (n *live) blind(node string) {
	n.Helper()
	fail := func() (failed int64) {
		var reply struct{ Count int64 }
		if err := n.client.Database("admin").RunCommand(n.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "alwaysOn"},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"getMore", "aggregate"}}, {Key: "closeConnection", Value: true}, {Key: "appName", Value: "streamer c/" + node},
			}},
		}).Decode(&reply); err != nil {
			n.Fatal(err)
		}
		return reply.Count
	}
	before := fail()
	n.until("the node reads nothing", func() bool { return fail() > before })
}

// A first start that is refused leaves nothing behind: neither by a sink that cannot work, nor by a
// start in the future.
func TestRefusedStartLeavesNoOrigin(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	r.file = t.TempDir() + "/config.yaml"
	refused := func(what, text string, future func(*config.Config), settings ...string) {
		t.Helper()
		if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(r.file, append(slices.Clone(r.settings), settings...))
		if err != nil {
			t.Fatal(err)
		}
		if future != nil { // of which the configuration knows by its own clock
			future(&cfg)
		}
		s, err := wiring.Assemble(t.Context(), wiring.Options{Config: cfg, Process: "test"})
		if err == nil {
			s.Close()
			t.Errorf("%s is accepted", what)
		}
		if o, err := r.store.Origin(t.Context()); !errors.Is(err, checkpoint.ErrNoOrigin) {
			t.Errorf("%s: the origin is %+v, %v", what, o, err)
		}
	}
	sink := "sinks:\n  - name: out\n    type: file\n    file: {path: '" + t.TempDir() + "/out'}\n"
	refused("a filter on documents that do not come", sink+"    subscriptions: [{filter: doc.total > 1}]\n", nil, "STREAMER_MONGODB_FULL_DOCUMENT=default")
	refused("a filter that cannot be compiled", sink+"    subscriptions: [{filter: 'doc. >'}]\n", nil)
	refused("a certificate that is not there", strings.Replace(sink, "type: file", "type: kafka\n    kafka: {brokers: ['b:1'], tls: {ca_file: /gone}}", 1), nil)
	refused("a start in the future", sink, func(c *config.Config) { c.StartFrom.At = time.Now().Add(3 * time.Hour) })
	refused("a sink's start in the future", sink, func(c *config.Config) { c.Sinks[0].Start.At = time.Now().Add(3 * time.Hour) })
	if err := os.WriteFile(r.file, []byte(sink), 0o600); err != nil {
		t.Fatal(err)
	}
	r.beginWith(nil).status()
	if _, err := r.store.Origin(t.Context()); err != nil {
		t.Error(err)
	}
}
