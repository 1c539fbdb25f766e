package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
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
