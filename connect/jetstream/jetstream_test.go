package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	natsio "github.com/nats-io/nats.go/jetstream"
	"github.com/redpanda-data/benthos/v4/public/service"

	"github.com/mongostream/streamer/connect/jetstream"
	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/docblock"
)

// A bench is a server with a stream, and an output that publishes to it.
type bench struct {
	t      *testing.T
	server *devbroker.NATS
	out    service.BatchOutput
}

func newBench(t *testing.T, dir string, port int, stream natsio.StreamConfig) *bench {
	t.Helper()
	s, err := devbroker.StartNATS(dir, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	b := &bench{t: t, server: s}
	b.change(stream)
	if b.out, err = jetstream.New(fmt.Sprintf("urls: [%q]\nsubject: 'changes.${! @subject }'\nheaders: {Id: '${! @id }'}\n", s.URL())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.out.Close(context.Background()) })
	if err := b.out.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// change makes the stream, or gives it other limits.
func (b *bench) change(cfg natsio.StreamConfig) natsio.Stream {
	b.t.Helper()
	_, nc, err := b.server.Stream(b.t.Context(), "other", "other")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	js, err := natsio.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	cfg.Name, cfg.Subjects = "changes", []string{"changes.>"}
	stream, err := js.CreateOrUpdateStream(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return stream
}

// stored are the messages of the stream with their headers.
func (b *bench) stored() string {
	b.t.Helper()
	stream := b.change(natsio.StreamConfig{})
	info, err := stream.Info(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	var all []string
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := stream.GetMsg(b.t.Context(), seq)
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %s %s", m.Subject, m.Header.Get("Id"), m.Data))
	}
	return strings.Join(all, "; ")
}

// batch are messages of the subject a; of one that is called wrong the subject has a space.
func batch(names ...string) (all service.MessageBatch) {
	for _, name := range names {
		m := service.NewMessage([]byte(name))
		m.MetaSetMut("id", "id-"+name)
		m.MetaSetMut("subject", map[bool]string{true: "a b", false: "a"}[name == "wrong"])
		all = append(all, m)
	}
	return all
}

// failed are the messages of a batch that an error names.
func failed(t *testing.T, err error) (names string) {
	t.Helper()
	all, is := errors.AsType[*service.BatchError](err)
	if !is {
		t.Fatalf("%v names no messages", err)
	}
	all.WalkMessages(func(_ int, m *service.Message, err error) bool {
		if text, _ := m.AsBytes(); err != nil {
			names += string(text) + " "
		}
		return true
	})
	return strings.TrimSpace(names)
}

// After a message that is refused nothing is sent: what is written again keeps the order.
func TestNothingFollowsARefusedMessage(t *testing.T) {
	long := strings.Repeat("l", 100)
	b := newBench(t, t.TempDir(), 0, natsio.StreamConfig{MaxMsgSize: 100})
	err := b.out.WriteBatch(t.Context(), batch("one", "two", long, "five"))
	if names := failed(t, err); names != long+" five" || !strings.Contains(err.Error(), "publish to changes.a: ") {
		t.Errorf("%s: %v", names, err)
	}
	b.change(natsio.StreamConfig{})
	if err := b.out.WriteBatch(t.Context(), batch(long, "five")); err != nil {
		t.Error(err)
	}
	want := "changes.a id-one one; changes.a id-two two; changes.a id-" + long + " " + long + "; changes.a id-five five"
	if got := b.stored(); got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if names := failed(t, b.out.WriteBatch(t.Context(), batch("six", "wrong", "seven"))); names != "wrong seven" {
		t.Errorf("of a subject that cannot be: %s", names)
	}
}

// Without an answer nobody knows whether the stream has a message: the connection is replaced, and
// nothing is accepted before the stream has it.
func TestWithoutAnAnswerTheConnectionIsReplaced(t *testing.T) {
	at, err := netip.ParseAddrPort(devmongotest.FreeAddress())
	if err != nil {
		t.Fatal(err)
	}
	dir, port := t.TempDir(), int(at.Port())
	b := newBench(t, dir, port, natsio.StreamConfig{})
	if err := b.out.WriteBatch(t.Context(), batch("one")); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.out.WriteBatch(gone, batch("two")); !errors.Is(err, service.ErrNotConnected) {
		t.Errorf("given up: %v", err)
	}
	if err := b.out.WriteBatch(t.Context(), batch("three")); !errors.Is(err, service.ErrNotConnected) {
		t.Errorf("over the connection that was given up: %v", err)
	}
	if err := b.out.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.server.Stop()
	if err := b.out.WriteBatch(t.Context(), batch("three")); !errors.Is(err, service.ErrNotConnected) {
		t.Errorf("without a server: %v", err)
	}
	if err := b.out.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "connect to NATS: ") {
		t.Errorf("without a server: %v", err)
	}
	again := newBench(t, dir, port, natsio.StreamConfig{})
	if err := again.out.WriteBatch(t.Context(), batch("three")); err != nil {
		t.Error(err)
	}
	if got := again.stored(); !strings.HasPrefix(got, "changes.a id-one one; ") || !strings.HasSuffix(got, "; changes.a id-three three") || strings.Count(got, "three three") != 1 {
		t.Error(got)
	}
}

// What was sent over a connection that is given up may come after newer messages: the stream drops
// it by the header of the documentation.
func TestLateRepetitionIsDropped(t *testing.T) {
	b := newBench(t, t.TempDir(), 0, natsio.StreamConfig{})
	blocks, err := docblock.Of("../..", "yaml connect")
	if err != nil {
		t.Fatal(err)
	}
	var headers string
	for _, block := range blocks {
		if _, of, found := strings.Cut(block.Text, "nats_jetstream:"); found {
			headers = regexp.MustCompile(`headers: .*`).FindString(of)
		}
	}
	out, err := jetstream.New(fmt.Sprintf("urls: [%q]\nsubject: changes.a\n%s\n", b.server.URL(), headers))
	if err == nil {
		err = out.Connect(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close(context.Background())
	message := func(text, id string) *service.Message {
		m := service.NewMessage([]byte(text))
		m.MetaSetMut("id", id)
		return m
	}
	one, two, three := message("one", "1"), message("two", "2"), message("three", "3")
	for _, messages := range []service.MessageBatch{{one, two}, {one}, {one, two, three}, {two}} {
		if err := out.WriteBatch(t.Context(), messages); err != nil {
			t.Error(err)
		}
	}
	if got := b.stored(); got != "changes.a  one; changes.a  two; changes.a  three" {
		t.Error(got)
	}
}

// A subject without a stream is named.
func TestSubjectWithoutAStreamIsNamed(t *testing.T) {
	b := newBench(t, t.TempDir(), 0, natsio.StreamConfig{})
	out, err := jetstream.New(fmt.Sprintf("urls: [%q]\nsubject: elsewhere\n", b.server.URL()))
	if err == nil {
		err = out.Connect(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close(context.Background())
	if err := out.WriteBatch(t.Context(), batch("one", "two")); failed(t, err) != "one two" || !strings.Contains(err.Error(), "publish to elsewhere: ") {
		t.Error(err)
	}
}
