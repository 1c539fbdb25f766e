package node

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	devbroker "github.com/mongostream/streamer/dev/broker"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/sink"
)

// A jetStream is a NATS server that stops and comes back, with a stream whose duplicate window is
// as short as it can be.
type jetStream struct {
	*testing.T

	server *devbroker.NATS
	dir    string
	port   int // at which it comes back
	conn   *nats.Conn
	stream jetstream.Stream
}

func newJetStream(t *testing.T) *jetStream {
	t.Helper()
	at, err := netip.ParseAddrPort(devmongotest.FreeAddress())
	if err != nil {
		t.Fatal(err)
	}
	s := &jetStream{T: t, dir: t.TempDir(), port: int(at.Port())}
	s.begin()
	t.Cleanup(func() { s.end() })
	return s
}

// begin starts the server, with the stream that it had.
func (s *jetStream) begin() {
	s.Helper()
	var err error
	if s.server, err = devbroker.StartNATS(s.dir, s.port); err != nil {
		s.Fatal(err)
	}
	if s.conn, err = nats.Connect(s.server.URL(), nats.Timeout(patience)); err != nil {
		s.Fatal(err)
	}
	s.create()
}

// create makes the stream, unless it is there.
func (s *jetStream) create() {
	s.Helper()
	js, err := jetstream.New(s.conn)
	if err == nil {
		s.stream, err = js.CreateOrUpdateStream(s.Context(), jetstream.StreamConfig{Name: "changes", Subjects: []string{"changes.>"}, Duplicates: window})
	}
	if err != nil {
		s.Fatal(err)
	}
}

// window is the shortest duplicate window that a stream may have.
const window = 100 * time.Millisecond

func (s *jetStream) end() {
	s.conn.Close()
	s.server.Stop()
}

// landed returns what the stream has.
func (s *jetStream) landed() *landing {
	s.Helper()
	l := &landing{}
	info, err := s.stream.Info(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		m, err := s.stream.GetMsg(s.Context(), seq)
		if err != nil {
			s.Fatal(err)
		}
		l.add(string(m.Data))
	}
	return l
}

// Whatever becomes of a stream, of its server, of the sink and of its node, each change is in it in
// its order: with a fence once, however long the server was away and however short the stream's
// duplicate window is, and otherwise as a contiguous replay. A stream that has lost its messages
// gets what follows, and what the checkpoint has not passed.
func TestStreamsAreContinued(t *testing.T) {
	t.Parallel()
	for _, fence := range []bool{true, false} {
		t.Run(fmt.Sprintf("fence %t", fence), func(t *testing.T) {
			t.Parallel()
			s := newJetStream(t)
			r := sinkRigOn(t, devmongo.Config{}, "earliest", fmt.Sprintf(
				"    type: nats\n    losses: changes.losses\n    nats: {url: '%s', subject: 'changes.{partition}.{db}.{coll}', fence: %t, ack_timeout: 1s}\n", s.server.URL(), fence))
			n := r.beginWith(nil)
			next, gone := 0, 0
			write := func() {
				t.Helper()
				r.writes(next, next+5)
				next += 5
			}
			arrives := func(what string) {
				t.Helper()
				n.until(what, func() bool {
					all := s.landed().seqs(t)
					for id := gone; id < next; id++ {
						if !slices.Contains(all[fmt.Sprint(id)], 3) {
							return false
						}
					}
					return true
				})
				for id, seqs := range s.landed().seqs(t) {
					if fence && !slices.Equal(seqs, []int{1, 2, 3}) || !isReplay(seqs) {
						t.Errorf("%s: document %s has changes %v", what, id, seqs)
					}
				}
			}
			out := func() *sink.Sink { return n.service.Sinks()[0] }
			write()
			arrives("the first changes arrive")

			s.end()
			write()
			retried := out().Status().Retried
			n.until("the server is away for longer than the window", func() bool { return out().Status().Retried > retried+3 })
			s.begin()
			arrives("what happened without the server arrives")

			write()
			out().Restart()
			write()
			arrives("what happened around a restart of the sink arrives")

			write()
			n.stopped()
			n = r.beginWith(nil)
			arrives("what happened around a restart of the node arrives")

			if err := s.stream.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			gone = next
			write()
			arrives("what follows a purge arrives")

			if err := s.stream.Purge(t.Context(), jetstream.WithPurgeKeep(1)); err != nil {
				t.Fatal(err)
			}
			n.stopped()
			n = r.beginWith(nil)
			write()
			n.until("what follows a purge and a restart arrives", func() bool {
				all := s.landed().seqs(t)
				for id := next - 5; id < next; id++ {
					if !slices.Contains(all[fmt.Sprint(id)], 3) {
						return false
					}
				}
				return true
			})

			js, err := jetstream.New(s.conn)
			if err == nil {
				err = js.DeleteStream(t.Context(), "changes")
			}
			if err != nil {
				t.Fatal(err)
			}
			gone = next
			write()
			n.until("the sink waits for a stream, and nothing is on its way to one", func() bool {
				st := out().Status()
				return st.State == sink.Waiting && st.UnderWay == 0
			})
			s.create()
			out().Resume()
			arrives("what follows a deletion of the stream arrives")
		})
	}
}

// isReplay reports whether changes of a document are in order up to the last one, except that some
// of them come again with all after them.
func isReplay(seqs []int) bool {
	last := 0
	for _, seq := range seqs {
		if seq > last+1 {
			return false
		}
		last = seq
	}
	return last == 3
}
