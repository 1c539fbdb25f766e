package handoff_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/handoff/ledger"
)

// A shelf is a ledger whose one record can be seen in the list, and is gone when it is looked at.
type shelf struct {
	ledger.Keeper

	mu     sync.Mutex
	record ledger.Record
	hints  chan struct{}
}

func (s *shelf) put(r ledger.Record) {
	s.mu.Lock()
	s.record = r
	s.mu.Unlock()
	s.hints <- struct{}{}
}

func (s *shelf) List(context.Context) ([]ledger.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []ledger.Record{s.record}, nil
}

func (s *shelf) Look(context.Context, change.Partition) (ledger.Sight, error) {
	return ledger.Sight{}, nil
}

func (s *shelf) Hints(context.Context) <-chan struct{} { return s.hints }

// A dropper is a recipient that never gets to serve.
type dropper struct{ handoff.Recipient }

func (dropper) Warm(context.Context, change.Partition, checkpoint.Mark) error { return nil }
func (dropper) Drop(change.Partition, change.Epoch)                           {}

// noMarks are those of a new cluster.
type noMarks struct{ handoff.Marks }

func (noMarks) Load(context.Context, change.Partition) (checkpoint.Mark, error) {
	return checkpoint.Mark{}, checkpoint.ErrNoMark
}

// A record is taken for a new one whatever its revision: that of a store that was restored is lower than what was done before.
func TestRecordsOfARestoredStoreAreHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{record: theRecord(ledger.Prepared, 50), hints: make(chan struct{})}
		var handled []int64
		start := time.Now()
		desk := handoff.NewDesk(handoff.Config{
			Self: theRecipient(), Trusted: func() bool { return true }, Clock: func() time.Duration { return time.Since(start) },
			Ended: func(r handoff.Report) { handled = append(handled, r.Record.Revision) },
		}, s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- desk.RunRecipient(ctx, nil, dropper{}, noMarks{}) }()
		time.Sleep(time.Minute)
		s.put(theRecord(ledger.Prepared, 10))
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(handled) != 2 || handled[0] != 50 || handled[1] != 10 {
			t.Errorf("handled %v", handled)
		}
	})
}
