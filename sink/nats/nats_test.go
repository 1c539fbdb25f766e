package nats_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsio "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mongostream/streamer/change"
	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/nats"
)

func TestMain(m *testing.M) {
	leaktest.Main(m, "github.com/nats-io/nats-server/v2/server.init.0.func1")
}

// message makes the n-th change of partition 3 under a term.
func message(n int, epoch uint64) *sink.Message { return messageOf(n, epoch, "1-A-0") }

// messageOf is message, of another incarnation.
func messageOf(n int, epoch uint64, incarnation string) *sink.Message {
	return &sink.Message{
		Partition: 3, Epoch: change.Epoch{Incarnation: 1, Revision: epoch}, Incarnation: incarnation, Number: uint64(n),
		Ref: change.At(change.Timestamp{T: 1000, I: uint32(n)}).Ref(), ID: fmt.Sprint(n), Op: "insert", DB: "shop", Coll: "orders.eu", Key: []byte("1"), Value: fmt.Append(nil, n),
	}
}

// start starts a server with a stream.
func start(t *testing.T) (*devbroker.NATS, jetstream.Stream) {
	t.Helper()
	s, err := devbroker.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	stream, conn, err := s.Stream(t.Context(), "changes", "changes.>")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return s, stream
}

// jetStream connects to a server beside the target.
func jetStream(t *testing.T, url string, options ...natsio.Option) jetstream.JetStream {
	t.Helper()
	conn, err := natsio.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func target(t *testing.T, s *devbroker.NATS) *nats.Target {
	t.Helper()
	n, err := nats.New(nats.Config{URL: s.URL(), Subject: "changes.{partition}.{db}.{coll}", Losses: "changes.losses", Fence: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// stored returns the values in a stream.
func stored(t *testing.T, stream jetstream.Stream) (values []string) {
	t.Helper()
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(m.Data))
	}
	return values
}

// publish publishes messages, one after the other.
func publish(t *testing.T, n *nats.Target, messages ...*sink.Message) {
	t.Helper()
	for _, m := range messages {
		if err := sink.One(t.Context(), n, m); err != nil {
			t.Fatal(err)
		}
	}
}

// What is published again is skipped up to what the stream has; an owner that was replaced is
// refused, and one that owns the partition again is not.
func TestReplacedOwnerIsRefused(t *testing.T) {
	t.Parallel()
	s, stream := start(t)
	before, next := target(t, s), target(t, s)
	publish(t, before, message(1, 1), message(2, 1))
	publish(t, next, message(2, 2), message(3, 2))
	for range 2 { // also when it has looked again
		if err := sink.One(t.Context(), before, message(4, 1)); !errors.Is(err, sink.ErrReplaced) {
			t.Errorf("the owner before: %v", err)
		}
	}
	publish(t, before, message(3, 3), message(4, 3))
	if got := stored(t, stream); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		t.Errorf("the stream has %q", got)
	}
}

// outcomes publishes messages at once, and returns their outcomes in order.
func outcomes(t *testing.T, n *nats.Target, messages ...*sink.Message) []error {
	t.Helper()
	outcomes := make([]error, len(messages))
	var wg sync.WaitGroup
	for i, m := range messages {
		wg.Add(1)
		sink.Report(m, func(err error) {
			outcomes[i] = err
			wg.Done()
		})
		n.Publish(t.Context(), m)
	}
	wg.Wait()
	return outcomes
}

// Of a burst that an owner publishes after it was replaced, nothing is taken.
func TestNothingOfABurstOfAReplacedOwnerIsTaken(t *testing.T) {
	t.Parallel()
	s, stream := start(t)
	before, next := target(t, s), target(t, s)
	publish(t, before, message(1, 1), message(2, 1))
	publish(t, next, message(2, 2), message(3, 2))
	for i, err := range outcomes(t, before, message(3, 1), message(4, 1), message(5, 1)) {
		if err == nil {
			t.Errorf("message %d of the burst was taken", i+1)
		}
	}
	publish(t, next, message(4, 2), message(5, 2))
	if got := stored(t, stream); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
		t.Errorf("the stream has %q", got)
	}
}

// A repetition is judged as a whole, whatever the duplicate window of the stream: nothing older
// follows something newer. With a fence what the stream has is skipped, without one all of it comes
// again.
func TestRepetitionIsJudgedAsAWhole(t *testing.T) {
	t.Parallel()
	for fence, want := range map[bool][]string{true: {"1", "2", "3"}, false: {"1", "2", "1", "2", "3"}} {
		s, stream := start(t)
		open := func() *nats.Target {
			n, err := nats.New(nats.Config{URL: s.URL(), Subject: "changes.{partition}.{db}.{coll}", Losses: "changes.losses", Fence: fence})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(n.Close)
			return n
		}
		publish(t, open(), message(1, 1), message(2, 1))
		for i, err := range outcomes(t, open(), message(1, 2), message(2, 2), message(3, 2)) {
			if err != nil {
				t.Errorf("message %d: %v", i+1, err)
			}
		}
		if got := stored(t, stream); !slices.Equal(got, want) {
			t.Errorf("fence %t: the stream has %q, want %q", fence, got, want)
		}
	}
}

// What is repeated on purpose arrives, whole and in order: under another incarnation nothing is
// skipped, and under the same one what was published again is.
func TestAnotherIncarnationArrives(t *testing.T) {
	t.Parallel()
	s, stream := start(t)
	publish(t, target(t, s), message(1, 1), message(2, 1))
	publish(t, target(t, s), messageOf(1, 2, "1-A-1"), messageOf(2, 2, "1-A-1"))
	publish(t, target(t, s), messageOf(2, 3, "1-A-1"), messageOf(3, 3, "1-A-1"))
	if got := stored(t, stream); !slices.Equal(got, []string{"1", "2", "1", "2", "3"}) {
		t.Errorf("the stream has %q", got)
	}
}

// A server that restarts costs an error, and what is published again is there once.
func TestServerComesBack(t *testing.T) {
	t.Parallel()
	at, err := netip.ParseAddrPort(devmongotest.FreeAddress())
	if err != nil {
		t.Fatal(err)
	}
	dir, port := t.TempDir(), int(at.Port())
	s, err := devbroker.StartNATS(dir, port)
	if err != nil {
		t.Fatal(err)
	}
	_, conn, err := s.Stream(t.Context(), "changes", "changes.>")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	n := target(t, s)
	if err := sink.One(t.Context(), n, message(1, 1)); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := sink.One(t.Context(), n, message(2, 1)); err == nil || errors.Is(err, sink.ErrReplaced) {
		t.Errorf("without a server: %v", err)
	}
	if s, err = devbroker.StartNATS(dir, port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	stream, conn, err := s.Stream(t.Context(), "changes", "changes.>")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for _, m := range []*sink.Message{message(1, 1), message(2, 1)} {
		if err := sink.One(t.Context(), n, m); err != nil {
			t.Fatal(err)
		}
	}
	if got := stored(t, stream); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the stream has %q", got)
	}
}

// Check says what is missing.
func TestCheckFindsAStreamThatIsMissing(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	if found, err := target(t, s).Check(t.Context()); err != nil || found != "stream changes has the subjects" {
		t.Errorf("%q, %v", found, err)
	}
	n, err := nats.New(nats.Config{URL: s.URL(), Subject: "elsewhere.{db}", Losses: "changes.losses"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Check(t.Context()); err == nil {
		t.Error("a subject that no stream has is fine")
	}
	if _, err := nats.New(nats.Config{URL: s.URL(), Subject: "changes.{db}", Fence: true}); err == nil {
		t.Error("fencing without partitions is fine")
	}
}

// A refusal names the subject, the limit that the server or the stream has, and the remedy.
func TestRefusalNamesSubjectLimitAndRemedy(t *testing.T) {
	t.Parallel()
	s, stream := start(t)
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = 1000
	js := jetStream(t, s.URL(), natsio.Timeout(time.Minute))
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, fence := range []bool{false, true} {
		for subject, c := range map[string]struct {
			size  int
			final bool
			want  []string
		}{
			"changes.{partition}.a": {2000, true, []string{"2000 bytes", "subject changes.3.a", "max_msg_size of stream changes is 1000", "raise it, or let the sink have a dead_letter"}},
			"changes.{partition}.b": {9 << 20, true, []string{"9437184 bytes", "subject changes.3.b", "the server's max_payload is 8388608", "raise it, or let the sink have a dead_letter"}},
			"other.{partition}":     {10, false, []string{"no stream has subject other.3: create one"}},
		} {
			n, err := nats.New(nats.Config{URL: s.URL(), Subject: subject, Losses: "changes.losses", Fence: fence})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(n.Close)
			m := message(1, 1)
			m.Value = make([]byte, c.size)
			err = sink.One(t.Context(), n, m)
			if refused, is := errors.AsType[*sink.RefusedError](err); !is || refused.Final != c.final || refused.Destination == c.final {
				t.Errorf("%s, fence %t: %v", subject, fence, err)
				continue
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s, fence %t: %v, without %q", subject, fence, err, want)
				}
			}
		}
	}
}

// A full stream that discards nothing refuses whatever comes: it judges no change, and nothing is
// wrong with the server.
func TestFullStreamRefusesWhateverComes(t *testing.T) {
	t.Parallel()
	s, stream := start(t)
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgs = 1
	cfg.Discard = jetstream.DiscardNew
	js := jetStream(t, s.URL(), natsio.Timeout(time.Minute))
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	n := target(t, s)
	publish(t, n, message(1, 1))
	err := sink.One(t.Context(), n, message(2, 1))
	if refused, is := errors.AsType[*sink.RefusedError](err); !is || !refused.Destination || !strings.Contains(err.Error(), "stream changes stores nothing") {
		t.Errorf("%v", err)
	}
	cfg.MaxMsgs = -1
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	publish(t, n, message(2, 1))
	if got := stored(t, stream); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the stream has %q", got)
	}
}
