package sink

import (
	"context"
	"errors"
	"testing"
)

// letters ends the context that a dead letter is written in.
type letters struct {
	Target

	written func()
}

func (l letters) Publish(context.Context, *Message) { l.written() }
func (l letters) Flush()                            {}

// A message that the target refuses is a dead letter after the configured attempts, and not before.
func TestRefusedMessageHasTheConfiguredAttempts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := &Sink{cfg: Config{Attempts: 3, DeadLetter: letters{written: cancel}}}
	m := &Message{err: &RefusedError{Err: errors.New("no")}}
	for attempt := range 3 {
		_, _ = s.judge(ctx, m)
		if dead := ctx.Err() != nil; dead != (attempt == 2) {
			t.Errorf("attempt %d: a dead letter: %t", attempt+1, dead)
		}
	}
}
