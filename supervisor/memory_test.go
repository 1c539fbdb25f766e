package supervisor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/supervisor"
	"github.com/mongostream/streamer/supervisor/supervisortest"
)

func TestMemoryIsAStore(t *testing.T) {
	m := supervisor.NewMemory(10 * time.Minute)
	supervisortest.Store(t, m, m)
}

func TestRestartsAndPausesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := supervisor.NewMemory(10 * time.Minute)
		if _, err := m.Begin(t.Context(), "n", "p"); err != nil {
			t.Fatal(err)
		}
		if err := m.Commit(t.Context(), supervisor.Commit{Report: supervisor.Report{Process: "p", Sweep: 1}, Charges: []string{"s"}}); err != nil {
			t.Fatal(err)
		}
		if err := m.Pause(t.Context(), supervisor.Pause{Slug: "s"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			after        time.Duration
			used, paused int
		}{{0, 1, 1}, {time.Minute, 1, 0}, {8 * time.Minute, 1, 0}, {time.Minute, 0, 0}} {
			time.Sleep(want.after)
			standing, err := m.Look(t.Context())
			if err != nil || standing.Used["s"] != want.used || len(standing.Paused) != want.paused {
				t.Errorf("%v, %+v, want %+v", err, standing, want)
			}
		}
	})
}
