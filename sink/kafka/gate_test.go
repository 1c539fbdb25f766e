package kafka_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/kafka"
)

// A record that waits in the client for another attempt is not sent any more when its term has
// ended, with transactions or without, and what is published next does not wait for it.
func TestRecordsOfEndedTermsAreWithdrawn(t *testing.T) {
	t.Parallel()
	for _, transactional := range []bool{false, true} {
		k, err := devbroker.StartKafka(1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		var valid atomic.Bool
		late := make(chan error, 100)
		valid.Store(true)
		k.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			if !valid.Swap(false) {
				select {
				case late <- errors.New("it was sent after its term"):
				default:
				}
			}
			return nil, errors.New("the connection breaks"), true
		})
		target, err := kafka.New(kafka.Config{Brokers: k.ListenAddrs(), Topic: "{db}.{coll}", Losses: "losses", ID: t.Name(), Create: true, Transactional: transactional})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(target.Close)
		m := message("withdrawn", 1, 1)
		sink.Own(m, valid.Load)
		outcome := make(chan error, 1)
		sink.Report(m, func(err error) { outcome <- err })
		target.Publish(t.Context(), m)
		select {
		case err = <-outcome:
		case sent := <-late:
			t.Fatalf("transactional %t: %v", transactional, sent)
		}
		if err == nil || valid.Load() {
			t.Errorf("transactional %t: %v, attempted %t", transactional, err, !valid.Load())
		}
	}
}
