package sink

import (
	"context"
	"errors"
	"testing"

	"github.com/mongostream/streamer/change"
)

// What is published after a message has failed, by who has not noticed, is not sent: it would come
// before the repetition of the one that failed. What is published after the next Flush is.
func TestNothingFollowsAFailureThatIsNotKnown(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var sent []string
	var s Serial
	s.Batch, s.Parallel = 1, 1
	outcomes := make(chan error, 3)
	message := func(id string) *Message {
		m := &Message{ID: id}
		Report(m, func(err error) { outcomes <- err })
		return m
	}
	second := message("2")
	s.Send = func(_ context.Context, messages []*Message) (int, error) {
		sent = append(sent, messages[0].ID)
		if len(sent) > 1 {
			return 1, nil
		}
		return 0, broken
	}
	first := &Message{ID: "1"}
	Report(first, func(err error) {
		s.Publish(t.Context(), second) // between the failure and the end of the queue
		outcomes <- err
	})
	s.Publish(t.Context(), first)
	for _, want := range []error{broken, ErrEarlier} {
		if err := <-outcomes; !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	s.Publish(t.Context(), message("3"))
	if err := <-outcomes; !errors.Is(err, ErrEarlier) {
		t.Errorf("after the failure: %v", err)
	}
	s.Flush()
	s.Publish(t.Context(), message("1 again"))
	if err := <-outcomes; err != nil {
		t.Error(err)
	}
	s.Close()
	if len(sent) != 2 || sent[1] != "1 again" {
		t.Errorf("sent %q", sent)
	}
}

// What follows the first message whose term has ended does not count, whatever partitions alternate
// before it.
func TestOwnedEndsBeforeTheFirstEndedTerm(t *testing.T) {
	t.Parallel()
	var messages []*Message
	valid := true
	for i := range 200 { // 65 partitions, two of which share a place
		m := &Message{Partition: change.Partition(i % 65), Epoch: change.Epoch{Revision: uint64(i / 130)}}
		if i == 131 {
			Own(m, func() bool { return valid })
		}
		messages = append(messages, m)
	}
	if n := len(Owned(messages)); n != len(messages) {
		t.Errorf("%d of %d, with valid terms", n, len(messages))
	}
	valid = false
	if n := len(Owned(messages)); n != 131 {
		t.Errorf("%d of %d, of which the term of the 132nd has ended", n, len(messages))
	}
}

// A failure after everything was sent fails what comes next.
func TestFailureAfterABatchFailsTheNextMessage(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var s Serial
	s.Batch, s.Parallel = 1, 1
	outcomes := make(chan error, 2)
	s.Send = func(_ context.Context, messages []*Message) (int, error) {
		if messages[0].ID == "1" {
			s.Publish(t.Context(), &Message{ID: "2", report: func(_ *Message, err error) { outcomes <- err }})
		}
		return 1, broken
	}
	s.Publish(t.Context(), &Message{ID: "1", report: func(_ *Message, err error) { outcomes <- err }})
	if first, second := <-outcomes, <-outcomes; first != nil || !errors.Is(second, broken) {
		t.Errorf("%v and %v", first, second)
	}
	s.Close()
}
