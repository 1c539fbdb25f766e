package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/dev/workload"
)

// Nothing is missing, out of order or there twice at the targets that promise it, although owners
// are killed all the time.
func TestSinksOfKilledOwnersRepeatNothing(t *testing.T) {
	t.Parallel()
	sinkKills(t, 4)
}

// A landing is what arrives at the target of a sink.
type landing struct {
	t     *testing.T
	check *workload.Check
}

// take takes a message.
func (l *landing) take(operation string, value []byte) {
	if operation == "loss" {
		l.t.Errorf("a loss was published: %s", value)
		return
	}
	if err := l.check.JSON(value, time.Now()); err != nil {
		l.t.Errorf("%v: %s", err, value)
	}
}

// targets are those without duplicates. Each starts a target, hands what arrives over, and returns
// the settings of the sink.
func targets() map[string]func(l *landing, database string) string {
	return map[string]func(l *landing, database string) string{"kafka": landInKafka, "nats": landInJetStream}
}

// landInKafka starts Kafka; what arrives is what consumers of what is committed see.
func landInKafka(l *landing, database string) string {
	k, err := devbroker.StartKafka(4)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(k.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.ConsumeTopics(database+".orders", "losses"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.MetadataMinAge(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond), kgo.UnknownTopicRetries(-1))
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var consuming sync.WaitGroup
	consuming.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				operation := ""
				for _, h := range r.Headers {
					if h.Key == "streamer-op" {
						operation = string(h.Value)
					}
				}
				l.take(operation, r.Value)
			})
		}
	})
	l.t.Cleanup(func() { cancel(); consuming.Wait(); client.Close() })
	return fmt.Sprintf("type: kafka\n    losses: losses\n    kafka: {brokers: ['%s'], create_topics: true, transactional: true}\n", k.ListenAddrs()[0])
}

// landInJetStream starts a NATS server; what arrives is what its stream has.
func landInJetStream(l *landing, _ string) string {
	n, err := devbroker.StartNATS(l.t.TempDir(), 0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(n.Stop)
	stream, conn, err := n.Stream(l.t.Context(), "changes", "changes.>")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(conn.Close)
	consumer, err := stream.OrderedConsumer(l.t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		l.t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		l.t.Fatal(err)
	}
	var consuming sync.WaitGroup
	consuming.Go(func() {
		for {
			m, err := messages.Next()
			if err != nil {
				if !errors.Is(err, jetstream.ErrMsgIteratorClosed) {
					l.t.Error(err)
				}
				return
			}
			l.take(m.Headers().Get("Streamer-Op"), m.Data())
		}
	})
	l.t.Cleanup(func() { messages.Stop(); consuming.Wait() })
	return "type: nats\n    losses: changes.losses\n    nats: {url: '" + n.URL() + "', subject: 'changes.{partition}.{db}.{coll}', fence: true}\n"
}

// sinkKills kills the node with the most partitions again and again, whether those are served or
// not.
func sinkKills(t *testing.T, kills int) {
	for name, land := range targets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "etcd", 3)
			l := &landing{t: t, check: workload.NewCheck(&f.ledger)}
			f.config = filepath.Join(t.TempDir(), "streamer.yaml")
			settings := "sinks:\n  - name: out\n    start: earliest\n    subscriptions: [{namespace: '" + f.lab.database + ".*'}]\n    " + land(l, f.lab.database)
			if err := os.WriteFile(f.config, []byte(settings), 0o600); err != nil {
				t.Fatal(err)
			}
			f.begin()
			stop := f.write(300)
			killing := time.NewTicker(2 * time.Second)
			defer killing.Stop()
			died := map[string]int{}
			for range kills {
				<-killing.C
				victim := f.greatest()
				died[victim.name]++
				victim.signal(os.Kill)
				victim.wait()
				victim.launch()
			}
			f.settled(nil, patience)
			stop()
			until(t, "everything arrives at the target", func() bool { return l.check.Missing() == 0 })
			f.judge()
			r := l.check.Report()
			t.Logf("killed: %v; at the target: %+v", died, r)
			if r.Missing != 0 || r.OutOfOrder != 0 || r.Duplicates != 0 || r.Written == 0 {
				t.Errorf("at the target: %+v", r)
			}
		})
	}
}

// greatest returns the node that owns the most partitions.
func (f *fleet) greatest() (best *ship) {
	f.t.Helper()
	view, most := f.view(), 0
	for _, s := range f.ships {
		if n := len(epochs(view, s.name)); best == nil || n > most {
			best, most = s, n
		}
	}
	return best
}
