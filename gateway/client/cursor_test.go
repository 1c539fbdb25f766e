package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/cursor"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

// The furthest cursor of each partition goes into the next Hello, as far as there is room in one.
func TestCursorsGoIntoTheNextHello(t *testing.T) {
	n, j := newNode(t), newJournal()
	p := start(t, config(j, n.address), j.handle)
	v := n.welcomed(t, 3)
	sealed := func(partition uint32, from, to, cursor string, places ...string) {
		b := batch(partition, at(from), at(to), places...)
		b.Cursor = []byte(cursor)
		v.batch(b)
		v.acked(partition, at(to))
	}
	v.bookmarks(3, at("a"))
	sealed(0, "a", "b1", "zero", "b1")
	sealed(0, "b1", "c1", "one", "c1")
	sealed(1, "a", "d1", strings.Repeat("x", 4<<20), "d1")
	sealed(2, "a", "e1", "two", "e1")
	lost := loss(2, streampb.Loss_KIND_REWOUND, "a", "a")
	lost.Cursor = []byte("back")
	v.batch(lost)
	v.acked(2, at("a"))
	v.close(errBroken)
	v = n.welcomed(t, 3)
	for i, want := range []string{"0:c1 one", "1:d1 ", "2:a back"} {
		at := v.hello.GetPositions()[i]
		if got := fmt.Sprintf("%d:%s %s", at.GetPartition(), name(at.GetPosition()), at.GetCursor()); got != want {
			t.Errorf("%.100q, want %q", got, want)
		}
	}
	p.end()
}

// A watched is a log of which it is known where streams were opened.
type watched struct {
	*lanetest.Log

	mu     sync.Mutex
	opened []change.Position
}

func (w *watched) Open(ctx context.Context, from change.Position) (lane.Stream, error) {
	w.mu.Lock()
	w.opened = append(w.opened, from.Clone())
	w.mu.Unlock()
	return w.Log.Open(ctx, from)
}

// keyring is one that never finds newer keys.
type keyring struct{ *cursor.Keyring }

func (r keyring) Open(_ context.Context, p change.Partition, sealed []byte) (change.Position, error) {
	return r.Keyring.Open(p, sealed)
}

// A client that comes back to a node that knows nothing of it has the log opened at a token, not at a time, whose changes would all be
// read again.
func TestReconnectOpensTheLogAtAToken(t *testing.T) {
	for name, of := range map[string]func(*journal, *town) client.Config{"all": allConfig, "owned": ownedConfig} {
		t.Run(name, func(t *testing.T) {
			keys, _, err := key.Set(nil).Add(key.Set(nil).Next(time.Unix(1000, 0)))
			if err != nil {
				t.Fatal(err)
			}
			ring := cursor.NewKeyring(cursor.Config{Cluster: "town", Partitions: 1})
			if err := ring.Turn(keys); err != nil {
				t.Fatal(err)
			}
			w, l := &town{T: t, partitions: 1, changed: make(chan struct{}), cursors: keyring{ring}}, newLedger()
			log := &watched{Log: &w.source}
			w.log = log
			w.populate(1)
			p := start(t, of(l.journal, w), l.handle)
			told(t, l.journal, anyOf[notice.Connected])
			var written int64
			w.write(&written, 20)
			l.expect(t, written)
			w.nodes[0].stop()
			w.write(&written, 20) // it is not at the end of the log when it comes back
			log.mu.Lock()
			log.opened = nil
			log.mu.Unlock()
			w.nodes[0].begin()
			l.expect(t, written)
			p.end()
			log.mu.Lock()
			defer log.mu.Unlock()
			tokens := 0
			for _, at := range log.opened {
				switch {
				case at.IsZero(): // the tail
				case at.IsProgress() && len(at.Token) == 0:
					t.Errorf("the log was opened at the time %s", at)
				default:
					tokens++
				}
			}
			if tokens == 0 {
				t.Errorf("the log was opened at %v", log.opened)
			}
		})
	}
}
