package delivery_test

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/mongostream/streamer/delivery"
)

// Readers of one page share its documents, which count once against the budget until the last of
// them has acknowledged them.
func TestReadersShareAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, docs := ordersOf(true, 100, 100)
		b := begin(t, source, delivery.Config{Snapshots: docs, QueueBytes: 64 << 20})
		defer b.end()
		var sessions []*delivery.Session
		for range 10 {
			sessions = append(sessions, b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, orders(t)))
		}
		time.Sleep(10 * time.Second)
		payloads := make(map[*byte]bool)
		size := 0
		for _, s := range sessions {
			batches, _, err := s.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, batch := range batches {
				for i := range batch.Events {
					if !batch.Events[i].Snapshot {
						continue
					}
					if first := unsafe.SliceData(batch.Payload(i)); !payloads[first] {
						payloads[first] = true
						size += len(batch.Payload(i))
					}
				}
				if _, err := s.Ack(batch.Seq); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(payloads) > 200 {
			t.Errorf("%d payloads of 100 documents for 10 readers", len(payloads))
		}
		for _, s := range sessions {
			s.Close(nil)
		}
		synctest.Wait()
		if held := b.hub.Load().Held; held != 0 {
			t.Errorf("%d bytes are held by nobody", held)
		}
	})
}
