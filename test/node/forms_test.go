package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// A changeover is a MongoDB that goes over to tokens of another version in the middle of a
// transaction.
type changeover struct {
	server atomic.Pointer[devmongo.Server]
	turn   func()

	mu    sync.Mutex
	sent  int64 // events, by all commands
	after int64 // how many more must come as the replies of a stream, 0: it does not change
}

// arm has MongoDB change over after so many events.
func (c *changeover) arm(after int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.after = c.server.Load().Stats().EventsSent, after
}

// replied counts what a command has sent. A stream that only looks whether the log has a position
// gets its event when it is opened.
func (c *changeover) replied(command string) {
	if c.due(command) {
		c.turn()
	}
}

func (c *changeover) due(command string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.after == 0 || command != "getMore" && command != "aggregate" {
		return false // a commit whose reply comes late counts nothing that streams have had by then
	}
	before := c.sent
	c.sent = c.server.Load().Stats().EventsSent
	if command == "getMore" {
		c.after = max(0, c.after-(c.sent-before))
	}
	return c.after == 0
}

// config is a MongoDB that sends one event a reply, so that a stream may break between two events
// of a transaction.
func (c *changeover) config(preset string, adjust func(*devmongo.Profile)) devmongo.Config {
	return devmongo.Config{Release: "7.0", Preset: preset, Adjust: func(p *devmongo.Profile) {
		p.MostEvents = 1
		p.BeforeReply = func(command, _ string) { c.replied(command) }
		adjust(p)
	}}
}

// transaction changes three documents in one transaction, the first of them three times, and
// returns the changes as they are told.
func (w *stage) transaction(in string) (changes []string) {
	w.Helper()
	session, err := w.client.StartSession()
	if err != nil {
		w.Fatal(err)
	}
	defer session.EndSession(context.Background())
	set := func(ctx context.Context, id, v int) error {
		changes = append(changes, fmt.Sprintf("update %s%d %d", in, id, v))
		_, err := w.coll("orders").UpdateOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprint(in, id)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: v}}}})
		return err
	}
	insert := func(ctx context.Context, id int) error {
		changes = append(changes, fmt.Sprintf("insert %s%d 0", in, id))
		_, err := w.coll("orders").InsertOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprint(in, id)}, {Key: "v", Value: 0}})
		return err
	}
	_, err = session.WithTransaction(w.Context(), func(ctx context.Context) (any, error) {
		changes = nil
		for _, do := range []func() error{
			func() error { return insert(ctx, 1) }, func() error { return insert(ctx, 2) }, func() error { return set(ctx, 1, 1) }, func() error { return set(ctx, 2, 1) },
			func() error { return insert(ctx, 3) }, func() error { return set(ctx, 1, 2) }, func() error { return insert(ctx, 4) }, func() error { return set(ctx, 1, 3) },
		} {
			if err := do(); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return changes
}

// told returns the changes of the documents whose _ids begin with a prefix, as transaction does.
func (w *stage) told(of string) (changes []string) {
	for _, e := range w.changes() {
		if !strings.HasPrefix(e.id, of) {
			continue
		}
		v := e.event.Lookup("updateDescription", "updatedFields", "v")
		if e.op == "insert" {
			v = e.event.Lookup("fullDocument", "v")
		}
		n, _ := v.AsInt64OK()
		changes = append(changes, fmt.Sprintf("%s %s %d", e.op, e.id, n))
	}
	return changes
}

// sorted returns the changes in an order of their own: transports may tell those of different
// partitions in any.
func sorted(changes []string) []string {
	changes = slices.Clone(changes)
	slices.Sort(changes)
	return changes
}

// A meeting is how tokens of two versions meet.
type meeting struct {
	versions [2]int
	code     int // with which the stream breaks
	preset   string
	adjust   func(*devmongo.Profile)
	settings []string
}

// meet has MongoDB change over after three changes of a transaction, and returns the stage and the
// changes that were to come.
func (m meeting) meet(t *testing.T, over transport) (w *stage, want []string) {
	t.Helper()
	var c changeover
	w = newStage(t, over, c.config(m.preset, m.adjust), m.settings...)
	c.server.Store(w.server)
	c.turn = func() {
		w.server.SetTokenVersion(m.versions[1])
		w.fail(times(1), m.code, "getMore")
	}
	w.server.SetTokenVersion(m.versions[0])
	opened := w.server.Stats().ChangeStreamsOpened
	w.fail(times(1), 43, "getMore")
	w.until("the stream has tokens of the first version", func() bool { return w.server.Stats().ChangeStreamsOpened > opened })
	w.insert("before")
	w.sees("before")
	c.arm(3)
	want = w.transaction("t")
	w.insert("after")
	w.sees("after")
	// Partitions have no order among each other: what is of another one may still be on its way.
	w.until("the transaction is told", func() bool { return len(w.told("t")) >= len(want) })
	return w, want
}

// duplicates returns how many changes the node says that it has dropped.
func (n *live) duplicates() int { return int(n.metric("streamer_duplicate_events_total")) }

// MongoDB that is upgraded or downgraded under a running stream goes over to tokens of another
// version, which are not in one order with those before. Whether the stream goes on at its token or
// begins again at its time, every change comes once, in each transport.
func TestTokensOfTwoVersionsMeet(t *testing.T) {
	t.Parallel()
	as := func(*devmongo.Profile) {}
	for name, c := range map[string]struct {
		meeting
		drops int // changes that come again
	}{
		"resumed at the token":                {meeting{code: 43, adjust: as}, 0},
		"the token is refused":                {meeting{code: 280, adjust: as}, 3},
		"without the right to read the oplog": {meeting{code: 43, adjust: func(p *devmongo.Profile) { p.DenyLocal = true }}, 3},
		// Changes of two shards have equal places in the transaction: only their documents
		// distinguish them.
		"behind a router": {meeting{code: 43, preset: "sharded", adjust: func(p *devmongo.Profile) {
			p.NoopEvery, p.ConfigNoopEvery = 10*time.Millisecond, 10*time.Millisecond
		}}, 3},
	} {
		for _, versions := range [][2]int{{1, 2}, {2, 1}} {
			for _, over := range transports() {
				t.Run(fmt.Sprintf("%s/%v/%s", name, versions, over.name), func(t *testing.T) {
					t.Parallel()
					m := c.meeting // of this test alone: others run beside it
					m.versions = versions
					w, want := m.meet(t, over)
					if got := w.told("t"); !slices.Equal(sorted(got), sorted(want)) {
						t.Errorf("told of %v, want %v", got, want)
					}
					for _, id := range []string{"t1", "t2"} { // of one document in order
						if got, want := of(id, w.told("t")), of(id, want); !slices.Equal(got, want) {
							t.Errorf("told of %v, want %v", got, want)
						}
					}
					// Replies of a catch-up count towards the changeover, too, so that the tail may
					// have had fewer changes by then.
					if got := w.node.duplicates(); got > c.drops || got == 0 && c.drops > 0 {
						t.Errorf("%d duplicates are counted, want 1 to %d", got, c.drops)
					}
				})
			}
		}
	}
}

// of returns the changes of a document.
func of(id string, changes []string) []string {
	return slices.DeleteFunc(slices.Clone(changes), func(c string) bool { return !strings.Contains(c, " "+id+" ") })
}

// What the window has forgotten, or where there is none, comes again, and nothing is lost.
func TestKeysOfTheDedupWindow(t *testing.T) {
	t.Parallel()
	for setting, drops := range map[string]int{
		"STREAMER_RELIABILITY_DEDUP_ENABLED=false": 0, "STREAMER_RELIABILITY_DEDUP_CACHE_SIZE=1": 0, "STREAMER_RELIABILITY_DEDUP_TTL=1ms": 0,
		"STREAMER_RELIABILITY_DEDUP_TTL=1h": 3, "STREAMER_RELIABILITY_DEDUP_CACHE_SIZE=3": 3,
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			m := meeting{versions: [2]int{1, 2}, code: 280, adjust: func(*devmongo.Profile) {}, settings: []string{setting}}
			w, want := m.meet(t, transports()[2])
			again := w.told("t")
			if len(again) != len(want)+3-drops {
				t.Errorf("told of %d changes: %v", len(again), again)
			}
			for _, c := range want {
				if !slices.Contains(again, c) {
					t.Errorf("%s is missing in %v", c, again)
				}
			}
			if got := w.node.duplicates(); got != drops {
				t.Errorf("%d duplicates are counted, want %d", got, drops)
			}
		})
	}
}

// A subscriber that comes back to a MongoDB with tokens of another version, at a node whose streams
// have other options, begins right after its last change: its position says which one that was,
// whatever the token.
func TestPositionsOutliveTheVersionOfTheirTokens(t *testing.T) {
	t.Parallel()
	for _, versions := range [][2]int{{1, 2}, {2, 1}} {
		for _, over := range transports() {
			t.Run(fmt.Sprintf("%v/%s", versions, over.name), func(t *testing.T) {
				t.Parallel()
				config := devmongo.Config{Release: "7.0"} // nothing is written by itself: positions are those of events
				w := newStage(t, over, config, unhurried()...)
				w.server.SetTokenVersion(versions[0])
				opened := w.server.Stats().ChangeStreamsOpened
				w.fail(times(1), 43, "getMore")
				w.until("the stream has tokens of the first version", func() bool { return w.server.Stats().ChangeStreamsOpened > opened })
				want := w.transaction("t")
				w.until("the transaction is there", func() bool { return len(w.told("t")) == len(want) })
				w.node.stopped()
				w.server.SetTokenVersion(versions[1])
				w.settings = append(w.settings, "STREAMER_MONGODB_OPERATIONS=insert,update")
				w.start()
				w.insert("after")
				w.sees("after")
				if got := w.told("t"); !slices.Equal(sorted(got), sorted(want)) {
					t.Errorf("told of %v, want %v", got, want)
				}
			})
		}
	}
}
