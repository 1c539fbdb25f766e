package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	natsio "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.mongodb.org/mongo-driver/v2/bson"

	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/sink"
)

// A destinations is a target of which one destination is missing.
type destinations struct {
	settings string
	want     []string              // in what operators are told
	arrived  func(coll string) int // counts messages
	mend     func(coll string)

	streams map[string]jetstream.Stream // of JetStream
	conn    *natsio.Conn
}

// Only what goes to a destination that is refused waits; others get their changes, and nothing is
// acknowledged to the oplog before what waits. It comes, in order, when the destination is there:
// by itself, when the sink is resumed, or when another node begins. It is no dead letter: nobody
// has judged it.
func TestOnlyWhatGoesToARefusedDestinationWaits(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T) destinations{"kafka": kafkaWithoutATopic, "nats": natsWithoutASubject, "full": natsWithAFullStream} {
		for _, comes := range []string{"by itself", "when resumed", "at another node"} {
			t.Run(name+", "+comes, func(t *testing.T) {
				t.Parallel()
				to := begin(t)
				r := sinkRig(t, to.settings)
				n := r.beginWith(nil)
				missing := func(from, to int) {
					for id := from; id < to; id++ {
						if _, err := r.coll("missing").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 1}}); err != nil {
							t.Fatal(err)
						}
					}
				}
				missing(0, 20)
				r.writes(0, 10)
				n.until("the others arrive", func() bool { return to.arrived("orders") >= 30 })
				status := func() sink.Status { return n.service.Sinks()[0].Status() }
				n.until("the sink tells what waits", func() bool { return status().State == sink.Waiting })
				missing(20, 40)
				r.writes(10, 20)
				n.until("the others arrive after that", func() bool { return to.arrived("orders") >= 60 })
				for _, want := range to.want {
					if text := status().Error; !strings.Contains(text, want) {
						t.Errorf("operators are told %q, without %q", text, want)
					}
				}
				to.mend("missing")
				switch comes {
				case "when resumed":
					n.post("resume")
				case "at another node":
					n.stopped()
					n = r.beginWith(nil)
				}
				n.until("what has waited arrives", func() bool { return to.arrived("missing") >= 40 })
				n.until("the sink publishes", func() bool { return status().State == sink.Publishing && status().UnderWay == 0 })
				if got := to.arrived("missing"); got != 40 {
					t.Errorf("%d of 40 have arrived", got)
				}
				if letters := status().DeadLetters; letters != 0 {
					t.Errorf("%d are dead letters", letters)
				}
				if got := to.arrived("orders"); comes != "at another node" && got != 60 {
					t.Errorf("%d changes of the other collection have arrived, 60 were made", got)
				}
			})
		}
	}
}

// However many destinations are refused, others get their changes, and each of the refused ones
// comes by itself when it is there.
func TestManyRefusedDestinationsHoldUpNobody(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T) destinations{"kafka": kafkaWithoutATopic, "nats": natsWithoutASubject} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := begin(t)
			r := sinkRig(t, to.settings)
			n := r.beginWith(nil)
			status := func() sink.Status { return n.service.Sinks()[0].Status() }
			var all []string
			for i := range 10 {
				coll := fmt.Sprintf("missing%d", i)
				all = append(all, coll)
				for id := range 2 {
					if _, err := r.coll(coll).InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 1}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			r.writes(0, 10)
			n.until("the others arrive", func() bool { return to.arrived("orders") >= 30 })
			n.until("the sink tells all that waits", func() bool {
				text := status().Error
				return !slices.ContainsFunc(all, func(coll string) bool { return !strings.Contains(text, coll) })
			})
			r.writes(10, 20)
			n.until("the others arrive after that", func() bool { return to.arrived("orders") >= 60 })
			for _, coll := range all {
				to.mend(coll)
			}
			for _, coll := range all {
				n.until("what has waited for "+coll+" arrives", func() bool { return to.arrived(coll) >= 2 })
			}
			n.until("the sink publishes", func() bool { return status().State == sink.Publishing && status().UnderWay == 0 })
		})
	}
}

// kafkaWithoutATopic begins Kafka without a topic of one collection.
func kafkaWithoutATopic(t *testing.T) destinations {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	topic := func(name string) {
		if err := k.CreateTopic(name, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	topic("shop.orders")
	topic("letters")
	return destinations{
		settings: "    type: kafka\n    dead_letter: letters\n    kafka: {brokers: ['" + k.ListenAddrs()[0] + "']}\n",
		want:     []string{"topic shop.missing", "create it, or set kafka.create_topics"},
		arrived: func(coll string) (n int) {
			for p := range int32(2) {
				if info := k.PartitionInfo("shop."+coll, p); info != nil {
					n += int(info.HighWatermark)
				}
			}
			return n
		},
		mend: func(coll string) { topic("shop." + coll) },
	}
}

// natsWithoutASubject begins JetStream without a stream for one collection.
func natsWithoutASubject(t *testing.T) destinations {
	t.Helper()
	n, err := devbroker.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	streams := make(map[string]jetstream.Stream)
	var conn *natsio.Conn
	stream := func(coll string) {
		s, by, err := n.Stream(t.Context(), coll, "changes."+coll)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(by.Close)
		streams[coll] = s
		conn = by
	}
	stream("orders")
	stream("letters")
	return destinations{
		settings: "    type: nats\n    losses: changes.losses\n    dead_letter: changes.letters\n    nats: {url: '" + n.URL() + "', subject: 'changes.{coll}'}\n",
		want:     []string{"no stream has subject changes.missing: create one"},
		arrived: func(coll string) int {
			if streams[coll] == nil {
				return 0
			}
			info, err := streams[coll].Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return int(info.State.Msgs)
		},
		mend: stream,

		streams: streams, conn: conn,
	}
}

// natsWithAFullStream begins JetStream with a stream of one collection that is full.
func natsWithAFullStream(t *testing.T) destinations {
	t.Helper()
	to := natsWithoutASubject(t)
	to.mend("missing")
	full := to.streams["missing"].CachedInfo().Config
	full.MaxBytes = 1
	full.Discard = jetstream.DiscardNew
	js, err := jetstream.New(to.conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	to.want = []string{"what goes to subject changes.missing waits", "stream missing stores nothing", "maximum bytes exceeded"}
	return to
}
