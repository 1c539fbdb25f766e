package breaker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/internal/breaker"
	"github.com/mongostream/streamer/notice"
)

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := notice.NewBoard(notice.Config{})
		fails, ours := errors.New("away"), errors.New("not the server's fault")
		b := breaker.NewPanel(breaker.Config{Board: board}).Breaker("etcd", func(err error) bool { return !errors.Is(err, ours) })
		calls := 0
		do := func(err error) error {
			return b.Do(func() error {
				calls++
				return err
			})
		}
		for range 10 {
			if err := do(ours); !errors.Is(err, ours) {
				t.Fatal(err)
			}
		}
		for range 5 {
			if err := do(fails); !errors.Is(err, fails) {
				t.Fatal(err)
			}
		}
		if err := do(nil); !errors.Is(err, breaker.ErrOpen) || calls != 15 {
			t.Errorf("%v after %d calls", err, calls)
		}
		time.Sleep(31 * time.Second)
		if err := do(fails); !errors.Is(err, fails) {
			t.Errorf("no probe: %v", err)
		}
		if err := do(nil); !errors.Is(err, breaker.ErrOpen) {
			t.Errorf("after a failed probe: %v", err)
		}
		time.Sleep(31 * time.Second)
		if err := do(nil); err != nil {
			t.Errorf("after a good probe: %v", err)
		}
		var kinds []string
		notices, _ := board.Since(0)
		for _, n := range notices {
			if err := notice.Check(n); err != nil {
				t.Error(err)
			}
			kinds = append(kinds, n.Kind)
		}
		if len(kinds) != 2 || kinds[0] != "breaker_opened" || kinds[1] != "breaker_closed" {
			t.Errorf("notices %v", kinds)
		}
		opened, closed := notices[0].Fields, notices[1].Fields
		if opened["reason"] != "away" || opened["failure_count"] != int64(5) || closed["was_open_seconds"] != 62.0 {
			t.Errorf("%v, %v", opened, closed)
		}
	})
}

func TestBreakerIsAsConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		b := breaker.NewPanel(breaker.Config{Threshold: 2, Timeout: time.Second}).Breaker("etcd", func(error) bool { return true })
		for range 2 {
			if err := b.Do(func() error { return away }); !errors.Is(err, away) {
				t.Fatal(err)
			}
		}
		if err := b.Do(func() error { return nil }); !errors.Is(err, breaker.ErrOpen) {
			t.Errorf("after two failures: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := b.Do(func() error { return nil }); err != nil {
			t.Errorf("after its pause: %v", err)
		}
	})
}
