package delivery_test

import (
	"context"
	"errors"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
)

// lane notes what is acknowledged to it.
type lane struct {
	acked []change.Position
	over  bool
}

func (l *lane) Over() bool { return l.over }

func (l *lane) Acked(_ *delivery.Session, b *delivery.Batch) { l.acked = append(l.acked, b.To) }

func batch(t *testing.T, n int) *delivery.Batch {
	t.Helper()
	b := &delivery.Batch{To: change.At(change.Timestamp{T: uint32(n)})}
	for range n {
		e, err := change.Parse(changetest.Event{ID: 1, Pad: 100}.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		b.Events = append(b.Events, e)
	}
	return b
}

func TestCreditIsSpentByOffersAndComesBackWithAcknowledgements(t *testing.T) {
	for name, cfg := range map[string]delivery.Config{"events": {CreditEvents: 5}, "bytes": {CreditBytes: 1200}} {
		s, l := delivery.NewSession(cfg), &lane{}
		if s.Ready() != nil {
			t.Errorf("%s: a new session has no credit", name)
		}
		s.Offer(batch(t, 3), l)
		s.Offer(batch(t, 3), l)
		wait := s.Ready()
		if wait == nil || s.Outstanding() != 6 {
			t.Fatalf("%s: credit for ever, %d outstanding", name, s.Outstanding())
		}
		got, err := s.Receive(t.Context())
		if err != nil || len(got) != 2 {
			t.Fatalf("%s: %d batches, %v", name, len(got), err)
		}
		if s.Ready() == nil {
			t.Errorf("%s: receiving gave credit back", name)
		}
		s.Ack(got[0])
		<-wait
		if s.Ready() != nil || len(l.acked) != 1 {
			t.Errorf("%s: no credit after an acknowledgement, lane told %v", name, l.acked)
		}
	}
}

func TestLanesThatWaitForCreditAreNotWokenForALittle(t *testing.T) {
	s, l := delivery.NewSession(delivery.Config{CreditEvents: 32}), &lane{}
	for range 32 {
		s.Offer(batch(t, 1), l)
	}
	wait := s.Ready()
	got, err := s.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range got[:4] {
		select {
		case <-wait:
			t.Fatalf("woken after %d of 32", i)
		default:
		}
		s.Ack(b)
	}
	<-wait
	if s.Ready() != nil {
		t.Error("an eighth of the credit is none")
	}
}

func TestClosedSessionHoldsNobodyUp(t *testing.T) {
	s, l := delivery.NewSession(delivery.Config{CreditEvents: 1}), &lane{}
	s.Offer(batch(t, 1), l)
	wait := s.Ready()
	received := make(chan error, 1)
	s.Close()
	<-wait
	s.Close()
	s.Offer(batch(t, 1), l)
	go func() {
		_, err := s.Receive(context.Background())
		received <- err
	}()
	if err := <-received; !errors.Is(err, delivery.ErrClosed) || s.Ready() != nil || !s.Closed() {
		t.Errorf("%v", err)
	}
}

func TestReceiveEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := delivery.NewSession(delivery.Config{}).Receive(ctx); !errors.Is(err, cause) {
		t.Error(err)
	}
}

func TestBatchOfATermThatIsOverGivesItsCreditBack(t *testing.T) {
	s, l := delivery.NewSession(delivery.Config{CreditEvents: 2}), &lane{}
	s.Offer(batch(t, 2), l)
	got, err := s.Receive(t.Context())
	if err != nil || got[0].Over() {
		t.Fatalf("over while its term lasts: %v", err)
	}
	l.over = true
	if !got[0].Over() {
		t.Error("not over with its term")
	}
	s.Drop(got[0])
	if s.Ready() != nil || len(l.acked) > 0 {
		t.Errorf("credit is still spent, or %v acknowledged", l.acked)
	}
}
