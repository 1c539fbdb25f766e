package line_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/connect/line"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMessagesOfOneSendingStayTogether(t *testing.T) {
	var got []int
	w := line.NewWriter(func(n int) error {
		got = append(got, n)
		return nil
	})
	done := make(chan struct{})
	var running, sending sync.WaitGroup
	running.Go(func() { w.Run(done) })
	for i := range 50 {
		sending.Go(func() {
			if err := w.Send(t.Context(), 3*i, 3*i+1, 3*i+2); err != nil {
				t.Error(err)
			}
		})
	}
	sending.Wait()
	close(done)
	running.Wait()
	for i := 0; i < len(got); i += 3 {
		if got[i]%3 != 0 || got[i+1] != got[i]+1 || got[i+2] != got[i]+2 {
			t.Fatalf("mixed: %v", got)
		}
	}
	slices.Sort(got)
	if len(got) != 150 || len(slices.Compact(got)) != 150 {
		t.Errorf("%d messages", len(got))
	}
}

func TestSendingCanBeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, done := make(chan struct{}), make(chan struct{})
		w := line.NewWriter(func(int) error {
			<-release
			return nil
		})
		go w.Run(done)
		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 3)
		for range 3 { // one is being sent, the others wait for their turn
			go func() { ended <- w.Send(ctx, 1, 2) }()
		}
		synctest.Wait()
		cancel(over)
		for range 3 {
			if err := <-ended; !errors.Is(err, over) {
				t.Error(err)
			}
		}
		close(done)
		close(release)
	})
}

func TestFailureOfTheTransportIsReturned(t *testing.T) {
	broken := errors.New("broken")
	w := line.NewWriter(func(int) error { return broken })
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { w.Run(done) })
	if err := w.Send(t.Context(), 1, 2); !errors.Is(err, broken) {
		t.Error(err)
	}
	close(done)
	running.Wait()
}

func TestSilence(t *testing.T) {
	const timeout = 30 * time.Second
	for _, tt := range []struct {
		name string
		do   func(h *line.Hearing)
		want time.Duration // after which the silence is too long
	}{
		{"nothing", func(*line.Hearing) {}, timeout},
		{"something after ten seconds", func(h *line.Hearing) {
			time.Sleep(10 * time.Second)
			h.Heard()
		}, 10*time.Second + timeout},
		{"something all the time", func(h *line.Hearing) {
			for range 100 {
				time.Sleep(29 * time.Second)
				h.Heard()
			}
		}, 2900*time.Second + timeout},
		{"nobody listened for a while", func(h *line.Hearing) {
			h.Deafen(true)
			time.Sleep(100 * time.Second)
			h.Heard() // which was read ahead
			time.Sleep(100 * time.Second)
			h.Deafen(false)
		}, 200*time.Second + timeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			var h line.Hearing
			start := time.Now()
			ended := make(chan error, 1)
			go func() { ended <- h.Run(t.Context(), timeout) }()
			synctest.Wait()
			tt.do(&h)
			if err := <-ended; fault.Of(err) != fault.SessionSilent {
				t.Error(err)
			}
			if took := time.Since(start); took < tt.want || took > tt.want+timeout {
				t.Errorf("%s: ended after %s, want %s", tt.name, took, tt.want)
			}
		})
	}
}

func TestHearingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(over) })
		var h line.Hearing
		if err := h.Run(ctx, time.Minute); !errors.Is(err, over) {
			t.Error(err)
		}
	})
}
