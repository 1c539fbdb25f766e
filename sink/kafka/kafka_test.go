package kafka_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mongostream/streamer/change"
	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/kafka"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience bounds every wait for something that must come.
const patience = 3 * time.Minute

// brokers are those of a real cluster, where the environment names some, or of a fake one.
func brokers(t *testing.T) []string {
	t.Helper()
	if named := os.Getenv("STREAMER_TEST_KAFKA"); named != "" {
		return strings.Split(named, ",")
	}
	k, err := devbroker.StartKafka(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k.ListenAddrs()
}

// message makes the n-th change of partition 7 under a term.
func message(topic string, n int, epoch uint64) *sink.Message {
	return messageOf(topic, n, epoch, "1-A-0")
}

// messageOf is message, of another incarnation.
func messageOf(topic string, n int, epoch uint64, incarnation string) *sink.Message {
	return &sink.Message{
		Partition: 7, Epoch: change.Epoch{Incarnation: 1, Revision: epoch}, Incarnation: incarnation, Number: uint64(n), Ref: change.At(change.Timestamp{T: 1000, I: uint32(n)}).Ref(), ID: fmt.Sprint(n),
		Op: "insert", DB: "shop", Coll: topic, Key: []byte("1"), Value: fmt.Append(nil, n),
	}
}

// target makes a transactional target.
func target(t *testing.T, brokers []string, id string) sink.Target {
	t.Helper()
	k, err := kafka.New(kafka.Config{Brokers: brokers, Topic: "{db}.{coll}", Losses: "losses", Transactional: true, ID: id, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// committed returns the first values of a topic that readers of what is committed see.
func committed(t *testing.T, brokers []string, topic string, want int) (values []string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(values) < want {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("only %q", values)
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

// The next owner publishes what the one before has not, although it gets more; the one before is
// fenced. So it is if that one has published more than it could acknowledge.
func TestNextOwnerPublishesWhatIsLeft(t *testing.T) {
	t.Parallel()
	at, topic := brokers(t), "left"
	before, next := target(t, at, t.Name()), target(t, at, t.Name())
	for n := 1; n <= 3; n++ {
		if err := sink.One(t.Context(), before, message(topic, n, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for n := 2; n <= 5; n++ { // it begins at a checkpoint after the first
		if err := sink.One(t.Context(), next, message(topic, n, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.One(t.Context(), before, message(topic, 4, 1)); !errors.Is(err, sink.ErrReplaced) {
		t.Errorf("the owner before: %v", err)
	}
	// Its term is over; should it publish again, that is because it owns the partition again.
	for n := 4; n <= 6; n++ {
		err := sink.One(t.Context(), before, message(topic, n, 3))
		if errors.Is(err, sink.ErrEarlier) { // the failure above was marked just now: a sink repeats the message
			err = sink.One(t.Context(), before, message(topic, n, 3))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := committed(t, at, "shop."+topic, 6); !slices.Equal(got, []string{"1", "2", "3", "4", "5", "6"}) {
		t.Errorf("consumers see %q", got)
	}
}

// What is repeated on purpose is published again, whole and in order, and once: after a rewind, and
// where checkpoints began anew, as after a repartition or a deletion. It does not matter which
// owner learns of that, nor whether it publishes anything.
func TestAnotherIncarnationIsPublished(t *testing.T) {
	t.Parallel()
	at, topic := brokers(t), "again"
	for _, owner := range [][]*sink.Message{
		{message(topic, 1, 1), message(topic, 2, 1)},
		{messageOf(topic, 1, 2, "1-A-1"), messageOf(topic, 2, 2, "1-A-1")},
		{messageOf(topic, 2, 3, "1-A-1"), messageOf(topic, 3, 3, "1-A-1")},
		{messageOf(topic, 1, 4, "2-B-0")},
		{messageOf(topic, 1, 5, "2-B-0"), messageOf(topic, 2, 5, "2-B-0")},
	} {
		k := target(t, at, t.Name())
		for _, m := range owner {
			if err := sink.One(t.Context(), k, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := committed(t, at, "shop."+topic, 7); !slices.Equal(got, []string{"1", "2", "1", "2", "3", "1", "2"}) {
		t.Errorf("consumers see %q", got)
	}
}

// Documents that were published in a transaction whose outcome got lost are not published again
// after changes that came with them.
func TestDocumentsOfATransactionAreKnown(t *testing.T) {
	t.Parallel()
	at, topic := brokers(t), "documents"
	doc := message(topic, 1, 1)
	doc.Snapshot = true
	for range 2 { // the second time as a target that was made anew in the same term
		k := target(t, at, t.Name())
		for _, m := range []*sink.Message{doc, message(topic, 2, 1)} {
			if err := sink.One(t.Context(), k, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := sink.One(t.Context(), target(t, at, t.Name()), message(topic, 3, 2)); err != nil {
		t.Fatal(err)
	}
	if got := committed(t, at, "shop."+topic, 3); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("consumers see %q", got)
	}
}

// A record that no broker takes is refused, and others are not.
func TestRecordThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	k, err := kafka.New(kafka.Config{Brokers: brokers(t), Topic: "{db}.{coll}", Losses: "losses", Create: true, Compression: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	large := message("large", 1, 1)
	large.Value = make([]byte, 2<<20)
	refused, is := errors.AsType[*sink.RefusedError](sink.One(t.Context(), k, large))
	if !is || !refused.Final {
		t.Errorf("%v", refused)
	}
	if err := sink.One(t.Context(), k, message("large", 2, 1)); err != nil {
		t.Error(err)
	}
}

// A record that a broker holds without an answer fails after the timeout and is published again,
// with transactions or without; should the broker append it later, it does not follow newer ones.
func TestRecordThatABrokerHoldsFails(t *testing.T) {
	t.Parallel()
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %t", transactional), func(t *testing.T) {
			t.Parallel()
			k, err := devbroker.StartKafka(1)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(k.Close)
			target, err := kafka.New(kafka.Config{
				Brokers: k.ListenAddrs(), Topic: "{db}.{coll}", Losses: "losses", ID: t.Name(), Create: true, Transactional: transactional, Timeout: 2 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(target.Close)
			repeated := false
			publish := func(n int) { // as a sink does, also where the machine has stood still for the timeout
				t.Helper()
				for begun := time.Now(); ; repeated = true {
					err := sink.One(t.Context(), target, message("held", n, 1))
					if err == nil {
						return
					}
					if time.Since(begun) > patience {
						t.Fatal(err)
					}
				}
			}
			publish(1)
			var holds atomic.Bool
			holds.Store(true)
			release := make(chan struct{})
			var held sync.WaitGroup
			k.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				k.KeepControl()
				if holds.Load() {
					held.Add(1)
					defer held.Done()
					k.SleepControl(func() { <-release })
				}
				return nil, nil, false
			})
			outcome := make(chan error, 1)
			m := message("held", 2, 1)
			sink.Report(m, func(err error) { outcome <- err })
			target.Publish(t.Context(), m)
			timeout := time.NewTimer(patience)
			defer timeout.Stop()
			select {
			case err := <-outcome:
				if err == nil {
					t.Error("a record that the broker holds is acknowledged")
				}
			case <-timeout.C:
				t.Fatal("a record that the broker holds does not fail")
			}
			holds.Store(false)
			publish(2)
			publish(3)
			close(release)
			held.Wait()
			publish(4)
			got := committed(t, k.ListenAddrs(), "shop.held", 4)
			for n := 5; !slices.Contains(got, "4"); n++ {
				got = committed(t, k.ListenAddrs(), "shop.held", n)
			}
			if repeated && !transactional { // what was late may be there twice, but not after what is newer
				got = slices.Compact(got)
			}
			if !slices.Equal(got, []string{"1", "2", "3", "4"}) {
				t.Errorf("consumers see %q", got)
			}
		})
	}
}

// A stallingListener accepts connections that stall within the first large request, until they are
// told to go on.
type stallingListener struct {
	net.Listener

	first                  sync.Once
	stalls, goesOn, closed chan struct{} // of the first
}

func (l *stallingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stallingConn{Conn: conn, of: l}, conn.(*net.TCPConn).SetReadBuffer(64 << 10)
}

type stallingConn struct {
	net.Conn

	of      *stallingListener
	stalled bool // only the reader touches it, and Close after it
}

func (c *stallingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 4 && len(b) == 4 && binary.BigEndian.Uint32(b) > 256<<10 { // the size of a request
		c.of.first.Do(func() { c.stalled = true; close(c.of.stalls) })
		<-c.of.goesOn
	} else if err != nil && c.stalled {
		c.stalled = false
		close(c.of.closed)
	}
	return n, err
}

// A record that has not left the machine when its target is closed never arrives. It would follow
// newer ones of the next target, which no broker can tell from those of another producer.
func TestUnsentRecordOfAClosedTargetNeverArrives(t *testing.T) {
	t.Parallel()
	l := &stallingListener{stalls: make(chan struct{}), goesOn: make(chan struct{}), closed: make(chan struct{})}
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1),
		kfake.ListenFn(func(network, address string) (_ net.Listener, err error) {
			l.Listener, err = net.Listen(network, address)
			return l, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	opened := func() sink.Target {
		t.Helper()
		target, err := kafka.New(kafka.Config{Brokers: k.ListenAddrs(), Topic: "{db}.{coll}", Losses: "losses", Create: true, Compression: "none"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(target.Close)
		return target
	}
	wait := func(c chan struct{}, what string) {
		t.Helper()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-c:
		case <-timer.C:
			t.Fatal(what)
		}
	}
	publish := func(target sink.Target, n int) {
		t.Helper()
		if err := sink.One(t.Context(), target, message("unsent", n, 1)); err != nil {
			t.Fatal(err)
		}
	}
	first := opened()
	publish(first, 1)
	m := message("unsent", 2, 1)
	m.Value = make([]byte, 512<<10)
	sink.Report(m, func(error) {})
	first.Publish(t.Context(), m)
	wait(l.stalls, "the record is not sent")
	first.Close()
	second := opened()
	publish(second, 3)
	close(l.goesOn)
	wait(l.closed, "the connection is not closed")
	publish(second, 4)
	got := committed(t, k.ListenAddrs(), "shop.unsent", 3)
	for i := range got {
		got[i] = got[i][:min(len(got[i]), 9)]
	}
	if want := []string{"1", "3", "4"}; !slices.Equal(got[:3], want) {
		t.Errorf("arrived: %q, want %q", got, want)
	}
}
